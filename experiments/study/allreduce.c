/* The all-reduce among ranks: every algorithm on the same ranks, in turn, for one size of
 * message.   Paper: Sandwich 7.2. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "measure/compare.h"
#include "par/coll.h"
#include "par/rank.h"
#include "par/shm.h"
#include "par/team.h"

#define ROUNDS_MAX 199
#define REPS_MAX   4096
#define SIDES_MAX  (PAR_COLLS_MAX + 1) /* the algorithms, and the choice by size */
/* As long as a pinned team's threads do. */
#define SPIN_NS 60000
#define GIVE_UP 600000 /* ms: a cell never takes so long */

enum { MODE_THREADS, MODE_PROCESSES };

#define OPTIONS(X)                                                                       \
    X(INT, ranks, "2", "Number of ranks, on one CPU each.", .min = 2,                    \
      .max = PAR_RANKS_MAX)                                                              \
    X(ENUM, mode, "threads", "Whether a rank is a thread or a process.",                 \
      .values = "threads|processes")                                                     \
    X(INT, bytes, "4096", "Bytes of the message, a multiple of 4.", .min = 4,            \
      .max = 1 << 30)                                                                    \
    X(INT, rounds, "41", "Rounds; each algorithm runs once per round.", .min = 3,        \
      .max = ROUNDS_MAX)                                                                 \
    X(F64, block_us, "400",                                                              \
      "Duration of the sequence of messages that is timed as one.", .unit = "us",        \
      .min = 1, .max = 1e6)                                                              \
    X(BOOL, oversubscribe, "false", "Run with more ranks than CPUs as well.")

