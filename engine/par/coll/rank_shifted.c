/* Rank-shifted all-reduce. A message is divided into pieces and a piece into one block per
 * rank. Rank r begins with block r and continues with the next ones, so that all ranks write
 * at the same time, each to another block. A rank waits only for its right neighbour, which
 * added to the block just before. Then it collects the other blocks in the same order, each
 * from the rank that finished it. There is no master.
 *
 * Pieces overlap, so that a rank seldom waits: it begins piece p + 1 before it adds to
 * p, and adds to p before it collects p - 1. Pieces use
 * the slots in turn, over all messages, and readers need not be counted: a rank begins p
 * when it has collected p - 3; so all have added to p - 3, and before that collected p - 5,
 * whose slot is free. One non-empty block is enough for that, so a piece of fewer lines than
 * ranks needs one hand-off per line, not one per rank. The slots stay in the ranks' caches however
 * long the message is. Paper: Sandwich 7.2. */
#include <stdbool.h>
#include <string.h>

#include "par/coll.h"

#define N_SLOTS 8 /* 5 would do; this divides fast */
/* A block is at most 16 KiB, a piece 128 KiB: a core's cache of level 2 holds the
 * slots and what is summed. allreduce_bench: with a whole message as one piece, 4 MB
 * took 1.3 times as long as with the master's copy, which goes by such blocks. */
#define BLOCK_FLOATS 4096
#define PIECE_FLOATS 32768
/* A page between slots: prefetchers end there, and so do not fetch what another rank is
 * about to write. allreduce_bench: 1 kB takes 0.8 times as long with it. */
#define GAP_FLOATS 1024

static size_t piece_floats(int n_ranks)
{
    size_t n = (size_t)n_ranks * BLOCK_FLOATS;

    return n < PIECE_FLOATS ? n : PIECE_FLOATS;
}

static size_t slot_floats(int n_ranks, size_t max_floats)
{
    size_t piece = piece_floats(n_ranks);

    return (max_floats < piece ? par_padded(max_floats) : piece) + GAP_FLOATS;
}

/* Each slot has the blocks and one flag per block, which the ranks set one after the other,
 * to `base` + 1 up to `base` + R. */
static size_t bytes(int n_ranks, size_t max_floats)
{
    return N_SLOTS * ((size_t)n_ranks * sizeof(struct par_flag) +
                      slot_floats(n_ranks, max_floats) * sizeof(float));
}

struct piece {
    struct par_flag *flags;
    float *buffer, *x;
    size_t n;
    uint64_t base;
};

/* The piece of x[n] at float `at`, which is the number-th of all. */
static struct piece piece_at(const struct par_rank *r, void *mem, uint64_t number,
                             float *x, size_t n, size_t at)
{
    size_t n_ranks = (size_t)r->n_ranks, slot = number % N_SLOTS;
    size_t most = piece_floats(r->n_ranks);
    struct par_flag *flags = mem;
    float *slots = (float *)(flags + N_SLOTS * n_ranks);

    return (struct piece){
        .flags = flags + slot * n_ranks,
        .buffer = slots + slot * slot_floats(r->n_ranks, r->max_floats),
        .x = x + at,
        .n = n - at < most ? n - at : most,
        .base = number / N_SLOTS * n_ranks,
    };
}

static void begin(struct par_rank *r, const struct piece *p)
{
    size_t lo, hi;

    par_block(p->n, r->n_ranks, r->rank, &lo, &hi);
    if (lo == hi)
        return;
    memcpy(p->buffer + lo, p->x + lo, (hi - lo) * sizeof(float));
    par_flag_set(r, &p->flags[r->rank], p->base + 1);
}

/* The last one to add to a block, in its last step, has the sum without waiting again. */
static int add_mine(struct par_rank *r, const struct piece *p)
{
    int n_ranks = r->n_ranks, rc;
    size_t lo, hi;

    for (int s = 1; s < n_ranks; s++) {
        int b = r->rank + s < n_ranks ? r->rank + s : r->rank + s - n_ranks;

        par_block(p->n, n_ranks, b, &lo, &hi);
        if (lo == hi)
            continue;
        rc = par_flag_wait(r, &p->flags[b], p->base + (uint64_t)s);
        if (rc != OK)
            return rc;
        if (s < n_ranks - 1)
            par_add(p->buffer + lo, p->x + lo, hi - lo);
        else
            par_add_both(p->buffer + lo, p->x + lo, hi - lo);
        par_flag_set(r, &p->flags[b], p->base + (uint64_t)s + 1);
    }
    return OK;
}

static int collect(struct par_rank *r, const struct piece *p)
{
    int n_ranks = r->n_ranks, rc;
    size_t lo, hi;

    for (int s = 0; s < n_ranks - 1; s++) {
        int b = r->rank + s < n_ranks ? r->rank + s : r->rank + s - n_ranks;

        par_block(p->n, n_ranks, b, &lo, &hi);
        if (lo == hi)
            continue;
        rc = par_flag_wait(r, &p->flags[b], p->base + (uint64_t)n_ranks);
        if (rc != OK)
            return rc;
        memcpy(p->x + lo, p->buffer + lo, (hi - lo) * sizeof(float));
    }
    return OK;
}

static int allreduce(struct par_rank *r, void *mem, uint64_t *count, float *x, size_t n)
{
    size_t step = piece_floats(r->n_ranks), at = 0;
    struct piece before = {.n = 0}, p = piece_at(r, mem, (*count)++, x, n, 0), next = p;
    int rc = OK;

    begin(r, &p);
    for (bool more = true; more && rc == OK; before = p, p = next) {
        at += step;
        more = at < n;
        if (more) {
            next = piece_at(r, mem, (*count)++, x, n, at);
            begin(r, &next);
        }
        rc = add_mine(r, &p);
        if (rc == OK && before.n)
            rc = collect(r, &before);
    }
    return rc == OK ? collect(r, &before) : rc;
}

/* Rank r adds to block b in its step (b - r) mod R: b, b - 1, ... */
static int order(int n_ranks, size_t n, size_t i, int k)
{
    size_t most = piece_floats(n_ranks), at = i / most * most, lo, hi;
    int b = -1;

    do
        par_block(n - at < most ? n - at : most, n_ranks, ++b, &lo, &hi);
    while (i - at >= hi);
    return (b - k + n_ranks) % n_ranks;
}

const struct par_coll par_coll_rank_shifted = {
    .name = "rank_shifted",
    .help = "each rank starts at its own block and waits for its neighbour only",
    .bytes = bytes,
    .allreduce = allreduce,
    .order = order,
};
