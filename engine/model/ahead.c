#include "model/ahead.h"

void model_ahead_begin(struct model_ahead *a, const struct model_chunk *chunks,
                       int n_chunks, int layer, int head_lo, int head_hi,
                       int64_t row_bytes, int64_t most, int64_t meanwhile)
{
    int64_t all = 0;

    for (int c = 0; c < n_chunks; c++)
        all += chunks[c].pos0 * row_bytes * 2 * (head_hi - head_lo);
    all = all < most ? all : most;
    *a = (struct model_ahead){.chunks = chunks,
                              .n_chunks = n_chunks,
                              .layer = layer,
                              .head_lo = head_lo,
                              .head_hi = head_hi,
                              .row_bytes = row_bytes,
                              .left = all,
                              .rate =
                                  all < meanwhile ? (double)all / (double)meanwhile : 1,
                              .head = head_lo};
}

/* Move to the next run. */
static void advance(struct model_ahead *a)
{
    a->at = 0;
    if (a->v == 0) {
        a->v = 1;
        return;
    }
    a->v = 0;
    if (++a->head < a->head_hi)
        return;
    a->head = a->head_lo;
    a->chunk++;
}

/* The byte of the run's present part, and into *left how many of the run follow it without a
 * gap: to the end of its block, where it has blocks. */
static const char *present(const struct model_ahead *a, int64_t *left)
{
    const struct kv_slot *kv = a->chunks[a->chunk].kv;
    const char *run = kv_at(kv, a->layer, a->head, a->v);
    int64_t block = (int64_t)kv->head_bytes, at = a->at;

    if (kv->blocks) {
        run += (size_t)kv->blocks[at / block] * kv->block_bytes;
        at %= block;
        *left = *left < block - at ? *left : block - at;
    }
    return run + at;
}

const void *model_ahead_next(void *ctx, int64_t *bytes)
{
    struct model_ahead *a = ctx;

    a->due += a->rate * (double)*bytes;
    if (a->due < (double)*bytes)
        return NULL;
    while (a->left > 0 && a->chunk < a->n_chunks) {
        int64_t run = a->chunks[a->chunk].pos0 * a->row_bytes - a->at, n = run;
        const char *from = run > 0 ? present(a, &n) : NULL;

        n = n < *bytes ? n : *bytes;
        if (n < run)
            a->at += n;
        else
            advance(a);
        a->left -= n;
        a->due -= (double)n;
        if (n > 0) {
            *bytes = n;
            return from;
        }
    }
    a->left = 0;
    return NULL;
}
