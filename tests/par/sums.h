/* tests/par/sums.h - ranks that add up numbers of which the right sum is known, for tests of
 * collectives. */
#ifndef TESTS_PAR_SUMS_H
#define TESTS_PAR_SUMS_H

#include "par/coll.h"
#include "par/shm.h"
#include "tests/support/test.h"

#define SPIN_NS 2000 /* more ranks than CPUs: sleep soon */

struct shared {
    struct par_shm shm;
    int n_ranks;
    size_t max_floats;
};

static inline void open_shared(struct shared *s, int n_ranks, size_t max_floats)
{
    s->n_ranks = n_ranks;
    s->max_floats = max_floats;
    assert_ok(par_shm_open(&s->shm, par_comm_bytes(n_ranks, max_floats)));
    assert_ok(par_comm_init(s->shm.base, n_ranks, max_floats));
}

/* What rank r sends as element i of message `epoch`: of mixed size and sign, so that the
 * order of a sum shows in its last bits. */
static inline float sent(int rank, uint64_t epoch, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)epoch * 40503u +
                 (uint32_t)rank * 2246822519u;

    h ^= h >> 15;
    h *= 2246822519u;
    /* powers of two: exact, so that a fused multiply-add changes nothing */
    return (float)(int32_t)h * (rank % 2 ? 0x1p10f : 0x1p-10f);
}

static inline float expected(const struct par_coll *c, int n_ranks, uint64_t epoch,
                             size_t n, size_t i)
{
    float sum = sent(c->order(n_ranks, n, i, 0), epoch, i);

    for (int k = 1; k < n_ranks; k++)
        sum += sent(c->order(n_ranks, n, i, k), epoch, i);
    return sum;
}

#endif
