#include "experiments/study/support/kv_ops.h"

#include "base/mem.h"

#define ALIGN_TOK 16 /* also the tokens of a block: the most operations */
#define N_BUCKETS 10 /* as of S3 */

struct study_kv_ops_seq {
    int64_t n_tok, last_tok; /* it has, and will have */
    struct kv_extent e;
};

static int begin(struct study_kv_ops *k, struct study_kv_ops_seq *q)
{
    int64_t prompt = 1 + (int64_t)rng_below(&k->rng, (uint64_t)k->max_tok / 2);
    int64_t output = 1 + (int64_t)rng_below(&k->rng, (uint64_t)(k->max_tok - prompt));
    /* A predicted length between half and one and a half of the true one. */
    int64_t predicted = output / 2 + (int64_t)rng_below(&k->rng, (uint64_t)output + 1);
    const struct kv_need need = {.prompt_tok = prompt,
                                 .gen_tok = predicted > 1 ? predicted : 1};

    q->n_tok = prompt;
    q->last_tok = prompt + output;
    k->n_ops++;
    return k->alloc->reserve(k->state, &need, &q->e);
}

static int next_op(struct study_kv_ops *k, struct study_kv_ops_seq *q)
{
    struct kv_move move = {.old_id = -1};

    if (q->last_tok <= q->e.cap_tok) {
        k->n_tok += q->last_tok - q->n_tok;
        k->n_ops++;
        k->alloc->release(k->state, q->e.id);
        return begin(k, q);
    }
    k->n_tok += q->e.cap_tok - q->n_tok;
    q->n_tok = q->e.cap_tok;
    k->n_ops++;
    TRY(k->alloc->grow(k->state, &q->e, q->n_tok, q->n_tok + 1, &move));
    kv_alloc_moved(k->alloc, k->state, &move);
    return OK;
}

int study_kv_ops_open(struct study_kv_ops *k, const struct kv_alloc *alloc,
                      int64_t n_seqs, int64_t max_tok, int64_t seed)
{
    /* A sequence that moves has both its places for a moment, free runs between others can be
     * too short, and odma keeps some space. */
    const struct kv_arena arena = {.n_tok = (2 * n_seqs + N_BUCKETS + 2) * max_tok,
                                   .max_tok = max_tok,
                                   .align_tok = ALIGN_TOK,
                                   .block_tok = ALIGN_TOK,
                                   .max_seqs = n_seqs,
                                   .n_fixed = N_BUCKETS,
                                   .bounds = &k->bounds};

    *k = (struct study_kv_ops){.alloc = alloc, .n_seqs = n_seqs, .max_tok = max_tok};
    rng_init(&k->rng, (uint64_t)seed, "lengths");
    kv_bounds_equal(&k->bounds, N_BUCKETS, max_tok, ALIGN_TOK);
    k->seqs = mem_new(MEM_OTHER, (size_t)n_seqs, sizeof(*k->seqs));
    TRY(kv_alloc_open(alloc, &k->state, &arena));
    for (int64_t i = 0; i < n_seqs; i++)
        TRY(begin(k, &k->seqs[i]));
    k->n_ops = 0;
    return OK;
}

int study_kv_ops_run(struct study_kv_ops *k, int64_t n)
{
    for (; n > 0; n--) {
        TRY(next_op(k, &k->seqs[k->next]));
        k->next = (k->next + 1) % k->n_seqs;
    }
    return OK;
}

void study_kv_ops_close(struct study_kv_ops *k)
{
    if (k->state)
        k->alloc->close(k->state);
    k->state = NULL;
    mem_free(k->seqs);
    k->seqs = NULL;
}
