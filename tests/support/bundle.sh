#!/bin/sh
# Make one archive that runs where nothing is installed and nobody is root: what `make install` installs of
# the programs in $BUILD/bundle, and the libraries that these take, but for those of glibc. Each library's
# copyright is in share/doc/. $XZ_OPT says how hard to compress.
#   BUILD=build VERSION=1.2 sh tests/support/bundle.sh [ARCHIVE]
set -eu
BUILD=${BUILD:-build}
name=sandwich-testbed-$VERSION-$(uname -m)
out=${1:-$BUILD/$name.tar.xz}
work=$(mktemp -d "$BUILD/bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
top=$work/$name
mkdir -p "$top"
EXTRAS=no BUILD=$BUILD/bundle PREFIX=$(realpath "$top") sh tests/support/install.sh
rm -r "$top/bin"
for program in sandwich testbed; do
    ln -s "lib/sandwich/$program" "$top/$program"
done
# Of MPI only the shared objects that load the system's library, under its mpirun.
[ ! -d "$BUILD/mpi" ] || cp -r "$BUILD/mpi" "$top/lib/sandwich/"

# glibc's belong to the kernel's loader and to the system's files about users and names.
glibc='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libmvec)\.so'
mkdir "$top/lib/sandwich/lib"
ldd "$BUILD/bundle/sandwich" "$BUILD/bundle/testbed" | awk '$2 == "=>" { print $1, $3 }' | sort -u |
    grep -vE "$glibc" | while read -r library path; do
    case $path in /*) ;; *) echo "$library is not found" >&2; exit 1 ;; esac
    install -m 644 "$path" "$top/lib/sandwich/lib/$library"
    for owned in "$path" "/usr$path"; do # whose /lib is /usr/lib
        package=$(dpkg -S "$owned" 2>/dev/null | sed 's/[:,].*//; q')
        [ -z "$package" ] || install -D -m 644 "/usr/share/doc/$package/copyright" \
            "$top/share/doc/$package/copyright"
    done
done
install -m 644 docs/on-a-cluster.md "$top/README.md"
install -m 644 LICENSE "$top/LICENSE"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$out" "$name"
echo "$out: $(du -k "$out" | cut -f 1) kB; unpacked $(du -sm "$top" | cut -f 1) MB; needs glibc $(
    cat "$top"/lib/sandwich/testbed "$top"/lib/sandwich/lib/* | grep -ao 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | cut -d _ -f 2)"
