/* experiments/study/support/kv_layout.h - where the keys and values of equally long sequences
 * are in memory, as the engine lays them out (kv/kv.h): [layer][kv_head] of each
 * sequence, or of each block of its table.   Threads: any. */
#ifndef STUDY_KV_LAYOUT_H
#define STUDY_KV_LAYOUT_H

#include <stdbool.h>

#include "kernels/kern.h"

struct study_kv_layout {
    char *memory; /* all sequences, one after another where they are contiguous */
    int64_t n_layers, n_kv_heads, ctx_tok; /* ctx_tok: of each sequence */
    size_t vec_bytes;                      /* of a key or value */
    int64_t block_tok;                     /* divides ctx_tok; 0: contiguous */
    const int32_t *blocks;                 /* [sequence][ctx_tok / block_tok] */
};

/* Bytes of a token in all layers and heads. */
size_t study_kv_tok_bytes(const struct study_kv_layout *l);
/* Set what `a` says of the place of keys and values: those of a head of a layer of sequence
 * `seq`. */
void study_kv_place(const struct study_kv_layout *l, int64_t layer, int64_t head,
                    int64_t seq, struct kern_attn_args *a);
/* The numbers 0 .. n - 1, in random order or in sequence. */
void study_kv_number(int32_t *out, int32_t n, bool random, int64_t seed);

#endif
