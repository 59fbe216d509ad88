/* One optimization after the other on this host: one plan with the master's all-reduce for
 * both phases; the better all-reduce; a service configuration for each phase; tuned
 * schedules; and with K split. All in turn in the same cell.
 * Paper: Sandwich 8.4, Table 1. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tuning.h"
#include "measure/compare.h"
#include "tune/validate.h"

struct opts {
    char *model;
    int precision;
    int64_t batch, n_prompt_tok, n_output_tok, rounds, seed;
    double tune_s;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(INT, batch, "1", "Number of sequences that decode together.", .min = 1,
            .max = 64),
    OPT_ROW(INT, n_prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, n_output_tok, "32", "Output tokens of each sequence.", .min = 2,
            .max = 65536),
    OPT_ROW(INT, rounds, "9", "Rounds of all steps, interleaved.", .min = 3, .max = 99),
    OPT_ROW(F64, tune_s, "2", "Time to tune each shape of matrix.", .unit = "s", .min = 0,
            .max = 3600),
    OPT_ROW(INT, seed, "1", "Seed of token ids and of the tuner."),
    {0},
};

#define STEPS(X)                                                                         \
    X(one_plan, "one plan, one rank per CPU, all-reduce by master_copy")                 \
    X(communication, "as one_plan, with the fastest all-reduce for each size")           \
    X(service_config, "and with the fastest ranks x threads for each phase")             \
    X(kernel_tuning, "and with tuned schedules that do not split K")                     \
    X(split_k, "and with tuned schedules that may split K")
#define ID(step, text) STEP_##step,
enum { STEPS(ID) N_STEPS };
#define METRIC(step, text) {"tok_s_" #step, "tok/s", "higher", "output rate: " text},
static const struct study_metric metrics[] = {
    STEPS(METRIC){"speedup_all", "x", "higher", "tok_s_split_k / tok_s_one_plan"},
    {"prefill_ranks", "", "", "ranks of prefill in the chosen service configuration"},
    {"decode_ranks", "", "", "ranks of decode in the chosen service configuration"},
    {"decode_threads", "", "", "threads of each decode rank"},
    {"tuning_s", "s", "", "time spent measuring schedules"},
    {"n_tuned_kept", "", "",
     "of the 4 phases of the last two steps, those whose tuned schedules are faster than "
     "the default ones in the engine; the others keep the default ones"},
    {"token_bytes", "B", "", "bytes that a step of decode must read"},
    {0},
};

/* Ranks x threads that share n CPUs, and decode's on half of them. */
struct shape {
    int ranks, threads;
};
#define SHAPES_MAX     32
#define ROUNDS_MAX     99
#define CHOOSE_ROUNDS  25
#define CHOOSE_S       2.0 /* for the configurations of a phase */
#define COMPARE_ROUNDS 7   /* of a tuned schedule with the default */
#define COMPARE_STEPS  9   /* of the engine with tuned ones and with the default */

struct found {
    struct model_bench engine;
    struct tune_bench *bench;
    const struct opts *o;
    struct model_phase *phase[N_STEPS][2]; /* prefill's, decode's */
    struct shape chosen[2];
    struct measure *measure;
    struct study_cell *out;
    int64_t n_requests;
    bool split_k; /* what the tuner may now do */
    double tuning_s;
    int n_tuned_kept;
};

/* --- service configurations */

static int shapes_of(const struct found *f, bool decode, struct shape *out)
{
    int n = f->engine.budget.n, k = 0;

    for (int used = decode ? (n + 1) / 2 : n; used <= n; used += n > 1 ? n / 2 : 1)
        for (int r = 1; r <= used && k < SHAPES_MAX; r++)
            if (used % r == 0)
                out[k++] = (struct shape){r, used / r};
    return k;
}

struct choice {
    struct found *f;
    bool decode;
    struct shape all[SHAPES_MAX];
};

/* A configuration opened again; the second step counts. */
static int try_shape(void *arg, int i, struct measure_trial *t)
{
    struct choice *c = arg;
    struct model_phase *p = NULL;
    int rc =
        study_engine_phase(&c->f->engine, &p, c->all[i].ranks, c->all[i].threads, NULL);

    for (int k = 0; k < 2 && rc == OK; k++)
        rc = model_bench_steps_of(&c->f->engine.steps, p, c->decode,
                                  c->f->o->n_prompt_tok, &t->seconds);
    model_phase_close(&p);
    return rc;
}

