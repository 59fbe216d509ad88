
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/name.h"

#include "par/comm.h"
#include "par/spin.h"

#define MAGIC UINT64_C(0x53414e4457434f4c)

/* How often a sleeping rank checks whether the communicator was aborted. A rank whose flag is
 * set is woken at once. */
#define SLEEP_NS    10000000
#define LINE_FLOATS (PAR_LINE / sizeof(float))

size_t par_padded(size_t n_floats)
{
    return (n_floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

static bool possible(int n_ranks, size_t max_floats)
{
    return n_ranks >= 1 && n_ranks <= PAR_RANKS_MAX && max_floats >= 1 &&
           max_floats <= PAR_FLOATS_MAX;
}

size_t par_comm_bytes(int n_ranks, size_t max_floats)
{
    size_t bytes = sizeof(struct par_comm) + (size_t)n_ranks * sizeof(struct par_flag);

    if (!possible(n_ranks, max_floats))
        return 0;
    for (int i = 0; par_colls[i]; i++)
        bytes += par_colls[i]->bytes(n_ranks, max_floats);
    return bytes;
}

int par_comm_init(void *mem, int n_ranks, size_t max_floats)
{
    struct par_comm *c = mem;
    size_t at = sizeof(*c);

    if (!possible(n_ranks, max_floats))
        return err_set(ERR_ARG, "%d ranks and %zu floats, expected 1 to %d and 1 to %zu",
                       n_ranks, max_floats, PAR_RANKS_MAX, PAR_FLOATS_MAX);
    if ((uintptr_t)mem % PAR_LINE)
        return err_set(ERR_ARG, "a communicator at %p, expected a multiple of %d", mem,
                       PAR_LINE);
    *c = (struct par_comm){.n_ranks = n_ranks, .max_floats = max_floats, .barriers = at};
    at += (size_t)n_ranks * sizeof(struct par_flag);
    for (int i = 0; par_colls[i]; i++) {
        if (i == PAR_COLLS_MAX)
            return err_set(ERR_LIMIT, "more than %d collectives", PAR_COLLS_MAX);
        c->offset[i] = at;
        at += par_colls[i]->bytes(n_ranks, max_floats);
    }
    c->magic = MAGIC;
    return OK;
}

/* --- the algorithm for a message */

int par_coll_find(const char *name, const struct par_coll **out)
{
    *out = name_find(par_colls, name, "collective");
    return *out ? OK : ERR_NOTFOUND;
}

/* A message no longer than this is passed on whole when nothing was measured: the
 * hand-offs cost more than reading every rank's message. allreduce_bench: the two
 * cross between 1 and 4 kB for two ranks that share a cache, and at 8 kB for two that
 * do not. */
#define WHOLE_BYTES 2048

static int number_of(const char *name)
{
    int i = 0;

    while (par_colls[i] && strcmp(par_colls[i]->name, name) != 0)
        i++;
    return par_colls[i] ? i : 0;
}

int par_choice_one(struct par_choice *out, const char *name)
{
    const struct par_coll *c = NULL;
    int rc = par_coll_find(name, &c);

    *out = (struct par_choice){.n = rc == OK, .row = {{SIZE_MAX, number_of(name)}}};
    return rc;
}

void par_choice_set(struct par_rank *r, const struct par_choice *c)
{
    r->choice = *c;
}

void par_choice_default(struct par_choice *c)
{
    *c = (struct par_choice){.n = 2,
                             .row = {{WHOLE_BYTES, number_of("symmetric")},
                                     {SIZE_MAX, number_of("rank_shifted")}}};
}

const struct par_coll *par_choice_of(const struct par_rank *r, size_t n)
{
    const struct par_choice *c = &r->choice;
    int i = 0;

    while (i < c->n - 1 && n * sizeof(float) > c->row[i].bytes)
        i++;
    return par_colls[c->row[i].coll];
}

/* --- the communicator */

int par_comm_join(struct par_rank *out, void *mem, int rank, uint64_t spin_ns)
{
    struct par_comm *c = mem;

    if ((uintptr_t)mem % PAR_LINE || c->magic != MAGIC)
        return err_set(ERR_STATE, "expected a communicator in this memory, found none");
    if (rank < 0 || rank >= c->n_ranks)
        return err_set(ERR_ARG, "rank: expected 0 to %d, found %d", c->n_ranks - 1, rank);
    *out = (struct par_rank){.comm = c,
                             .rank = rank,
                             .n_ranks = c->n_ranks,
                             .max_floats = c->max_floats,
                             .spin_ns = spin_ns};
    par_choice_default(&out->choice);
    return OK;
}

void par_comm_abort(void *mem)
{
    struct par_comm *c = mem;

    atomic_store(&c->aborted, 1);
}

int par_allreduce(struct par_rank *r, const struct par_coll *c, float *x, size_t n)
{
    int i = 0;

    if (n > r->max_floats)
        return err_set(ERR_ARG, "a message of %zu floats, at most %zu", n, r->max_floats);
    if (!c)
        c = par_choice_of(r, n);
    while (par_colls[i] && par_colls[i] != c)
        i++;
    if (!par_colls[i])
        return err_set(ERR_ARG, "a collective that is not in the list");
    if (r->n_ranks == 1 || n == 0)
        return OK;
    return c->allreduce(r, (char *)r->comm + r->comm->offset[i], &r->epoch[i], x, n);
}

/* --- flags */

void par_flag_set(struct par_rank *r, struct par_flag *flag, uint64_t v)
{
    if (r->trace)
        r->trace(r->trace_arg, flag, v, true);
    /* With nap() a Dekker pair: at least one of the two sees what the other stored. */
    atomic_store(&flag->v, v);
    if (atomic_load(&flag->sleepers)) {
        atomic_fetch_add(&flag->wakes, 1);
        syscall(SYS_futex, &flag->wakes, FUTEX_WAKE, PAR_RANKS_MAX, NULL, NULL, 0);
    }
}

/* Sleep until the flag may have changed. The order is: read `wakes`, count this sleeper, read
 * `v`. A rank that sets `v` after it was read here sees the sleeper and changes `wakes`, so
 * that FUTEX_WAIT returns at once; a rank that saw no sleeper had set `v` before. */
static void nap(struct par_flag *flag, uint64_t v)
{
    static const struct timespec timeout = {.tv_nsec = SLEEP_NS};
    unsigned seen = atomic_load(&flag->wakes);

    atomic_fetch_add(&flag->sleepers, 1);
    if (atomic_load(&flag->v) < v)
        syscall(SYS_futex, &flag->wakes, FUTEX_WAIT, seen, &timeout, NULL, 0);
    atomic_fetch_sub(&flag->sleepers, 1);
}

int par_flag_wait(struct par_rank *r, struct par_flag *flag, uint64_t v)
{
    struct spin s = {0};

    if (r->trace)
        r->trace(r->trace_arg, flag, v, false);
    if (atomic_load_explicit(&flag->v, memory_order_acquire) >= v)
        return OK;
    r->n_waits++;
    for (;;) {
        if (atomic_load_explicit(&r->comm->aborted, memory_order_relaxed))
            return err_set(ERR_STATE, "another rank aborted");
        if (!spin_on(&s, r->spin_ns)) {
            r->n_sleeps++;
            nap(flag, v);
        }
        if (atomic_load_explicit(&flag->v, memory_order_acquire) >= v) {
            r->wait_ns += spin_waited_ns(&s);
            return OK;
        }
    }
}

int par_rank_barrier(struct par_rank *r)
{
    struct par_flag *reached = (struct par_flag *)((char *)r->comm + r->comm->barriers);
    int rc = OK;

    r->n_barriers++;
    par_flag_set(r, &reached[r->rank], r->n_barriers);
    for (int k = 0; k < r->n_ranks && rc == OK; k++)
        if (k != r->rank)
            rc = par_flag_wait(r, &reached[k], r->n_barriers);
    return rc;
}

void par_block(size_t n, int n_blocks, int b, size_t *lo, size_t *hi)
{
    size_t lines = par_padded(n) / LINE_FLOATS, at = (size_t)b;
    size_t each = lines / (size_t)n_blocks, more = lines - each * (size_t)n_blocks;

    *lo = (each * at + (at < more ? at : more)) * LINE_FLOATS;
    *hi = *lo + (each + (at < more)) * LINE_FLOATS;
    *lo = *lo < n ? *lo : n;
    *hi = *hi < n ? *hi : n;
}

void par_add(float *restrict sum, const float *restrict x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

void par_add_both(float *restrict sum, float *restrict x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = sum[i] = sum[i] + x[i];
}
