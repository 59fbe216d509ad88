#!/bin/sh
# `testbed run --limit`: no cell begins after it, and the record says why those are missing.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1
cat >slow.json <<'JSON'
{"about": "each cell takes longer than the limit", "system": {"adapter": "scripted", "ttft_ms": [1200, 1201, 1202]},
 "dataset": {"n": 1, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 1, "lateness_warn_ms": 1e6},
 "headline": [{"name": "t_{ttft_ms}", "metric": "n_completed", "better": "higher", "each": ["ttft_ms"]}]}
JSON
check "a run with a limit ends well" "$testbed" run ./slow.json --limit 1s
are() { # states of the cells
    cells=$(tr -d ' \n' <results/slow/latest.json | grep -o '"cells":{[^}]*}')
    echo "$cells"
    [ "$cells" = "$1" ]
}
check "the first cell is measured, the others are not" are '"cells":{"done":1,"skipped":2}'
check "the reason is in the record" sh -c \
    "'$testbed' export results/slow/*.h5 --format json | grep -q 'the time of --limit was over'"
check "a number that is missing has it, too" sh -c "grep -q 'limit' results/slow/latest.json"
rm -r results
check "a limit that is long enough" "$testbed" run ./slow.json --limit 10m
check "leaves nothing out" are '"cells":{"done":3}'
check "a broken limit" refuses 2 'limit: expected a time such as 90s, 10m or 1h, found "soon"' \
    "$testbed" run ./slow.json --limit soon
finish
