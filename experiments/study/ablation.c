/* One optimization after the other: one plan for both phases with the master's all-reduce;
 * rank-shifted sums; the fastest sums; the configuration of the plan search for each phase;
 * tuned schedules; and with K split. Each step is measured twice: raw, as it comes, and with
 * the phases that it does not make faster taken back to what they were. On this host all in
 * turn in one cell; on a simulated machine what the simulator knows.
 * Paper: Sandwich 8.4, Table 1. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/plan.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/tuning.h"
#include "tune/validate.h"

#define OPTIONS(X)                                                                       \
    X(STR, model, NULL, STUDY_TARGET_HELP)                                               \
    OPTION_PRECISION(X)                                                                  \
    X(INT, batch, "1", "Number of sequences that decode together.", .min = 1, .max = 64) \
    X(INT, n_prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,             \
      .max = 65536)                                                                      \
    X(INT, n_output_tok, "32", "Output tokens of each sequence.", .min = 2,              \
      .max = 65536)                                                                      \
    X(INT, rounds, "6", "Rounds of all steps, interleaved.", .min = 3, .max = 99)        \
    X(STR, policy, "sandwich", "Tuning policy.")                                         \
    X(F64, tune_s, "2", "Time to tune each shape of matrix.", .unit = "s", .min = 0,     \
      .max = 3600)                                                                       \
    X(F64, search_s, "25", "Limit of the plan search in each phase.", .unit = "s",       \
      .min = 0.1, .max = 3600)                                                           \
    X(INT, seed, "1", "Seed of token ids, of the tuner and of the plan search.")

#define STEPS(Y, X)                                                                      \
    Y(X, one_plan,                                                                       \
      "one plan for both phases, one rank for each memory node and at least two, sums "  \
      "by master_copy")                                                                  \
    Y(X, rank_shifted, "as one_plan, sums by rank_shifted")                              \
    Y(X, communication, "as one_plan, with the fastest all-reduce for each size")        \
    Y(X, service_config, "and with the plan search's ranks and CPUs for each phase")     \
    Y(X, kernel_tuning, "and with tuned schedules that do not split K")                  \
    Y(X, split_k, "and with tuned schedules that may split K")
#define ID(X, step, text) STEP_##step,
enum { STEPS(ID, ) N_STEPS };
#define NAME(X, step, text) #step,
static const char *const step_names[] = {STEPS(NAME, )};
#define STEP_RESULTS(X, step, text)                                                      \
    X(raw_tok_s_##step, "tok/s", HIGHER, "output rate: " text)                           \
    X(tok_s_##step, "tok/s", 0,                                                          \
      "the same, where phases that a step does not make faster are taken back")
#define RESULTS(X)                                                                       \
    STEPS(STEP_RESULTS, X)                                                               \
    X(gain_communication, "x", HIGHER | SOME,                                            \
      "time of a request before the step / with it, raw: over one_plan, by rounds")      \
    X(gain_service_config, "x", HIGHER, "the same, over communication")                  \
    X(gain_kernel_tuning, "x", HIGHER | SOME, "the same, over service_config")           \
    X(gain_split_k, "x", HIGHER | SOME, "the same, over kernel_tuning")                  \
    X(speedup_all, "x", HIGHER | SOME, "tok_s_split_k / tok_s_one_plan")                 \
    X(prefill_ranks, "", 0, "ranks of prefill in the plan of the search")                \
    X(prefill_threads, "", 0, "threads of each prefill rank")                            \
    X(decode_ranks, "", 0, "ranks of decode in the plan of the search")                  \
    X(decode_threads, "", 0, "threads of each decode rank")                              \
    X(plan_s, "s", 0, "wall time of the plan search")                                    \
    X(tuning_s, "s", SOME, "time spent measuring schedules")                             \
    X(n_kept, "", SOME,                                                                  \
      "of the 10 changes that the steps after one_plan make to a phase, those that are " \
      "faster in the engine and are kept")                                               \
    X(token_bytes, "B", MODEL, "bytes that a step of decode must read")

FRAME_TYPES;

#define COMPARE_ROUNDS 7 /* of a tuned schedule with the default */
#define COMPARE_STEPS  6 /* of a phase with what it was before a step */
#define PRODUCTS_MAX   256
#define UNKNOWN        "the simulator knows neither schedules nor slower all-reduces"

