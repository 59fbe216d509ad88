#!/bin/sh
# The within-2 % figures of topo_hidden_truth follow from the record's raw data, and on small
# machines from brute force by another implementation of the simulated machine.
set -u
python=${PYTHON:-/usr/bin/python3}
. tests/support/tap.sh
if ! "$python" -c 'import h5py' 2>/dev/null; then
    skip "within 2 % by brute force" "$python has no h5py"
    finish
fi
check "a job of small machines" "$python" tests/study/check_hidden_truth.py job \
    experiments/topo_hidden_truth.json "$dir/small.json"
check "it runs" "$build/testbed" run "$dir/small.json" --quiet --out "$dir/small"
check "its figures follow from its raw data" "$python" tests/study/check_hidden_truth.py record \
    "$(echo "$dir"/small/*.h5)"
finish
