#!/bin/sh
# `testbed conformance` names every fault of a scripted server (conformance.py), and finds none in this
# project's server with roles.
set -u
. tests/support/tap.sh
data=${SANDWICH_DATA:-../shared/data}/models
if [ ! -r "$data/stories260K.bin" ]; then
    skip "this project's server with roles" "models/stories260K.bin is not in \$SANDWICH_DATA"
else
    for words in shm socket; do
        check "this project's server with roles, $words" "$build/testbed" conformance --roles prompt=1,token=1 \
            --model "$data/stories260K.bin" --rounds 2 --roles-words="--transport $words" \
            --serve-words="--tokenizer $data/tok512.bin --max-seqs 4 --kv-budget-tok 1500"
    done
fi
FIRST=$n TESTBED=$build/testbed DIR=$dir python3 tests/conformance/conformance.py
