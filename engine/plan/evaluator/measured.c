/* Runs the engine on this host. The model is opened by a team over every CPU of the budget,
 * so its weights lie where all of them touched them first; a configuration is then a part
 * of that team, its threads moved to the configuration's CPUs. Plans of one rank run a
 * model whose layout is another (model_opts.one_rank), so there are up to two. */
#include "plan/evaluator.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "measure/compare.h"
#include "ranks/bench_steps.h"
#include "par/team.h"

/* A run is as many steps of each length as take this long together: clocks and wake-ups are
 * then below a percent of it. A measurement is a few runs, but no further one after RUNS_S. */
#define RUN_S         0.01
#define RUN_STEPS_MAX 256
#define RUNS_MAX      5
#define RUNS_S        0.3
/* A run takes as many of the trace's lengths as fit into this time, and one at least: a
 * search needs many measurements more than it needs every length in each of them. */
#define RUN_S_MAX 1.0
/* A step longer than this needs no other to warm up: its weights are in no cache, and
 * clocks rise sooner. */
#define WARM_S 0.1

#define NOISE_MEASUREMENTS 7
#define NOISE_S            3.0   /* three measurements do after so long */
#define NOISE_MIN          0.001 /* few measurements may agree by chance */
#define NOISE_HIGH         0.1   /* that of a machine with other work on it */

struct measured {
    enum topo_phase phase;
    struct plan_points points; /* the trace's lengths in this phase */
    int64_t n_ctx_tok;         /* their mean in decode */
    int n_seqs;                /* in a step */
    struct cpu_budget budget;
    struct par_team *team; /* over the whole budget */
    struct format_file *file;
    struct model_bench_opts opts; /* of both models */
    struct model_bench layout[2]; /* [true]: of one rank; opened when first needed */
    struct model_bench *bench;    /* the one that is run */
    bool may_have_one_rank;       /* as far as the other phase decides that */
    struct model_phase *run;      /* NULL: no configuration in place */
    struct measure *measure;
    int64_t max_tok, step_tok;       /* of a sequence; of a step */
    struct model_phase *run_pair[2]; /* of enum topo_phase: what pair() put in place */
    /* The configuration in place. */
    int cpus[CPU_MAX], n_ranks, n_threads; /* threads of each rank */
    double step_s; /* what a step last took, of whatever configuration; 0 at first */
};

/* ---- steps ---- */

static int step(struct measured *x, const struct plan_point *p, double *seconds)
{
    int64_t n = plan_point_tok(p);

    return model_bench_steps_of(&x->bench->steps, x->run, x->phase == TOPO_DECODE, n,
                                seconds);
}

/* n steps of a length; the mean seconds of one. */
static int steps(struct measured *x, const struct plan_point *p, int n, double *seconds)
{
    uint64_t t0 = clock_ns();
    double one;
    int rc = OK;

    for (int i = 0; i < n && rc == OK; i++)
        rc = step(x, p, &one);
    *seconds = (double)(clock_ns() - t0) * 1e-9 / n;
    return rc;
}

/* The seconds of a step, averaged over the trace. */
static int run(struct measured *x, int n_each, double *seconds)
{
    double sum = 0, weight = 0, one = 0;
    int rc = OK;

    for (int i = 0; i < x->points.n && rc == OK; i++) {
        rc = steps(x, &x->points.v[i], n_each, &one);
        sum += x->points.v[i].weight * one;
        weight += x->points.v[i].weight;
    }
    *seconds = sum / weight;
    return rc;
}

struct runs {
    struct measured *x;
    int n_each; /* steps of each length */
};

static int one_run(void *arg, int alternative, struct measure_trial *t)
{
    const struct runs *r = arg;

    (void)alternative; /* the search compares configurations, this is one of them */
    return run(r->x, r->n_each, &t->seconds);
}

static int measure_here(struct measured *x, double *seconds)
{
    const struct measure_opts o = {
        .min_rounds = 1, .max_rounds = RUNS_MAX, .n_warm_up = -1, .budget_s = RUNS_S};
    double all_s = x->step_s * x->points.n;
    struct runs r = {x, all_s * RUN_STEPS_MAX > RUN_S ? (int)ceil(RUN_S / all_s)
                                                      : RUN_STEPS_MAX};
    struct measure_report report;
    int rc = measure_compare(x->measure, 1, &o, one_run, &r);

    measure_report(x->measure, 0, &report);
    if (rc == OK)
        *seconds = x->step_s = report.estimate;
    return rc;
}

