/* Attention over keys and values of 8 bits, which become f32 in registers. */
#include "cpu/cpu.h"

#include "kernels/kv_type.h"
#include "kernels/x86/vec_avx2.h"

#include <immintrin.h>

/* The scale follows, so that eight bytes from a multiple of eight on are always in the vector. */
static inline __m256 load(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

#define ATTN_ELEM         int8_t
#define ATTN_STRIDE(hd)   kern_q8_bytes(hd)
#define ATTN_SCALE(p, hd) kern_q8_scale(p, hd)
#define ATTN_LOAD(p)      load(p)
#define ATTN_LOAD_N(p, n) _mm256_and_ps(load(p), _mm256_castsi256_ps(vec_mask(n)))
#include "kernels/x86/attn_avx2.h"

const struct kern_variant kern_attn_q8_avx2 = {
    .name = "avx2",
    .op = KERN_ATTN_Q8,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
