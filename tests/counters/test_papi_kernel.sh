#!/bin/sh
# PAPI's way to the kernel, on any machine: under valgrind the processor is one that PAPI knows, and its
# calls of the kernel are real, so that page faults are counted where there is no PMU.
set -u
. tests/support/tap.sh
program=$build/tests/counters/test_papi
name="PAPI counts the page faults of 4,096 new pages"
counted() {
    TEST_ONLY=kernel_counts_page_faults valgrind --quiet --tool=none "$program" >"$dir/out" 2>&1
    rc=$?
    cat "$dir/out"
    [ $rc = 0 ] && grep '^# counted' "$dir/out"
}
if [ -n "${SAN-}" ]; then
    skip "$name" "valgrind does not run a program built with a sanitizer"
elif ! command -v valgrind >"$dir/out"; then
    skip "$name" "valgrind is not installed"
elif ! counted >"$dir/said" && grep -E '^# skip: .*(perf_event|not permitted)' "$dir/said" >"$dir/why"; then
    skip "$name" "$(sed 's/^# skip: //' "$dir/why")"
else
    check "$name" counted
fi
finish
