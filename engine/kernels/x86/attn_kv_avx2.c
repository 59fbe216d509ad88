/* Attention over keys and values of the type KV, which become f32 in registers. */
#include "cpu/cpu.h"

#include <immintrin.h>
#include <stdint.h>

#include "kernels/x86/attn_kv.h"
#include "kernels/x86/vec_avx2.h"

/* The first n halves; n is even, as head_dim is. */
static inline __m128i load_halves(const uint16_t *p, int n)
{
    return _mm_maskload_epi32((const int *)p, _mm256_castsi256_si128(vec_mask(n / 2)));
}

static inline __m256 widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The scale follows, so that eight bytes from a multiple of eight on are always in the vector. */
static inline __m256 load_q8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

#define LOAD_F32(p)       _mm256_loadu_ps(p)
#define LOAD_F16(p)       _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define LOAD_BF16(p)      widen_bf16(_mm_loadu_si128((const __m128i *)(p)))
#define LOAD_Q8(p)        load_q8(p)
#define LOAD_N_F32(p, n)  _mm256_maskload_ps(p, vec_mask(n))
#define LOAD_N_F16(p, n)  _mm256_cvtph_ps(load_halves(p, n))
#define LOAD_N_BF16(p, n) widen_bf16(load_halves(p, n))
#define LOAD_N_Q8(p, n)   _mm256_and_ps(load_q8(p), _mm256_castsi256_ps(vec_mask(n)))

#define ATTN_LOAD(p)      KERN_PASTE(LOAD_, KV, )(p)
#define ATTN_LOAD_N(p, n) KERN_PASTE(LOAD_N_, KV, )(p, n)
#include "kernels/x86/attn_avx2.h"

const struct kern_variant KERN_KV_VARIANT = {
    .name = "avx2",
    .op = KERN_PASTE(KERN_ATTN_, KV, ),
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
