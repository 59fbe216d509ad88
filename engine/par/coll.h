/* par/coll.h - all-reduce among ranks through shared memory.
 *
 * A communicator is in memory that all its ranks see. Ranks are threads of one process,
 * or processes that share a mapping (par/shm.h). Every rank calls the same collectives in
 * the same order with the same sizes. Each algorithm is a plug-in, one file in par/coll/.
 * It states the order in which it adds. The order is the same on every rank, so all ranks
 * get the same bits.
 * Memory is ordered by C11 atomics alone. Acquire and release suffice, also on weakly
 * ordered machines, except for going to sleep and waking: these are a Dekker pair (each
 * side stores one variable, then reads the other's) and use sequentially consistent
 * operations. A waiting thread spins for about the time a wake-up costs, then sleeps on a
 * futex, so that more ranks than CPUs still make progress.
 * Paper: Sandwich 7.2.   Threads: one thread owns each rank's handle. */
#ifndef PAR_COLL_H
#define PAR_COLL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PAR_RANKS_MAX  64
#define PAR_FLOATS_MAX ((size_t)1 << 32)
/* Alignment that keeps variables of two cores on different cache lines. 128 bytes,
 * because some Arm processors have lines of that size and other processors fetch lines of
 * 64 bytes in pairs. */
#define PAR_LINE 128

/* A counter that only grows. It has one writer at a time. A rank becomes the writer only
 * after it has read the value that the previous writer stored. The futex on which waiting
 * threads sleep is on another cache line, so that they do not disturb threads that read
 * the counter. */
struct par_flag {
    _Alignas(PAR_LINE) _Atomic uint64_t v;
    _Alignas(PAR_LINE) atomic_uint sleepers; /* number of sleeping threads */
    atomic_uint wakes;                       /* the futex; incremented to wake them */
};

struct par_comm; /* the communicator, in memory that all ranks share */

#define PAR_COLLS_MAX 8

/* For tests. Called before a rank waits until `flag` is at least `v` (set: false), and
 * before it sets it to `v` (set: true). */
typedef void (*par_trace_fn)(void *arg, const struct par_flag *flag, uint64_t v,
                             bool set);

/* The table that chooses an algorithm by message size. A row is for messages of at most
 * `bytes`; `coll` is an index into par_colls[]. Rows are in ascending order of `bytes`.
 * The last row is also for larger messages. */
#define PAR_CHOICE_MAX 16
struct par_choice {
    int n; /* number of rows, at least 1 where a communicator uses the table */
    struct par_choice_row {
        size_t bytes;
        int coll;
    } row[PAR_CHOICE_MAX];
};

/* A rank's handle of a communicator, private to the rank. */
struct par_rank {
    struct par_comm *comm;
    int rank, n_ranks;
    size_t max_floats; /* most floats in one message */
    uint64_t spin_ns;
    uint64_t epoch[PAR_COLLS_MAX]; /* one counter for each algorithm, 0 at first */
    struct par_choice choice;      /* the same on all ranks */
    uint64_t n_published;       /* words that rank 0 has sent the others (par/choice.c) */
    uint64_t n_barriers;        /* calls of par_rank_barrier() */
    uint64_t n_waits, n_sleeps; /* waits that did not end at once; how often one slept */
    uint64_t wait_ns;           /* how long they took, as struct par_thread_stat counts */
    par_trace_fn trace;         /* NULL: none */
    void *trace_arg;
    char gap[PAR_LINE]; /* keeps array neighbours off the same cache line */
};

/* Bytes of a communicator, a multiple of PAR_LINE. 0: par_comm_init() would return
 * ERR_ARG for these arguments. */
size_t par_comm_bytes(int n_ranks, size_t max_floats);
/* Make a communicator in `mem`, par_comm_bytes() of zeroed memory aligned to PAR_LINE,
 * before the threads or processes of the ranks are started. The caller keeps the memory.
 * ERR_ARG: `mem` is not aligned, n_ranks is not in [1, PAR_RANKS_MAX], or max_floats is
 * not in [1, PAR_FLOATS_MAX]. ERR_LIMIT: more than PAR_COLLS_MAX plug-ins. */
MUST int par_comm_init(void *mem, int n_ranks, size_t max_floats);
/* Called once by each rank. `spin_ns`: time to spin before sleeping. Only one thread at a
 * time may use `out` afterwards. ERR_ARG: the communicator does not have this rank.
 * ERR_STATE: `mem` does not hold a communicator. */
MUST int par_comm_join(struct par_rank *out, void *mem, int rank, uint64_t spin_ns);
/* Abort: every wait, now or later, ends with ERR_STATE within about 10 ms. May be called
 * by any thread or process. Async-signal-safe. */
