/* bf16 weights, widened exactly: a 32-bit lane holds rows (even, odd) of K; the even row
 * is the lane shifted left by 16, the odd row the lane with its low half cleared. */
#include "cpu/cpu.h"

#include <arm_neon.h>

static inline __attribute__((always_inline)) float32x4_t tile_widen(const char *b,
                                                                    const int j)
{
    uint32x4_t pair;

    /* Load again for the odd row, and not before the even row is done: keeping the pairs
     * would cost four registers too many. */
    __asm__ volatile("" : "+r"(b)::"memory");
    pair = vld1q_u32((const uint32_t *)b);
    return vreinterpretq_f32_u32(j == 0 ? vshlq_n_u32(pair, 16)
                                        : vbicq_u32(pair, vdupq_n_u32(0xffff)));
}

#define TILE_STEP_ROWS     2
#define TILE_STEP_BYTES    64
#define TILE_LOAD(b, j, q) tile_widen((b) + 16 * (q), j)
#include "kernels/arm/gemm_tile_neon.h"

const struct kern_variant kern_gemm_bf16_neon = {
    .name = "neon",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
