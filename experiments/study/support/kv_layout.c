#include "experiments/study/support/kv_layout.h"

#include "base/rng.h"

size_t study_kv_tok_bytes(const struct study_kv_layout *l)
{
    return (size_t)(2 * l->n_layers * l->n_kv_heads) * l->vec_bytes;
}

void study_kv_place(const struct study_kv_layout *l, int64_t layer, int64_t head,
                    int64_t seq, struct kern_attn_args *a)
{
    int64_t run_tok = l->block_tok ? l->block_tok : l->ctx_tok;
    size_t run_bytes = (size_t)run_tok * l->vec_bytes;
    const char *memory =
        l->memory + (size_t)(layer * l->n_kv_heads + head) * 2 * run_bytes;

    a->blocks = NULL;
    if (l->block_tok) {
        a->blocks = l->blocks + seq * (l->ctx_tok / l->block_tok);
        a->block_tok = l->block_tok;
        a->block_bytes = (size_t)l->block_tok * study_kv_tok_bytes(l);
    } else {
        memory += (size_t)(seq * l->ctx_tok) * study_kv_tok_bytes(l);
    }
    a->k = memory + run_bytes - l->vec_bytes;
    a->v = memory + run_bytes;
}

void study_kv_number(int32_t *out, int32_t n, bool random, int64_t seed)
{
    struct rng r;

    rng_init(&r, (uint64_t)seed, "blocks");
    for (int32_t i = 0; i < n; i++) {
        int64_t at = random ? (int64_t)rng_below(&r, (uint64_t)i + 1) : i;

        out[i] = out[at]; /* what was there goes to the end */
        out[at] = i;
    }
}
