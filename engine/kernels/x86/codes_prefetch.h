/* kernels/x86/codes_prefetch.h - prefetching for the walks over a panel of quantised weights.
 *
 * The second level is the target and 8 KiB the distance. Measured on Zen 4, out of memory:
 * with 4 to 8 rows of activations of 8 bits a product takes 0.82 to 1.0 of the time that it
 * takes with the first level and 4 KiB.
 *
 * A product of so few rows that it waits for memory alone is fastest on Zen 4 where only every
 * fourth line is asked for and the processor finds the others: 0.9 to 0.97 of the time. Where
 * multiplying takes nearly as long as reading, that is up to 1.4 times as slow, so a kernel
 * says for how many rows it prefetches sparsely where the processor wants it
 * (cpu_prefetch()): TILE_SPARSE_ROWS. */
#ifndef KERNELS_X86_CODES_PREFETCH_H
#define KERNELS_X86_CODES_PREFETCH_H

#include <immintrin.h>

#include "kernels/panel.h"
#include "kernels/tile_set.h"

#define CODES_AHEAD 8192
#define CODES_HEAD                                                                       \
    (KERN_QUANT(SUBS) ? KERN_QUANT(HEAD) / (KERN_QUANT(SUBS) + !KERN_QUANT(SUBS)) : 0)
#define CODES_LINES ((CODES_HEAD + KERN_QUANT(SUB) + 63) / 64)

/* Prefetch the codes CODES_AHEAD bytes after the sub-block at s. */
TILE_INLINE void codes_prefetch(const char *s, bool sparse)
{
#pragma GCC unroll 9
    for (int i = 0; i < CODES_LINES; i++)
        if (i % 4 == 0 || !sparse)
            _mm_prefetch(s + 64 * i + CODES_AHEAD, _MM_HINT_T1);
}

/* Prefetch the bytes that kern_gemm_tile.next names. */
TILE_INLINE const char *codes_prefetch_next(const char *next, int next_step)
{
#pragma GCC unroll 9
    for (int i = 0; i < CODES_LINES; i++, next += next_step)
        _mm_prefetch(next, _MM_HINT_T1);
    return next;
}

#endif
