/* Symmetric all-reduce: every rank puts its message where all can see it, and adds up
 * all of them itself. One hand-off, but each rank reads every message: for short ones.
 * Two buffers and no count of readers: a rank enters epoch e + 2 only when all have
 * written e + 1, and so have finished reading e. */
#include <string.h>

#include "par/coll.h"

/* Each of the two buffers has one flag per rank, written by that rank alone, and its message. */
static struct par_flag *flag_of(void *mem, int n_ranks, uint64_t epoch, int rank)
{
    return (struct par_flag *)mem + (size_t)(epoch & 1) * (size_t)n_ranks + rank;
}

static float *message_of(void *mem, const struct par_rank *r, uint64_t epoch, int rank)
{
    char *floats = (char *)mem + 2 * (size_t)r->n_ranks * sizeof(struct par_flag);
    size_t i = (size_t)(epoch & 1) * (size_t)r->n_ranks + (size_t)rank;

    return (float *)floats + i * par_padded(r->max_floats);
}

static size_t bytes(int n_ranks, size_t max_floats)
{
    return 2 * (size_t)n_ranks *
           (sizeof(struct par_flag) + par_padded(max_floats) * sizeof(float));
}

static int allreduce(struct par_rank *r, void *mem, uint64_t *count, float *x, size_t n)
{
    uint64_t epoch = (*count)++, written = (epoch >> 1) + 1;

    memcpy(message_of(mem, r, epoch, r->rank), x, n * sizeof(*x));
    par_flag_set(r, flag_of(mem, r->n_ranks, epoch, r->rank), written);
    for (int k = 0; k < r->n_ranks; k++) {
        const float *theirs = message_of(mem, r, epoch, k);
        int rc;

        /* x is one of the first two summands already, and a + b is b + a */
        if (k == r->rank && k < 2)
            continue;
        rc = par_flag_wait(r, flag_of(mem, r->n_ranks, epoch, k), written);
        if (rc != OK)
            return rc;
        if (k == 0 && r->rank >= 2)
            memcpy(x, theirs, n * sizeof(*x));
        else
            par_add(x, theirs, n);
    }
    return OK;
}

static int order(int n_ranks, size_t n, size_t i, int k)
{
    (void)n_ranks, (void)n, (void)i;
    return k;
}

const struct par_coll par_coll_symmetric = {
    .name = "symmetric",
    .help = "each rank reads every rank's message and adds them up itself",
    .bytes = bytes,
    .allreduce = allreduce,
    .order = order,
};
