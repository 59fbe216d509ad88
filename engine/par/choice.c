/* The choice of an all-reduce for each size. All ranks must take the same one, so a table is only
 * changed where all of them meet: rank 0's times decide, the others copy its table. */
#include "base/clock.h"
#include "base/mem.h"
#include "measure/compare.h"
#include "par/comm.h"

#define SMALLEST_BYTES 256
#define N_ROUNDS       7
/* A change of the algorithm from one size to the next is worth a gain beyond that of a
 * trial's own noise. */
#define MARGIN_FRAC 0.02

/* A trial sends as many messages as take about this long on rank 0: long enough for the
 * clock's resolution, short enough that opening an engine is not delayed. */
#define TRIAL_S  100e-6
#define REPS_MAX 100

struct trial {
    struct par_rank *r;
    float *x;
    size_t n;
    uint64_t reps;
};

static int time_one(void *arg, int coll, struct measure_trial *out)
{
    struct trial *t = arg;
    int rc = par_allreduce(t->r, par_colls[coll], t->x, 1); /* all here, lines fetched */
    uint64_t start = clock_ns();

    for (uint64_t i = 0; i < t->reps && rc == OK; i++)
        rc = par_allreduce(t->r, par_colls[coll], t->x, t->n);
    out->seconds = (double)(clock_ns() - start) * 1e-9 / (double)t->reps;
    return rc;
}

/* Rank 0's `mine` to all ranks. */
static int publish(struct par_rank *r, uint64_t mine, uint64_t *of_rank_0)
{
    struct par_comm *c = r->comm;
    int rc = OK;

    *of_rank_0 = mine;
    r->n_published++;
    if (r->rank == 0) {
        c->published = mine;
        par_flag_set(r, &c->n_published, r->n_published);
    } else {
        rc = par_flag_wait(r, &c->n_published, r->n_published);
        *of_rank_0 = c->published;
    }
    return rc == OK ? par_rank_barrier(r) : rc; /* all have read it */
}

/* All ranks must run the same trials, so rank 0 publishes how many messages one has; 0: the time
 * is up. */
static int choose_reps(struct trial *t, uint64_t start_ns)
{
    uint64_t t0, reps = 0;
    double one_s;
    int rc = par_allreduce(t->r, NULL, t->x, t->n);

    t0 = clock_ns();
    if (rc == OK)
        rc = par_allreduce(t->r, NULL, t->x, t->n);
    one_s = (double)(clock_ns() - t0) * 1e-9;
    if ((double)(t0 - start_ns) * 1e-9 < PAR_MEASURE_S ||
        t->n * sizeof(*t->x) <= SMALLEST_BYTES)
        reps = one_s * REPS_MAX < TRIAL_S ? REPS_MAX : (uint64_t)(TRIAL_S / one_s) + 1;
    return rc == OK ? publish(t->r, reps, &t->reps) : rc;
}

static void report(const struct measure *m, int n_colls, size_t bytes,
                   struct par_timings *out)
{
    struct par_timings_row *row;

    if (!out)
        return;
    row = &out->row[out->n++];
    row->bytes = bytes;
    for (int i = 0; i < n_colls; i++) {
        struct measure_report r;

        measure_report(m, i, &r);
        row->seconds[i] = r.estimate;
    }
}

/* Measure all algorithms by this rank's clock. */
static int measure_all(struct trial *t, struct measure *m, int n_colls,
                       struct par_choice *out, struct par_timings *timings)
{
    const struct measure_opts o = {MEASURE_EXACTLY(N_ROUNDS)};
    int64_t complexity[PAR_COLLS_MAX];
    size_t n = SMALLEST_BYTES / sizeof(*t->x), most = t->r->max_floats;
    uint64_t start_ns = clock_ns();
    int best = -1, rc = OK;
    bool last = false;

    for (int size = 0; !last && rc == OK; size++) {
        last = n >= most || size == PAR_CHOICE_MAX - 1;
        t->n = n = last ? most : n;
        rc = choose_reps(t, start_ns);
        if (rc != OK || t->reps == 0)
            break;
        rc = measure_compare(m, n_colls, &o, time_one, t);
        if (rc != OK)
            break;
        for (int i = 0; i < n_colls; i++)
            complexity[i] = i != best;
        best = measure_choose(m, best < 0 ? NULL : complexity, MARGIN_FRAC);
        if (out->n == 0 || out->row[out->n - 1].coll != best)
            out->n++;
        out->row[out->n - 1] = (struct par_choice_row){n * sizeof(*t->x), best};
        report(m, n_colls, n * sizeof(*t->x), timings);
        n *= 4;
    }
    if (out->n > 0)
        out->row[out->n - 1].bytes = most * sizeof(*t->x);
    return rc;
}

/* Rank 0's table to all ranks. */
static int share_table(struct par_rank *r, const struct par_choice *mine)
{
    struct par_comm *c = r->comm;
    uint64_t done;
    int rc;

    if (r->rank == 0)
        c->choice = *mine;
    rc = publish(r, 1, &done);
    if (rc == OK)
        r->choice = c->choice; /* which rank 0 does not write again before a barrier */
    return rc;
}

int par_comm_measure(struct par_rank *r, struct par_timings *out)
{
    struct par_choice mine = {.n = 0};
    struct trial t = {.r = r};
    struct measure *m = NULL;
    int n_colls = 0, rc;

    if (out)
        *out = (struct par_timings){0};
    if (r->n_ranks == 1)
        return OK;
    while (par_colls[n_colls])
        n_colls++;
    t.x = mem_new(MEM_TEAM, r->max_floats, sizeof(*t.x));
    rc = t.x ? measure_open(&m, n_colls, N_ROUNDS) : ERR_NOMEM;
    if (rc == OK)
        rc = measure_all(&t, m, n_colls, &mine, out);
    if (rc == OK)
        rc = share_table(r, &mine);
    else
        par_comm_abort(r->comm); /* the others are waiting for this rank */
    measure_close(&m);
    mem_free(t.x);
    return rc;
}
