/* tests/kernels/chain_f16_emulated.h - the kernel for AVX512-FP16 with its one instruction
 * of that set, the multiply-add of halves, done in floats and rounded to halves: the
 * product of two halves is exact in a float, so the result differs from the fused one only
 * where rounding twice does. Everything else is the code that runs where the processor has
 * the instruction, so the tests reach it on every processor with AVX-512. */
#ifndef TESTS_KERNELS_CHAIN_F16_EMULATED_H
#define TESTS_KERNELS_CHAIN_F16_EMULATED_H

#include "kernels/kern.h"

#ifdef __x86_64__
#include "cpu/cpu.h"
#include "tests/kernels/target.h"

TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

static inline __m256i emulated_half(__m256i c, __m256i x, __m256i b)
{
    return _mm512_cvtps_ph(
        _mm512_fmadd_ps(_mm512_cvtph_ps(x), _mm512_cvtph_ps(b), _mm512_cvtph_ps(c)),
        _MM_FROUND_TO_NEAREST_INT);
}

static inline __m512i emulated_fma(__m512i c, __m512i x, __m512i b)
{
    __m256i low = emulated_half(_mm512_castsi512_si256(c), _mm512_castsi512_si256(x),
                                _mm512_castsi512_si256(b));
    __m256i high =
        emulated_half(_mm512_extracti64x4_epi64(c, 1), _mm512_extracti64x4_epi64(x, 1),
                      _mm512_extracti64x4_epi64(b, 1));

    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#define CHAIN_FMA(c, x, b) ((c) = emulated_fma(c, x, b))
#include "kernels/x86/chain_f16_avx512.h"

static const struct kern_variant chain_f16_emulated = {
    .name = "avx512fp16, emulated",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_RELAXED,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 32,
    .error = 0x1p-9,
    .a_format = KERN_A_F16_TWICE,
    .a_words = chain_a_words,
    .a_scale = chain_a_scale,
    .convert = chain_convert,
};
TARGET_END

/* NULL where this CPU cannot run it. */
static inline const struct kern_variant *check_emulated(void)
{
    return chain_f16_emulated.isa & ~cpu_isa_detected() ? NULL : &chain_f16_emulated;
}
#else
static inline const struct kern_variant *check_emulated(void)
{
    return NULL;
}
#endif

#endif
