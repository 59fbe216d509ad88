/* kernels/pack.h - packed matrices, and packed activations.
 *
 * A weight matrix W[N, K] (N output features, as files store it: row n holds the K
 * weights of output n) is kept in panels of 16 columns of its transpose (kern.h). Two
 * arrangements:
 *   split along N (QKV, gate+up, head)   [panel][k][16]               k_unit = k_pad
 *   split along K (attention output, down)  [unit][panel][k_unit][16]
 * so that a tensor-parallel rank owns contiguous bytes in both cases and ranks of
 * different degrees nest (floor partition). Units of a K-split matrix are skewed by one
 * panel row block so that equal panels of successive units do not fall on the same cache
 * sets.
 * Threads: packing different panels (or units) may run in parallel. */
#ifndef KERNELS_PACK_H
#define KERNELS_PACK_H

#include "kernels/kern.h"

struct kern_mat {
    enum kern_type type;
    int64_t n, k;       /* logical sizes */
    int64_t n_panels;   /* ceil(n / 16) */
    int64_t k_pad;      /* k, rounded up to even for bf16, or to whole blocks */
    int64_t k_unit;     /* rows in a unit; k_pad when not split */
    int64_t n_units;    /* 1 when not split */
    size_t panel_bytes; /* kern_panel_size(type, k_unit) */
    size_t unit_bytes;  /* from a unit to the next; 0 when not split */
    size_t bytes;       /* of data, in total */
    void *data;         /* 64-byte aligned, not owned */
};

/* Describe a matrix; k_unit = 0 for no split along K (k_unit must be even otherwise, and is
 * rounded up to whole blocks of a quantised type). Sets everything but data. */
void kern_mat_layout(struct kern_mat *m, enum kern_type type, int64_t n, int64_t k,
                     int64_t k_unit);

/* First byte of (unit, panel). */
static inline void *kern_mat_at(const struct kern_mat *m, int64_t unit, int64_t panel)
{
    return (char *)m->data + (size_t)unit * m->unit_bytes +
           (size_t)panel * m->panel_bytes;
}

/* The rows of K that a panel of a unit has room for. In a view of a part of a unit these are more
 * than k_unit. */
static inline int64_t kern_mat_panel_rows(const struct kern_mat *m)
{
    int64_t block = kern_type_block(m->type);
    size_t one = kern_panel_size(m->type, block);
    size_t each = kern_panel_size(m->type, 2 * block) - one;

    return (int64_t)((m->panel_bytes - one) / each + 1) * block;
}

/* The rows of K that a product can be cut at: multiples of this, whole units, and of bf16 weights
 * what any format of activations allows. */
static inline int64_t kern_mat_grain(const struct kern_mat *m)
{
    int64_t unit = m->n_units > 1 || kern_type_one_block(m->type) ? m->k_unit : 2;
    int64_t grain = unit;

    while (grain % (m->type == KERN_BF16 ? KERN_A_ROWS_K : kern_type_block(m->type)) != 0)
        grain += unit;
    return grain;
}

/* Write one source row (output feature n, its m->k weights contiguous at `src` in
 * `src_type`) into column n of its panel, in every unit. Conversions allowed: to the same
 * type, from any type to f32. A row of a quantised type is whole blocks. (A caller that packs
 * whole panels calls this for 16 rows, padded columns with src = NULL, which writes zeros.) */
void kern_mat_put_row(struct kern_mat *m, int64_t n, const void *src,
                      enum kern_type src_type);
/* Pack all columns of panels [p_lo, p_hi) at once, faster than row by row: rows[i] is the
 * source row of output p_lo*16 + i or NULL for a zero column. */
void kern_mat_put_panels(struct kern_mat *m, int64_t p_lo, int64_t p_hi,
                         const void *const *rows, enum kern_type src_type);
/* Read column n back as f32 [k] (embedding look-up in a tied head, tests). */
void kern_mat_get_row(const struct kern_mat *m, int64_t n, float *out);

/* ---- activations ---- */

/* The number of blocks of nearly equal height, at most mr_max rows, for M rows. */
static inline int64_t kern_a_blocks(int64_t m, int mr_max)
{
    return (m + mr_max - 1) / mr_max;
}
/* First row of block i (so block i has kern_a_row(i+1) - kern_a_row(i) rows). */
static inline int64_t kern_a_row(int64_t m, int64_t n_blocks, int64_t i)
{
    return n_blocks == 1 ? m * i : m * i / n_blocks; /* few rows: no division */
}
/* Bytes from the beginning of a block of mr rows in `fmt` to its column k, a multiple of
 * the grain. */
size_t kern_a_offset(enum kern_a_format fmt, int64_t mr, int64_t k);
/* Bytes of a packed activation matrix [m, k_pad] in `fmt`: block i starts at
 * kern_a_bytes(fmt, kern_a_row(i), k_pad). */
size_t kern_a_bytes(enum kern_a_format fmt, int64_t m, int64_t k_pad);

/* Pack rows [r0, r0 + mr) of x (row-major, ldx floats, k columns; columns k..k_pad become
 * 0) as one block at dst, for v. */
void kern_a_pack(const struct kern_variant *v, void *dst, const float *x, int64_t ldx,
                 int64_t mr, int64_t k, int64_t k_pad);

#endif
