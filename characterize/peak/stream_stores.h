/* characterize/peak/stream_stores.h - the writing loops past the cache, for sets that
 * have such stores. The including file has included loops.h and defines VEC_FENCE(). */
#ifndef CHARACTERIZE_PEAK_STREAM_STORES_H
#define CHARACTERIZE_PEAK_STREAM_STORES_H

#include "characterize/peak/loops.h"

static void copy_streamed(void *dst, const void *src, size_t bytes)
{
    copy_loop(dst, src, bytes, 1);
    VEC_FENCE();
}

static void triad_streamed(float *a, const float *b, const float *c, size_t n)
{
    triad_loop(a, b, c, n, 1);
    VEC_FENCE();
}

#endif
