#!/bin/sh
# Run one test program or script of run.sh: what it printed goes to a file, what was skipped and
# what failed to the terminal, and one line to the counts: its seconds, its seconds of processor
# time, how many of its tests passed, failed and were skipped, and its name. A program that dies
# before its plan is done counts as one failure.
set -u
name=$1
out=$BUILD/$KIND-out/$(echo "$name" | tr / .)
case $name in
*.c) set -- "$BUILD/tests/${name%.c}" ;;
*) set -- sh "tests/$name" ;;
esac
started=$(date +%s.%N)
# Signals that a job in the background ignores are what some tests send.
env --default-signal=HUP,INT,QUIT "$@" >"$out" 2>&1 </dev/null
rc=$?
ended=$(date +%s.%N)
# Of the children, as minutes and seconds: "0m1.5s 0m0.25s".
times >"$out.cpu"
cpu=$(tail -n 1 "$out.cpu")
awk -v name="$name" -v rc="$rc" -v started="$started" -v ended="$ended" -v cpu="$cpu" \
    -v counts="$BUILD/$KIND.counts" '
    /^(not )?ok .*# SKIP/ { s++; sub(/^not /, ""); print "  skip " name ": " $0; if (why != "") print "       " why; why = ""; next }
    /^# skip: / { why = $0; next }
    /^ok /      { p++; next }
    /^not ok /  { f++; print "  FAIL " name ": " $0; next }
    { tail[NR % 12] = $0 }
    END {
        if (rc != 0 && f == 0) { f = 1; print "  FAIL " name ": exit status " rc }
        if (rc == 0 && p + s + f == 0) { f = 1; print "  FAIL " name ": ran no test" }
        if (f) for (i = NR + 1; i <= NR + 12; i++) if (tail[i % 12] != "") print "       " tail[i % 12]
        split(cpu, t, /[ms ]+/)
        printf "%.1f %.1f %d %d %d %s\n", ended - started, t[1] * 60 + t[2] + t[3] * 60 + t[4], p, f, s, name >> counts
    }' "$out" >"$out.told"
cat "$out.told"