/* A matrix product of one phase: what the policy found, and the faster one of that and the
 * default schedule. */
struct product {
    struct tune_shape shape;
    struct kern_schedule found, kept;
};

/* The phases that compute a request. */
struct pairing {
    struct model_phase *phase[2]; /* prefill's, decode's */
};

struct ablation {
    FRAME_CELL;
    struct study_planner planner;
    struct plan_search_result plan;
    struct model_bench engine;
    struct tune_bench *bench;
    int cpus[CPU_MAX], n_cpus; /* of the team's threads, the plan's first */
    int base_ranks, base_threads, base[CPU_MAX]; /* of one_plan, as numbers of threads */
    struct model_phase *raw[N_STEPS][2];         /* of a step; prefill's, decode's */
    /* Tuned ones whose products are the faster ones; NULL: as raw. */
    struct model_phase *checked[N_STEPS][2];
    struct pairing kept[N_STEPS]; /* lent */
    struct pairing pairs[2 * N_STEPS];
    int n_pairs, raw_at[N_STEPS], kept_at[N_STEPS];
    struct product products[PRODUCTS_MAX];
    int at; /* the product that is asked for next */
    int p;  /* the phase that is tuned */
    bool split_k, check;
    double plan_s, tuning_s;
    int n_kept;
};

/* --- the plan of the search */

static int open_planner(struct ablation *c)
{
    const struct opts *o = c->o;
    const struct study_plan_opts po = {.target = o->model,
                                       .lengths = {&o->n_prompt_tok, &o->n_output_tok, 1},
                                       .batch = (int)o->batch,
                                       .precision = o->precision,
                                       .max_s = o->search_s,
                                       .seed = o->seed};

    return study_planner_open(&c->planner, &po);
}

static int search(struct ablation *c)
{
    uint64_t start_ns = clock_ns();

    study_progress(c->out, 0, "plan search");
    TRY(study_plan(&c->plan, &c->planner, "search", 0));
    c->plan_s = (double)(clock_ns() - start_ns) * 1e-9;
    return OK;
}

static int index_of(const int *v, int n, int x)
{
    int i = 0;

    while (i < n && v[i] != x)
        i++;
    return i;
}

/* The plan's CPUs first, so that its threads are the team's first ones, then the others of
 * the budget. */
static void number_cpus(struct ablation *c)
{
    const struct cpu_budget *b = &c->planner.budget;
    const struct plan *p = &c->plan.plan;

    memcpy(c->cpus, p->cpus, (size_t)p->n_cpus * sizeof(c->cpus[0]));
    c->n_cpus = p->n_cpus;
    for (int i = 0; i < b->n; i++)
        if (index_of(p->cpus, p->n_cpus, b->cpus[i]) == p->n_cpus)
            c->cpus[c->n_cpus++] = b->cpus[i];
}

/* Threads 0 to n - 1 in the order of their CPUs, so that a rank has neighbours. */
static void number_base(struct ablation *c)
{
    int nodes = c->planner.machine->n_nodes, n;

    c->base_ranks = nodes > 2 ? nodes : 2;
    if (c->base_ranks > c->n_cpus)
        c->base_ranks = c->n_cpus;
    c->base_threads = c->n_cpus / c->base_ranks;
    n = c->base_ranks * c->base_threads;
    for (int i = 0; i < n; i++) {
        int k = i;

        for (; k > 0 && c->cpus[c->base[k - 1]] > c->cpus[i]; k--)
            c->base[k] = c->base[k - 1];
        c->base[k] = i;
    }
}

/* --- phases */

static int open_base(struct ablation *c, int step, struct model_phase **out)
{
    static const char *const colls[] = {"master_copy", "rank_shifted"};
    struct model_phase_opts o = {
        .n_ranks = c->base_ranks, .n_threads = c->base_threads, .threads = c->base};
    struct par_timings timings;

    if (step < STEP_communication)
        TRY(par_coll_find(colls[step], &o.coll));
    TRY(model_phase_open(out, c->engine.model, &o));
    return step == STEP_communication ? model_phase_choice_measure(*out, &timings) : OK;
}

