#!/bin/sh
# The numbers of a record, worked out again by another program from the raw data in HDF5: of served
# cells from the times of their requests (completed, failed, canceled and rejected ones, closed and
# open loop, with objectives), of studies from the times of their rounds.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
testbed=$(realpath "$build/testbed")
sandwich=$(realpath "$sandwich")
recompute=$(realpath tests/support/recompute.py)
dir=$(realpath "$dir")
if ! "$python" -c 'import h5py' 2>/dev/null; then
    skip "numbers from the rows of a record" "$python has no h5py"
    finish
fi
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1
cat >job.json <<'JSON'
{"about": "requests of every kind", "system": {"adapter": "scripted", "ttft_ms": 8, "itl_ms": 2},
 "smoke": {"load": {"n_requests": 4}}, "dataset": {"n": 90, "max_prompt_tok": 16, "max_output_tok": 6},
 "load": {"n_requests": 80, "warmup_requests": 3, "lateness_warn_ms": 1e6}, "slo": {"ttft_ms": 12, "tpot_ms": 2.5}}
JSON
again() { # what, settings: one run and its numbers
    what=$1
    shift
    check "$what" "$testbed" run ./job.json --quiet --out "$what" "$@"
    check "$what: the same numbers" "$python" "$recompute" "$(ls "$what"/*.h5)"
}
again closed
again open --set load.process=poisson --set load.rate_rps=100
again overload --set load.process=constant --set load.rate_rps=400 \
    --set load.max_requests_outstanding=6 --set system.slots=1
again faults --set system.fail_request=20 --set system.short_request=30 --set system.hang_request=40 \
    --set load.timeout_s=0.3 --set load.concurrency=3
counted() { # record's folder, metric
    "$python" -c "import h5py, sys; sys.exit(0 if h5py.File(sys.argv[1])['cells/0000/summary/$2'][()] > 0 else 1)" "$1"/*.h5
}
check "rejected requests are in it" counted overload n_rejected
check "failed ones" counted faults n_failed
check "a canceled one" counted faults n_timeout
# Of three rounds all count, also those that another program disturbed.
study() { # name, settings as JSON
    echo "{\"about\": \"a study\", \"study\": {\"name\": \"$1\", $2}, \"smoke\": {\"about\": \"the same\"}}" >"$1.json"
    check "the study $1" "$testbed" run "./$1.json" --quiet --out "$1"
    check "$1: the same numbers" "$python" "$recompute" "$1"/*.h5
}
"$sandwich" model make --arch tiny --type bf16 --out tiny.gguf >out 2>err
study phase_switch '"model": "tiny.gguf", "rounds": 3, "n_prompt_tok": 9, "n_output_tok": 3, "decode_ranks": 1'
study block_thread '"matrix": "x 96x64", "m": 24, "mr": 4, "np": 1, "bms": "8 16", "bns": "32 48", "bks": "32",
    "runs": 1, "rounds": 3, "dealing": ["slices", "n"]'
study block_growth '"matrix": "x 96x64", "m": 32, "cache_mb": 1, "mr": 4, "step": 4, "max": 32, "other": 32, "bk": 32'
study ablation '"model": "tiny.gguf", "rounds": 3, "n_prompt_tok": 9, "n_output_tok": 3, "tune_s": 0.01, "search_s": 0.2'
study window '"model": "tiny.gguf", "rounds": 3, "n_prompt_tok": 9, "n_output_tok": 3, "n_shapes": 3, "budget_s": 0.02,
    "cache_mb": 1'
check "another raw rate is found" sh -c "! '$python' '$recompute' ablation/*.h5 --change raw_tok_s_rank_shifted"
check "another speedup is found" sh -c "! '$python' '$recompute' phase_switch/*.h5 --change speedup_vs_best_one_plan"
for metric in p90_ttft_ms little_l slo_attainment_frac output_throughput_tok_s error_frac; do
    check "another $metric is found" sh -c "! '$python' '$recompute' faults/*.h5 --change $metric"
done
finish