#define TIMES(X, name)                                                                   \
    X(us_##name, "us", LOWER,                                                            \
      "time of a message by " #name ", estimated by measure/compare.h")                  \
    X(us_p25_##name, "us", 0, "lower quartile of that time over the rounds")             \
    X(us_p75_##name, "us", 0, "upper quartile of that time over the rounds")

#define RESULTS(X)                                                                       \
    TIMES(X, master_copy)                                                                \
    TIMES(X, rank_shifted)                                                               \
    TIMES(X, symmetric)                                                                  \
    TIMES(X, by_size)                                                                    \
    X(rank_shifted_over_master_copy, "x", HIGHER,                                        \
      "time of master_copy / time of rank_shifted, median of the rounds")                \
    X(ratio_p25, "x", 0, "lower quartile of rank_shifted_over_master_copy")              \
    X(ratio_p75, "x", 0, "upper quartile of rank_shifted_over_master_copy")              \
    X(by_size_over_best, "x", HIGHER,                                                    \
      "time of the best algorithm / time of the choice by size, median of the rounds")   \
    X(gbps_by_size, "GB/s", HIGHER, "bytes of the message / us_by_size")                 \
    X(slept_frac, "", LOWER, "share of rank 0's waits that ended asleep")

FRAME_TYPES;

/* In shared memory, before the communicator; written by rank 0. */
struct times {
    _Alignas(PAR_LINE) double us[SIDES_MAX][ROUNDS_MAX];
    double reps, slept_frac;
    int choice; /* which of par_colls stands for this size */
    struct measure_report side[SIDES_MAX], master_over_shifted, best_over_by_size;
    int best; /* side, without the choice by size */
};

struct allreduce {
    FRAME_CELL;
    int cpus[PAR_RANKS_MAX]; /* of the ranks */
    struct par_shm shm;
    struct times *times;
    void *comm;
    int n_sides;
    size_t n;
    int rc[PAR_RANKS_MAX]; /* of ranks that are threads */
    char why[256];
};

/* The algorithm of a side; NULL: by size. */
static const struct par_coll *coll_of(const struct allreduce *c, int side)
{
    return side < c->n_sides - 1 ? par_colls[side] : NULL;
}

static const char *name_of(const struct allreduce *b, int side)
{
    const struct par_coll *c = coll_of(b, side);

    return c ? c->name : "by_size";
}

static int side_called(const struct allreduce *c, const char *name)
{
    for (int i = 0; i < c->n_sides - 1; i++)
        if (strcmp(name_of(c, i), name) == 0)
            return i;
    return 0;
}

/* --- what a rank does */

struct rank {
    struct allreduce *b;
    struct par_rank self;
    float *x; /* the message */
    struct measure *measure;
    int reps;
};

static int one_time(void *arg, int side, struct measure_trial *out)
{
    struct rank *r = arg;
    const struct par_coll *c = coll_of(r->b, side);
    float together = 0;
    uint64_t start;

    TRY(par_allreduce(&r->self, par_colls[0], &together, 1));
    start = clock_ns();
    for (int i = 0; i < r->reps; i++)
        TRY(par_allreduce(&r->self, c, r->x, r->b->n));
    out->seconds = (double)(clock_ns() - start) * 1e-9 / r->reps;
    return OK;
}

/* The sum is right before its time counts; then zeros, which stay zeros. */
static int check(struct rank *r)
{
    const struct allreduce *c = r->b;
    int n_ranks = r->self.n_ranks;
    float want = (float)(n_ranks * (n_ranks + 1) / 2);

    for (int side = 0; side < c->n_sides; side++) {
        for (size_t i = 0; i < c->n; i++)
            r->x[i] = (float)(r->self.rank + 1);
        TRY(par_allreduce(&r->self, coll_of(c, side), r->x, c->n));
        for (size_t i = 0; i < c->n; i++)
            if (r->x[i] != want)
                return err_set(ERR_STATE, "%s: element %zu of %zu: expected %g, found %g",
                               name_of(c, side), i, c->n, want, r->x[i]);
    }
    memset(r->x, 0, c->n * sizeof(*r->x));
    return OK;
}

/* The number of messages that one time is taken over, from a short trial. Rank 0 decides
 * and sends it to the others. */
static int agree_on_reps(struct rank *r)
{
    struct measure_trial first;
    float n_reps = 0;

    r->reps = 10;
    TRY(one_time(r, r->b->n_sides - 1, &first));
    if (r->self.rank == 0)
        n_reps = (float)floor(
            fmin(fmax(r->b->o->block_us / fmax(first.seconds * 1e6, 0.01), 1), REPS_MAX));
    TRY(par_allreduce(&r->self, par_colls[0], &n_reps, 1));
    r->reps = (int)n_reps;
    return OK;
}

/* Rank 0's times, in memory that the process of the study reads. */
static void keep(const struct rank *r)
{
    const struct allreduce *c = r->b;
    const struct measure *m = r->measure;
    struct times *t = c->times;
    int best = 0, n;

    t->reps = r->reps;
    t->slept_frac =
        r->self.n_waits ? (double)r->self.n_sleeps / (double)r->self.n_waits : 0;
    for (int i = 0; par_colls[i]; i++)
        if (par_colls[i] == par_choice_of(&r->self, c->n))
            t->choice = i;
    for (int side = 0; side < c->n_sides; side++) {
        measure_report(m, side, &t->side[side]);
        for (int i = 0; i < c->o->rounds; i++)
            t->us[side][i] = measure_times(m, side, &n)[i] * 1e6;
        if (side < c->n_sides - 1 && t->side[side].estimate < t->side[best].estimate)
            best = side;
    }
    t->best = best;
    measure_ratio(m, side_called(c, "master_copy"), side_called(c, "rank_shifted"),
                  &t->master_over_shifted);
    measure_ratio(m, best, c->n_sides - 1, &t->best_over_by_size);
}

static int run_rank(struct rank *r, int rank)
{
    struct allreduce *c = r->b;
    const struct measure_opts o = {MEASURE_EXACTLY((int)c->o->rounds)};

    r->x = mem_new(MEM_OTHER, c->n, sizeof(*r->x));
    if (!r->x)
        return ERR_NOMEM;
    TRY(par_comm_join(&r->self, c->comm, rank, SPIN_NS));
    TRY(check(r));
    TRY(par_comm_measure(&r->self, NULL));
    TRY(measure_open(&r->measure, c->n_sides, (int)c->o->rounds));
    TRY(agree_on_reps(r));
    TRY(measure_compare(r->measure, c->n_sides, &o, one_time, r));
    if (rank == 0)
        keep(r);
    return OK;
}

static int rank_main(void *arg, int rank)
{
    struct rank r = {.b = arg};
    int rc = run_rank(&r, rank);

    if (rc != OK)
        par_comm_abort(r.b->comm);
    measure_close(&r.measure);
    mem_free(r.x);
    return rc;
}

static void thread_main(void *arg, struct par_self *self)
{
    struct allreduce *c = arg;

    c->rc[self->id] = rank_main(c, self->id);
    if (c->rc[self->id] != OK && c->rc[self->id] != ERR_STATE)
        snprintf(c->why, sizeof(c->why), "rank %d: %.200s", self->id, err_msg());
}

/* --- starting them */

static int run_threads(struct allreduce *c)
{
    int n = (int)c->o->ranks;
    struct par_team *team;

    TRY(par_team_open(&team, c->cpus, n, 1));
    par_team_run(team, n, thread_main, c);
    par_team_close(&team);
    for (int i = 0; i < n; i++)
        if (c->rc[i] != OK)
            return err_set(c->rc[i], "%s", *c->why ? c->why : "a rank aborted");
    return OK;
}

static int run_processes(struct allreduce *c)
{
    const int *cpus[PAR_RANKS_MAX];
    int n_cpus[PAR_RANKS_MAX], rc;
    struct par_ranks_opts o = {.n_ranks = (int)c->o->ranks,
                               .fn = rank_main,
                               .arg = c,
                               .cpus = cpus,
                               .n_cpus = n_cpus,
                               .abort = par_comm_abort,
                               .mem = c->comm};
    struct par_ranks *p;

    for (int i = 0; i < o.n_ranks; i++) {
        cpus[i] = &c->cpus[i];
        n_cpus[i] = 1;
    }
    rc = par_ranks_open(&p, &o);
    if (rc == OK)
        rc = par_ranks_wait(p, GIVE_UP);
    par_ranks_close(&p);
    return rc;
}

static int bench_open(struct allreduce *c)
{
    size_t bytes;

    while (par_colls[c->n_sides])
        c->n_sides++;
    c->n_sides++;
    c->n = (size_t)c->o->bytes / sizeof(float);
    bytes = par_comm_bytes((int)c->o->ranks, c->n);
    if (!bytes)
        return err_set(ERR_ARG, "bytes: no communicator for %zu floats", c->n);
    TRY(par_shm_open(&c->shm, sizeof(*c->times) + bytes));
    c->times = c->shm.base;
    c->comm = c->times + 1;
    return par_comm_init(c->comm, (int)c->o->ranks, c->n);
}

/* --- what was found */

static void report_side(struct allreduce *c, int side)
{
    const char *name = name_of(c, side);
    const double *us = c->times->us[side];
    size_t n = (size_t)c->o->rounds;
    char series[64];

    *frame_named(c->f, "us_%s", name) = 1e6 * c->times->side[side].estimate;
    *frame_named(c->f, "us_p25_%s", name) = stats_percentile(us, n, 0.25);
    *frame_named(c->f, "us_p75_%s", name) = stats_percentile(us, n, 0.75);
    snprintf(series, sizeof(series), "us_%s", name);
    study_series(c->out, series, "us", us, n);
}

/* Round by round, so that what slows down both sides of one cancels. */
static void report_ratios(struct allreduce *c)
{
    const double *master = c->times->us[side_called(c, "master_copy")];
    const double *shifted = c->times->us[side_called(c, "rank_shifted")];
    size_t n = (size_t)c->o->rounds;
    double r[ROUNDS_MAX];

    for (size_t i = 0; i < n; i++)
        r[i] = master[i] / shifted[i];
    c->r->rank_shifted_over_master_copy = c->times->master_over_shifted.estimate;
    c->r->ratio_p25 = stats_percentile(r, n, 0.25);
    c->r->ratio_p75 = stats_percentile(r, n, 0.75);
    c->r->by_size_over_best = c->times->best_over_by_size.estimate;
    study_note_text(c->out, "best", name_of(c, c->times->best));
}

static void allreduce_report(struct allreduce *c)
{
    double by_size_s = c->times->side[c->n_sides - 1].estimate;

    report_ratios(c);
    for (int side = 0; side < c->n_sides; side++)
        report_side(c, side);
    c->r->gbps_by_size = 1e-9 * (double)(c->n * sizeof(float)) / by_size_s;
    c->r->slept_frac = c->times->slept_frac;
    study_note_text(c->out, "by_size", par_colls[c->times->choice]->name);
    study_note(c->out, "reps", json_real(c->times->reps));
}

static int choose_cpus(struct allreduce *c)
{
    struct cpu_budget budget;

    TRY(cpu_budget_get(&budget));
    if (c->o->ranks > budget.n && !c->o->oversubscribe)
        return err_set(ERR_NOTFOUND, "%d ranks, and %s", (int)c->o->ranks, budget.reason);
    for (int i = 0; i < c->o->ranks; i++)
        c->cpus[i] = budget.cpus[i % budget.n];
    return OK;
}

static int allreduce_run(struct allreduce *c)
{
    FRAME_CLOSE(c->f, par_shm_close, &c->shm);
    TRY(choose_cpus(c));
    TRY(bench_open(c));
    TRY(c->o->mode == MODE_THREADS ? run_threads(c) : run_processes(c));
    allreduce_report(c);
    return OK;
}

STUDY(allreduce, "the all-reduce among ranks, each algorithm in turn");