/* As the plan has it. Its sums are measured once, as an engine does that opens. */
static int open_planned(struct ablation *c, int p, struct model_phase **out)
{
    const struct plan_phase *plan = p ? &c->plan.plan.decode : &c->plan.plan.prefill;
    const struct model_phase *first = c->raw[STEP_service_config][p];
    int threads[CPU_MAX];
    const struct model_phase_opts o = {
        .n_ranks = plan->n_ranks, .n_threads = plan->n_threads, .threads = threads};
    struct par_timings timings;

    for (int i = 0; i < plan->n_ranks * plan->n_threads; i++)
        threads[i] = index_of(c->cpus, c->n_cpus, plan->cpus[i]);
    TRY(model_phase_open(out, c->engine.model, &o));
    if (!first)
        return model_phase_choice_measure(*out, &timings);
    model_phase_choice_set(*out, model_phase_choice(first));
    return OK;
}

/* --- schedules */

/* The rows that a phase computes: of the head only where it decodes, since of a prompt it
 * computes a single one. 0: none. */
static int64_t rows_of(const struct ablation *c, const struct kern_mat *w, int64_t m_max)
{
    int64_t rows = c->p ? c->o->batch : c->o->n_prompt_tok;

    if (c->p == 0 && w->n == model_config_of(c->engine.model)->vocab)
        return 0;
    if (rows > c->engine.steps.step_tok)
        rows = c->engine.steps.step_tok; /* a long prompt takes several steps */
    return rows <= m_max ? rows : 0;
}

static int tune(struct ablation *c, struct product *x, int n_threads)
{
    struct measure_report t[2];
    struct tune_cost cost;
    struct tune_opts o;
    bool lost;
    int rc;

    TRY(opt_init(tune_opt_table, &o));
    o.split_k = c->split_k;
    o.budget_s = c->o->tune_s;
    o.seed = c->o->seed;
    rc = study_tune_on(c->bench, c->o->policy, &o, n_threads, &x->shape, 1, &x->found);
    opt_free(tune_opt_table, &o);
    x->kept = x->found;
    if (rc == OK)
        rc = tune_validate(c->bench, &x->shape, n_threads, COMPARE_ROUNDS, &x->kept, t,
                           &lost);
    tune_cost_take(c->bench, &cost);
    c->tuning_s += cost.seconds;
    return rc;
}

/* Asked for the raw phase, it tunes; asked for the checked one, in the same order, it gives
 * the faster schedules. */
static int tune_rows(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct ablation *c = ctx;
    int64_t rows = rows_of(c, w, m_max);
    struct product *x = &c->products[c->at];

    for (int64_t m = 1; m <= m_max; m++)
        kern_schedule_default(&out[m - 1], v, w, m, n_threads);
    if (rows == 0)
        return OK;
    if (c->at == PRODUCTS_MAX)
        return err_set(ERR_LIMIT, "more than %d matrix products of a phase",
                       PRODUCTS_MAX);
    if (!c->check) {
        *x = (struct product){.shape = {.v = v,
                                        .m = rows,
                                        .n = w->n,
                                        .k = w->k,
                                        .k_unit = w->n_units > 1 ? w->k_unit : 0}};
        TRY(tune(c, x, n_threads));
    }
    out[rows - 1] = c->check ? x->kept : x->found;
    c->at++;
    return OK;
}

static int open_tuned(struct ablation *c, int step, int p)
{
    struct model_phase **phases[] = {&c->raw[step][p], &c->checked[step][p]};

    c->p = p;
    c->split_k = step == STEP_split_k;
    for (int i = 0; i < 2; i++) {
        TRY(open_planned(c, p, phases[i]));
        c->check = i;
        c->at = 0;
        TRY(model_phase_schedules(*phases[i], tune_rows, c));
    }
    return OK;
}

/* --- what is kept */

struct changed {
    struct ablation *c;
    struct model_phase *both[2]; /* before the step, with it */
    int p;
};

static int one_step(void *arg, int i, struct measure_trial *t)
{
    const struct changed *x = arg;

    return model_bench_steps_of(&x->c->engine.steps, x->both[i], x->p == 1,
                                x->c->o->n_prompt_tok, &t->seconds);
}

/* A phase stays as it was before a step that does not make it faster in the engine, where
 * ranks compete for memory. These rounds are not the ones that are reported. */
