/* The baseline that the paper describes: rank 0 copies its message first, the others add
 * theirs one after the other, block by block, and no rank begins the next message before all
 * have read the result. All ranks wait for the master.   Paper: Sandwich 7.2. */
#include <string.h>

#include "par/coll.h"

#define BLOCK_FLOATS 4096 /* 16 KiB: each rank works on another block */

static size_t n_blocks(size_t n)
{
    return (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
}

/* First one flag per rank, written by that rank: the number of messages it has read. Then one
 * flag per block, written by the ranks one after the other: the number of contributions so
 * far, over all messages. */
static struct par_flag *read_by(void *mem, int rank)
{
    return (struct par_flag *)mem + rank;
}

static struct par_flag *added(void *mem, int n_ranks, size_t block)
{
    return (struct par_flag *)mem + n_ranks + block;
}

static float *buffer_of(void *mem, int n_ranks, size_t max_floats)
{
    return (float *)added(mem, n_ranks, n_blocks(max_floats));
}

static size_t bytes(int n_ranks, size_t max_floats)
{
    return ((size_t)n_ranks + n_blocks(max_floats)) * sizeof(struct par_flag) +
           par_padded(max_floats) * sizeof(float);
}

static int wait_for_readers(struct par_rank *r, void *mem, uint64_t epoch)
{
    int rc = OK;

    for (int k = 0; k < r->n_ranks && rc == OK; k++)
        rc = par_flag_wait(r, read_by(mem, k), epoch);
    return rc;
}

/* A flag must grow even where a message has fewer blocks than one before, so it counts in
 * epochs, not in contributions. */
static int add_mine(struct par_rank *r, void *mem, uint64_t epoch, const float *x,
                    size_t n)
{
    float *buffer = buffer_of(mem, r->n_ranks, r->max_floats);
    uint64_t base = epoch * (uint64_t)r->n_ranks, mine = base + (uint64_t)r->rank;
    int rc = r->rank ? OK : wait_for_readers(r, mem, epoch);

    for (size_t b = 0; b < n_blocks(n) && rc == OK; b++) {
        size_t lo = b * BLOCK_FLOATS;
        size_t hi = lo + BLOCK_FLOATS < n ? lo + BLOCK_FLOATS : n;

        if (r->rank == 0) {
            memcpy(buffer + lo, x + lo, (hi - lo) * sizeof(*x));
        } else {
            rc = par_flag_wait(r, added(mem, r->n_ranks, b), mine);
            if (rc == OK)
                par_add(buffer + lo, x + lo, hi - lo);
        }
        if (rc == OK)
            par_flag_set(r, added(mem, r->n_ranks, b), mine + 1);
    }
    return rc;
}

static int allreduce(struct par_rank *r, void *mem, uint64_t *count, float *x, size_t n)
{
    uint64_t epoch = (*count)++;
    const float *buffer = buffer_of(mem, r->n_ranks, r->max_floats);
    uint64_t all = (epoch + 1) * (uint64_t)r->n_ranks;
    int rc = add_mine(r, mem, epoch, x, n);

    for (size_t b = 0; b < n_blocks(n) && rc == OK; b++) {
        size_t lo = b * BLOCK_FLOATS;
        size_t hi = lo + BLOCK_FLOATS < n ? lo + BLOCK_FLOATS : n;

        rc = par_flag_wait(r, added(mem, r->n_ranks, b), all);
        if (rc == OK)
            memcpy(x + lo, buffer + lo, (hi - lo) * sizeof(*x));
    }
    if (rc == OK)
        par_flag_set(r, read_by(mem, r->rank), epoch + 1);
    return rc;
}

static int order(int n_ranks, size_t n, size_t i, int k)
{
    (void)n_ranks, (void)n, (void)i;
    return k;
}

const struct par_coll par_coll_master_copy = {
    .name = "master_copy",
    .help = "rank 0 first, the others after it one by one: the baseline",
    .bytes = bytes,
    .allreduce = allreduce,
    .order = order,
};
