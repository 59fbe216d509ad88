#!/bin/sh
# No micro-kernel of any family keeps a vector on the stack in its innermost loop, and each
# loop holds whole steps of multiply-adds: the compiled code is disassembled and counted. Nor
# does any innermost loop of attention.
# The widest shapes use every vector register, so a new compiler may well spill there.
BUILD=${BUILD:-build}
here=$(dirname "$0")
n=0
failed=0

# judge FILE.o OBJDUMP COLUMNS_IN_A_VECTOR VECTOR_REGISTERS
judge() {
    name=$(basename "$1" .o)
    n=$((n + 1))
    if said=$("$2" -d --no-show-raw-insn "$1" | awk -v cols="$3" -v limit="$4" -f "$here/spill.awk"); then
        echo "ok $n - $name: $said"
    else
        failed=1
        echo "not ok $n - $name"
        echo "$said" | sed 's/^/# /'
    fi
}
if [ -n "${SAN:-}" ]; then
    echo "# skip: a sanitizer's code is not the code that runs"
    echo "ok 1 - spills # SKIP"
    echo "1..1"
    exit 0
fi
case ${CC:-gcc} in
*clang*)
    echo "# skip: clang keeps vectors on the stack; kernels are measured as gcc compiles them"
    echo "ok 1 - spills # SKIP"
    echo "1..1"
    exit 0
    ;;
esac
for o in "$BUILD"/obj/engine/kernels/x86/gemm_*_avx512*.o; do
    [ -e "$o" ] || continue
    case $o in
    *fp16.o) judge "$o" objdump 32 32 ;;
    *) judge "$o" objdump 16 32 ;;
    esac
done
for o in "$BUILD"/obj/engine/kernels/x86/gemm_*_avx2.o "$BUILD"/obj/engine/kernels/x86/gemm_*_avxvnni.o; do
    [ -e "$o" ] && judge "$o" objdump 8 16
done
for o in "$BUILD"/obj/engine/kernels/x86/attn_*.o; do
    [ -e "$o" ] && judge "$o" objdump 0 32
done
cross=aarch64-linux-gnu-objdump
for o in "$BUILD"/arm/engine/kernels/arm/*_neon*.o "$BUILD"/obj/engine/kernels/arm/*_neon*.o; do
    [ -e "$o" ] || continue
    command -v $cross >/dev/null 2>&1 || cross=objdump
    case $o in
    */gemm_*) judge "$o" $cross 4 32 ;;
    */attn_*) judge "$o" $cross 0 32 ;;
    esac
done
# The judge itself: a spill put into one loop must be found.
for cols in 16 0; do
    n=$((n + 1))
    if printf '%s\n' '0 <tile_1x1>:' '   0:	vmovaps %zmm1,0x8(%rsp)' '   6:	vfmadd231ps %zmm1,%zmm2,%zmm3' \
        '   c:	jne    0 <tile_1x1>' | awk -v cols=$cols -v limit=32 -f "$here/spill.awk" >/dev/null; then
        failed=1
        echo "not ok $n - a spill is found among $cols columns"
    else
        echo "ok $n - a spill is found among $cols columns"
    fi
done
echo "1..$n"
exit $failed
