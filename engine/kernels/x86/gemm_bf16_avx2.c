/* bf16 weights, widened exactly: a 32-bit lane holds rows (even, odd) of K; the even row
 * is the lane shifted left by 16, the odd row the lane with its low half cleared. */
#include "cpu/cpu.h"

#include <immintrin.h>

/* Taken from memory each time: the sums, B and A leave no register for it. */
static const uint32_t odd_row[8]
    __attribute__((aligned(32))) = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

static inline __attribute__((always_inline)) __m256 tile_widen(const char *b, const int j)
{
    __m256i row = _mm256_loadu_si256((const void *)b);

    if (j == 0)
        row = _mm256_slli_epi32(row, 16);
    else
        __asm__("vpand %1, %0, %0" : "+x"(row) : "m"(odd_row));
    return _mm256_castsi256_ps(row);
}

#define TILE_STEP_ROWS     2
#define TILE_STEP_BYTES    64
#define TILE_LOAD(b, j, h) tile_widen((b) + 32 * (h), j)
#include "kernels/x86/gemm_tile_avx2.h"

const struct kern_variant kern_gemm_bf16_avx2 = {
    .name = "avx2",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
