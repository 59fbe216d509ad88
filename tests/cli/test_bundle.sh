#!/bin/sh
# The archive of `make bundle`, unpacked into an empty folder: it takes nothing from the system but glibc, and
# runs without any environment. tests/cli/test_bundle_bare.sh tries it in systems that have nothing else.
set -u
. tests/support/tap.sh
if [ -n "${SAN-}" ]; then
    skip "a bundle" "programs with sanitizers are not bundled"
    finish
fi
unset SANDWICH_HOME LD_LIBRARY_PATH
case $build in /*) ;; *) build=$(pwd)/$build dir=$(pwd)/$dir ;; esac
make_it() { XZ_OPT=-0 BUILD=$build VERSION=test sh tests/support/bundle.sh "$dir/bundle.tar.xz"; }
check "it is made" make_it
check "it has at most 30 MB" [ "$(wc -c <"$dir/bundle.tar.xz")" -le 30000000 ]
mkdir "$dir/an empty folder"
check "it has one folder, which is unpacked" tar -C "$dir/an empty folder" -xJf "$dir/bundle.tar.xz"
cd "$dir/an empty folder"/* || exit 1
top=$(pwd)

# Those that a program of these libraries is loaded with: each is here, or glibc's.
loaded() { # program or library
    ldd "$1" >"$dir/ldd" || return 1
    awk -v top="$top/lib/sandwich/lib/" '
        $1 ~ /^(linux-vdso|\/lib64\/ld-linux|ld-linux)/ { next }
        $1 ~ /^lib(c|m|dl|pthread|rt|resolv)\.so\.[0-9]$/ && index($0, "=> /") { next }
        index($0, "=> " top) { n++; next }
        { print "from elsewhere: " $0; bad = 1 }
        END { exit bad || !n }' "$dir/ldd"
}
for program in testbed sandwich; do
    check "$program takes only glibc from the system" loaded "$top/$program"
    check "$program has nothing for a debugger" sh -c "! readelf -SW ./$program | grep -q debug_info"
done
check "each library is one that a program needs" sh -c '
    ldd ./testbed ./sandwich >"$1"
    for l in lib/sandwich/lib/*; do grep -q -F "${l##*/} =>" "$1" || { echo "$l"; exit 1; }; done' sh "$dir/ldd"
check "with the copyright of HDF5" grep -q -i 'hdf' share/doc/libhdf5*/copyright

# Modules of clusters put other builds of the same libraries into the environment.
mkdir "$dir/module"
for library in lib/sandwich/lib/*; do
    echo "not a library" >"$dir/module/${library##*/}"
done
check "other libraries in LD_LIBRARY_PATH do not matter" env LD_LIBRARY_PATH="$dir/module" ./testbed list

alone() { env -i "$@" >out 2>&1; got=$?; cat out; return $got; }
check "a run without an environment" alone ./testbed run quickstart --smoke --quiet
check "its record is in the working directory" ls results/quickstart/smoke/latest.json
check "its model was made there" ls build/models/tiny-bf16.gguf
mkdir "$dir/elsewhere"
cd "$dir/elsewhere" || exit 1
check "another, from elsewhere" alone "$top/testbed" run mnn_roofline --smoke --quiet
check "has its record there" ls results/mnn_roofline/smoke/latest.json
check "what needs a compiler says so" sh -c "env -i PATH=/none XDG_CACHE_HOME=\$PWD/cache '$top/testbed' run sandwich_kernel_raise \
    --smoke --quiet 2>&1 | grep -q 'no C compiler \"cc\": install one, or name it in \$CC'"
cd "$top" || exit 1
check "the set for many cores is with it" alone ./testbed artifact --set many-cores --budget 9m --dry-run
finish
