/* kernels/attn_pieces.h - where the keys and values of an attention call are: in one piece, or
 * in the blocks of a table (struct kern_attn_args); and prefetching along them.
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

/* The one of its first `left` keys that is first in memory. */
static inline const void *kern_attn_piece_low(const struct kern_attn_piece *p,
                                              int64_t left, size_t vec_bytes)
{
    return (const char *)p->k - (size_t)((p->n < left ? p->n : left) - 1) * vec_bytes;
}

/* The same of the first piece of tokens [t, t + n), as many of them as there are. */
static inline const void *kern_attn_low_key(const struct kern_attn_args *a, int64_t t,
                                            int64_t n, size_t vec_bytes)
{
    int64_t left = a->kv_hi - t < n ? a->kv_hi - t : n;
    struct kern_attn_piece p = kern_attn_token(a, t, vec_bytes);

    p.n = a->blocks ? a->block_tok - (t & (a->block_tok - 1)) : left;
    return kern_attn_piece_low(&p, left, vec_bytes);
}

/* Prefetching along a run of keys or values: it ends at `end`, after which reading goes on at
 * `next`. bytes: how far ahead of what is read. */
struct kern_attn_ahead {
    const void *end, *next;
    int64_t bytes;
};

/* How many bytes, at most `most`, lie one after another in pieces of the tokens [t, t + n). */
static inline int64_t kern_attn_ahead_bytes(const struct kern_attn_args *a, int64_t most,
                                            int64_t t, int64_t n, size_t vec_bytes)
{
    n = a->blocks && a->block_tok < n ? a->block_tok : n;
    n = a->kv_hi - t < n ? a->kv_hi - t : n;
    return most < n * (int64_t)vec_bytes ? most : n * (int64_t)vec_bytes;
}

/* Ask for the lines of `bytes` bytes ahead of those at `at`. */
static inline __attribute__((always_inline)) void
kern_attn_prefetch(const struct kern_attn_ahead *ahead, const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at + (uintptr_t)ahead->bytes;

    if (from >= (uintptr_t)ahead->end)
        from += (uintptr_t)ahead->next - (uintptr_t)ahead->end;
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)(from + i));
}

#endif
