/* par/coll.h - all-reduce among ranks through shared memory.
 *
 * A communicator lies in memory that all its ranks see: threads of one process, or
 * processes over one mapping (par/shm.h). Every rank calls the same collectives in the
 * same order with the same sizes. How the sum is made is a plug-in, one file in
 * par/coll/; each states the order in which it adds, which is the same on every rank, so
 * that all ranks get the same bits.
 * Only C11 atomics order anything: acquire and release, right on weakly ordered machines;
 * going to sleep and waking are a Dekker pair and sequentially consistent.
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

#define PAR_RANKS_MAX  64
#define PAR_FLOATS_MAX ((size_t)1 << 32)
/* What two cores must not share; 128 because some Arm processors have such lines, and
 * others fetch them in pairs. */
#define PAR_LINE 128

/* A number that only grows, written by one rank at a time: who writes next has seen what
 * the one before it wrote. Those who wait for it sleep on a line of their own, so that
 * they do not disturb the others who look at it. */
struct par_flag {
    _Alignas(PAR_LINE) _Atomic uint64_t v;
    _Alignas(PAR_LINE) atomic_uint sleepers; /* counted by those who wait */
    atomic_uint wakes;                       /* by who wakes them; the futex */
};

struct par_comm; /* the shared part */

#define PAR_COLLS_MAX 8

/* For tests: called before a rank looks at a word to wait for `v`, and before it sets
 * it. */
typedef void (*par_trace_fn)(void *arg, const struct par_flag *w, uint64_t v, bool set);

/* Up to how many bytes which of par_colls[]; the last row also holds beyond its size. */
#define PAR_CHOICE_MAX 16
struct par_choice {
    int n; /* rows, 1 or more */
    struct par_choice_row {
        size_t bytes;
        int coll;
    } row[PAR_CHOICE_MAX];
};

/* A rank's own part: private to it. */
struct par_rank {
    struct par_comm *comm;
    int rank, n_ranks;
    size_t max_floats; /* of one message */
    uint64_t spin_ns;
    uint64_t epoch[PAR_COLLS_MAX]; /* of each algorithm: what it counts, from 0 */
    struct par_choice choice;      /* the same on all ranks */
    uint64_t n_measured, n_met;
    uint64_t n_waits, n_sleeps; /* waits not over at the first look; of them asleep */
    par_trace_fn trace;         /* NULL: none */
    void *trace_arg;
    char gap[PAR_LINE]; /* so that neighbours in an array share no line that is written */
};

/* Bytes of a communicator, a multiple of PAR_LINE; 0: not possible, as par_comm_init()
 * will say. */
size_t par_comm_bytes(int n_ranks, size_t max_floats);
/* Make one in memory that is zero, on a boundary of PAR_LINE, before any rank joins
 * (the start of the rank's thread or process comes after). ERR_ARG: no such boundary,
 * ranks not in [1, PAR_RANKS_MAX], no floats or more than PAR_FLOATS_MAX. ERR_LIMIT:
 * too many plug-ins. */
MUST int par_comm_init(void *mem, int n_ranks, size_t max_floats);
/* Each rank, once. `spin_ns`: how long to spin before it sleeps. `out` is then used by
 * one thread at a time. ERR_ARG: no such rank. ERR_STATE: no communicator there. */
MUST int par_comm_join(struct par_rank *out, void *mem, int rank, uint64_t spin_ns);
/* Somebody died or gives up: every wait that is not over, now or later, ends with
 * ERR_STATE within some 10 ms. From any thread or process; async-signal-safe. */
void par_comm_abort(void *mem);

struct par_coll {
    const char *name, *help;
    /* What it needs of the communicator's memory; a multiple of PAR_LINE. */
    size_t (*bytes)(int n_ranks, size_t max_floats);
    /* x[n], n > 0, becomes the sum over the ranks of their x[n]. `mem`: its part, zero
     * at first. *epoch is its own to count on, alike on all ranks. ERR_STATE: the
     * communicator was aborted; x is then undefined. */
    int (*allreduce)(struct par_rank *r, void *mem, uint64_t *epoch, float *x, size_t n);
    /* The k-th rank, from 0, to be added at element i < n. */
    int (*order)(int n_ranks, size_t n, size_t i, int k);
};
extern const struct par_coll *const par_colls[];
/* ERR_NOTFOUND names the nearest. */
MUST int par_coll_find(const char *name, const struct par_coll **out);

/* x[n] becomes the sum, by this algorithm (NULL: the one of this size in the rank's
 * table); of one rank: nothing to do. ERR_ARG: n is above max_floats, or no such
 * algorithm. ERR_STATE: aborted; x is then undefined, and the communicator of no more
 * use. */
MUST int par_allreduce(struct par_rank *r, const struct par_coll *c, float *x, size_t n);

/* All ranks wait for each other: what any of them wrote before, all of them see after.
 * ERR_STATE: aborted. */
MUST int par_rank_barrier(struct par_rank *r);

/* --- which one for which size */

/* Time every algorithm at sizes up to max_floats, on the ranks as they run, and keep
 * the fastest for each size. All ranks call it, at the same place among their calls;
 * rank 0's times decide for all. Tenths of a second for 4 MB; allocates. What is
 * measured can differ from run to run, and with it the last bits of a sum: who needs
 * the same bits names the algorithm. ERR_NOMEM: aborted too, since the others wait.
 * ERR_STATE. */
MUST int par_comm_measure(struct par_rank *r);
/* What NULL stands for at n floats. */
const struct par_coll *par_choice_of(const struct par_rank *r, size_t n);
/* The table of a rank that measured nothing: symmetric for short messages,
 * rank_shifted. */
void par_choice_default(struct par_choice *c);

/* --- for the plug-ins */

/* Publish `v`, which is larger than what stands there, with all that was written
 * before. */
void par_flag_set(struct par_rank *r, struct par_flag *w, uint64_t v);
/* Until the word is at least `v`. ERR_STATE: aborted. */
MUST int par_flag_wait(struct par_rank *r, struct par_flag *w, uint64_t v);

/* Block b of a message cut into n_blocks on boundaries of PAR_LINE: [*lo, *hi);
 * the first ones are a line longer where they cannot be equal, and of a message that has
 * fewer lines than n_blocks the last ones are empty. */
void par_block(size_t n, int n_blocks, int b, size_t *lo, size_t *hi);
/* Floats up to the next line. */
size_t par_padded(size_t n_floats);
/* sum += x; and, of both, x = sum too. */
void par_add(float *restrict sum, const float *restrict x, size_t n);
void par_add_both(float *restrict sum, float *restrict x, size_t n);

#endif
