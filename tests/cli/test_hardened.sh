#!/bin/sh
# The programs are built so that an overrun of memory is caught or finds nothing to use: at
# random addresses, no table of functions that can be written, no stack that can be executed,
# guarded stack frames, checked library calls.
# Regression: the programs were built without guarded stacks, checked library calls and read-only
# relocations.
set -u
. tests/support/tap.sh
if [ -n "${SAN-}" ]; then
    skip "hardened programs" "a sanitizer's build checks more, by itself"
    finish
fi
if ! command -v readelf >/dev/null; then
    skip "hardened programs" "readelf is not installed"
    finish
fi
has() { # program, readelf's options, pattern
    readelf "$2" -W "$1" | grep -E "$3"
}
for program in "$build"/sandwich "$build"/testbed "$build"/baseline/*; do
    [ -x "$program" ] || continue
    base=$(basename "$program")
    check "$base: position-independent" has "$program" -h '^ *Type: *DYN'
    check "$base: relocations are read-only" has "$program" -l '^ *GNU_RELRO '
    check "$base: bound at its start" has "$program" -d '\(FLAGS\).*BIND_NOW|\(BIND_NOW\)'
    check "$base: no executable stack" has "$program" -l '^ *GNU_STACK.* RW  '
    check "$base: guarded stack frames" has "$program" --dyn-syms ' __stack_chk_fail'
    check "$base: checked library calls" has "$program" --dyn-syms ' __[a-z]*printf_chk'
done
finish
