#!/bin/sh
# Machines that the front did not start: by --role, and under mpirun where it is installed (roles_mpi.py).
set -u
. tests/support/tap.sh
data=${SANDWICH_DATA:-../shared/data}/models
if [ ! -r "$data/stories260K.bin" ]; then
    skip "machines over HTTP" "models/stories260K.bin is not in \$SANDWICH_DATA"
    finish
fi
SANDWICH=$sandwich DATA=$data python3 tests/http/roles_mpi.py
