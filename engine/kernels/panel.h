/* kernels/panel.h - how quantised weights are laid out in a panel.
 *
 * A weight is scale * code - min with an unsigned code; where a type has no min, it is
 * zero * scale. A panel (kern.h) is a sequence of blocks along K. A block of 16 columns is
 *     head        [16] f16: the block's scale d;  then, with a min, [16] f16: its dmin
 *                 (bf16 or f32 where quant_types.def says so)
 *     sub-blocks  of 32 rows of K each:
 *         codes   2 low bits of codes of 2 and 3: [2][16][4] bytes. Bits 2 j, 2 j + 1 of byte
 *                 (h, c, i) are those of row 16 h + 4 j + i of column c
 *                 4 low bits: [4][16][4] bytes. Byte (v, c, i) has those of row 4 v + i in
 *                 its low half, those of row 16 + 4 v + i in its high half, of column c
 *                 (Q8_0: all 8 bits, [8][16][4] bytes, row 4 j + i)
 *         3rd bit of 3, 5th of 5  [16][4] bytes: bit j of byte (c, i) is that of row 4 j + i
 *         5th and 6th bit  [2][16][4] bytes, as the 2 low bits
 *         scales  [16] bytes, one a column, signed where there is no min; or [2][16], for 16
 *                 rows each (`halves` of quant_types.def)
 *         mins    [16] bytes, or [2][16]
 * A type with a book stores the number of a code in kern_books[], not the code.
 * A panel of W4C, or a unit's part of it (kernels/pack.h), is one block of as many sub-blocks as
 * it has rows. Four rows of K of a column share one 32-bit lane, which is what instructions for
 * 8-bit dot products read. The scale of a weight is d, or d times the sub-block's scale; its
 * min is dmin, or dmin times the sub-block's. Both products are exact in f32.
 *
 * Products with KERN_A_I8 (kern.h). Each number of C is one chain of f32 operations along K,
 * the same in all variants, so that they give the same bits. For each 32 rows of K (16, where
 * they have a scale) with s the scale of the activations a, and sum(a) that of these rows:
 *     C = fma((float)(sum(code a) - zero sum(a)), scale * s, C)
 *     C = fma(-min, s * sum(a), C)                                  (with a min)
 * Integers are exact: |sum| < 2^20. The packed activations hold for each row of A, as words:
 * int32 -zero sum(a), or with a min f32 s * sum(a); of 16 rows of K each where the type has a
 * scale for 16. Both products with s are rounded once, to f32.
 * Activations for W4C have one scale for the row of A, and both operations are done once for a
 * block, with the sums over all its rows: |sum(code a)| <= 15 * 127 * K < 2^31 for K <= 2^20.
 * The words are int32 sums of the activations of all rows of K before these 32, and up to
 * their end.   Paper: MNN-LLM (W4A8, per output channel and token). */
#ifndef KERNELS_PANEL_H
#define KERNELS_PANEL_H

#include <string.h>

#include "kernels/kern.h"

#define KERN_SUB 32 /* rows of K in a sub-block */

/* What codes of 4 bits stand for where that is not themselves. */
#define KERN_BOOK_NONE 0
#define KERN_BOOK_IQ4  1
#define KERN_BOOK_FP4  2
#define KERN_N_BOOKS   3
static const uint8_t kern_books[KERN_N_BOOKS][16] = {
    [KERN_BOOK_NONE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    /* IQ4_NL's numbers, plus 128: dense near 0, as weights are. */
    [KERN_BOOK_IQ4] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217,
                       241},
    /* Twice those of E2M1 (OCP Microscaling Formats): 0, .5, 1, 1.5, 2, 3, 4, 6 and their
     * negatives; plus 12. */
    [KERN_BOOK_FP4] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0},
};

/* The members of quant_types.def as constants: KERN_Q4_0_SUBS, _HEAD, _SUB, _BITS, _ZERO, _MIN,
 * _SCALES, _HALVES, _BOOK, _WIDE. And _WIDTH: bits of a code that is multiplied. */
enum {
#define KERN_QUANT_TYPE(T, name, block, bytes, subs, head, sub, bits, zero, min, scales, \
                        halves, book, wide)                                              \
    KERN_##T##_SUBS = subs, KERN_##T##_HEAD = head, KERN_##T##_SUB = sub,                \
    KERN_##T##_BITS = bits, KERN_##T##_ZERO = zero, KERN_##T##_MIN = min,                \
    KERN_##T##_SCALES = scales, KERN_##T##_HALVES = halves, KERN_##T##_BOOK = book,      \
    KERN_##T##_WIDE = wide,                                                              \
    KERN_##T##_WIDTH = (book) == KERN_BOOK_IQ4   ? 8                                     \
                       : (book) == KERN_BOOK_FP4 ? 5                                     \
                                                 : (bits),
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
};

