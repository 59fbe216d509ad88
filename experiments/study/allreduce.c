/* The all-reduce among ranks: every algorithm on the same ranks, in turn, for one size of
 * message.   Paper: Sandwich 7.2. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
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

struct opts {
    int64_t ranks, bytes, rounds;
    double block_us;
    int mode;
    bool oversubscribe;
};

static const struct opt_row table[] = {
    OPT_ROW(INT, ranks, "2", "Number of ranks, on one CPU each.", .min = 2,
            .max = PAR_RANKS_MAX),
    OPT_ROW(ENUM, mode, "threads", "Whether a rank is a thread or a process.",
            .values = "threads|processes"),
    OPT_ROW(INT, bytes, "4096", "Bytes of the message, a multiple of 4.", .min = 4,
            .max = 1 << 30),
    OPT_ROW(INT, rounds, "41", "Rounds; each algorithm runs once per round.", .min = 3,
            .max = ROUNDS_MAX),
    OPT_ROW(F64, block_us, "400",
            "Duration of the sequence of messages that is timed as one.", .unit = "us",
            .min = 1, .max = 1e6),
    OPT_ROW(BOOL, oversubscribe, "false", "Run with more ranks than CPUs as well."),
    {0},
};

#define TIMES(name)                                                                      \
    {"us_" name, "us", "lower",                                                          \
     "time of a message by " name ", estimated by measure/compare.h"},                   \
        {"us_p25_" name, "us", "", "lower quartile of that time over the rounds"},       \
    {                                                                                    \
        "us_p75_" name, "us", "", "upper quartile of that time over the rounds"          \
    }

static const struct study_metric metrics[] = {
    TIMES("master_copy"),
    TIMES("rank_shifted"),
    TIMES("symmetric"),
    TIMES("by_size"),
    {"rank_shifted_over_master_copy", "x", "higher",
     "time of master_copy / time of rank_shifted, median of the rounds"},
    {"ratio_p25", "x", "", "lower quartile of rank_shifted_over_master_copy"},
    {"ratio_p75", "x", "", "upper quartile of rank_shifted_over_master_copy"},
    {"by_size_over_best", "x", "higher",
     "time of the best algorithm / time of the choice by size, median of the rounds"},
    {"gbps_by_size", "GB/s", "higher", "bytes of the message / us_by_size"},
    {"slept_frac", "", "lower", "share of rank 0's waits that ended asleep"},
    {0},
};

/* In shared memory, before the communicator; written by rank 0. */
struct times {
    _Alignas(PAR_LINE) double us[SIDES_MAX][ROUNDS_MAX];
    double reps, slept_frac;
    int choice; /* which of par_colls stands for this size */
    struct measure_report side[SIDES_MAX], master_over_shifted, best_over_by_size;
    int best; /* side, without the choice by size */
};

struct cell {
    struct study_cell *out;
    const struct opts *o;
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
static const struct par_coll *coll_of(const struct cell *b, int side)
{
    return side < b->n_sides - 1 ? par_colls[side] : NULL;
}

static const char *name_of(const struct cell *b, int side)
{
    const struct par_coll *c = coll_of(b, side);

    return c ? c->name : "by_size";
}

static int side_called(const struct cell *b, const char *name)
{
    for (int i = 0; i < b->n_sides - 1; i++)
        if (strcmp(name_of(b, i), name) == 0)
            return i;
    return 0;
}

/* --- what a rank does */

struct rank {
    struct cell *b;
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
    const struct cell *b = r->b;
    int n_ranks = r->self.n_ranks;
    float want = (float)(n_ranks * (n_ranks + 1) / 2);

    for (int side = 0; side < b->n_sides; side++) {
        for (size_t i = 0; i < b->n; i++)
            r->x[i] = (float)(r->self.rank + 1);
        TRY(par_allreduce(&r->self, coll_of(b, side), r->x, b->n));
        for (size_t i = 0; i < b->n; i++)
            if (r->x[i] != want)
                return err_set(ERR_STATE, "%s: element %zu of %zu: expected %g, found %g",
                               name_of(b, side), i, b->n, want, r->x[i]);
    }
    memset(r->x, 0, b->n * sizeof(*r->x));
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
    const struct cell *b = r->b;
    const struct measure *m = r->measure;
    struct times *t = b->times;
    int best = 0, n;

