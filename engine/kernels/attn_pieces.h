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

/* Consecutive tokens whose keys follow each other in memory, as do their values. */
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

/* Bytes from a->k to the key of token t, and from a->v to its value; vec_bytes: of one of them
 * (kern_kv_bytes()). */
static inline size_t kern_attn_offset(const struct kern_attn_args *a, int64_t t,
                                      size_t vec_bytes)
{
    int64_t block;

    if (!a->blocks)
        return (size_t)t * vec_bytes;
    block = a->blocks[t >> __builtin_ctzll((uint64_t)a->block_tok)];
    return (size_t)block * a->block_bytes + (size_t)(t & (a->block_tok - 1)) * vec_bytes;
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
        const size_t at = kern_attn_offset(a, t, vec_bytes);
        int64_t left = a->blocks ? a->block_tok - (t & (a->block_tok - 1)) : n;

        out[n_pieces] = (struct kern_attn_piece){.k = (const char *)a->k + at,
                                                 .v = (const char *)a->v + at,
                                                 .n = left < end - t ? left : end - t};
    }
    return n_pieces;
}

#endif
