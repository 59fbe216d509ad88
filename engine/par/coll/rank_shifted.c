/* Rank-shifted all-reduce: a message is cut into a block a rank; rank r begins with block
 * r and goes on to the next ones, so that all write at once, each to another block, and
 * wait only for the right neighbour, who added to it just before. Then it collects the
 * other blocks in the same order, each from the rank that finished it. No rank is the
 * master, and no word is one rank's alone.
 * Two buffers and no count of readers: a rank enters epoch e + 2 only when all have added
 * to e + 1, and so have finished reading e. One block that is not empty is enough for
 * that, so a message of fewer lines than ranks costs a hand-off a line, not a rank.
 * Paper: Sandwich 7.2. */
#include <string.h>

#include "par/coll.h"

/* Of each of two buffers: a word a block, written by the ranks one after the other, and
 * the blocks. */
static struct par_word *word_of(void *mem, int n_ranks, uint64_t epoch, int block)
{
    return (struct par_word *)mem + (size_t)(epoch & 1) * (size_t)n_ranks + block;
}

static float *buffer_of(void *mem, int n_ranks, size_t max_floats, uint64_t epoch)
{
    char *floats = (char *)mem + 2 * (size_t)n_ranks * sizeof(struct par_word);

    return (float *)floats + (size_t)(epoch & 1) * par_padded(max_floats);
}

static size_t bytes(int n_ranks, size_t max_floats)
{
    return 2 * ((size_t)n_ranks * sizeof(struct par_word) +
                par_padded(max_floats) * sizeof(float));
}

/* The last one to add to a block, in its last step, has the sum without waiting again. */
static int add_mine(struct par_rank *r, void *mem, uint64_t epoch, float *x, size_t n)
{
    float *buffer = buffer_of(mem, r->n_ranks, r->max_floats, epoch);
    uint64_t base = (epoch >> 1) * (uint64_t)r->n_ranks;
    size_t lo, hi;

    for (int s = 0; s < r->n_ranks; s++) {
        int b = (r->rank + s) % r->n_ranks, rc;
        struct par_word *w = word_of(mem, r->n_ranks, epoch, b);

        par_block(n, r->n_ranks, b, &lo, &hi);
        if (lo == hi)
            continue;
        if (s == 0) {
            memcpy(buffer + lo, x + lo, (hi - lo) * sizeof(*x));
        } else {
            rc = par_word_wait(r, w, base + (uint64_t)s);
            if (rc != OK)
                return rc;
            par_add(buffer + lo, x + lo, hi - lo);
        }
        par_word_set(r, w, base + (uint64_t)s + 1);
        if (s == r->n_ranks - 1)
            memcpy(x + lo, buffer + lo, (hi - lo) * sizeof(*x));
    }
    return OK;
}

static int allreduce(struct par_rank *r, void *mem, uint64_t epoch, float *x, size_t n)
{
    const float *buffer = buffer_of(mem, r->n_ranks, r->max_floats, epoch);
    uint64_t all = ((epoch >> 1) + 1) * (uint64_t)r->n_ranks;
    int rc = add_mine(r, mem, epoch, x, n);
    size_t lo, hi;

    for (int s = 0; s < r->n_ranks - 1 && rc == OK; s++) {
        int b = (r->rank + s) % r->n_ranks;

        par_block(n, r->n_ranks, b, &lo, &hi);
        if (lo == hi)
            continue;
        rc = par_word_wait(r, word_of(mem, r->n_ranks, epoch, b), all);
        if (rc == OK)
            memcpy(x + lo, buffer + lo, (hi - lo) * sizeof(*x));
    }
    return rc;
}

/* Rank r adds to block b in its step (b - r) mod R: b, b - 1, ... */
static int order(int n_ranks, size_t n, size_t i, int k)
{
    size_t lo, hi;

    for (int b = 0; b < n_ranks; b++) {
        par_block(n, n_ranks, b, &lo, &hi);
        if (i >= lo && i < hi)
            return (b - k + n_ranks) % n_ranks;
    }
    return -1;
}

const struct par_coll par_coll_rank_shifted = {
    .name = "rank_shifted",
    .help = "each rank starts at its own block and waits for its neighbour only",
    .bytes = bytes,
    .allreduce = allreduce,
    .order = order,
};
