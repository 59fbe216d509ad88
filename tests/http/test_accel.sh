#!/bin/sh
# `sandwich serve --accel` and `sandwich run --accel`: the ids of the CPU alone for any slices (accel.py).
set -u
. tests/support/tap.sh
for arch in tiny tiny-moe; do
    "$sandwich" model make --arch $arch --type f32 --out "$dir/$arch.gguf" 2>"$dir/log" || exit 1
done
for accel in sim paced; do
    "$sandwich" profile --types f32 --threads 1 --max-tok 2 --min-ms 0 --accel "$accel" \
        --out "$dir/$accel.json" >/dev/null 2>"$dir/log" || exit 1
done
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/accel.py
