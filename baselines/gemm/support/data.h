/* baselines/gemm/support/data.h - the numbers that every baseline multiplies.
 *
 * Element i of a matrix depends on (seed, matrix, i) alone, so a child can fill any
 * layout in parallel and the client can recompute any element of the result in float64
 * without holding the matrices. Roughly normal (a sum of four uniforms), mean 0,
 * variance 1.
 * Threads: any. */
#ifndef GEMM_DATA_H
#define GEMM_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum gemm_matrix { GEMM_A = 1, GEMM_W = 2 };

static inline float gemm_value(uint64_t seed, enum gemm_matrix matrix, int64_t i)
{
    const float inv_std =
        1.0f / 37837.2f; /* four uniforms on 0..65535: 65536 / sqrt(3) */
    uint64_t x = (uint64_t)i + seed * UINT64_C(0x9e3779b97f4a7c15) +
                 (uint64_t)matrix * UINT64_C(0xd1342543de82ef95);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    int32_t sum = (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) +
                  (int32_t)(x >> 32 & 0xffff) + (int32_t)(x >> 48);
    return (float)(sum - 2 * 65535) * inv_std;
}

/* Round to nearest, ties to even; the values here are finite. */
static inline uint16_t gemm_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float gemm_from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* W[k, n] element i = row * n + column, as the weights' type holds it. */
static inline float gemm_weight(uint64_t seed, int64_t i, bool bf16)
{
    float f = gemm_value(seed, GEMM_W, i);

    return bf16 ? gemm_from_bf16(gemm_bf16(f)) : f;
}

#endif
