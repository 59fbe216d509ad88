/* Which all-reduce for which size. All ranks must take the same one, so a table is only
 * changed where all of them meet: rank 0's times decide, the others copy its table. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "par/comm.h"

/* A message no longer than this is passed on whole when nothing was measured: the
 * hand-offs cost more than reading every rank's message. allreduce_bench: the two
 * cross between 1 and 4 kB for two ranks that share a cache, and at 8 kB for two that
 * do not. */
#define WHOLE_BYTES 2048

#define SMALLEST_BYTES 256
#define N_ROUNDS       7
/* A longer table is worth it only where the gain is beyond the noise of a few rounds. */
#define GAIN 1.05

static int number_of(const char *name)
{
    for (int i = 0; par_colls[i]; i++)
        if (strcmp(par_colls[i]->name, name) == 0)
            return i;
    return 0;
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

/* --- measuring */

/* A few hundred microseconds' worth, from a guess of 1 GB/s; the same on every rank. */
static int repetitions(size_t bytes)
{
    size_t n = 200000 / (bytes + 2000);

    return n < 2 ? 2 : (int)n;
}

static int time_one(struct par_rank *r, int coll, float *x, size_t n, double *ns)
{
    int reps = repetitions(n * sizeof(*x)), rc;
    uint64_t start;

    rc = par_allreduce(r, par_colls[coll], x, 1); /* all here, its lines fetched */
    start = clock_ns();
    for (int i = 0; i < reps && rc == OK; i++)
        rc = par_allreduce(r, par_colls[coll], x, n);
    *ns = (double)(clock_ns() - start) / reps;
    return rc;
}

/* The fastest for n floats by this rank's clock; the one before is kept unless the
 * gain is clear. Rounds begin with another algorithm each, and the best one counts:
 * what else runs here only adds. */
static int fastest(struct par_rank *r, float *x, size_t n, int before, int *out)
{
    double ns[PAR_COLLS_MAX], t;
    int n_colls = 0, best = 0, rc = OK;

    while (par_colls[n_colls])
        n_colls++;
    for (int round = 0; round < N_ROUNDS; round++)
        for (int k = 0; k < n_colls && rc == OK; k++) {
            int i = (k + round) % n_colls;

            rc = time_one(r, i, x, n, &t);
            if (round == 0 || t < ns[i])
                ns[i] = t;
        }
    if (rc != OK)
        return rc;
    for (int i = 0; i < n_colls; i++)
        best = ns[i] < ns[best] ? i : best;
    if (before >= 0 && ns[before] < GAIN * ns[best])
        best = before;
    *out = best;
    return OK;
}

static int measure_all(struct par_rank *r, float *x, struct par_choice *out)
{
    size_t n = SMALLEST_BYTES / sizeof(*x);
    int before = -1, rc = OK;
    bool last = false;

    while (!last && rc == OK) {
        last = n >= r->max_floats || out->n == PAR_CHOICE_MAX - 1;
        n = last ? r->max_floats : n;
        rc = fastest(r, x, n, before, &before);
        if (out->n == 0 || out->row[out->n - 1].coll != before)
            out->n++;
        out->row[out->n - 1] = (struct par_choice_row){n * sizeof(*x), before};
        n *= 4;
    }
    return rc;
}

static int publish(struct par_rank *r, const struct par_choice *mine)
{
    struct par_comm *c = r->comm;
    int rc = OK;

    r->n_measured++;
    if (r->rank == 0) {
        c->choice = *mine;
        par_flag_set(r, &c->chosen, r->n_measured);
    } else {
        rc = par_flag_wait(r, &c->chosen, r->n_measured);
    }
    if (rc == OK)
        r->choice = c->choice;
    return rc;
}

int par_comm_measure(struct par_rank *r)
{
    struct par_choice mine = {.n = 0};
    float *x;
    int rc;

    if (r->n_ranks == 1)
        return OK;
    x = mem_new(MEM_TEAM, r->max_floats, sizeof(*x));
    rc = x ? measure_all(r, x, &mine) : ERR_NOMEM;
    if (rc == OK)
        rc = publish(r, &mine);
    else
        par_comm_abort(r->comm); /* the others are waiting for this rank */
    mem_free(x);
    return rc;
}
