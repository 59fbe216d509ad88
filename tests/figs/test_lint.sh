#!/bin/sh
# The lint of drawn figures reports each fault of a list of bad figures, with its panel, and nothing of a good
# one.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
if "$python" -c 'import matplotlib, h5py' 2>/dev/null; then
    check "each fault of a list of bad figures is reported, and none of a good one" "$python" tests/figs/check_lint.py
else
    skip "faults of bad figures" "$python has no matplotlib or h5py"
fi
finish
