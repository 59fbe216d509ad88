/* kernels/transpose.h - the transpose of 32-bit words, which packing consists of: of f32 elements,
 * pairs along K of 16-bit ones, and codes of quantised weights. 128-bit vectors are what every
 * target of ours has without further flags.   Threads: any. */
#ifndef KERNELS_TRANSPOSE_H
#define KERNELS_TRANSPOSE_H

#include <string.h>

#include "kernels/kern.h"

typedef uint32_t kern_v4u __attribute__((vector_size(16)));

static inline kern_v4u kern_load4u(const char *p)
{
    kern_v4u v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void kern_store4u(char *p, kern_v4u v)
{
    memcpy(p, &v, sizeof(v));
}

/* Word j of row[i] goes to dst + j * stride + 4 i, for j < n, i < 4. Nothing is aligned. */
static inline void kern_transpose4(char *dst, size_t stride, const char *const row[4],
                                   int64_t n)
{
    int64_t j = 0;

    for (; j + 4 <= n; j += 4, dst += 4 * stride) {
        kern_v4u a = kern_load4u(row[0] + 4 * j), b = kern_load4u(row[1] + 4 * j);
        kern_v4u c = kern_load4u(row[2] + 4 * j), d = kern_load4u(row[3] + 4 * j);
        kern_v4u ac_lo = __builtin_shufflevector(a, c, 0, 4, 1, 5);
        kern_v4u ac_hi = __builtin_shufflevector(a, c, 2, 6, 3, 7);
        kern_v4u bd_lo = __builtin_shufflevector(b, d, 0, 4, 1, 5);
        kern_v4u bd_hi = __builtin_shufflevector(b, d, 2, 6, 3, 7);

        kern_store4u(dst, __builtin_shufflevector(ac_lo, bd_lo, 0, 4, 1, 5));
        kern_store4u(dst + stride, __builtin_shufflevector(ac_lo, bd_lo, 2, 6, 3, 7));
        kern_store4u(dst + 2 * stride, __builtin_shufflevector(ac_hi, bd_hi, 0, 4, 1, 5));
        kern_store4u(dst + 3 * stride, __builtin_shufflevector(ac_hi, bd_hi, 2, 6, 3, 7));
    }
    for (; j < n; j++, dst += stride)
        for (int i = 0; i < 4; i++)
            memcpy(dst + 4 * i, row[i] + 4 * j, 4);
}

/* Word v of the 16 bytes from `at` on of each column c goes to to + 64 v + 4 c. */
static inline void kern_transpose_panel(uint8_t *to,
                                        const uint8_t *const column[KERN_PANEL], int at)
{
    for (int c = 0; c < KERN_PANEL; c += 4) {
        const char *const four[4] = {
            (const char *)column[c] + at, (const char *)column[c + 1] + at,
            (const char *)column[c + 2] + at, (const char *)column[c + 3] + at};

        kern_transpose4((char *)to + 4 * c, 4 * KERN_PANEL, four, 4);
    }
}

#endif
