#!/bin/sh
# Busy loops on every CPU while a small experiment runs: the record, the terminal and the
# footer of a figure say so.
# Regression: a figure's footer named the host, which was "vm", not the processor.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
testbed=$build/testbed
job=$dir/job.json

# Each ends with this script, whatever happens to it.
for _ in $(seq "$(nproc)"); do
    sh -c 'while kill -0 $0 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done' $$ &
    loops="${loops-} $!"
done
# shellcheck disable=SC2064,SC2086
trap "kill $loops 2>/dev/null; rm -rf '$dir'" EXIT

cat >"$job" <<'EOF'
{"about": "waits and nothing else", "system": {"adapter": "scripted", "ttft_ms": 200},
 "dataset": {"reader": "synth", "fit": "sharegpt", "n": 20, "min_prompt_tok": 1,
             "max_prompt_tok": 16, "max_output_tok": 1},
 "load": {"process": "closed", "concurrency": 1, "n_requests": 10}}
EOF
check "the experiment ends well" sh -c \
    "$testbed run $job --quiet --out $dir/result >$dir/out 2>$dir/err"
check "the warning is on the terminal" \
    grep -q '^warning: noisy_machine: .*other programs used [0-9.]* of the [0-9]* CPUs' "$dir/err"
check "the summary counts it" grep -q '^warnings: .*noisy_machine in 1 of 1 cells' "$dir/out"
h5=$(echo "$dir"/result/*.h5)
check "with retries it ends well, too" sh -c \
    "$testbed run $job --quiet --out $dir/again --retries 1 >$dir/out 2>$dir/err"
check "what a retry costs is said" grep -q 'measured again (attempt 2 of at most 2), which takes about [0-9]* s more and so doubles its time; --retries 0' "$dir/err"
if "$python" -c 'import h5py' 2>"$dir/log"; then
    check "the record holds it with what was observed" "$python" -c 'import h5py, json, sys
cell = json.loads(h5py.File(sys.argv[1])["cells/0000/attributes_json"][()])
found = [w for w in cell["warnings"] if w["code"] == "noisy_machine"]
assert len(found) == 1 and found[0]["observed"] > found[0]["threshold"] == 0.1, found
assert cell["counters"]["other_cpu_ns"] > 0, cell["counters"]' "$h5"
    PYTHONPATH=paper-figs "$python" -c 'import sys
from lib import read
print(read.Result(sys.argv[1]).footer(120, "a list"))' "$h5" >"$dir/footer" 2>"$dir/log"
    check "the footer repeats it" \
        grep -q 'noisy_machine in 1 of 1 cells ([0-9.]*, threshold 0.1)' "$dir/footer"
    check "the footer names the processor, not the host" grep -q '[0-9] CPU' "$dir/footer"
else
    skip "the record and the footer" "$python has no h5py"
fi
finish