void par_comm_abort(void *mem);

struct par_coll {
    const char *name, *help;
    /* Bytes that the algorithm needs in the communicator, a multiple of PAR_LINE. */
    size_t (*bytes)(int n_ranks, size_t max_floats);
    /* Replace x[n], n > 0, by the sum over the ranks of their x[n]. `mem`: the
     * algorithm's part of the communicator, zero at first. *epoch: the algorithm's
     * counter, equal on all ranks. ERR_STATE: the communicator was aborted; x is then
     * undefined. */
    int (*allreduce)(struct par_rank *r, void *mem, uint64_t *epoch, float *x, size_t n);
    /* The rank whose x[i] is the k-th to be added, k from 0, in a message of n floats. */
    int (*order)(int n_ranks, size_t n, size_t i, int k);
};
extern const struct par_coll *const par_colls[]; /* NULL-terminated */
/* Find an algorithm by name. ERR_NOTFOUND: the message has the nearest name. */
MUST int par_coll_find(const char *name, const struct par_coll **out);

/* Replace x[n] by the sum over the ranks of their x[n], with algorithm `c` (NULL: the one
 * in the rank's table for this size). With one rank it does nothing. ERR_ARG: n is above
 * max_floats, or `c` is not an algorithm of par_colls[]. ERR_STATE: aborted; x is then
 * undefined and the communicator can no longer be used. */
MUST int par_allreduce(struct par_rank *r, const struct par_coll *c, float *x, size_t n);

/* Barrier of all ranks. What any rank wrote before it, all ranks see after it. ERR_STATE:
 * aborted. */
MUST int par_rank_barrier(struct par_rank *r);

/* --- choosing an algorithm by message size */

/* The results of par_comm_measure(): the seconds of each algorithm for a message of `bytes`. */
struct par_timings {
    int n; /* number of sizes */
    struct par_timings_row {
        size_t bytes;
        double seconds[PAR_COLLS_MAX];
    } row[PAR_CHOICE_MAX];
};

/* Time every algorithm at sizes up to max_floats, on the ranks where they run now, and
 * keep the fastest for each size. It is a collective: all ranks call it at the same place
 * among their calls. Rank 0's times decide for all; `out` (NULL: not wanted) receives those
 * of this rank. It allocates, and takes tenths of a second; where messages take long, because
 * CPUs are shared, it stops at about PAR_MEASURE_S and larger messages use the algorithm of
 * the largest size that was timed. The choice can differ from run to run, and with it the
 * last bits of a sum of more than two ranks. Callers that need the same bits in every run
 * set a table (par_choice_set()) or pass an algorithm to par_allreduce(). ERR_NOMEM: the
 * communicator is then aborted, because the other ranks are waiting. ERR_STATE: aborted. */
#define PAR_MEASURE_S 0.5
MUST int par_comm_measure(struct par_rank *r, struct par_timings *out);
/* Use this table from now on; all ranks set the same one between the same calls. */
void par_choice_set(struct par_rank *r, const struct par_choice *c);
/* The table that has one algorithm for all sizes. ERR_NOTFOUND: see par_coll_find(). */
MUST int par_choice_one(struct par_choice *out, const char *name);
/* The algorithm that par_allreduce() uses for n floats when `c` is NULL. */
const struct par_coll *par_choice_of(const struct par_rank *r, size_t n);
/* Set the table that is used without measurements: symmetric for short messages,
 * rank_shifted for others. */
void par_choice_default(struct par_choice *c);

/* --- for the plug-ins */

/* Set the flag to `v`, which must exceed its present value. A rank that then sees `v`
 * also sees everything that this rank wrote before. */
void par_flag_set(struct par_rank *r, struct par_flag *flag, uint64_t v);
/* Wait until the flag is at least `v`. ERR_STATE: aborted. */
MUST int par_flag_wait(struct par_rank *r, struct par_flag *flag, uint64_t v);

/* Set [*lo, *hi) to the floats of block b, where a message of n floats is cut into
 * n_blocks blocks at multiples of PAR_LINE bytes. Where the blocks cannot be equal, the
 * first ones have one line more. Where there are fewer lines than blocks, the last blocks
 * are empty. */
void par_block(size_t n, int n_blocks, int b, size_t *lo, size_t *hi);
/* n_floats rounded up to whole lines of PAR_LINE bytes. */
size_t par_padded(size_t n_floats);
/* sum[i] += x[i] for all i < n. */
void par_add(float *restrict sum, const float *restrict x, size_t n);
/* The same, then x[i] = sum[i]. */
void par_add_both(float *restrict sum, float *restrict x, size_t n);

#endif
