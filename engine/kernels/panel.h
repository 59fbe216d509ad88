/* kernels/panel.h - how quantised weights are laid out in a panel.
 *
 * A weight is scale * code - min with an unsigned code; where a type has no min, it is
 * zero * scale. A panel (kern.h) is a sequence of blocks along K. A block of 16 columns is
 *     head        [16] f16: the block's scale d;  then, with a min, [16] f16: its dmin
 *     sub-blocks  of 32 rows of K each:
 *         codes   4 low bits: [4][16][4] bytes. Byte (v, c, i) has those of row 4 v + i in
 *                 its low half, those of row 16 + 4 v + i in its high half, of column c
 *                 (Q8_0: all 8 bits, [8][16][4] bytes, row 4 j + i)
 *         5th bit [16][4] bytes: bit j of byte (c, i) is that of row 4 j + i
 *         5th and 6th bit  [2][16][4] bytes: bits 2 j, 2 j + 1 of byte (h, c, i) are those
 *                 of row 16 h + 4 j + i
 *         scales  [16] bytes, one a column; Q6_K: [2][16] signed, for 16 rows each
 *         mins    [16] bytes
 * Four rows of K of a column thus share one 32-bit lane, which is what instructions for
 * 8-bit dot products read. The scale of a weight is d, or d times the sub-block's scale; its
 * min is dmin, or dmin times the sub-block's. Both products are exact in f32.
 *
 * Products with KERN_A_I8 (kern.h). Each number of C is one chain of f32 operations along K,
 * the same in all variants, so that they give the same bits. For each 32 rows of K (Q6_K: 16)
 * with s the scale of the activations a, and sum(a) that of these rows:
 *     C = fma((float)(sum(code a) - zero sum(a)), scale * s, C)
 *     C = fma(-min, s * sum(a), C)                                  (with a min)
 * Integers are exact: |sum| < 2^20. The packed activations hold for each row of A, as words:
 * int32 -zero sum(a), for 16 rows of K each where the type has a scale for 16; or with a min,
 * f32 s * sum(a). */
#ifndef KERNELS_PANEL_H
#define KERNELS_PANEL_H

#include <string.h>

#include "kernels/kern.h"

#define KERN_SUB 32 /* rows of K in a sub-block */

/* _SUBS sub-blocks in a block; bytes of a block's _HEAD and of each _SUB-block; _BITS of a
 * code; _ZERO and _MIN as above; _SCALES: where a sub-block has its scales, 0: it has none;
 * _HALVES: scales for each column of a sub-block. */
#define KERN_Q8_0_SUBS   1
#define KERN_Q8_0_HEAD   32
#define KERN_Q8_0_SUB    512
#define KERN_Q8_0_BITS   8
#define KERN_Q8_0_ZERO   128
#define KERN_Q8_0_MIN    0
#define KERN_Q8_0_SCALES 0
#define KERN_Q8_0_HALVES 1

#define KERN_Q4_0_SUBS   1
#define KERN_Q4_0_HEAD   32
#define KERN_Q4_0_SUB    256
#define KERN_Q4_0_BITS   4
#define KERN_Q4_0_ZERO   8
#define KERN_Q4_0_MIN    0
#define KERN_Q4_0_SCALES 0
#define KERN_Q4_0_HALVES 1

#define KERN_Q4_1_SUBS   1
#define KERN_Q4_1_HEAD   64
#define KERN_Q4_1_SUB    256
#define KERN_Q4_1_BITS   4
#define KERN_Q4_1_ZERO   0
#define KERN_Q4_1_MIN    1
#define KERN_Q4_1_SCALES 0
#define KERN_Q4_1_HALVES 1

#define KERN_Q4_K_SUBS   8
#define KERN_Q4_K_HEAD   64
#define KERN_Q4_K_SUB    288
#define KERN_Q4_K_BITS   4
#define KERN_Q4_K_ZERO   0
#define KERN_Q4_K_MIN    1
#define KERN_Q4_K_SCALES 256
#define KERN_Q4_K_HALVES 1