/* The fastest of a few. */
static int choose(struct found *f, bool decode, struct shape *best)
{
    const struct measure_opts o = {.max_rounds = CHOOSE_ROUNDS, .budget_s = CHOOSE_S};
    struct choice c = {.f = f, .decode = decode};
    int n = shapes_of(f, decode, c.all);

    TRY(measure_compare(f->measure, n, &o, try_shape, &c));
    *best = c.all[measure_fastest(f->measure, 0)];
    return OK;
}

/* --- schedules */

/* Those numbers of rows that this experiment computes; for others the default is kept. */
static int rows_of(const struct opts *o, int64_t m_max, int64_t rows[3])
{
    int64_t all[3] = {1, o->batch, o->n_prompt_tok};
    int n = 0;

    for (int i = 0; i < 3; i++)
        if (all[i] <= m_max && (n == 0 || all[i] > rows[n - 1]))
            rows[n++] = all[i];
    return n;
}

static int tune_one(struct found *f, const struct tune_shape *shapes, int n,
                    int n_threads, struct kern_schedule *best)
{
    struct tune_opts o;
    int rc;

    TRY(opt_init(tune_opt_table, &o));
    o.split_k = f->split_k;
    o.budget_s = f->o->tune_s;
    o.seed = f->o->seed;
    rc = study_tune_on(f->bench, "sandwich", &o, n_threads, shapes, n, best);
    opt_free(tune_opt_table, &o);
    return rc;
}

static int tune_rows(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct found *f = ctx;
    struct tune_shape shapes[3];
    struct kern_schedule best[3];
    struct tune_cost cost;
    int64_t rows[3];
    int n = rows_of(f->o, m_max, rows);

    for (int64_t m = 1; m <= m_max; m++)
        kern_schedule_default(&out[m - 1], v, w, m, n_threads);
    for (int i = 0; i < n; i++)
        shapes[i] = (struct tune_shape){.v = v,
                                        .m = rows[i],
                                        .n = w->n,
                                        .k = w->k,
                                        .k_unit = w->n_units > 1 ? w->k_unit : 0};
    TRY(tune_one(f, shapes, n, n_threads, best));
    for (int i = 0; i < n; i++) {
        struct measure_report t[2];
        bool lost;

        TRY(tune_validate(f->bench, &shapes[i], n_threads, COMPARE_ROUNDS, &best[i], t,
                          &lost));
        out[rows[i] - 1] = best[i];
    }
    tune_cost_take(f->bench, &cost);
    f->tuning_s += cost.seconds;
    return OK;
}

/* --- the steps */

struct pair {
    struct found *f;
    struct model_phase *both[2]; /* with default schedules, with tuned ones */
    int p;                       /* 0 prefill's, 1 decode's */
};

static int one_step(void *arg, int i, struct measure_trial *t)
{
    const struct pair *x = arg;

    return model_bench_steps_of(&x->f->engine.steps, x->both[i], x->p == 1,
                                x->f->o->n_prompt_tok, &t->seconds);
}

/* A product alone is not a step of the engine, where ranks compete for memory and
 * products are fused with what follows: *tuned stays if it is faster there, in turn with
 * the default schedules, which take its place if not. */
static int keep_faster(struct found *f, struct model_phase **tuned, int p,
                       const struct shape *s)
{
    const struct measure_opts o = {MEASURE_EXACTLY(COMPARE_STEPS)};
    struct pair x = {.f = f, .both = {NULL, *tuned}, .p = p};
    int rc, kept;

    TRY(study_engine_phase(&f->engine, &x.both[0], s->ranks, s->threads, NULL));
    rc = measure_compare(f->measure, 2, &o, one_step, &x);
    kept = rc == OK && measure_fastest(f->measure, -1) == 1;
    f->n_tuned_kept += kept;
    *tuned = x.both[kept];
    model_phase_close(&x.both[!kept]);
    return rc;
}

static int open_step(struct found *f, int step)
{
    const struct par_coll *master = NULL;
    int n = f->engine.budget.n;

    if (step == STEP_one_plan)
        TRY(par_coll_find("master_copy", &master));
    f->split_k = step == STEP_split_k;
    for (int p = 0; p < 2; p++) {
        struct shape s = step < STEP_service_config ? (struct shape){n, 1} : f->chosen[p];
        struct model_phase **phase = &f->phase[step][p];

        TRY(study_engine_phase(&f->engine, phase, s.ranks, s.threads, master));
        if (step < STEP_kernel_tuning)
            continue;
        TRY(model_phase_schedules(*phase, tune_rows, f));
        TRY(keep_faster(f, phase, p, &s));
    }
    return OK;
}

