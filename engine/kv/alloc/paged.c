/* Blocks of a few tokens and a table of blocks for each sequence: a sequence has no more than
 * one block that is not full, and growing copies nothing, but its keys and values are
 * scattered. The idea is vLLM's (PagedAttention); the limits of 16 and 512 tokens are those
 * between which the cost of scattered reads is of interest. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "kv/alloc.h"

struct pages {
    int64_t max_tok, block_tok, row_blocks, max_seqs;
    int64_t n_blocks, n_free, n_rows_free;
    int64_t n_keep; /* free blocks that a sequence leaves to those that have memory */
    int64_t n_visited;
    int32_t *free;   /* [n_blocks] a stack of blocks */
    int32_t *tables; /* [max_seqs][row_blocks], a mapping of tables_bytes */
    size_t tables_bytes;
    int32_t *n_in_row;  /* [max_seqs] blocks of each table */
    int32_t *free_rows; /* [max_seqs] a stack of tables */
};

static void pages_close(void *state)
{
    struct pages *p = state;

    mem_free(p->free);
    if (p->tables)
        mem_unmap(MEM_KV, p->tables, p->tables_bytes);
    mem_free(p->n_in_row);
    mem_free(p->free_rows);
    mem_free(p);
}

/* Blocks of the longest sequence. */
static int64_t blocks_of(const struct kv_arena *a)
{
    return (a->max_tok - 1) / a->block_tok + 1;
}

static int check_arena(const struct kv_arena *a)
{
    TRY(kv_block_tok_check(a->block_tok));
    if (!(a->keep_frac >= 0 && a->keep_frac < 1))
        return err_set(ERR_ARG,
                       "kv: a share of %g of the blocks to keep: expected 0 to 1",
                       a->keep_frac);
    if (a->max_seqs < 1 || a->max_seqs > INT32_MAX / blocks_of(a))
        return err_set(ERR_ARG, "kv: block tables of %lld sequences: expected 1 to %lld",
                       (long long)a->max_seqs, (long long)(INT32_MAX / blocks_of(a)));
    if (a->n_tok / a->block_tok > INT32_MAX)
        return err_set(ERR_ARG, "kv: %lld blocks: expected at most %d",
                       (long long)(a->n_tok / a->block_tok), INT32_MAX);
    if (a->n_tok / a->block_tok * a->block_tok < a->max_tok)
        return err_set(ERR_NOMEM,
                       "kv: %lld blocks of %lld tokens hold no sequence of %lld tokens",
                       (long long)(a->n_tok / a->block_tok), (long long)a->block_tok,
                       (long long)a->max_tok);
    return OK;
}

