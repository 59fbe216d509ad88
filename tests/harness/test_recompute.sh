#!/bin/sh
# The numbers of a served cell, worked out again by another program from the times of its requests
# in HDF5: completed, failed, canceled and rejected ones, closed and open loop, with objectives.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
testbed=$(realpath "$build/testbed")
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
    "$testbed" export "$1"/*.h5 --format json | grep -q "\"$2\": [1-9]"
}
check "rejected requests are in it" counted overload n_rejected
check "failed ones" counted faults n_failed
check "a canceled one" counted faults n_timeout
for metric in p90_ttft_ms little_l slo_attainment_frac output_throughput_tok_s error_frac; do
    check "another $metric is found" sh -c "! '$python' '$recompute' faults/*.h5 --change $metric"
done
finish
