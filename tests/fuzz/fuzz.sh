#!/bin/sh
# Fuzz one parser with clang's libFuzzer, address and undefined-behaviour sanitizers:
#     sh tests/fuzz/fuzz.sh gguf [seconds]      (gguf safetensors llama2c config)
# New inputs and crashes are kept under build/fuzz; copy what is worth keeping to
# tests/fuzz/corpus/<parser>, where `make test` replays it.
set -eu
target=${1:?usage: fuzz.sh gguf|safetensors|llama2c|config [seconds]}
seconds=${2:-60}
command -v clang >/dev/null || { echo "fuzz.sh: clang is not installed" >&2; exit 2; }
out=${BUILD:-build}/fuzz
mkdir -p "$out/$target"
make -s "${BUILD:-build}/gen/model_reader.c"
clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=undefined -I. -Iengine \
    "tests/fuzz/fuzz_$target.c" engine/base/err.c engine/base/mem.c engine/base/json.c \
    engine/base/log.c engine/kernels/type.c engine/model/config.c engine/model/file/*.c \
    engine/model/file/reader/*.c "${BUILD:-build}/gen/model_reader.c" \
    -ljansson -lm -o "$out/fuzz_$target"
"$out/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 \
    -artifact_prefix="$out/$target-" -print_final_stats=1 "$out/$target" \
    "tests/fuzz/corpus/$target"
