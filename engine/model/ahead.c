#include "model/ahead.h"

void model_ahead_begin(struct model_ahead *a, const struct model_chunk *chunks,
                       int n_chunks, int layer, int head_lo, int head_hi,
                       int64_t row_bytes, int64_t most)
{
    *a = (struct model_ahead){.chunks = chunks,
                              .n_chunks = n_chunks,
                              .layer = layer,
                              .head_lo = head_lo,
                              .head_hi = head_hi,
                              .row_bytes = row_bytes,
                              .left = head_lo < head_hi ? most : 0,
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

const void *model_ahead_next(void *ctx, int64_t bytes)
{
    struct model_ahead *a = ctx;

    while (a->left > 0 && a->chunk < a->n_chunks) {
        const struct model_chunk *c = &a->chunks[a->chunk];
        int64_t run = c->pos0 * a->row_bytes - a->at;
        const char *from = (const char *)kv_at(c->kv, a->layer, a->head, a->v) + a->at;

        if (run > bytes)
            a->at += bytes;
        else
            advance(a);
        a->left -= run < bytes ? run : bytes;
        if (run > 0)
            return from;
    }
    a->left = 0;
    return NULL;
}