    t->reps = r->reps;
    t->slept_frac =
        r->self.n_waits ? (double)r->self.n_sleeps / (double)r->self.n_waits : 0;
    for (int i = 0; par_colls[i]; i++)
        if (par_colls[i] == par_choice_of(&r->self, b->n))
            t->choice = i;
    for (int side = 0; side < b->n_sides; side++) {
        measure_report(m, side, &t->side[side]);
        for (int i = 0; i < b->o->rounds; i++)
            t->us[side][i] = measure_times(m, side, &n)[i] * 1e6;
        if (side < b->n_sides - 1 && t->side[side].estimate < t->side[best].estimate)
            best = side;
    }
    t->best = best;
    measure_ratio(m, side_called(b, "master_copy"), side_called(b, "rank_shifted"),
                  &t->master_over_shifted);
    measure_ratio(m, best, b->n_sides - 1, &t->best_over_by_size);
}

static int run_rank(struct rank *r, int rank)
{
    struct cell *b = r->b;
    const struct measure_opts o = {MEASURE_EXACTLY((int)b->o->rounds)};

    r->x = mem_new(MEM_OTHER, b->n, sizeof(*r->x));
    if (!r->x)
        return ERR_NOMEM;
    TRY(par_comm_join(&r->self, b->comm, rank, SPIN_NS));
    TRY(check(r));
    TRY(par_comm_measure(&r->self, NULL));
    TRY(measure_open(&r->measure, b->n_sides, (int)b->o->rounds));
    TRY(agree_on_reps(r));
    TRY(measure_compare(r->measure, b->n_sides, &o, one_time, r));
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
    struct cell *b = arg;

    b->rc[self->id] = rank_main(b, self->id);
    if (b->rc[self->id] != OK && b->rc[self->id] != ERR_STATE)
        snprintf(b->why, sizeof(b->why), "rank %d: %.200s", self->id, err_msg());
}

/* --- starting them */

static int run_threads(struct cell *b)
{
    int n = (int)b->o->ranks;
    struct par_team *team;

    TRY(par_team_open(&team, b->cpus, n, 1));
    par_team_run(team, n, thread_main, b);
    par_team_close(&team);
    for (int i = 0; i < n; i++)
        if (b->rc[i] != OK)
            return err_set(b->rc[i], "%s", *b->why ? b->why : "a rank aborted");
    return OK;
}

static int run_processes(struct cell *b)
{
    const int *cpus[PAR_RANKS_MAX];
    int n_cpus[PAR_RANKS_MAX], rc;
    struct par_ranks_opts o = {.n_ranks = (int)b->o->ranks,
                               .fn = rank_main,
                               .arg = b,
                               .cpus = cpus,
                               .n_cpus = n_cpus,
                               .abort = par_comm_abort,
                               .mem = b->comm};
    struct par_ranks *p;

    for (int i = 0; i < o.n_ranks; i++) {
        cpus[i] = &b->cpus[i];
        n_cpus[i] = 1;
    }
    rc = par_ranks_open(&p, &o);
    if (rc == OK)
        rc = par_ranks_wait(p, GIVE_UP);
    par_ranks_close(&p);
    return rc;
}

static int bench_open(struct cell *b)
{
    size_t bytes;

    while (par_colls[b->n_sides])
        b->n_sides++;
    b->n_sides++;
    b->n = (size_t)b->o->bytes / sizeof(float);
    bytes = par_comm_bytes((int)b->o->ranks, b->n);
    if (!bytes)
        return err_set(ERR_ARG, "bytes: no communicator for %zu floats", b->n);
    TRY(par_shm_open(&b->shm, sizeof(*b->times) + bytes));
    b->times = b->shm.base;
    b->comm = b->times + 1;
    return par_comm_init(b->comm, (int)b->o->ranks, b->n);
}

/* --- what was found */

static void report_side(const struct cell *b, struct study_cell *out, int side)
{
    const double *us = b->times->us[side];
    size_t n = (size_t)b->o->rounds;
    char us_[64], p25[64], p75[64];
    const struct study_number all[] = {{us_, 1e6 * b->times->side[side].estimate},
                                       {p25, stats_percentile(us, n, 0.25)},
                                       {p75, stats_percentile(us, n, 0.75)}};

    snprintf(us_, sizeof(us_), "us_%s", name_of(b, side));
    snprintf(p25, sizeof(p25), "us_p25_%s", name_of(b, side));
    snprintf(p75, sizeof(p75), "us_p75_%s", name_of(b, side));
    STUDY_VALUES(out, all, NULL);
    study_series(out, us_, "us", us, n);
}

/* Round by round, so that what slows down both sides of one cancels. */
static void report_ratios(const struct cell *b, struct study_cell *out)
{
    const double *master = b->times->us[side_called(b, "master_copy")];
    const double *shifted = b->times->us[side_called(b, "rank_shifted")];
    size_t n = (size_t)b->o->rounds;
    double r[ROUNDS_MAX];

    for (size_t i = 0; i < n; i++)
        r[i] = master[i] / shifted[i];
    study_value(out, "rank_shifted_over_master_copy",
                b->times->master_over_shifted.estimate, NULL);
    study_value(out, "ratio_p25", stats_percentile(r, n, 0.25), NULL);
    study_value(out, "ratio_p75", stats_percentile(r, n, 0.75), NULL);
    study_value(out, "by_size_over_best", b->times->best_over_by_size.estimate, NULL);
    study_note_text(out, "best", name_of(b, b->times->best));
}

static void report(const struct cell *b, struct study_cell *out)
{
    double by_size_s = b->times->side[b->n_sides - 1].estimate;

    report_ratios(b, out);
    for (int side = 0; side < b->n_sides; side++)
        report_side(b, out, side);
    study_value(out, "gbps_by_size", 1e-9 * (double)(b->n * sizeof(float)) / by_size_s,
                NULL);
    study_value(out, "slept_frac", b->times->slept_frac, NULL);
    study_note_text(out, "by_size", par_colls[b->times->choice]->name);
    study_note(out, "reps", json_real(b->times->reps));
}

static int choose_cpus(struct cell *b)
{
    struct cpu_budget budget;

    TRY(cpu_budget_get(&budget));
    if (b->o->ranks > budget.n && !b->o->oversubscribe)
        return err_set(ERR_NOTFOUND, "%d ranks, and %s", (int)b->o->ranks, budget.reason);
    for (int i = 0; i < b->o->ranks; i++)
        b->cpus[i] = budget.cpus[i % budget.n];
    return OK;
}

static int run(struct cell *b)
{
    TRY(choose_cpus(b));
    TRY(bench_open(b));
    TRY(b->o->mode == MODE_THREADS ? run_threads(b) : run_processes(b));
    report(b, b->out);
    return OK;
}

static void end(struct cell *b)
{
    par_shm_close(&b->shm);
}

STUDY(allreduce, "the all-reduce among ranks, each algorithm in turn");