static int pages_open(void **state, const struct kv_arena *a)
{
    struct pages *p;

    TRY(check_arena(a));
    p = mem_new(MEM_KV, 1, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    p->max_tok = a->max_tok;
    p->block_tok = a->block_tok;
    p->row_blocks = blocks_of(a);
    p->max_seqs = p->n_rows_free = a->max_seqs;
    p->n_blocks = p->n_free = a->n_tok / a->block_tok;
    p->n_keep = (int64_t)ceil(a->keep_frac * (double)p->n_blocks);
    p->free = mem_new(MEM_KV, (size_t)p->n_blocks, sizeof(*p->free));
    p->n_in_row = mem_new(MEM_KV, (size_t)p->max_seqs, sizeof(*p->n_in_row));
    p->free_rows = mem_new(MEM_KV, (size_t)p->max_seqs, sizeof(*p->free_rows));
    p->tables_bytes = (size_t)(p->max_seqs * p->row_blocks) * sizeof(*p->tables);
    p->tables = a->shared ? mem_map_shared(MEM_KV, p->tables_bytes)
                          : mem_map(MEM_KV, p->tables_bytes, MEM_NODE_ANY);
    if (!p->free || !p->n_in_row || !p->free_rows || !p->tables) {
        pages_close(p);
        return ERR_NOMEM;
    }
    for (int64_t i = 0; i < p->n_blocks; i++)
        p->free[i] = (int32_t)(p->n_blocks - 1 - i);
    for (int64_t i = 0; i < p->max_seqs; i++)
        p->free_rows[i] = (int32_t)(p->max_seqs - 1 - i);
    *state = p;
    return OK;
}

/* Let the table of `id` have blocks for n_tok tokens and leave `keep` free, or do nothing. */
static int extend(struct pages *p, int64_t id, int64_t n_tok, int64_t keep)
{
    int64_t n = (n_tok + p->block_tok - 1) / p->block_tok, more = n - p->n_in_row[id];

    if (more > 0 && more > p->n_free - keep)
        return err_set(ERR_NOMEM,
                       "kv: %lld of %lld blocks of %lld tokens are free, %lld are needed "
                       "and %lld kept for sequences that grow",
                       (long long)p->n_free, (long long)p->n_blocks,
                       (long long)p->block_tok, (long long)more, (long long)keep);
    for (; p->n_in_row[id] < n; p->n_visited++)
        p->tables[id * p->row_blocks + p->n_in_row[id]++] = p->free[--p->n_free];
    return OK;
}

/* A sequence that will grow leaves blocks to those that do already: where it took the last
 * ones it would soon be preempted itself, and computed again. */
static int pages_reserve(void *state, const struct kv_need *need, struct kv_extent *out)
{
    struct pages *p = state;
    bool alone = p->n_rows_free == p->max_seqs;
    int64_t id;
    int rc;

    TRY(kv_need_check(need, p->max_tok));
    if (p->n_rows_free == 0)
        return err_set(ERR_NOMEM, "kv: all %lld block tables are in use",
                       (long long)p->max_seqs);
    id = p->free_rows[p->n_rows_free - 1];
    rc = extend(p, id, need->prompt_tok + (need->gen_tok > 0),
                need->gen_tok > 0 && !alone ? p->n_keep : 0);
    if (rc != OK)
        return rc;
    p->n_rows_free--;
    out->id = id;
    out->first_tok = -1;
    out->cap_tok = p->n_in_row[id] * p->block_tok;
    out->blocks = &p->tables[id * p->row_blocks];
    return OK;
}

static int pages_grow(void *state, struct kv_extent *e, int64_t used_tok,
                      int64_t want_tok, struct kv_move *m)
{
    struct pages *p = state;

    (void)used_tok, (void)m; /* the table grows, what is in the blocks stays */
    TRY(kv_want_check(want_tok, p->max_tok));
    TRY(extend(p, e->id, want_tok, 0));
    e->cap_tok = p->n_in_row[e->id] * p->block_tok;
    return OK;
}

static void pages_trim(void *state, struct kv_extent *e, int64_t n_tok)
{
    struct pages *p = state;
    int64_t n = (n_tok + p->block_tok - 1) / p->block_tok;

    assert(n > 0);
    for (; p->n_in_row[e->id] > n; p->n_visited++)
        p->free[p->n_free++] = p->tables[e->id * p->row_blocks + --p->n_in_row[e->id]];
    e->cap_tok = p->n_in_row[e->id] * p->block_tok;
}

static void pages_release(void *state, int64_t id)
{
    struct pages *p = state;

    assert(p->n_in_row[id] > 0);
    for (; p->n_in_row[id] > 0; p->n_visited++)
        p->free[p->n_free++] = p->tables[id * p->row_blocks + --p->n_in_row[id]];
    p->free_rows[p->n_rows_free++] = (int32_t)id;
}

static void pages_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct pages *p = state;

    out->arena_tok = p->n_blocks * p->block_tok;
    out->reserved_tok = (p->n_blocks - p->n_free) * p->block_tok;
    out->n_live = p->max_seqs - p->n_rows_free;
    out->n_visited = p->n_visited;
}

const struct kv_alloc kv_alloc_paged = {
    .name = "paged",
    .help = "blocks of a few tokens, found by a table",
    .paged = true,
    .open = pages_open,
    .close = pages_close,
    .reserve = pages_reserve,
    .grow = pages_grow,
    .trim = pages_trim,
    .release = pages_release,
    .stat = pages_stat,
};