static int request(void *arg, int step, struct measure_trial *t)
{
    struct found *f = arg;
    const struct opts *o = f->o;
    double one;

    t->seconds = 0;
    for (int64_t i = 0; i < o->batch; i++) {
        TRY(model_bench_steps_prefill(&f->engine.steps, f->phase[step][0],
                                      o->n_prompt_tok, &one));
        t->seconds += one;
    }
    for (int64_t i = 1; i < o->n_output_tok; i++) {
        TRY(model_bench_steps_decode(&f->engine.steps, f->phase[step][1],
                                     o->n_prompt_tok + i - 1, &one));
        t->seconds += one;
    }
    study_progress(f->out, (double)++f->n_requests / (double)(N_STEPS * (o->rounds + 1)),
                   "all steps in turn");
    return OK;
}

/* Output tokens a second of a step, and of each round of it. */
static double tok_s_of(const struct found *f, int step, double *rounds)
{
    double n_tok = (double)(f->o->batch * f->o->n_output_tok);
    struct measure_report r;
    int n;
    const double *seconds = measure_times(f->measure, step, &n);

    for (int i = 0; i < n; i++)
        rounds[i] = n_tok / seconds[i];
    measure_report(f->measure, step, &r);
    return n_tok / r.estimate;
}

static void report(const struct found *f, struct study_cell *out)
{
    const struct model *m = f->engine.model;
    double tok_s[N_STEPS], rounds[N_STEPS][ROUNDS_MAX];
    double bytes = model_cost_decode(model_config_of(m), model_cost_types_of(m),
                                     (double)f->o->n_prompt_tok + 1, f->o->batch)
                       .read_bytes;

    for (int s = 0; s < N_STEPS; s++)
        tok_s[s] = tok_s_of(f, s, rounds[s]);

    const struct study_number more[] = {
        {"speedup_all", tok_s[STEP_split_k] / tok_s[STEP_one_plan]},
        {"prefill_ranks", f->chosen[0].ranks},
        {"decode_ranks", f->chosen[1].ranks},
        {"decode_threads", f->chosen[1].threads},
        {"tuning_s", f->tuning_s},
        {"n_tuned_kept", f->n_tuned_kept},
        {"token_bytes", bytes}};

    STUDY_VALUES(out, more, "a time was not a number");
    for (int s = 0; s < N_STEPS; s++) {
        study_value(out, metrics[s].name, tok_s[s], "a time was not a number");
        study_series(out, metrics[s].name, "tok/s", rounds[s], (size_t)f->o->rounds);
    }
    study_engine_report(out, &f->engine);
}

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct found *f = context;

    f->o = o;
    f->out = out;
    TRY(study_engine_open(&f->engine, o->model, o->precision, (int)o->batch,
                          o->n_prompt_tok + o->n_output_tok, o->seed));
    TRY(tune_bench_open(&f->bench, f->engine.team,
                        &(struct tune_bench_opts){.seed = o->seed}));
    TRY(measure_open(&f->measure, SHAPES_MAX, ROUNDS_MAX));
    for (int p = 0; p < 2; p++)
        TRY(choose(f, p == 1, &f->chosen[p]));
    for (int s = 0; s < N_STEPS; s++) {
        study_progress(out, (double)s / N_STEPS, "tune");
        TRY(open_step(f, s));
    }
    TRY(measure_compare(f->measure, N_STEPS,
                        &(struct measure_opts){MEASURE_EXACTLY((int)o->rounds)}, request,
                        f));
    report(f, out);
    return OK;
}

static void end(void *context)
{
    struct found *f = context;

    for (int s = 0; s < N_STEPS; s++)
        for (int p = 0; p < 2; p++)
            model_phase_close(&f->phase[s][p]);
    measure_close(&f->measure);
    tune_bench_close(&f->bench);
    model_bench_close(&f->engine);
}

const struct study study_ablation = {
    .name = "ablation",
    .help = "one optimization after the other, on this host",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct found),
    .metrics = metrics,
    .run = run,
    .end = end,
};
