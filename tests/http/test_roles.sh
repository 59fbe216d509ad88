#!/bin/sh
# `sandwich serve --roles` over HTTP: the ids of one process, by every transport (roles.py).
set -u
. tests/support/tap.sh
data=${SANDWICH_DATA:-../shared/data}/models
if [ ! -r "$data/stories260K.bin" ]; then
    skip "roles over HTTP" "models/stories260K.bin is not in \$SANDWICH_DATA"
    finish
fi
SANDWICH=$sandwich DATA=$data python3 tests/http/roles.py
