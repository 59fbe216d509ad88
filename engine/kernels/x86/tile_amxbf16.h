/* kernels/x86/tile_amxbf16.h - products of bf16 by tile registers (AMX): 16 rows of A times 16
 * columns of B, 32 rows of K at a time, summed in f32.
 *
 * A micro-kernel takes up to 32 rows and two panels: four tiles of sums, two of A and two of B. A
 * panel of bf16 weights (kern.h) is what the instruction reads as B, 32 rows of K in one tile. */
#ifndef KERNELS_X86_TILE_AMXBF16_H
#define KERNELS_X86_TILE_AMXBF16_H

#include <string.h>

#include "kernels/kern.h"
#include "kernels/x86/tile_amx.h"

#define AMX_K KERN_A_ROWS_K /* rows of K in a tile */
#define AMX_MICRO_KERNELS                                                                \
    {                                                                                    \
        2 * AMX_ROWS, 2 * AMX_ROWS                                                       \
    }

/* The tiles, by number: sums of rows 0 to 15 of panel 0 and 1, and of the other rows; A; B. */
enum { AMX_C00, AMX_C01, AMX_C10, AMX_C11, AMX_A0, AMX_A1, AMX_B0, AMX_B1 };

#define AMX_DOT(c, a, b)                                                                 \
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b))

AMX_INLINE void amx_configure(int mr)
{
    const int first = mr < AMX_ROWS ? mr : AMX_ROWS, rest = mr - first;
    struct amx_config c = {.palette = 1};

    for (int i = 0; i < AMX_TILES; i++) {
        c.rows[i] = (uint8_t)(i >= AMX_B0                                   ? AMX_ROWS
                              : i == AMX_C10 || i == AMX_C11 || i == AMX_A1 ? rest
                                                                            : first);
        c.row_bytes[i] = c.rows[i] ? 64 : 0;
    }
    AMX_CONFIGURE(c);
}

/* n times 32 rows of K: a at [n][mr][32], b and b + panel_bytes at panels. */
AMX_INLINE void amx_steps(const char *a, const char *b, size_t panel_bytes, int64_t n,
                          int mr, const bool two_a, const bool two_b)
{
    for (; n > 0; n--, a += mr * 64, b += AMX_BYTES) {
        AMX_LOAD(AMX_B0, b, 64);
        AMX_LOAD(AMX_A0, a, 64);
        AMX_DOT(AMX_C00, AMX_A0, AMX_B0);
        if (two_b) {
            AMX_LOAD(AMX_B1, b + panel_bytes, 64);
            AMX_DOT(AMX_C01, AMX_A0, AMX_B1);
        }
        if (two_a) {
            AMX_LOAD(AMX_A1, a + AMX_BYTES, 64);
            AMX_DOT(AMX_C10, AMX_A1, AMX_B0);
        }
        if (two_a && two_b)
            AMX_DOT(AMX_C11, AMX_A1, AMX_B1);
    }
}

/* Up to 32 rows of K from `k` on, of np panels, to `to`, with zeros behind: those of two units, or
 * the last ones. */
static void amx_gather(char *to, const struct kern_gemm_tile *t, int64_t k)
{
    const int64_t n = t->k - k < AMX_K ? t->k - k : AMX_K;

    memset(to, 0, 2 * AMX_BYTES);
    for (int p = 0; p < t->np; p++) {
        const char *panel = (const char *)t->b + (size_t)p * t->b_panel_bytes;

        for (int64_t i = 0; i < n; i += 2) {
            int64_t unit = (k + i) / t->k_unit, row = (k + i) % t->k_unit;

            memcpy(to + p * AMX_BYTES + i * KERN_PANEL * 2,
                   panel + (size_t)unit * t->b_unit_bytes + (size_t)row * KERN_PANEL * 2,
                   2 * KERN_PANEL * 2);
        }
    }
}

AMX_INLINE void amx_sums(const struct kern_gemm_tile *t, const bool load,
                         const bool two_a, const bool two_b)
{
    float *c = t->c, *below = c + AMX_ROWS * t->ldc;
    const int64_t stride = t->ldc * (int64_t)sizeof(float);

#define AMX_SUM(tile, at)                                                                \
    do {                                                                                 \
        if (!load)                                                                       \
            AMX_STORE(tile, at, stride);                                                 \
        else if (t->accumulate)                                                          \
            AMX_LOAD(tile, at, stride);                                                  \
        else                                                                             \
            AMX_ZERO(tile);                                                              \
    } while (0)
    AMX_SUM(AMX_C00, c);
    if (two_b)
        AMX_SUM(AMX_C01, c + KERN_PANEL);
    if (two_a)
        AMX_SUM(AMX_C10, below);
    if (two_a && two_b)
        AMX_SUM(AMX_C11, below + KERN_PANEL);
#undef AMX_SUM
}

AMX_INLINE void amx_run(const struct kern_gemm_tile *t, const bool two_a,
                        const bool two_b)
{
    _Alignas(64) char gathered[2 * AMX_BYTES];
    const char *a = t->a;

    if (!t->tiles_ready)
        amx_configure(t->mr);
    amx_sums(t, true, two_a, two_b);
    for (int64_t k = 0, n; k < t->k; k += n * AMX_K, a += n * t->mr * 64) {
        int64_t unit = k / t->k_unit, row = k % t->k_unit;
        int64_t left = t->k_unit - row < t->k - k ? t->k_unit - row : t->k - k;

        n = left / AMX_K;
        if (n > 0) {
            amx_steps(a,
                      (const char *)t->b + (size_t)unit * t->b_unit_bytes +
                          (size_t)row * KERN_PANEL * 2,
                      t->b_panel_bytes, n, t->mr, two_a, two_b);
        } else {
            n = 1;
            amx_gather(gathered, t, k);
            amx_steps(a, gathered, AMX_BYTES, n, t->mr, two_a, two_b);
        }
    }
    amx_sums(t, false, two_a, two_b);
    if (!t->tiles_kept)
        AMX_RELEASE();
}

static void amx_gemm(const struct kern_gemm_tile *t)
{
    if (t->mr > AMX_ROWS && t->np == 2)
        amx_run(t, true, true);
    else if (t->mr > AMX_ROWS)
        amx_run(t, true, false);
    else if (t->np == 2)
        amx_run(t, false, true);
    else
        amx_run(t, false, false);
}

#endif
