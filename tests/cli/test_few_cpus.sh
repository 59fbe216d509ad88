#!/bin/sh
# More threads than this process has CPUs, by its affinity mask (taskset, sched_setaffinity(), a cgroup's
# cpuset): every program that takes a number of threads or ranks refuses it on one line that names the
# CPUs, or computes with the CPUs that there are. None is silent.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
here=$("$python" -c 'import os; print(min(os.sched_getaffinity(0)))')
m=$dir/tiny.gguf
"$sandwich" model make --arch tiny --type f32 --out "$m" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }

on_one() { # command...
    timeout 60 "$python" -c 'import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.execvp(sys.argv[2], sys.argv[2:])' "$here" "$@"
}
too_many="4 asked for, 1 allowed (1 of [0-9]* CPUs: .*affinity allows 1"
run="$sandwich run --model $m --prompt-ids 1,2,3 --ids -n 4"
check "run" refuses 2 "$too_many" on_one $run --threads 4
check "run without pinning" refuses 2 "$too_many" on_one $run --threads 4 --no-pin
check "serve" refuses 2 "$too_many" on_one "$sandwich" serve --model "$m" --port 0 --threads 4
check "bench" refuses 2 "$too_many" on_one "$sandwich" bench -m "$m" -t 4
check "bench, one of several numbers" refuses 2 "$too_many" on_one "$sandwich" bench -m "$m" -t 1,4
check "bench of kernels" refuses 2 "$too_many" on_one "$sandwich" bench --ops --only argmax -t 4
check "tune" refuses 2 "$too_many" on_one "$sandwich" tune --model "$m" --threads 4
check "plan" refuses 2 "$too_many" on_one "$sandwich" plan --model "$m" --threads 4 --out "$dir/p"
check "plan, decode" refuses 2 "decode-threads: expected at most 1, found 4" \
    on_one "$sandwich" plan --model "$m" --threads 1 --decode-threads 4 --out "$dir/p"

# Machines share CPUs with a warning; a number of threads is not shared.
roles_refuse() {
    run_quietly on_one "$sandwich" serve --model "$m" --port 0 --roles prompt=1,token=1 --threads 4
    [ "$got" = 1 ] && [ "$(wc -l <"$dir/err")" = 2 ] && grep -q "^warning: 2 machines share 1 CPU" "$dir/err" &&
        grep -q "^sandwich serve: [a-z]* machine 1 of 1 .*$too_many" "$dir/err"
}
check "serve with machines of two kinds" roles_refuse

for mode in threads processes; do
    check "ranks as $mode" refuses 2 "1 threads do not divide by 2" on_one $run --ranks 2 --rank-mode $mode
done
check "bench with ranks" refuses 2 "2 ranks do not divide 1 threads" on_one "$sandwich" bench -m "$m" --ranks 2
check "a plan for ranks" refuses 2 "2 ranks asked for" \
    on_one "$sandwich" plan --model "$m" --method even_split --ranks 2 --out "$dir/p"

if [ "$(nproc)" -gt 1 ]; then
    "$sandwich" plan --model "$m" --threads 2 --out "$dir/two" >"$dir/log" 2>&1
    check "a plan for more CPUs: run" refuses 2 "two .*is not one of this process's (1 of" on_one $run --plan "$dir/two"
    check "a plan for more CPUs: serve" refuses 2 "two .*is not one of this process's (1 of" \
        on_one "$sandwich" serve --model "$m" --port 0 --plan "$dir/two"
else
    skip "a plan for more CPUs" "one CPU"
fi

cat >"$dir/job.json" <<END
{"about": "four threads", "system": {"adapter": "sandwich", "model": "$m", "threads": 4},
 "dataset": {"n": 3, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 3}}
END
testbed=$(realpath "$build/testbed")
job=$(realpath "$dir/job.json")
experiment_refuses() { # in its own folder: the card of one CPU is not for other tests
    (cd "$dir" && on_one "$testbed" run "$job" --quiet) >"$dir/out" 2>&1
    status=$?
    cat "$dir/out"
    [ $status = 3 ] && [ "$(grep -c "skipped: threads: $too_many" "$dir/out")" = 1 ]
}
check "an experiment" experiment_refuses

# Files are written with any number of threads: the bytes are the same.
same_model() {
    on_one "$sandwich" model make --arch tiny --type f32 --threads 4 --out "$dir/four.gguf" && cmp "$m" "$dir/four.gguf"
}
check "a model is made" same_model

# The engine's threads are its own: OpenMP's variables say nothing to it.
$run >"$dir/ids" 2>/dev/null
same_ids() {
    OMP_NUM_THREADS=4 OMP_THREAD_LIMIT=1 on_one $run --no-pin >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
    cat "$dir/err"
    cmp "$dir/ids" "$dir/out" && grep -q "plan: prefill 1, decode 1 threads" "$dir/err"
}
check "OMP_NUM_THREADS changes nothing" same_ids

# Regression: libgomp binds the main thread to one place before main(), and the programs took that place for
# all CPUs that they may use.
binds() {
    run_quietly env "$@" $run --threads 2 --no-pin || return 1
    [ "$got" = 0 ] && cmp "$dir/ids" "$dir/out" && grep -q "^warning: openmp_binding: .* to 1 of its" "$dir/err"
}
for set in OMP_PROC_BIND=true OMP_PLACES="{$here}" GOMP_CPU_AFFINITY="$here"; do
    if [ "$(nproc)" -gt 1 ]; then
        check "${set%%=*} does not make the machine smaller" binds "$set"
    else
        skip "${set%%=*} does not make the machine smaller" "one CPU"
    fi
done
finish