static int keep(struct ablation *c, int step, int p)
{
    struct model_phase *own = c->checked[step][p] ? c->checked[step][p] : c->raw[step][p];
    struct changed x = {.c = c, .both = {c->kept[step - 1].phase[p], own}, .p = p};
    int kept;

    TRY(frame_rounds(c->f, NULL, 2, COMPARE_STEPS, one_step, &x));
    kept = frame_choose(c->f, NULL) == 1;
    c->n_kept += kept;
    c->kept[step].phase[p] = x.both[kept];
    return OK;
}

static int open_step(struct ablation *c, int step)
{
    for (int p = 0; p < 2; p++) {
        if (step < STEP_service_config)
            TRY(open_base(c, step, &c->raw[step][p]));
        else if (step == STEP_service_config)
            TRY(open_planned(c, p, &c->raw[step][p]));
        else
            TRY(open_tuned(c, step, p));
        if (step == 0)
            c->kept[0].phase[p] = c->raw[0][p];
        else
            TRY(keep(c, step, p));
    }
    return OK;
}

/* --- requests */

/* Each pairing once: what is kept is often a step's own, or that of the step before. */
static int pairing_at(struct ablation *c, const struct pairing *x)
{
    int i = 0;

    while (i < c->n_pairs && memcmp(&c->pairs[i], x, sizeof(*x)) != 0)
        i++;
    if (i == c->n_pairs)
        c->pairs[c->n_pairs++] = *x;
    return i;
}

static void pair_all(struct ablation *c)
{
    for (int s = 0; s < N_STEPS; s++) {
        const struct pairing raw = {{c->raw[s][0], c->raw[s][1]}};

        c->raw_at[s] = pairing_at(c, &raw);
    }
    for (int s = 0; s < N_STEPS; s++)
        c->kept_at[s] = pairing_at(c, &c->kept[s]);
}

/* The prompts of a batch come one after the other, and one of them is timed for all. */
static int request(void *arg, int i, struct measure_trial *t)
{
    struct ablation *c = arg;
    const struct opts *o = c->o;
    double one;

    TRY(model_bench_steps_prefill(&c->engine.steps, c->pairs[i].phase[0], o->n_prompt_tok,
                                  &one));
    t->seconds = (double)o->batch * one;
    for (int64_t k = 1; k < o->n_output_tok; k++) {
        TRY(model_bench_steps_decode(&c->engine.steps, c->pairs[i].phase[1],
                                     o->n_prompt_tok + k - 1, &one));
        t->seconds += one;
    }
    return OK;
}

static double n_tok(const struct opts *o)
{
    return (double)(o->batch * o->n_output_tok);
}

/* Output rate of a pairing, its rounds as a series. */
static void report_pairing(const struct ablation *c, int i, const char *prefix, int step)
{
    char name[64];

    frame_rate(c->f, frame_named(c->f, "%stok_s_%s", prefix, step_names[step]),
               n_tok(c->o), i);
    snprintf(name, sizeof(name), "%srequest_s_%s", prefix, step_names[step]);
    frame_times_series(c->f, name, i);
}

