/* Which all-reduce for which size. All ranks must take the same one, so a table is only
 * changed where all of them meet: rank 0's times decide, the others copy its table. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "measure/compare.h"
#include "par/comm.h"

/* A message no longer than this is passed on whole when nothing was measured: the
 * hand-offs cost more than reading every rank's message. allreduce_bench: the two
 * cross between 1 and 4 kB for two ranks that share a cache, and at 8 kB for two that
 * do not. */
#define WHOLE_BYTES 2048

#define SMALLEST_BYTES 256
#define N_ROUNDS       7

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

struct trial {
    struct par_rank *r;
    float *x;
    size_t n;
};

static int time_one(void *arg, int coll, struct measure_trial *out)
{
    struct trial *t = arg;
    int reps = repetitions(t->n * sizeof(*t->x));
    int rc = par_allreduce(t->r, par_colls[coll], t->x, 1); /* all here, lines fetched */
    uint64_t start = clock_ns();

    for (int i = 0; i < reps && rc == OK; i++)
        rc = par_allreduce(t->r, par_colls[coll], t->x, t->n);
    out->seconds = (double)(clock_ns() - start) * 1e-9 / reps;
    return rc;
}

/* By this rank's clock. All ranks must run the same trials, so their number and order
 * depend on nothing that is measured. */
static int measure_all(struct trial *t, struct measure *m, int n_colls,
                       struct par_choice *out)
{
    const struct measure_opts o = {MEASURE_EXACTLY(N_ROUNDS)};
    size_t n = SMALLEST_BYTES / sizeof(*t->x), most = t->r->max_floats;
    int best = -1, rc = OK;
    bool last = false;

    while (!last && rc == OK) {
        last = n >= most || out->n == PAR_CHOICE_MAX - 1;
        t->n = n = last ? most : n;
        rc = measure_compare(m, n_colls, &o, time_one, t);
        if (rc != OK)
            break;
        best = measure_fastest(m, best);
        if (out->n == 0 || out->row[out->n - 1].coll != best)
            out->n++;
        out->row[out->n - 1] = (struct par_choice_row){n * sizeof(*t->x), best};
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
    struct trial t = {.r = r};
    struct measure *m = NULL;
    int n_colls = 0, rc;

    if (r->n_ranks == 1)
        return OK;
    while (par_colls[n_colls])
        n_colls++;
    t.x = mem_new(MEM_TEAM, r->max_floats, sizeof(*t.x));
    rc = t.x ? measure_open(&m, n_colls, N_ROUNDS) : ERR_NOMEM;
    if (rc == OK)
        rc = measure_all(&t, m, n_colls, &mine);
    if (rc == OK)
        rc = publish(r, &mine);
    else
        par_comm_abort(r->comm); /* the others are waiting for this rank */
    measure_close(&m);
    mem_free(t.x);
    return rc;
}
