/* kernels/quant.h - quantised weights, as model files hold them.
 *
 * A row of K weights is a row of blocks of consecutive weights. A block holds an integer q
 * of a few bits for each weight, and the scales that turn integers into weights. Blocks of
 * 256 weights (Q4_K and the like) have sub-blocks with integer scales, which one f16 scale
 * multiplies. In every format here
 *     w = (d * scale) * q - dmin * min
 * with q an integer, or one that a few bits name (kern_books[]), d and dmin of the block, scale
 * and min of the sub-block. Both products have at most 24 significant bits, so they are exact in
 * f32, and a weight is rounded at most once, by the subtraction: every order of these operations
 * in f32 gives the same bits.
 *
 * A format is a row of quant_types.def and a plug-in: one file quant/<name>.c that ends in one
 * `const struct kern_quant kern_quant_<name>`. Its kernels are made from the files
 * gemm_quant_*.c. A scheme says how f32 weights are rounded to a format: over how many weights
 * of a row one scale is chosen.
 * Paper: MNN-LLM, weights in 4 bits (w4c).   Threads: any. */
#ifndef KERNELS_QUANT_H
#define KERNELS_QUANT_H

#include <math.h>
#include <string.h>

#include "kernels/kern.h"

#define KERN_QUANT_MAX     256 /* most weights of a block */
#define KERN_QUANT_SUB_MAX 16  /* most sub-blocks of a block */

/* A decoded block: w[i] = (d * scale[s]) * q[i] - dmin * min[s], s = i / kern_quant.sub. */
struct kern_quant_block {
    float d, dmin;
    int8_t scale[KERN_QUANT_SUB_MAX], min[KERN_QUANT_SUB_MAX];
    int8_t q[KERN_QUANT_MAX];
};

struct kern_quant {
    enum kern_type type;
    int gguf_type;      /* the number of the type in GGUF files; -1: none */
    int gguf_file_type; /* of a file of mostly this type; -1: none is written */
    int sub;            /* weights that share an integer scale; divides the block */
    int q_min, q_max;   /* range of kern_quant_block.q */
    /* Fill out->d and out->q. The other members are those of a format without sub-blocks
     * (scale 1, dmin 0, min 0) before the call. */
    void (*decode)(struct kern_quant_block *out, const uint8_t *block);
    /* NULL, or: write a block of each column of a panel, as panel.h lays them out and without
     * decoding them. Scales keep their bits. Loading is as fast as this is. */
    void (*put)(uint8_t *to, const uint8_t *const block[KERN_PANEL]);
    /* NULL in both where this project only reads the format. Types with signed scales and MXFP4
     * search for the least sum of squared errors; `scale` then only says whether f16 holds the
     * scales, and the bound is a third of the largest magnitude.
     * scale: d and dmin, as the encoder stores them in f16, for weights in [lo, hi].
     * They are infinite where f16 is too narrow. With them, and up to rounding in f32,
     * |w - dequantised w| <= |d| / 2 for every w in [lo, hi]. Q4_0 has -8 but not 8, and Q5_0
     * -16 but not 16: at one end it is |d|. In Q4_K it is |d| times half of the sub-block's
     * scale.
     * encode: the block of the nearest weights; in Q4_K with scales of its own where these make
     * the sum of squared errors smaller, within that bound of the largest scale, 63. */
    void (*scale)(float lo, float hi, float *d, float *dmin);
    void (*encode)(uint8_t *block, const float *w, float d, float dmin);
};
/* All formats, NULL-terminated; written by make from the folder. */
extern const struct kern_quant *const kern_quants[];

/* NULL: weights of this type are plain numbers. */
const struct kern_quant *kern_quant_of(enum kern_type t);
void kern_quant_decode(const struct kern_quant *f, struct kern_quant_block *out,
                       const void *block);
/* out[n]: the weights [0, n) of a row of whole blocks, as the definition of the format says.
 * `row` needs no alignment. n is a multiple of the block. */
void kern_quant_to_f32(const struct kern_quant *f, float *out, const void *row,
                       int64_t n);

/* Do all blocks of the row of n weights have the same scales, as KERN_W4C demands? A row of
 * Q4_1. */
bool kern_quant_is_w4c(const void *row, int64_t n);

/* The same of a row of any type: plain numbers become the f32 of the same value. */
void kern_row_to_f32(enum kern_type t, float *out, const void *row, int64_t n);