/* ---- configurations ---- */

struct move {
    const int *cpus;
    bool failed; /* written by whichever thread fails; all write the same */
};

static void move_thread(void *arg, struct par_self *self)
{
    struct move *m = arg;

    if (cpu_pin_self(m->cpus[self->id]) != OK)
        __atomic_store_n(&m->failed, true, __ATOMIC_RELAXED);
}

/* Two steps, for caches and clocks. */
static int warm_up(struct measured *x)
{
    const struct plan_point *middle = &x->points.v[x->points.n / 2];
    int rc = OK;

    for (int i = 0; i < 2 && rc == OK && x->step_s < WARM_S; i++)
        rc = steps(x, middle, 1, &x->step_s);
    return rc;
}

/* The first n threads of the team to these CPUs. */
static int move(struct measured *x, const int *cpus, int n)
{
    struct move m = {.cpus = cpus};

    par_team_run(x->team, n, move_thread, &m);
    if (__atomic_load_n(&m.failed, __ATOMIC_RELAXED))
        return err_set(ERR_UNSUPPORTED, "cannot pin %d threads to their CPUs", n);
    return OK;
}

/* The model for the next phases to open; none is open. Where memory holds only one of the
 * two, they take turns. */
static int use_layout(struct measured *x, bool one_rank)
{
    struct model_bench *b = &x->layout[one_rank], *other = &x->layout[!one_rank];
    int rc = OK;

    x->bench = b;
    if (b->model)
        return OK;
    rc = move(x, x->budget.cpus, x->budget.n); /* whose touch places the weights */
    if (rc != OK)
        return rc;
    x->opts.one_rank = one_rank;
    rc = model_bench_open(b, x->file, &x->opts);
    if (rc == ERR_NOMEM && other->model) {
        model_bench_close(other);
        rc = model_bench_open(b, x->file, &x->opts);
    }
    return rc;
}

/* ... as this many ranks. */
static int place(struct measured *x, const int *cpus, int n_ranks, int n_threads)
{
    const struct model_phase_opts o = {.n_ranks = n_ranks, .n_threads = n_threads};
    int n = n_ranks * n_threads, rc;

    model_phase_close(&x->run);
    rc = use_layout(x, x->may_have_one_rank && n_ranks == 1);
    if (rc == OK)
        rc = move(x, cpus, n);
    if (rc == OK)
        rc = model_phase_open(&x->run, x->bench->model, &o);
    if (rc == OK)
        rc = warm_up(x);
    if (rc != OK) {
        model_phase_close(&x->run);
        return rc;
    }
    memcpy(x->cpus, cpus, (size_t)n * sizeof(*cpus));
    x->n_ranks = n_ranks;
    x->n_threads = n_threads;
    return OK;
}

static bool in_place(const struct measured *x, const int *cpus, int n_ranks,
                     int n_threads)
{
    return x->run && x->n_ranks == n_ranks && x->n_threads == n_threads &&
           memcmp(cpus, x->cpus, (size_t)(n_ranks * n_threads) * sizeof(*cpus)) == 0;
}

static bool in_budget(const struct measured *x, int cpu)
{
    for (int i = 0; i < x->budget.n; i++)
        if (x->budget.cpus[i] == cpu)
            return true;
    return false;
}

static int measured_measure(void *ctx, const struct topo_config *c, int repeat,
                            double *seconds)
{
    struct measured *x = ctx;
    int cpus[CPU_MAX], n = c->n_ranks * c->n_threads, rc = OK;

    (void)repeat;
    if (n > x->budget.n)
        return err_set(ERR_UNSUPPORTED, "%d ranks of %d threads: %s", c->n_ranks,
                       c->n_threads, x->budget.reason);
    for (int i = 0; i < n; i++) {
        cpus[i] = c->tree->machine->pus[c->tree->pus[i]].os_index;
        if (!in_budget(x, cpus[i]))
            return err_set(ERR_UNSUPPORTED, "CPU %d: %s", cpus[i], x->budget.reason);
    }
    if (!in_place(x, cpus, c->n_ranks, c->n_threads))
        rc = place(x, cpus, c->n_ranks, c->n_threads);
    return rc == OK ? measure_here(x, seconds) : rc;
}

/* ---- a plan's two configurations ---- */

