#!/bin/sh
# `sandwich transfer`: each transport moves the same bytes, alone or under mpirun, and says how fast.
set -u
. tests/support/tap.sh
size="--tok 100 --n-layers 3 --n-kv-heads 2 --head-dim 64 --n 5 --json"

# moves NAME [COMMAND...]: 2 * 64 elements of 2 bytes, 2 heads, 3 layers, 100 tokens, 5 prompts
moves() {
    moved=$1
    shift
    for flags in "" "--no-checksums" "--kv-alloc static --in-flight 3"; do
        check "$* $moved $flags: the same bytes" same "$moved" "$flags" "$@"
    done
}

same() { # name, flags, command
    t=$1
    f=$2
    shift 2
    "$@" "$sandwich" transfer --transport "$t" $size $f >"$dir/json" || return 1
    python3 -c '
import json, sys
j = json.load(open(sys.argv[1]))
assert j["bytes"] == 768000 and j["pieces"] == 15 and j["same_bytes"] and j["gb_per_s"] > 0, j
assert abs(j["end_s"] - j["begin_s"] - j["seconds"]) < 1e-6, j' "$dir/json"
}

for t in shm map socket; do
    moves $t
done
check "MPI without mpirun is refused" refuses 1 "start two processes with mpirun" \
    "$sandwich" transfer --transport mpi_put $size
check "memory that cannot be had is said in one line" refuses 1 "cannot map" \
    "$sandwich" transfer --tok 1048576 --n-layers 1024 --n-kv-heads 1024
check "an unknown transport is refused" refuses 1 "pigeon" "$sandwich" transfer --transport pigeon
for library in openmpi mpich; do
    if ! command -v mpirun.$library >/dev/null || [ ! -r "$(dirname "$sandwich")/mpi/$library.so" ]; then
        skip "transfer by $library" "mpirun.$library, or mpi/$library.so, is not there"
        continue
    fi
    many=
    [ $library = openmpi ] && many="--allow-run-as-root --oversubscribe --bind-to none"
    moves mpi_put mpirun.$library -n 2 $many
    moves mpi_isend mpirun.$library -n 2 $many
done
finish
