#!/bin/sh
# The collectives' stress for aarch64: cross-compiled and run under an emulator. It shows that
# the results are right there; how far the emulator reorders as the processor may is its own.
CC=${ARM_CC:-aarch64-linux-gnu-gcc}
RUN=${ARM_RUN:-qemu-aarch64-static}
BUILD=${BUILD:-build}
OUT=$BUILD/arm-par

for tool in "$CC" "$RUN"; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "# skip: $tool is not installed (make deps)"
        echo "ok 1 - aarch64 collectives # SKIP"
        echo "1..1"
        exit 0
    fi
done
mkdir -p "$OUT"
if ! make -s -f tests/par/arm.mk CC="$CC" OUT="$OUT" "$OUT/test_stress" >"$OUT/log" 2>&1; then
    tail -n 6 "$OUT/log" | sed 's/^/# /'
    echo "not ok 1 - aarch64 collectives: build"
    echo "1..1"
    exit 1
fi
exec "$RUN" "$OUT/test_stress"