static int cpu_of(const struct topo_config *c, int i)
{
    return c->tree->machine->pus[c->tree->pus[i]].os_index;
}

static int find(const int *cpus, int n, int cpu)
{
    int i = 0;

    while (i < n && cpus[i] != cpu)
        i++;
    return i;
}

/* The threads' CPUs as the engine numbers them, decode's first; how many. */
static int number_cpus(const struct topo_config *prefill,
                       const struct topo_config *decode, int cpus[CPU_MAX])
{
    int n = decode->n_ranks * decode->n_threads;

    for (int i = 0; i < n; i++)
        cpus[i] = cpu_of(decode, i);
    for (int i = 0; i < prefill->n_ranks * prefill->n_threads; i++)
        if (find(cpus, n, cpu_of(prefill, i)) == n)
            cpus[n++] = cpu_of(prefill, i);
    return n;
}

static int open_paired(struct measured *x, enum topo_phase phase,
                       const struct topo_config *c, const int *cpus)
{
    int threads[CPU_MAX], n = c->n_ranks * c->n_threads;
    const struct model_phase_opts o = {
        .n_ranks = c->n_ranks, .n_threads = c->n_threads, .threads = threads};

    for (int i = 0; i < n; i++)
        threads[i] = find(cpus, n, cpu_of(c, i));
    return model_phase_open(&x->run_pair[phase], x->bench->model, &o);
}

static int measured_pair(struct plan_evaluation *e, const struct topo_config *prefill,
                         const struct topo_config *decode, int64_t *n_rows_max)
{
    struct measured *x = e->ctx;
    int cpus[CPU_MAX], n = number_cpus(prefill, decode, cpus), rc;

    if (n > prefill->n_ranks * prefill->n_threads || n > x->budget.n)
        return err_set(ERR_UNSUPPORTED, "decode's CPUs are not among prefill's");
    model_phase_close(&x->run);
    rc = use_layout(x, prefill->n_ranks == 1 && decode->n_ranks == 1);
    if (rc == OK)
        rc = move(x, cpus, n);
    if (rc == OK)
        rc = open_paired(x, TOPO_PREFILL, prefill, cpus);
    if (rc == OK)
        rc = open_paired(x, TOPO_DECODE, decode, cpus);
    *n_rows_max = x->step_tok;
    return rc;
}

/* The first step changes the phase and warms caches: it counts only where it is long. */
static int measured_step(struct plan_evaluation *e, const struct plan_step *s, int repeat,
                         double *seconds)
{
    struct measured *x = e->ctx;
    int64_t left_tok = x->max_tok - s->n_rows;
    int64_t ctx_tok = x->n_ctx_tok < left_tok ? x->n_ctx_tok : left_tok;
    double one = 0, sum = 0;
    int n = 0, rc;

    (void)repeat;
    rc = model_bench_steps_piece(&x->bench->steps, x->run_pair[s->phase], s->n_rows,
                                 ctx_tok, &one);
    *seconds = one;
    if (one > WARM_S)
        return rc;
    for (; rc == OK && sum < RUN_S && n < RUN_STEPS_MAX; n++, sum += one)
        rc = model_bench_steps_piece(&x->bench->steps, x->run_pair[s->phase], s->n_rows,
                                     ctx_tok, &one);
    *seconds = sum / n;
    return rc;
}

/* ---- opening ---- */