/* A way to round f32 weights. Scales are chosen for `group` consecutive weights of a row,
 * or for the whole row (0: the paper's "per output channel"), and stored in each block, so
 * that every reader of the format reads them. */
struct kern_quant_scheme {
    const char *name; /* "w4c" */
    enum kern_type type;
    int64_t group; /* a multiple of the format's block, or 0 */
};
/* All schemes in the order in which options list them: the first one, and the others, as
 * (name, type, group). */
#define KERN_QUANT_SCHEMES(FIRST, OTHER)                                                 \
    FIRST("q8_0", Q8_0, 32)                                                              \
    OTHER("q4_0", Q4_0, 32)                                                              \
    OTHER("q4_1", Q4_1, 32)                                                              \
    OTHER("q5_0", Q5_0, 32)                                                              \
    OTHER("q5_1", Q5_1, 32)                                                              \
    OTHER("q4_k", Q4_K, 256)                                                             \
    OTHER("w4b64", Q4_1, 64)                                                             \
    OTHER("w4b128", Q4_1, 128)                                                           \
    OTHER("w4c", Q4_1, 0)                                                                \
    OTHER("w8c", Q8_0, 0)                                                                \
    OTHER("q3_k", Q3_K, 256)                                                             \
    OTHER("iq4_nl", IQ4_NL, 32)                                                          \
    OTHER("iq4_xs", IQ4_XS, 256)                                                         \
    OTHER("mxfp4", MXFP4, 32)
/* Ends with a row without a name. */
extern const struct kern_quant_scheme kern_quant_schemes[];
/* ERR_ARG: no scheme has this name. */
MUST int kern_quant_scheme_find(const char *name, const struct kern_quant_scheme **out);
/* The scheme for rows of n weights: s, but q4_0 in place of those with blocks of 256 weights where
 * rows are not whole blocks. */
const struct kern_quant_scheme *
kern_quant_scheme_for_row(const struct kern_quant_scheme *s, int64_t n);
/* Write the blocks of w[n], a row, to out. ERR_ARG: n is not a multiple of the block; a
 * weight is NaN or infinite; it is too large for scales in f16. */
MUST int kern_quantize(const struct kern_quant_scheme *s, void *out, const float *w,
                       int64_t n);

/* ---- for the formats ---- */

static inline float kern_quant_f16(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof(h));
    return kern_f16_to(h);
}

static inline void kern_quant_put_f16(uint8_t *p, float x)
{
    uint16_t h = kern_f16_of(x);

    memcpy(p, &h, sizeof(h));
}

/* The smallest f16 that is not below x >= 0, and the largest that is not above x. Scales are
 * rounded outwards, so that no weight is beyond the range of its integers. */
float kern_quant_f16_above(float x);
float kern_quant_f16_below(float x);
/* x / d rounded to the nearest integer, the even one of two, in [lo, hi]; 0 where d is 0. */
static inline int kern_quant_nearest(float x, float d, int lo, int hi)
{
    const float whole =
        0x1.8p23f; /* floats near it are whole numbers: adding it rounds */
    float q = d == 0 ? 0 : x / d;

    q = q < (float)lo ? (float)lo : q > (float)hi ? (float)hi : q;
    return (int)(q + whole - whole);
}
/* d and dmin for integers q from 0 to q_max, the lowest weight being 0. */
void kern_quant_scale_from(float lo, float hi, int q_max, float *d, float *dmin);
/* The 32 numbers of 5 bits in the 20 bytes of Q5_0 and Q5_1. */
void kern_quant_get_5_bits(int8_t *q, const uint8_t *p);
void kern_quant_put_5_bits(uint8_t *p, const int8_t *q);
/* 32 numbers of 4 bits in 16 bytes, the i-th with number i in its low and number 16 + i in its
 * high half: as codes of kern_books[book] less `zero`, and written. */
void kern_quant_get_book(int8_t *q, const uint8_t *p, int book, int zero);
void kern_quant_put_4_bits(uint8_t *p, const uint8_t *number);
void kern_quant_decode_q4_1(struct kern_quant_block *out, const uint8_t *block);
/* The 6-bit scale and min of sub-block s in the 12 bytes of Q4_K and Q5_K. */
void kern_quant_scale_min(const uint8_t *p, int s, int8_t *scale, int8_t *min);
/* The same, written to bytes that were 0. */
void kern_quant_put_scale_min(uint8_t *p, int s, int scale, int min);

#endif
