/* kernels/attn_pieces.h - where the keys and values of an attention call are: in one piece, or
 * in the blocks of a table (struct kern_attn_args).
 *
 * A kernel takes keys in tiles of its own size, from kv_lo on, wherever they are. It asks for
 * the pieces of a tile once, for all rows, and goes through them in order. A sum goes on from
 * one piece to the next, so that its bits are the same for any table. Contiguous keys are one
 * piece.   Threads: any. */
#ifndef KERNELS_ATTN_PIECES_H
#define KERNELS_ATTN_PIECES_H

#include <assert.h>

#include "kernels/kern.h"

/* Consecutive tokens whose keys and values are one after another in memory: keys downwards,
 * values upwards. */
struct kern_attn_piece {
    const void *k, *v; /* of the first token */
    int64_t n;         /* tokens */
};

/* Its tokens among `left` that are still wanted. */
static inline int kern_attn_piece_n(const struct kern_attn_piece *p, int left)
{
    return p->n < left ? (int)p->n : left;
}

/* The most pieces of n tokens. */
#define KERN_ATTN_PIECES_MAX(n)                                                          \
    (((n) + KERN_ATTN_BLOCK_TOK_MIN - 2) / KERN_ATTN_BLOCK_TOK_MIN + 1)

/* The key and the value of token t; vec_bytes: of one of them (kern_kv_bytes()). n is 1. */
static inline struct kern_attn_piece kern_attn_token(const struct kern_attn_args *a,
                                                     int64_t t, size_t vec_bytes)
{
    size_t block = 0, at;

    if (a->blocks) {
        block = (size_t)a->blocks[t >> __builtin_ctzll((uint64_t)a->block_tok)] *
                a->block_bytes;
        t &= a->block_tok - 1;
    }
    at = (size_t)t * vec_bytes;
    return (struct kern_attn_piece){.k = (const char *)a->k + block - at,
                                    .v = (const char *)a->v + block + at,
                                    .n = 1};
}

/* Tokens [t, t + n) in their order, n >= 1; returns the number of pieces, at most
 * KERN_ATTN_PIECES_MAX(n). */
static inline int kern_attn_pieces(struct kern_attn_piece *out,
                                   const struct kern_attn_args *a, int64_t t, int64_t n,
                                   size_t vec_bytes)
{
    int n_pieces = 0;

    assert(!a->blocks || (a->block_tok >= KERN_ATTN_BLOCK_TOK_MIN &&
                          (a->block_tok & (a->block_tok - 1)) == 0));
    for (int64_t end = t + n; t < end; t += out[n_pieces++].n) {
        int64_t left = a->blocks ? a->block_tok - (t & (a->block_tok - 1)) : n;

        out[n_pieces] = kern_attn_token(a, t, vec_bytes);
        out[n_pieces].n = left < end - t ? left : end - t;
    }
    return n_pieces;
}

#endif