/* What each step gains over the one before, as the rounds say in which both ran. */
static void report_gains(const struct ablation *c)
{
    const struct {
        double *gain;
        int from, to;
    } steps[] = {
        {&c->r->gain_communication, STEP_one_plan, STEP_communication},
        {&c->r->gain_service_config, STEP_communication, STEP_service_config},
        {&c->r->gain_kernel_tuning, STEP_service_config, STEP_kernel_tuning},
        {&c->r->gain_split_k, STEP_kernel_tuning, STEP_split_k},
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        frame_ratio(c->f, steps[i].gain, c->raw_at[steps[i].from], c->raw_at[steps[i].to],
                    0);
    frame_ratio(c->f, &c->r->speedup_all, c->kept_at[STEP_one_plan],
                c->kept_at[STEP_split_k], 0);
}

/* --- what is reported of every target */

static void report_plan(const struct ablation *c)
{
    const struct opts *o = c->o;
    const struct plan *p = &c->plan.plan;
    const struct model_cost_types types = {.weight = c->planner.model.weight_type,
                                           .kv = KERN_KV_F32};

    c->r->prefill_ranks = p->prefill.n_ranks;
    c->r->prefill_threads = p->prefill.n_threads;
    c->r->decode_ranks = p->decode.n_ranks;
    c->r->decode_threads = p->decode.n_threads;
    c->r->plan_s = c->plan_s;
    c->r->token_bytes =
        model_cost_decode(&c->planner.model, types, (double)o->n_prompt_tok + 1, o->batch)
            .read_bytes;
    frame_why(c->f, NULL, "a time was not a number");
    study_note(c->out, "plan", plan_to_json(p));
}

static int measure_host(struct ablation *c)
{
    const struct opts *o = c->o;
    const struct model_bench_opts engine = {.precision =
                                                (enum kern_precision)o->precision,
                                            .n_seqs = (int)o->batch,
                                            .max_tok = o->n_prompt_tok + o->n_output_tok,
                                            .seed = (uint64_t)o->seed,
                                            .cpus = c->cpus,
                                            .n_cpus = c->n_cpus};

    TRY(study_engine_open(&c->engine, o->model, &engine));
    TRY(tune_bench_open(&c->bench, c->engine.team,
                        &(struct tune_bench_opts){.seed = o->seed}));
    for (int s = 0; s < N_STEPS; s++) {
        study_progress(c->out, (double)s / N_STEPS, "open, tune and compare");
        TRY(open_step(c, s));
    }
    pair_all(c);
    TRY(frame_rounds(c->f, "all steps in turn", c->n_pairs, o->rounds, request, c));
    for (int s = 0; s < N_STEPS; s++) {
        report_pairing(c, c->raw_at[s], "raw_", s);
        report_pairing(c, c->kept_at[s], "", s);
    }
    report_gains(c);
    frame_set(c->f, &c->r->tuning_s, c->tuning_s, "a time was not a number");
    c->r->n_kept = c->n_kept;
    study_engine_report(c->out, &c->engine);
    return OK;
}

/* --- a simulated machine */

/* Output rate by the expected times of both phases. */
static double expected_tok_s(const struct opts *o, const struct plan *p)
{
    return n_tok(o) / ((double)o->batch * p->prefill.expected_s +
                       (double)(o->n_output_tok - 1) * p->decode.expected_s);
}

static int simulate(struct ablation *c)
{
    double tok_s[N_STEPS], kept = NAN;
    struct plan_search_result *even = mem_new(MEM_HARNESS, 1, sizeof(*even));
    int rc = study_plan(even, &c->planner, "even_split", 0);

    for (int s = 0; s < N_STEPS; s++)
        tok_s[s] = NAN;
    if (rc == OK) {
        tok_s[STEP_communication] = expected_tok_s(c->o, &even->plan);
        tok_s[STEP_service_config] = expected_tok_s(c->o, &c->plan.plan);
        plan_search_result_free(even);
    }
    mem_free(even);
    for (int s = 0; s < N_STEPS && rc == OK; s++) {
        bool known = !isnan(tok_s[s]);

        kept = known ? fmax(tok_s[s], kept) : kept;
        frame_set(c->f, frame_named(c->f, "raw_tok_s_%s", step_names[s]), tok_s[s],
                  UNKNOWN);
        frame_set(c->f, frame_named(c->f, "tok_s_%s", step_names[s]), known ? kept : NAN,
                  UNKNOWN);
    }
    frame_set(c->f, &c->r->gain_service_config,
              tok_s[STEP_service_config] / tok_s[STEP_communication], UNKNOWN);
    study_evidence(c->out, "simulated", NULL);
    study_evidence(c->out, "measured", "plan_s");
    return rc;
}

static void ablation_close(struct ablation *c)
{
    for (int s = 0; s < N_STEPS; s++)
        for (int p = 0; p < 2; p++) {
            model_phase_close(&c->raw[s][p]);
            model_phase_close(&c->checked[s][p]);
        }
    tune_bench_close(&c->bench);
    model_bench_close(&c->engine);
    plan_search_result_free(&c->plan);
    study_planner_close(&c->planner);
}

static int ablation_run(struct ablation *c)
{
    FRAME_CLOSE(c->f, ablation_close, c);
    TRY(open_planner(c));
    TRY(search(c));
    report_plan(c);
    if (study_target_is_simulated(c->o->model))
        return simulate(c);
    number_cpus(c);
    number_base(c);
    return measure_host(c);
}

STUDY(ablation, "one optimization after the other, as it comes and as it is kept");
