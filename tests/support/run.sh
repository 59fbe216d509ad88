#!/bin/sh
# Run every test program and script (MODULE=name: only tests/name), JOBS of them at a time, each
# printing TAP, and close with one line of counts. build/test.log keeps what they printed,
# build/test.times how long each took. tests/schedule.txt names those that must run alone and
# those that are left out under SANDWICH_ISA.
set -u
unset MAKEFLAGS MAKELEVEL # a test that builds is no part of the make that runs it
BUILD=${BUILD:-build}
MODULE=${MODULE:-}
JOBS=${JOBS:-$(nproc)}
export BUILD
export CMOCKA_MESSAGE_OUTPUT=TAP
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1"
export ASAN_OPTIONS=detect_leaks=1
work=$BUILD/test-out
rm -rf "$work"
mkdir -p "$work"
: >"$BUILD/test.counts"
find tests/$MODULE -name 'test_*.c' -o -name 'test_*.sh' | sed 's,//*,/,g; s,^tests/,,' | sort >"$work/found"

# A name in the schedule is a module or one of its programs.
scheduled() { # word, file of names: those that the schedule gives this word
    awk -v word="$1" 'NR == FNR { if ($1 == word) names[$2]; next }
        { module = $0; sub(/\/.*/, "", module) } $0 in names || module in names' tests/schedule.txt "$2"
}
awk '!/^#/ && NF { print $2 }' tests/schedule.txt | while read -r name; do
    [ -e "tests/$name" ] || echo "  FAIL tests/schedule.txt: there is no tests/$name"
done | tee "$work/unknown"
: >"$work/left_out"
if [ -n "${SANDWICH_ISA:-}" ] && [ -z "$MODULE" ]; then
    scheduled any-isa "$work/found" >"$work/left_out"
    echo "Left out, as no instruction set changes what they do: $(wc -l <"$work/left_out") programs of tests/schedule.txt"
fi
grep -vxF -f "$work/left_out" "$work/found" >"$work/all"
scheduled alone "$work/all" >"$work/alone"
grep -vxF -f "$work/alone" "$work/all" | xargs -r -P "$JOBS" -n 1 sh tests/support/run_one.sh
xargs -r -n 1 sh tests/support/run_one.sh <"$work/alone"

while read -r name; do
    echo "== $name"
    cat "$work/$(echo "$name" | tr / .)"
done <"$work/all" >"$BUILD/test.log"
sort -rn "$BUILD/test.counts" | awk '{ print $1, $2, $6 }' >"$BUILD/test.times"
# What to fetch for the tests that were skipped for want of it.
sed -n 's/^# skip: \(.*\) is not in \$SANDWICH_DATA$/  \1/p' "$BUILD/test.log" | sort -u >"$BUILD/test.data"
if [ -s "$BUILD/test.data" ]; then
    echo "Tests were skipped for want of these data, of which datasets/data.md says where to get them:"
    cat "$BUILD/test.data"
fi
awk -v all="$(wc -l <"$work/all")" -v unknown="$(wc -l <"$work/unknown")" '
    { p += $3; f += $4; s += $5; cpu += $2 }
    END {
        if (NR != all) print "  FAIL " all - NR " of " all " programs did not finish"
        f += all - NR + unknown
        printf "%d passed, %d failed, %d skipped\n", p, f, s; exit (f > 0 || p == 0) }' "$BUILD/test.counts"
