/* characterize/peak/loops.h - the loops that differ between instruction sets only by the
 * width of a vector. The including file first defines VEC_BYTES (width), N_ACC
 * (independent sums: enough to cover latency x pipes, few enough for the register file)
 * and VEC_STREAM(to, v), a store past the cache if the set has one.
 */
#ifndef CHARACTERIZE_PEAK_LOOPS_H
#define CHARACTERIZE_PEAK_LOOPS_H

#include "characterize/peak/peak.h"

typedef float vec_f __attribute__((vector_size(VEC_BYTES), may_alias));
typedef uint64_t vec_u __attribute__((vector_size(VEC_BYTES), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Multiply-adds that converge, so that no operand ever becomes special or denormal. */
static double fma_f32(int64_t n_rounds)
{
    volatile float factor = 0.75f,
                   term = 0.3f; /* or the compiler knows some sums before */
    vec_f acc[N_ACC] = {{0}}, a = {0}, b = {0};
    double sum = 0;

    a += factor;
    b += term;
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] += (float)i;
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            acc[i] = acc[i] * a + b;
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += (double)acc[i][0];
    return sum;
}
#define FMA_F32_OPS (2.0 * N_ACC * (VEC_BYTES / 4))

/* Read p in order, and multiply and add each of its vectors n_fma times, to 8 sums: enough for two
 * pipes of latency 4, and few enough for 16 registers. A sum halves each time, so it converges. */
static double mixed_f32(const void *p, size_t bytes, int n_fma)
{
    enum { N = 8 };
    volatile float half = 0.5f;
    vec_f acc[N] = {{0}}, a = {0};
    double sum = 0;

    a += half;
    for (size_t at = 0; at < bytes; at += N * VEC_BYTES) {
        const vec_f *x = (const vec_f *)((const char *)p + at);

        for (int k = 0; k < n_fma; k++) {
#pragma GCC unroll 8
            for (int i = 0; i < N; i++)
                acc[i] = acc[i] * a + x[i];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
        sum += (double)acc[i][0];
    return sum;
}

/* Read `n_streams` equal parts in step, four vectors of each at a time; ask for the bytes
 * `ahead` of them when that is not 0. */
INLINE uint64_t read_streams(const char *p, size_t bytes, int n_streams, size_t ahead)
{
    size_t part = bytes / (size_t)n_streams;
    vec_u x[8] = {{0}};
    uint64_t sum = 0;

    for (size_t at = 0; at < part; at += 4 * VEC_BYTES) {
#pragma GCC unroll 8
        for (int s = 0; s < n_streams; s++) {
            const char *q = p + (size_t)s * part + at;

            if (ahead) {
#pragma GCC unroll 4
                for (int i = 0; i < 4 * VEC_BYTES; i += 64)
                    __builtin_prefetch(q + ahead + i);
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                x[(s % 2) * 4 + i] ^= *(const vec_u *)(q + i * VEC_BYTES);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        sum ^= x[i][0] ^ x[i][1];
    return sum;
}

static uint64_t read_1(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 1, 0);
}
static uint64_t read_1_ahead(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 1, 4096);
}
static uint64_t read_2(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 2, 0);
}
static uint64_t read_4(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 4, 0);
}
static uint64_t read_4_ahead(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 4, 1024);
}
static uint64_t read_8(const void *p, size_t bytes)
{
    return read_streams(p, bytes, 8, 0);
}
#define READ_LOOPS                                                                       \
    {                                                                                    \
        read_1, read_1_ahead, read_2, read_4, read_4_ahead, read_8                       \
    }

INLINE void copy_loop(char *dst, const char *src, size_t bytes, int past_cache)
{
    for (size_t at = 0; at < bytes; at += 4 * VEC_BYTES) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vec_f v = *(const vec_f *)(src + at + i * VEC_BYTES);

            if (past_cache)
                VEC_STREAM((vec_f *)(dst + at + i * VEC_BYTES), v);
            else
                *(vec_f *)(dst + at + i * VEC_BYTES) = v;
        }
    }
}

static void copy_cached(void *dst, const void *src, size_t bytes)
{
    copy_loop(dst, src, bytes, 0);
}

INLINE void triad_loop(float *a, const float *b, const float *c, size_t n, int past_cache)
{
    enum { N = VEC_BYTES / 4 };
    vec_f scale = {0};

    scale += 3.0f;
    for (size_t at = 0; at < n; at += 4 * N) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            size_t k = at + (size_t)i * N;
            vec_f v = *(const vec_f *)(b + k) + scale * *(const vec_f *)(c + k);

            if (past_cache)
                VEC_STREAM((vec_f *)(a + k), v);
            else
                *(vec_f *)(a + k) = v;
        }
    }
}

static void triad_cached(float *a, const float *b, const float *c, size_t n)
{
    triad_loop(a, b, c, n, 0);
}

#endif
