#include "step/ahead.h"

/* Tokens whose keys and values a chunk attends to or, for the latest, writes. */
static int64_t n_tok(const struct model_chunk *chunk)
{
    return chunk->pos0 + chunk->n_tok;
}

void model_ahead_begin(struct model_ahead *a, const struct model_chunk *chunks,
                       int n_chunks, int layer, int head_lo, int head_hi,
                       int64_t row_bytes, int64_t most, int64_t meanwhile)
{
    int64_t all = 0;

    for (int c = 0; c < n_chunks; c++)
        all += n_tok(&chunks[c]) * row_bytes * 2 * (head_hi - head_lo);
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

/* The byte of the present run where its next part begins, and into *left how many of the run
 * follow. The run is of all a head's tokens, or of those in a block. */
static const char *present(const struct model_ahead *a, int64_t *left)
{
    const struct model_chunk *chunk = &a->chunks[a->chunk];
    int64_t most = (int64_t)chunk->kv->run_bytes / a->row_bytes;
    int64_t n = n_tok(chunk) - a->tok;

    n = n < most ? n : most;
    *left = 2 * n * a->row_bytes - a->at;
    return (const char *)kv_token_at(chunk->kv, a->layer, a->head, 0, a->tok + n - 1,
                                     (size_t)a->row_bytes) +
           a->at;
}

/* Move to the next run. */
static void advance(struct model_ahead *a)
{
    const struct model_chunk *chunk = &a->chunks[a->chunk];

    a->at = 0;
    a->tok += (int64_t)chunk->kv->run_bytes / a->row_bytes;
    if (a->tok < n_tok(chunk))
        return;
    a->tok = 0;
    if (++a->head < a->head_hi)
        return;
    a->head = a->head_lo;
    a->chunk++;
}

const void *model_ahead_next(void *ctx, int64_t *bytes)
{
    struct model_ahead *a = ctx;

    int64_t run;
    const char *from;

    a->due += a->rate * (double)*bytes;
    if (a->left == 0 || a->due < (double)*bytes)
        return NULL;
    from = present(a, &run);
    if (*bytes < run) {
        a->at += *bytes;
    } else {
        *bytes = run;
        advance(a);
    }
    a->left = a->left > *bytes ? a->left - *bytes : 0;
    a->due -= (double)*bytes;
    return from;
}
