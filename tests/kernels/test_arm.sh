#!/bin/sh
# The kernel tests for aarch64: cross-compiled with the NEON variants and run under an
# emulator, which shows that results are right and says nothing about speed.
CC=${ARM_CC:-aarch64-linux-gnu-gcc}
RUN=${ARM_RUN:-qemu-aarch64-static}
BUILD=${BUILD:-build}
export TEST_FEWER=8
OUT=$BUILD/arm
PROGRAMS="test_elementwise test_gemm test_attn test_gemm_run test_error test_kv_type test_pack test_table test_quant
          test_peak test_int4"

if [ -n "${SANDWICH_ISA:-}" ]; then
    echo "# skip: SANDWICH_ISA masks this machine's instruction sets, not those of the emulated one"
    echo "ok 1 - aarch64 kernels # SKIP"
    echo "1..1"
    exit 0
fi
for tool in "$CC" "$RUN"; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "# skip: $tool is not installed (make deps)"
        echo "ok 1 - aarch64 kernels # SKIP"
        echo "1..1"
        exit 0
    fi
done
mkdir -p "$OUT"
n=0
failed=0
# model/test_arm.sh builds in the same folder.
build() { # program...
    flock "$OUT/lock" make -s -k -j"$(nproc)" -f tests/kernels/arm.mk CC="$CC" OUT="$OUT" "$@"
}
# What cannot be built is built again below, where its name and the reason are told.
# shellcheck disable=SC2046,SC2086
build $(printf "$OUT/%s " $PROGRAMS test_gemm_a8) >/dev/null 2>&1
for p in $PROGRAMS; do
    n=$((n + 1))
    if build "$OUT/$p" >"$OUT/$p.log" 2>&1 && "$RUN" "$OUT/$p" >>"$OUT/$p.log" 2>&1; then
        echo "ok $n - aarch64 $p"
    else
        failed=1
        echo "not ok $n - aarch64 $p"
        grep -v '^ok' "$OUT/$p.log" | tail -n 6 | sed 's/^/# /'
    fi
done
# The same integers, by the instructions that each of these processors has.
for cpu in cortex-a57: neoverse-n1:neondot max:neoni8mm; do
    n=$((n + 1))
    log=$OUT/test_gemm_a8.${cpu%%:*}.log
    has=${cpu##*:}
    if build "$OUT/test_gemm_a8" >"$log" 2>&1 && "$RUN" -cpu "${cpu%%:*}" "$OUT/test_gemm_a8" >"$log" 2>&1 &&
        grep -q "^ok .* gemm_q4_0 ${has:-ref}-a8\$" "$log" &&
        { [ "$has" = neoni8mm ] || grep -q '^ok .* gemm_q4_0 neoni8mm-a8 # SKIP$' "$log"; }; then
        echo "ok $n - aarch64 products of 8 bits on ${cpu%%:*}"
    else
        failed=1
        echo "not ok $n - aarch64 products of 8 bits on ${cpu%%:*}"
        grep -v '^ok' "$log" | tail -n 6 | sed 's/^/# /'
    fi
done
# A build without NEON variants would pass everything above.
n=$((n + 1))
if grep -q '^ok .* gemm_f32 neon$' "$OUT/test_gemm.log" &&
    grep -q '^ok .* gemm_bf16 neon$' "$OUT/test_gemm.log" &&
    grep -q '^ok .* i8_dot neondot$' "$OUT/test_peak.log" && grep -q '^ok .* i8_dot neoni8mm$' "$OUT/test_peak.log"; then
    echo "ok $n - aarch64 ran the NEON variants"
else
    failed=1
    echo "not ok $n - aarch64 ran the NEON variants"
fi
echo "1..$n"
exit $failed
