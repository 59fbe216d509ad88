#!/bin/sh
# Run test programs and scripts (MODULE=names: only tests/name of each), JOBS of them at a time, each printing
# TAP, and close with one line of counts. The first word says which: `test`, all but those that
# tests/schedule.txt calls long, or `test-long`, those. build/test.log keeps what they printed and
# build/test.times how long each took (build/test-long.log, .times). The schedule also names those
# that must run alone and those that are left out under SANDWICH_ISA.
#   sh tests/support/run.sh test|test-long
set -u
KIND=$1
export KIND
unset MAKEFLAGS MAKELEVEL # a test that builds is no part of the make that runs it
BUILD=${BUILD:-build}
MODULE=${MODULE:-}
JOBS=${JOBS:-$(($(nproc) + 1))} # a fifth of their time they wait: for servers, clocks, one another
export BUILD
export CMOCKA_MESSAGE_OUTPUT=TAP
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1"
export ASAN_OPTIONS=detect_leaks=1
work=$BUILD/$KIND-out
rm -rf "$work"
mkdir -p "$work"
XDG_CACHE_HOME=$(cd "$BUILD" && pwd)/cache # not the user's
export XDG_CACHE_HOME
: >"$BUILD/$KIND.counts"
# shellcheck disable=SC2046,SC2086
find $(printf 'tests/%s ' $MODULE) -name 'test_*.c' -o -name 'test_*.sh' | sed 's,//*,/,g; s,^tests/,,' | sort >"$work/there"

# A name in the schedule is a module or one of its programs.
scheduled() { # word, file of names: those that the schedule gives this word, in its order
    awk -v word="$1" 'NR == FNR { if ($1 == word) at[$2] = FNR; next }
        { module = $0; sub(/\/.*/, "", module) } $0 in at { print at[$0], $0; next }
        module in at { print at[module], $0 }' tests/schedule.txt "$2" | sort -s -n -k 1,1 | cut -d " " -f 2
}
awk '!/^#/ && NF { print $2 }' tests/schedule.txt | while read -r name; do
    [ -e "tests/$name" ] || echo "  FAIL tests/schedule.txt: there is no tests/$name"
done | tee "$work/unknown"
scheduled long "$work/there" >"$work/long"
if [ "$KIND" = test-long ]; then
    cp "$work/long" "$work/found"
else
    grep -vxF -f "$work/long" "$work/there" >"$work/found"
fi
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
done <"$work/all" >"$BUILD/$KIND.log"
sort -rn "$BUILD/$KIND.counts" | awk '{ print $1, $2, $6 }' >"$BUILD/$KIND.times"
# What to fetch for the tests that were skipped for want of it.
sed -n 's/^# skip: \(.*\) is not in \$SANDWICH_DATA$/  \1/p' "$BUILD/$KIND.log" | sort -u >"$BUILD/$KIND.data"
if [ -s "$BUILD/$KIND.data" ]; then
    echo "Tests were skipped for want of these data, of which datasets/data.md says where to get them:"
    cat "$BUILD/$KIND.data"
fi
# A module may have no long test.
awk -v all="$(wc -l <"$work/all")" -v kind="$KIND" -v unknown="$(wc -l <"$work/unknown")" '
    { p += $3; f += $4; s += $5; cpu += $2 }
    END {
        if (NR != all) print "  FAIL " all - NR " of " all " programs did not finish"
        f += all - NR + unknown
        printf "%d passed, %d failed, %d skipped\n", p, f, s; exit (f > 0 || (p == 0 && !(kind == "test-long" && all == 0))) }' "$BUILD/$KIND.counts"
