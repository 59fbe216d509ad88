#!/bin/sh
# Prompt and token machines give the ids of one process, request by request (roles_same_ids.py). A sample;
# with LONG=1 every combination, 500 requests each, and 60 of a model of 160 million parameters: half an hour.
set -u
. tests/support/tap.sh
data=${SANDWICH_DATA:-../shared/data}/models
if [ ! -r "$data/stories260K.bin" ]; then
    skip "the ids of one process" "models/stories260K.bin is not in \$SANDWICH_DATA"
    finish
fi
[ "${LONG:-}" = 1 ] && export ROLES_REQUESTS=500
SANDWICH=$sandwich DATA=$data DIR=$dir python3 tests/http/roles_same_ids.py
