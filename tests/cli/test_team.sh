#!/bin/sh
# Threads of both kinds, as a user meets them: the same ids, and what is refused.
set -u
. tests/support/tap.sh
model=$dir/tiny.gguf
run="$sandwich run --model $model --prompt-ids 1,5,9 -n 16 --ids"

"$sandwich" model make --arch tiny --type bf16 --out "$model" >/dev/null 2>"$dir/log" || cat "$dir/log"
same_ids() { # options: with the threads of OpenMP and without
    $run "$@" >"$dir/own" 2>/dev/null && [ -s "$dir/own" ] || return 1
    for policy in active passive; do
        OMP_WAIT_POLICY=$policy $run --team openmp "$@" >"$dir/openmp" 2>/dev/null || return 1
        cmp "$dir/own" "$dir/openmp" || return 1
    done
}
check "one thread" same_ids --threads 1
check "two threads" same_ids --threads 2
check "two ranks" same_ids --threads 2 --ranks 2
check "the bench says what ran" sh -c "$sandwich bench --ops --only dispatch,barrier -r 2 --team openmp -o json |
    python3 -c '
import json, sys
rows = json.load(sys.stdin)
assert [r[\"op\"] for r in rows] == [\"dispatch\", \"barrier\"], rows
assert all(r[\"variant\"] == \"openmp\" and r[\"rate\"] > 0 for r in rows), rows
'"
check "fewer threads than asked for" refuses 1 'OpenMP gives 1 of 2 threads' \
    env OMP_THREAD_LIMIT=1 $run --team openmp --threads 2
check "ranks that are processes" refuses 1 'threads of kind pthread only, found openmp' \
    $run --team openmp --threads 2 --ranks 2 --rank-mode processes
check "a kind that is none" refuses 1 'no kind of team "omp"' $run --team omp
finish
