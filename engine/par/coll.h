/* par/coll.h - all-reduce among ranks through shared memory.
 *
 * A communicator lies in memory that all its ranks see: threads of one process, or
 * processes over one mapping (par/shm.h). Every rank calls the same collectives in the
 * same order with the same sizes. How the sum is made is a plug-in, one file in
 * par/coll/; each states the order in which it adds, which is the same on every rank, so
 * that all ranks get the same bits.
 * Only C11 atomics order anything: acquire and release, right on weakly ordered machines.
 * Who waits spins for about the time a wake-up costs, then sleeps on a futex, so that
 * more ranks than CPUs still make progress.
 * Paper: Sandwich 7.2.   Threads: each rank's handle has one owner. */
#ifndef PAR_COLL_H
#define PAR_COLL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PAR_RANKS_MAX 64
/* What two cores must not share; 128 because some Arm processors have such lines, and
 * others fetch them in pairs. */
#define PAR_LINE 128

/* A number that only grows, written by one rank at a time. Those who wait for it sleep on
 * a line of their own, so that they do not disturb the others who look at it. */
struct par_word {
    _Alignas(PAR_LINE) _Atomic uint64_t v;
    _Alignas(PAR_LINE) atomic_uint sleepers; /* written by those who wait */
    atomic_uint wakes;
};

struct par_comm; /* the shared part */

#define PAR_COLLS_MAX 8

/* A rank's own part: private to it. */
struct par_rank {
    struct par_comm *comm;
    int rank, n_ranks;
    size_t max_floats; /* of one message */
    uint64_t spin_ns;
    uint64_t epoch[PAR_COLLS_MAX]; /* calls made so far of each algorithm */
    uint64_t n_waits, n_sleeps;    /* waits that were not over at the first look */
};

/* Bytes of a communicator, and make one in memory that is zero. `mem` is on a boundary of
 * PAR_LINE. ERR_ARG: ranks not in [1, PAR_RANKS_MAX], or no floats. */
size_t par_comm_bytes(int n_ranks, size_t max_floats);
MUST int par_comm_init(void *mem, int n_ranks, size_t max_floats);
/* Each rank, once. `spin_ns`: how long to spin before it sleeps. */
MUST int par_comm_join(struct par_rank *out, void *mem, int rank, uint64_t spin_ns);
/* Somebody died or gives up: every wait, now and later, ends with ERR_STATE. From any
 * thread or process; async-signal-safe. */
void par_comm_abort(void *mem);

struct par_coll {
    const char *name, *help;
    /* What it needs of the communicator's memory; a multiple of PAR_LINE. */
    size_t (*bytes)(int n_ranks, size_t max_floats);
    /* x[n] becomes the sum over the ranks of their x[n]. `mem`: its part. ERR_STATE: the
     * communicator was aborted; x is then undefined. */
    int (*allreduce)(struct par_rank *r, void *mem, uint64_t epoch, float *x, size_t n);
    /* The k-th rank, from 0, to be added at element i of n. */
    int (*order)(int n_ranks, size_t n, size_t i, int k);
};
extern const struct par_coll *const par_colls[];
/* ERR_NOTFOUND names the nearest. */
MUST int par_coll_find(const char *name, const struct par_coll **out);

/* x[n] becomes the sum, by this algorithm; of one rank: nothing to do. ERR_ARG: n is
 * above max_floats. ERR_STATE: aborted. */
MUST int par_allreduce(struct par_rank *r, const struct par_coll *c, float *x, size_t n);

/* --- for the plug-ins */

/* Publish `v`, which is larger than what stands there, with all that was written before. */
void par_word_set(struct par_word *w, uint64_t v);
/* Until the word is at least `v`. ERR_STATE: aborted. */
MUST int par_word_wait(struct par_rank *r, struct par_word *w, uint64_t v);

/* Block b of a message cut into n_blocks on boundaries of 64 bytes: [*lo, *hi). */
void par_block(size_t n, int n_blocks, int b, size_t *lo, size_t *hi);
/* Floats up to the next line. */
size_t par_padded(size_t n_floats);

#endif