/* Of the type that a file gemm_quant_*.c is compiled for. */
#define KERN_QUANT(x)   KERN_PASTE(KERN_, QUANT, _##x) /* KERN_QUANT(BITS) */
#define KERN_QUANT_ENUM KERN_PASTE(KERN_, QUANT, )
#define KERN_QUANT_OP   KERN_PASTE(KERN_GEMM_, QUANT, )

/* The same as numbers. All 0 for types that are not quantised. */
struct kern_form {
    int subs, head, sub, bits, zero, min, scales, halves, book, wide;
};
const struct kern_form *kern_form(enum kern_type t);

/* Sub-blocks in a block of a panel of `rows` rows. */
static inline int64_t kern_form_subs(const struct kern_form *f, int64_t rows)
{
    return f->subs > 0 ? f->subs : rows / KERN_SUB;
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
    if (f->bits < 4) {
        low = s[64 * (j / 4) + lane] >> (2 * (j % 4)) & 3;
        return f->bits == 2 ? low : low | (s[128 + lane] >> j & 1) << 2;
    }
    low = s[64 * (j % 4) + lane] >> (j / 4 * 4) & 15;
    if (f->bits == 5)
        return low | (s[256 + lane] >> j & 1) << 4;
    if (f->bits == 6)
        return low | (s[256 + 64 * (j / 4) + lane] >> (2 * (j % 4)) & 3) << 4;
    return kern_books[f->book][low];
}

static inline float kern_form_f16(const uint8_t *at)
{
    uint16_t h;

    memcpy(&h, at, 2);
    return kern_f16_to(h);
}

/* The d (which 0) or dmin (1) of column c in the head at b. */
static inline float kern_form_head(const struct kern_form *f, const uint8_t *b, int which,
                                   int c)
{
    const uint8_t *at = b + (f->wide == 2 ? 4 : 2) * (KERN_PANEL * which + c);
    uint16_t h;
    float x;

    memcpy(&h, at, 2);
    if (f->wide < 2)
        return f->wide ? kern_bf16_to(h) : kern_f16_to(h);
    memcpy(&x, at, 4);
    return x;
}

/* The scale of row k of column c in the sub-block at s of the block at b. */
static inline float kern_form_scale(const struct kern_form *f, const uint8_t *b,
                                    const uint8_t *s, int k, int c)
{
    const float d = kern_form_head(f, b, 0, c);
    const int half = f->halves == 2 ? k / 16 : 0;

    if (f->scales == 0)
        return d;
    s += f->scales + KERN_PANEL * half + c;
    return d * (float)(f->min ? *s : (int8_t)*s);
}

/* The number that is subtracted where the type has a min. */
static inline float kern_form_min(const struct kern_form *f, const uint8_t *b,
                                  const uint8_t *s, int k, int c)
{
    const float d = kern_form_head(f, b, 1, c);
    const int half = f->halves == 2 ? k / 16 : 0;

    return f->scales == 0 ? d : d * s[f->scales + KERN_PANEL * (f->halves + half) + c];
}

/* The weight, rounded to f32 once. */
static inline float kern_form_weight(const struct kern_form *f, const uint8_t *b,
                                     const uint8_t *s, int k, int c)
{
    float scale = kern_form_scale(f, b, s, k, c);
    int code = kern_form_code(f, s, k, c) - f->zero;

    return scale * (float)code - (f->min ? kern_form_min(f, b, s, k, c) : 0);
}

/* ---- packing ---- */

/* Write n_blocks blocks of a file's row into column c of the panel that begins at `panel`;
 * row NULL: zeros. */
void kern_panel_put(enum kern_type t, void *panel, int c, const void *row,
                    int64_t n_blocks);
/* The same of all columns of the panel: several times as fast where the format has
 * kern_quant.put and no row is NULL. */
void kern_panel_put_all(enum kern_type t, void *panel, const void *const rows[KERN_PANEL],
                        int64_t n_blocks);
/* Read n_blocks blocks of column c back as f32: from the beginning of a panel, and of one whose
 * type is one block (kern_type_one_block()) all of them. */
void kern_panel_get(enum kern_type t, const void *panel, int c, float *out,
                    int64_t n_blocks);

#endif
