#!/bin/sh
# Run every test program and script (MODULE=name: only tests/name), each printing TAP, and close
# with one line of counts. A program that dies before its plan is done counts as one failure.
set -u
unset MAKEFLAGS MAKELEVEL # a test that builds is no part of the make that runs it
BUILD=${BUILD:-build}
export BUILD
export CMOCKA_MESSAGE_OUTPUT=TAP
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1"
export ASAN_OPTIONS=detect_leaks=1
log=$BUILD/test.log
: >"$log"
one() {
    name=$1
    shift
    # Signals that a job in the background ignores are what some tests send.
    out=$(env --default-signal=HUP,INT,QUIT "$@" 2>&1 </dev/null)
    rc=$?
    printf '== %s\n%s\n' "$name" "$out" >>"$log"
    printf '%s\n' "$out" | awk -v name="$name" -v rc="$rc" -v counts="$BUILD/test.counts" '
        /^(not )?ok .*# SKIP/ { s++; sub(/^not /, ""); print "  skip " name ": " $0; if (why != "") print "       " why; why = ""; next }
        /^# skip: / { why = $0; next }
        /^ok /      { p++; next }
        /^not ok /  { f++; print "  FAIL " name ": " $0; next }
        { tail[NR % 12] = $0 }
        END {
            if (rc != 0 && f == 0) { f = 1; print "  FAIL " name ": exit status " rc }
            if (rc == 0 && p + s + f == 0) { f = 1; print "  FAIL " name ": ran no test" }
            if (f) for (i = NR + 1; i <= NR + 12; i++) if (tail[i % 12] != "") print "       " tail[i % 12]
            printf "%d %d %d\n", p, f, s >> counts
        }'
}
: >"$BUILD/test.counts"
for t in $(find tests/${MODULE:-} -name 'test_*.c' | sort); do
    b=$BUILD/tests/${t#tests/}
    b=${b%.c}
    one "${t#tests/}" "$b"
done
for t in $(find tests/${MODULE:-} -name 'test_*.sh' | sort); do
    one "${t#tests/}" sh "$t"
done
# What to fetch for the tests that were skipped for want of it.
sed -n 's/^# skip: \(.*\) is not in \$SANDWICH_DATA$/  \1/p' "$log" | sort -u >"$BUILD/test.data"
if [ -s "$BUILD/test.data" ]; then
    echo "Tests were skipped for want of these data, of which datasets/data.md says where to get them:"
    cat "$BUILD/test.data"
fi
awk '{p += $1; f += $2; s += $3} END {
    printf "%d passed, %d failed, %d skipped\n", p, f, s; exit (f > 0 || p == 0) }' "$BUILD/test.counts"
