/* Attention over bf16 keys and values. */
#include "cpu/cpu.h"

#include <stdint.h>

#define ATTN_ELEM uint16_t
#define ATTN_LOAD(m, p)                                                                  \
    _mm512_castsi512_ps(                                                                 \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16))
#include "kernels/x86/attn_avx512.h"

const struct kern_variant kern_attn_bf16_avx512 = {
    .name = "avx512",
    .op = KERN_ATTN_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.attn = attn_run,
};
