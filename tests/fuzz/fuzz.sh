#!/bin/sh
# Fuzz one parser with clang's libFuzzer, address and undefined-behaviour sanitizers:
#     sh tests/fuzz/fuzz.sh gguf [seconds]      (the parsers: tests/fuzz/targets.h)
# The parsers and base are compiled for it, the rest comes from the libraries. New inputs and
# crashes are kept under build/fuzz; copy what is worth keeping to tests/fuzz/corpus/<parser>,
# where `make test` replays it.
set -eu
names=$(ls tests/fuzz/corpus | xargs)
target=${1:?usage: fuzz.sh PARSER [seconds], PARSER one of $names}
seconds=${2:-60}
build=${BUILD:-build}
command -v clang >/dev/null || { echo "fuzz.sh: clang is not installed" >&2; exit 2; }
[ -d "tests/fuzz/corpus/$target" ] || { echo "fuzz.sh: expected one of $names" >&2; exit 2; }
out=$build/fuzz
mkdir -p "$out/$target"
make -s BUILD="$build" "$build/libsandwich.a" "$build/libtestbed.a"
clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=undefined -I. -Iengine $(pkg-config --cflags hdf5-serial) \
    "-DFUZZ_TARGET=fuzz_$target" tests/fuzz/fuzz.c $(ls engine/base/*.c | grep -v build.c) engine/format/*.c engine/format/reader/*.c \
    engine/tokenizer/*.c engine/chat/*.c engine/grammar/*.c engine/graph/*.c engine/graph/pass/*.c $(ls engine/ir/*.c | grep -v 'build.c\|problem.c') engine/http/request.c engine/http/stop.c engine/plan/plan*.c engine/simulate/*.c engine/topo/*.c \
    engine/measure/card.c engine/tune/schedule_cache.c \
    experiments/record/*.c \
    "$build/libtestbed.a" "$build/libsandwich.a" $(pkg-config --libs hdf5-serial) \
    -lpapi -lsde -ljansson -lhwloc -lpcre2-8 -lutf8proc -lmicrohttpd -lcurl -lz -l:libgomp.so.1 -lm -o "$out/fuzz_$target"
"$out/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 \
    -artifact_prefix="$out/$target-" -print_final_stats=1 "$out/$target" \
    "tests/fuzz/corpus/$target"
