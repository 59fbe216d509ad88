#!/bin/sh
# Would the tests notice? Every operator and constant of some files is changed, one at a time.
#
#     sh tests/support/mutate.sh [-e N] FILE... -- TEST...     such as
#     sh tests/support/mutate.sh engine/sched/loop.c -- sched/test_loop serve/test_histories
#
# TEST: programs of tests/, run in this order until one fails; -e N: each N-th change only. Prints the changes
# that no test notices, then the counts. A change that gives the same machine code is none.
# Programs that run for a minute have noticed.
set -u
build=${BUILD:-build}
every=1
[ "${1:-}" = -e ] && { every=$2; shift 2; }
files=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    files="$files $1"
    shift
done
[ $# -gt 1 ] && [ -n "$files" ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
shift
. tests/support/tap.sh
. tests/support/broken.sh
need_tests "$@"
: >"$dir/list"
k=0
for f in $files; do
    compile_broken "$f" "$dir/original.o" || exit 1
    # Without the names of the files that were compiled.
    strip -o "$dir/$(echo "$f" | tr / .)" "$dir/original.o"
    awk -f tests/support/mutants.awk "$f" | sed "s,^,$f	," >>"$dir/list"
done
awk -v every="$every" 'NR % every == 0' "$dir/list" >"$dir/chosen"
for test in "$@"; do
    link_broken "$dir/original.o" "$test" "$dir/unchanged" && "$dir/unchanged" >"$dir/log" 2>&1 ||
        { echo "$test fails without any change:"; tail -n 20 "$dir/log"; exit 1; }
done

# 0: noticed. Prints the verdict.
judge() { # number, file, line, column, length, new text; then the tests
    at=$dir/m$1 file=$2
    mkdir "$at"
    awk -v line="$3" -v col="$4" -v len="$5" -v new="$6" 'NR == line {
        new = new == "nothing" ? "" : new
        $0 = substr($0, 1, col - 1) new substr($0, col + len) } { print }' "$file" >"$at/m.c"
    shift 6
    compile_broken "$at/m.c" "$at/m.o" 2>/dev/null || { echo invalid; return; }
    strip -o "$at/s.o" "$at/m.o"
    cmp -s "$at/s.o" "$dir/$(echo "$file" | tr / .)" && { echo equal; return; }
    for test in "$@"; do
        link_broken "$at/m.o" "$test" "$at/test" || { echo invalid; return; }
        timeout 60 "$at/test" >"$at/log" 2>&1 || { echo "found"; return; }
    done
    echo survived
}

tab=$(printf '\t')
while IFS=$tab read -r file line col len new text; do
    k=$((k + 1))
    {
        verdict=$(judge "$k" "$file" "$line" "$col" "$len" "$new" "$@")
        rm -rf "${dir:?}/m$k"
        echo "$verdict" >>"$dir/verdicts"
        [ "$verdict" != survived ] || echo "$file:$line:$col: \`$new\`:$text"
    } &
    [ $((k % broken_jobs)) != 0 ] || wait
done <"$dir/chosen"
wait
awk '{ n[$1]++ } END {
    real = n["found"] + n["survived"]
    printf "%d changes: %d do not compile, %d give the same machine code; of the other %d the tests notice %d, %d survive (%.1f %%)\n",
        NR, n["invalid"], n["equal"], real, n["found"], n["survived"], real ? 100 * n["survived"] / real : 0 }' "$dir/verdicts"
