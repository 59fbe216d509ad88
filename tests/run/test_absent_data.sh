#!/bin/sh
# An experiment of which half of the cells or more have no data says so in its last line, and ends with
# status 4; one that has nothing to write, with 3.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
cd "$dir" || exit 1
job() { # axis or variants
    cat >job.json <<JSON
{"about": "lengths of a trace", "evidence": "model", "headline": [{"name": "p", "metric": "prompt_p50_tok",
 "over": "max"}], $1}
JSON
}
runs() { # status
    SANDWICH_DATA=/no/such/folder "$testbed" run ./job.json --quiet --fresh --out out >out.txt 2>err.txt
    [ $? = "$1" ] || { cat err.txt; return 1; }
}
last() { # text: the last line has it
    tail -n 1 err.txt | grep -F -- "$1" || { cat err.txt; return 1; }
}
job '"study": {"name": "trace_lengths", "n": 20, "source": ["file", "fit"]}'
check "half of two cells" runs 4
check "the last line says which" last \
    "testbed: 1 of 2 cells were skipped, because their data are not here: datasets/data.md"
check "the record is written" [ "$(ls out/*.h5 | wc -l)" = 1 ]
job '"study": {"name": "perf_models", "n_splits": 2, "source": ["form", "printed:a100", "llama2-70b:a100-80gb:2"]}'
sed -i 's/prompt_p50_tok/rows_mape/' job.json
check "a third of them is not half" runs 0
check "but is said" last "testbed: 0 cells failed, 1 skipped"
job '"study": {"name": "trace_lengths", "source": "file"}'
check "all of them: nothing is written" runs 3
check "and the last line says why" last "1 of 1 cells were skipped, because their data are not here"
job '"study": {"name": "allreduce", "ranks": [2, 64], "rounds": 3, "block_us": 1}'
sed -i 's/prompt_p50_tok/gbps_by_size/' job.json
check "cells that this machine has no CPUs for are another matter" runs 0
finish
