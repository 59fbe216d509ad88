#!/bin/sh
# The archive of `make bundle` in bare systems, of debootstrap: nothing else is installed there, there is no
# network, and the user is not root. Their root file systems are made once, in $BUILD/roots (0.3 GB each).
# Needs root and debootstrap; and, when they are made, a mirror ($DEBIAN_MIRROR, $UBUNTU_MIRROR) and its keys
# (for Ubuntu those of its package ubuntu-keyring, in $UBUNTU_KEYRING). $WHOLE=1 runs quickstart and
# characterize whole, not their smoke sections; $SYSTEMS names those to try.
#   BUILD=build sh tests/cli/test_bundle_bare.sh
set -u
. tests/support/tap.sh
case $build in /*) ;; *) build=$(pwd)/$build dir=$(pwd)/$dir ;; esac
user=1000
smoke=--smoke records=results/quickstart/smoke
[ -z "${WHOLE-}" ] || smoke='' records=results/quickstart
systems=${SYSTEMS:-debian-12 debian-13 ubuntu-24.04}
because=
[ -z "${SAN-}" ] || because="programs with sanitizers are not bundled"
command -v debootstrap >/dev/null || because="debootstrap is not installed"
[ "$(id -u)" = 0 ] && unshare -m -n true 2>"$dir/err" || because="only root can change the root folder"
if [ -n "$because" ]; then
    for system in $systems; do
        skip "in a bare $system" "$because"
    done
    finish
fi

# A root file system, or the reason why not in $dir/err.
make_root() { # system
    case $1 in
    debian-12) set -- "$1" bookworm sid ;;
    debian-13) set -- "$1" trixie sid ;;
    *) set -- "$1" noble gutsy ;;
    esac
    mirror=${DEBIAN_MIRROR-} keys=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ "$3" = gutsy ]; then # of Ubuntu
        mirror=${UBUNTU_MIRROR-}
        keys=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
    fi
    root=$build/roots/$1
    [ ! -d "$root" ] || return 0
    mkdir -p "$build/roots"
    [ -n "$mirror" ] || { echo "no mirror is given" >"$dir/err"; return 1; }
    [ -e "$keys" ] || { echo "$keys is not installed" >"$dir/err"; return 1; }
    rm -rf "$root.part"
    debootstrap --variant=minbase --keyring="$keys" "$2" "$root.part" "$mirror" \
        "/usr/share/debootstrap/scripts/$3" >"$dir/err" 2>&1 && mv "$root.part" "$root"
}
# As a user who is not root, without a network, in the folder of the bundle.
inside() { # command
    # shellcheck disable=SC2016
    unshare -m -n sh -c '
        mount --bind /proc "$0/proc" && mount --bind /sys "$0/sys" && mount --bind /dev "$0/dev" || exit 9
        exec chroot --userspec="$1:$1" "$0" env -i sh -c "cd /tmp/bundle/* && $2"' "$root" $user "$1"
}
timed() { # command
    begin=$(date +%s)
    inside "$1" || return 1
    echo "# $system: $1: $(($(date +%s) - begin)) s" >>"$dir/times"
}

archive=$dir/bundle.tar.xz
make_it() { BUILD=$build VERSION=test sh tests/support/bundle.sh "$archive"; }
check "it is made" make_it
: >"$dir/times"
grep . "$dir/log" | sed 's/^/# /'
for system in $systems; do
    if ! make_root $system; then
        skip "in a bare $system" "no root file system: $(tail -n 1 "$dir/err")"
        continue
    fi
    rm -rf "$root/tmp/bundle"
    mkdir "$root/tmp/bundle"
    tar -C "$root/tmp/bundle" -xJf "$archive"
    chown -R $user:$user "$root/tmp/bundle"
    check "$system has no compiler, Python or library of ours" inside \
        '! command -v cc && ! command -v python3 && ! ls /lib/*/libhdf5* /lib/*/libhwloc* 2>&-'
    for name in quickstart characterize; do
        check "$name in a bare $system" timed "./testbed run $name --quiet $smoke"
    done
    check "its record is read there" inside "./testbed verify $records/*.h5"
    rm -rf "$root/tmp/bundle"
done
cat "$dir/times"
finish