static int check_opts(const struct plan_evaluator_opts *o)
{
    if (!o->model_path)
        return err_set(ERR_ARG, "measured: a model's file is needed");
    if (strcmp(o->machine->source, "host") != 0)
        return err_set(ERR_ARG, "measured: %s is not this host", o->machine->name);
    if (!o->trace || o->trace->prompts.n < 1 || o->trace->contexts.n < 1)
        return err_set(ERR_ARG, "measured: a trace is needed");
    if (o->batch < 1 || o->batch > CPU_MAX)
        return err_set(ERR_ARG, "measured: expected a batch of 1 to %d, found %lld",
                       CPU_MAX, (long long)o->batch);
    return OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Prefill's evaluator also takes pieces of prompts after the mean context, as far as the
 * model's reaches. */
static void set_lengths(struct measured *x, const struct model_config *c)
{
    int64_t pieces = least(c->max_tok, x->n_ctx_tok + PLAN_STEP_ROWS_MAX);
    int64_t longest = plan_point_tok(&x->points.v[x->points.n - 1]);
    int64_t most = pieces > longest ? pieces : longest;
    bool prefill = x->phase == TOPO_PREFILL;

    x->max_tok = prefill ? most : longest + 1;
    x->step_tok = least(prefill ? most : x->n_seqs, PLAN_STEP_ROWS_MAX);
}

static int open_team(struct measured *x, const struct plan_evaluator_opts *o)
{
    TRY(format_open(&x->file, o->model_path));
    TRY(cpu_budget_get(&x->budget));
    TRY(par_team_open(&x->team, x->budget.cpus, x->budget.n, 1));
    set_lengths(x, &x->file->config);
    x->opts = (struct model_bench_opts){.precision = kern_precision_of(o->precision),
                                        .kv_type = o->kv_type,
                                        .n_seqs = x->n_seqs,
                                        .max_tok = x->max_tok,
                                        .step_tok = x->step_tok,
                                        .seed = o->seed,
                                        .team = x->team};
    return OK;
}

/* How many lengths a run can afford, by a step of the mean length. */
static int choose_points(struct measured *x)
{
    struct plan_point mean = {plan_points_mean(&x->points), 1};
    int rc = steps(x, &mean, 1, &x->step_s);

    if (rc == OK && x->step_s < WARM_S)
        rc = steps(x, &mean, 1, &x->step_s);
    if (x->step_s * PLAN_POINTS_MAX > RUN_S_MAX)
        plan_points_merge(&x->points, (int)(RUN_S_MAX / x->step_s));
    return rc;
}

/* One measurement's deviation, of the whole budget in this moment. */
static int measure_noise(struct measured *x, double *frac)
{
    double s[NOISE_MEASUREMENTS];
    uint64_t t0 = clock_ns();
    size_t n = 0;

    TRY(place(x, x->budget.cpus, 1, x->budget.n));
    TRY(choose_points(x));
    while (n < NOISE_MEASUREMENTS &&
           (n < 3 || (double)(clock_ns() - t0) * 1e-9 < NOISE_S))
        TRY(measure_here(x, &s[n++]));
    *frac = fmax(stats_std(s, n) / stats_mean(s, n), NOISE_MIN);
    if (*frac > NOISE_HIGH)
        log_warning(
            "unsteady_plan", *frac, NOISE_HIGH,
            "measurements for the plan vary by %.0f %%: another search may find another "
            "plan",
            100 * *frac);
    return OK;
}

static void measured_close(struct plan_evaluation *e)
{
    struct measured *x = e->ctx;

    if (x) {
        measure_close(&x->measure);
        model_phase_close(&x->run);
        model_phase_close(&x->run_pair[TOPO_PREFILL]);
        model_phase_close(&x->run_pair[TOPO_DECODE]);
        for (int i = 0; i < 2; i++)
            model_bench_close(&x->layout[i]);
        par_team_close(&x->team);
        format_close(&x->file);
        mem_free(x);
    }
    *e = (struct plan_evaluation){0};
}

static int measured_open(struct plan_evaluation *out, const struct plan_evaluator_opts *o)
{
    struct measured *x = NULL;
    int rc = check_opts(o);

    *out = (struct plan_evaluation){.measure = measured_measure};
    if (rc != OK)
        return rc;
    x = mem_new(MEM_OTHER, 1, sizeof(*x));
    if (!x)
        return ERR_NOMEM;
    out->ctx = x;
    x->phase = o->phase;
    x->points = o->phase == TOPO_PREFILL ? o->trace->prompts : o->trace->contexts;
    x->may_have_one_rank = !o->placement || o->placement->n_ranks == 1;
    x->n_ctx_tok = (int64_t)plan_points_mean(&o->trace->contexts);
    x->n_seqs = o->phase == TOPO_PREFILL ? 1 : (int)o->batch;
    rc = open_team(x, o);
    if (rc == OK)
        rc = measure_open(&x->measure, 1, RUNS_MAX);
    if (rc == OK)
        rc = measure_noise(x, &out->noise_frac);
    if (rc != OK)
        measured_close(out);
    return rc;
}

const struct plan_evaluator plan_evaluator_measured = {
    .name = "measured",
    .help = "the engine itself, on this host",
    .evidence = "measured",
    .open = measured_open,
    .close = measured_close,
    .pair = measured_pair,
    .step = measured_step,
};
