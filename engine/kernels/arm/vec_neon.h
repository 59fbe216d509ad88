/* kernels/arm/vec_neon.h - what the NEON variants share: exp() of four numbers. */
#ifndef KERNELS_ARM_VEC_NEON_H
#define KERNELS_ARM_VEC_NEON_H

#include <arm_neon.h>

/* 2^n for -127 < n < 128. */
static inline float32x4_t vec_pow2(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* exp(x) to 1 ulp; infinite, zero and NaN as in C. With n the nearest integer to x / ln 2
 * and r = x - n ln 2 (ln 2 in two parts), exp(x) = 2^n (1 + r + r^2 q(r)); q is a minimax
 * polynomial on |r| <= ln(2) / 2. Arguments are cut where the result is 0 or infinite
 * anyway; FMIN and FMAX keep a NaN. 2^n is applied in two halves, since n reaches beyond
 * the exponents of normal numbers. */
static inline float32x4_t vec_exp(float32x4_t x)
{
    float32x4_t n, r, q;
    int32x4_t whole, half;

    x = vminq_f32(vdupq_n_f32(90.0f), x);
    x = vmaxq_f32(vdupq_n_f32(-105.0f), x);
    n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0f)));
    r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    q = vdupq_n_f32(0x1.6a1a72p-10f);
    q = vfmaq_f32(vdupq_n_f32(0x1.123fc6p-7f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0x1.555916p-5f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0x1.55548ap-3f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), q, r);
    q = vfmaq_f32(r, q, vmulq_f32(r, r));
    q = vaddq_f32(q, vdupq_n_f32(1.0f));
    whole = vcvtq_s32_f32(n);
    half = vshrq_n_s32(whole, 1);
    q = vmulq_f32(q, vec_pow2(half));
    return vmulq_f32(q, vec_pow2(vsubq_s32(whole, half)));
}

#endif
