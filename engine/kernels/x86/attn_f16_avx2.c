/* Attention over f16 keys and values. */
#include "cpu/cpu.h"

#include "kernels/x86/vec_avx2.h"

#include <immintrin.h>
#include <stdint.h>

/* n is even, as head_dim is. */
static inline __m256 load_n(const uint16_t *p, int n)
{
    __m128i mask = _mm256_castsi256_si128(vec_mask(n / 2));

    return _mm256_cvtph_ps(_mm_maskload_epi32((const int *)p, mask));
}

#define ATTN_ELEM         uint16_t
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) 1.0f
#define ATTN_LOAD(p)      _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define ATTN_LOAD_N(p, n) load_n(p, n)
#include "kernels/x86/attn_avx2.h"

const struct kern_variant kern_attn_f16_avx2 = {
    .name = "avx2",
    .op = KERN_ATTN_F16,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