#define KERN_Q5_K_SUBS   8
#define KERN_Q5_K_HEAD   64
#define KERN_Q5_K_SUB    352
#define KERN_Q5_K_BITS   5
#define KERN_Q5_K_ZERO   0
#define KERN_Q5_K_MIN    1
#define KERN_Q5_K_SCALES 320
#define KERN_Q5_K_HALVES 1

#define KERN_Q6_K_SUBS   8
#define KERN_Q6_K_HEAD   32
#define KERN_Q6_K_SUB    416
#define KERN_Q6_K_BITS   6
#define KERN_Q6_K_ZERO   32
#define KERN_Q6_K_MIN    0
#define KERN_Q6_K_SCALES 384
#define KERN_Q6_K_HALVES 2

/* The same as numbers. All 0 for types that are not quantised. */
struct kern_form {
    int subs, head, sub, bits, zero, min, scales, halves;
};
const struct kern_form *kern_form(enum kern_type t);

/* Bytes of a block of a panel, all 16 columns. */
static inline size_t kern_form_bytes(const struct kern_form *f)
{
    return (size_t)(f->head + f->subs * f->sub);
}

/* ---- KERN_A_I8 ---- */

/* 32-bit words for 32 activations: 8 of codes, the scale, two made of sums. */
#define KERN_A_I8_WORDS 11
#define KERN_A_I8_SCALE 8 /* the word of the scale, in units of mr words */
#define KERN_A_I8_SUM   9

/* ---- one weight at a time, in plain C ---- */

/* The code of row k < 32 of column c in the sub-block at s. */
static inline int kern_form_code(const struct kern_form *f, const uint8_t *s, int k,
                                 int c)
{
    const int j = k / 4, lane = 4 * c + k % 4;
    int low;

    if (f->bits == 8)
        return s[64 * j + lane];
    low = s[64 * (j % 4) + lane] >> (j / 4 * 4) & 15;
    if (f->bits == 5)
        return low | (s[256 + lane] >> j & 1) << 4;
    if (f->bits == 6)
        return low | (s[256 + 64 * (j / 4) + lane] >> (2 * (j % 4)) & 3) << 4;
    return low;
}

static inline float kern_form_f16(const uint8_t *at)
{
    uint16_t h;

    memcpy(&h, at, 2);
    return kern_f16_to(h);
}

/* The scale of row k of column c in the sub-block at s of the block at b. */
static inline float kern_form_scale(const struct kern_form *f, const uint8_t *b,
                                    const uint8_t *s, int k, int c)
{
    float d = kern_form_f16(b + 2 * c);

    if (f->scales == 0)
        return d;
    if (f->halves == 2)
        return d * (int8_t)s[f->scales + KERN_PANEL * (k / 16) + c];
    return d * s[f->scales + c];
}

/* What is subtracted where the type has a min. */
static inline float kern_form_min(const struct kern_form *f, const uint8_t *b,
                                  const uint8_t *s, int c)
{
    float d = kern_form_f16(b + 2 * KERN_PANEL + 2 * c);

    return f->scales == 0 ? d : d * s[f->scales + KERN_PANEL + c];
}

/* The weight, rounded to f32 once. */
static inline float kern_form_weight(const struct kern_form *f, const uint8_t *b,
                                     const uint8_t *s, int k, int c)
{
    float scale = kern_form_scale(f, b, s, k, c);
    int code = kern_form_code(f, s, k, c) - f->zero;

    return scale * (float)code - (f->min ? kern_form_min(f, b, s, c) : 0);
}

/* ---- packing ---- */

/* Write n_blocks blocks of a file's row into column c of the panel that begins at `panel`;
 * row NULL: zeros. */
void kern_panel_put(enum kern_type t, void *panel, int c, const void *row,
                    int64_t n_blocks);
/* Read n_blocks blocks of column c back as f32. */
void kern_panel_get(enum kern_type t, const void *panel, int c, float *out,
                    int64_t n_blocks);

#endif
