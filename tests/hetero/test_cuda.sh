#!/bin/sh
# The accelerator `cuda` without a GPU: its PTX and the order of its calls, on a driver that interprets PTX
# (fake_cuda.c). What no such test can find is what a real driver refuses.
set -u
. tests/support/tap.sh
if [ -n "${SAN:-}" ]; then
    skip "the accelerator cuda" "what a device needs is not built with a sanitizer"
    finish
fi
fake() { # command...
    LD_LIBRARY_PATH=$dir TEST_ACCEL=cuda TEST_FEW_MODELS=1 "$@"
}
run() { # options...
    fake "$sandwich" run --model "$dir/tiny.gguf" --prompt-ids 1,5,9 -n 3 --ids --threads 1 --max-step-tok 8 "$@"
}

${CC:-gcc} -O2 -shared -fPIC -ffp-contract=off tests/hetero/fake_cuda.c -o "$dir/libcuda.so.1" -lm || { cat "$dir/log"; exit 1; }
check "products, activations, models" fake "$build/tests/hetero/test_device"
"$sandwich" model make --arch tiny-quant --type q4_0 --out "$dir/tiny.gguf" 2>"$dir/log" || { cat "$dir/log"; exit 1; }
"$sandwich" profile --types q4_0 --threads 1 --max-tok 2 --min-ms 0 --accel sim --out "$dir/sim.json" \
    >/dev/null 2>"$dir/log" || { cat "$dir/log"; exit 1; }
sed 's/"name": "sim"/"name": "cuda"/' "$dir/sim.json" >"$dir/cuda.json"
run >"$dir/cpu.ids" 2>/dev/null
for slices in "1 0" "0 1" "0.5 0.3"; do
    # shellcheck disable=SC2086
    set -- $slices
    check "$1 sent, $2 there: the ids of the CPU alone" sh -c '[ -s "$1/cpu.ids" ] && cmp "$1/cpu.ids" "$1/ids"' \
        sh "$dir" "$(run --accel cuda --accel-profile "$dir/cuda.json" --accel-cg "$1" --accel-gg "$2" \
            >"$dir/ids" 2>/dev/null)"
done
check "no GPU" refuses 1 "accelerator cuda: no GPU: error 100" env FAKE_CUDA_ERROR=100 LD_LIBRARY_PATH="$dir" \
    "$sandwich" profile --types q4_0 --threads 1 --max-tok 2 --min-ms 0 --accel cuda
finish
