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
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/plan.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tuning.h"
#include "tune/validate.h"

struct opts {
    char *model, *policy;
    int precision;
    int64_t batch, n_prompt_tok, n_output_tok, rounds, seed;
    double tune_s, search_s;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL, STUDY_TARGET_HELP),
    ROW_PRECISION,
    OPT_ROW(INT, batch, "1", "Number of sequences that decode together.", .min = 1,
            .max = 64),
    OPT_ROW(INT, n_prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, n_output_tok, "32", "Output tokens of each sequence.", .min = 2,
            .max = 65536),
    OPT_ROW(INT, rounds, "6", "Rounds of all steps, interleaved.", .min = 3, .max = 99),
    OPT_ROW(STR, policy, "sandwich", "Tuning policy."),
    OPT_ROW(F64, tune_s, "2", "Time to tune each shape of matrix.", .unit = "s", .min = 0,
            .max = 3600),
    OPT_ROW(F64, search_s, "25", "Limit of the plan search in each phase.", .unit = "s",
            .min = 0.1, .max = 3600),
    OPT_ROW(INT, seed, "1", "Seed of token ids, of the tuner and of the plan search."),
    {0},
};

#define STEPS(X)                                                                         \
    X(one_plan, "one plan for both phases, one rank for each memory node and at least "  \
                "two, sums by master_copy")                                              \
    X(rank_shifted, "as one_plan, sums by rank_shifted")                                 \
    X(communication, "as one_plan, with the fastest all-reduce for each size")           \
    X(service_config, "and with the plan search's ranks and CPUs for each phase")        \
    X(kernel_tuning, "and with tuned schedules that do not split K")                     \
    X(split_k, "and with tuned schedules that may split K")
#define ID(step, text) STEP_##step,
enum { STEPS(ID) N_STEPS };
#define NAME(step, text) #step,
static const char *const step_names[] = {STEPS(NAME)};
#define METRICS(step, text)                                                              \
    {"raw_tok_s_" #step, "tok/s", "higher", "output rate: " text},                       \
        {"tok_s_" #step, "tok/s", "",                                                    \
         "the same, where phases that a step does not make faster are taken back"},
static const struct study_metric metrics[] = {
    STEPS(METRICS){"speedup_all", "x", "higher", "tok_s_split_k / tok_s_one_plan"},
    {"prefill_ranks", "", "", "ranks of prefill in the plan of the search"},
    {"prefill_threads", "", "", "threads of each prefill rank"},
    {"decode_ranks", "", "", "ranks of decode in the plan of the search"},
    {"decode_threads", "", "", "threads of each decode rank"},
    {"plan_s", "s", "", "wall time of the plan search"},
    {"tuning_s", "s", "", "time spent measuring schedules"},
    {"n_kept", "", "",
     "of the 10 changes that the steps after one_plan make to a phase, those that are "
     "faster in the engine and are kept"},
    {"token_bytes", "B", "", "bytes that a step of decode must read"},
    {0},
};

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

/* What a request is computed with. */
struct pairing {
    struct model_phase *phase[2]; /* prefill's, decode's */
};

struct cell {
    struct study_planner planner;
    struct plan_search_result plan;
    struct model_bench engine;
    struct tune_bench *bench;
    const struct opts *o;
    struct study_cell *out;
    struct study_compare rounds, before_after;
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

static int open_planner(struct cell *f)
{
    const struct opts *o = f->o;
    const struct study_plan_opts po = {.target = o->model,
                                       .lengths = {&o->n_prompt_tok, &o->n_output_tok, 1},
                                       .batch = (int)o->batch,
                                       .precision = o->precision,
                                       .max_s = o->search_s,
                                       .seed = o->seed};

    return study_planner_open(&f->planner, &po);
}

static int search(struct cell *f)
{
    uint64_t start_ns = clock_ns();

    study_progress(f->out, 0, "plan search");
    TRY(study_plan(&f->plan, &f->planner, "search", 0));
    f->plan_s = (double)(clock_ns() - start_ns) * 1e-9;
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
static void number_cpus(struct cell *f)
{
    const struct cpu_budget *b = &f->planner.budget;
    const struct plan *p = &f->plan.plan;

    memcpy(f->cpus, p->cpus, (size_t)p->n_cpus * sizeof(f->cpus[0]));
    f->n_cpus = p->n_cpus;
    for (int i = 0; i < b->n; i++)
        if (index_of(p->cpus, p->n_cpus, b->cpus[i]) == p->n_cpus)
            f->cpus[f->n_cpus++] = b->cpus[i];
}

/* Threads 0 to n - 1 in the order of their CPUs, so that a rank has neighbours. */
static void number_base(struct cell *f)
{
    int nodes = f->planner.machine->n_nodes, n;

    f->base_ranks = nodes > 2 ? nodes : 2;
    if (f->base_ranks > f->n_cpus)
        f->base_ranks = f->n_cpus;
    f->base_threads = f->n_cpus / f->base_ranks;
    n = f->base_ranks * f->base_threads;
    for (int i = 0; i < n; i++) {
        int k = i;

        for (; k > 0 && f->cpus[f->base[k - 1]] > f->cpus[i]; k--)
            f->base[k] = f->base[k - 1];
        f->base[k] = i;
    }
}

/* --- phases */

static int open_base(struct cell *f, int step, struct model_phase **out)
{
    static const char *const colls[] = {"master_copy", "rank_shifted"};
    struct model_phase_opts o = {
        .n_ranks = f->base_ranks, .n_threads = f->base_threads, .threads = f->base};
    struct par_timings timings;

    if (step < STEP_communication)
        TRY(par_coll_find(colls[step], &o.coll));
    TRY(model_phase_open(out, f->engine.model, &o));
    return step == STEP_communication ? model_phase_choice_measure(*out, &timings) : OK;
}

/* As the plan has it. Its sums are measured once, as an engine does that opens. */
static int open_planned(struct cell *f, int p, struct model_phase **out)
{
    const struct plan_phase *plan = p ? &f->plan.plan.decode : &f->plan.plan.prefill;
    const struct model_phase *first = f->raw[STEP_service_config][p];
    int threads[CPU_MAX];
    const struct model_phase_opts o = {
        .n_ranks = plan->n_ranks, .n_threads = plan->n_threads, .threads = threads};
    struct par_timings timings;

    for (int i = 0; i < plan->n_ranks * plan->n_threads; i++)
        threads[i] = index_of(f->cpus, f->n_cpus, plan->cpus[i]);
    TRY(model_phase_open(out, f->engine.model, &o));
    if (!first)
        return model_phase_choice_measure(*out, &timings);
    model_phase_choice_set(*out, model_phase_choice(first));
    return OK;
}

/* --- schedules */

/* The rows that a phase computes: of the head only where it decodes, since of a prompt it
 * computes a single one. 0: none. */
static int64_t rows_of(const struct cell *f, const struct kern_mat *w, int64_t m_max)
{
    int64_t rows = f->p ? f->o->batch : f->o->n_prompt_tok;

    if (f->p == 0 && w->n == model_config_of(f->engine.model)->vocab)
        return 0;
    if (rows > f->engine.steps.step_tok)
        rows = f->engine.steps.step_tok; /* a long prompt takes several steps */
    return rows <= m_max ? rows : 0;
}

static int tune(struct cell *f, struct product *x, int n_threads)
{
    struct measure_report t[2];
    struct tune_cost cost;
    struct tune_opts o;
    bool lost;
    int rc;

    TRY(opt_init(tune_opt_table, &o));
    o.split_k = f->split_k;
    o.budget_s = f->o->tune_s;
    o.seed = f->o->seed;
    rc = study_tune_on(f->bench, f->o->policy, &o, n_threads, &x->shape, 1, &x->found);
    opt_free(tune_opt_table, &o);
    x->kept = x->found;
    if (rc == OK)
        rc = tune_validate(f->bench, &x->shape, n_threads, COMPARE_ROUNDS, &x->kept, t,
                           &lost);
    tune_cost_take(f->bench, &cost);
    f->tuning_s += cost.seconds;
    return rc;
}

/* Asked for the raw phase, it tunes; asked for the checked one, in the same order, it gives
 * the faster schedules. */
static int tune_rows(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct cell *f = ctx;
    int64_t rows = rows_of(f, w, m_max);
    struct product *x = &f->products[f->at];

    for (int64_t m = 1; m <= m_max; m++)
        kern_schedule_default(&out[m - 1], v, w, m, n_threads);
    if (rows == 0)
        return OK;
    if (f->at == PRODUCTS_MAX)
        return err_set(ERR_LIMIT, "more than %d matrix products of a phase",
                       PRODUCTS_MAX);
    if (!f->check) {
        *x = (struct product){.shape = {.v = v,
                                        .m = rows,
                                        .n = w->n,
                                        .k = w->k,
                                        .k_unit = w->n_units > 1 ? w->k_unit : 0}};
        TRY(tune(f, x, n_threads));
    }
    out[rows - 1] = f->check ? x->kept : x->found;
    f->at++;
    return OK;
}

static int open_tuned(struct cell *f, int step, int p)
{
    struct model_phase **phases[] = {&f->raw[step][p], &f->checked[step][p]};

    f->p = p;
    f->split_k = step == STEP_split_k;
    for (int i = 0; i < 2; i++) {
        TRY(open_planned(f, p, phases[i]));
        f->check = i;
        f->at = 0;
        TRY(model_phase_schedules(*phases[i], tune_rows, f));
    }
    return OK;
}

/* --- what is kept */

struct changed {
    struct cell *f;
    struct model_phase *both[2]; /* before the step, with it */
    int p;
};

static int one_step(void *arg, int i, struct measure_trial *t)
{
    const struct changed *x = arg;

    return model_bench_steps_of(&x->f->engine.steps, x->both[i], x->p == 1,
                                x->f->o->n_prompt_tok, &t->seconds);
}

/* A phase stays as it was before a step that does not make it faster in the engine, where
 * ranks compete for memory. These rounds are not the ones that are reported. */
static int keep(struct cell *f, int step, int p)
{
    struct model_phase *own = f->checked[step][p] ? f->checked[step][p] : f->raw[step][p];
    struct changed x = {.f = f, .both = {f->kept[step - 1].phase[p], own}, .p = p};
    int kept;

    TRY(study_compare(&f->before_after, NULL, 2, COMPARE_STEPS, one_step, &x));
    kept = measure_choose(f->before_after.measure, NULL, 0) == 1;
    f->n_kept += kept;
    f->kept[step].phase[p] = x.both[kept];
    return OK;
}

static int open_step(struct cell *f, int step)
{
    for (int p = 0; p < 2; p++) {
        if (step < STEP_service_config)
            TRY(open_base(f, step, &f->raw[step][p]));
        else if (step == STEP_service_config)
            TRY(open_planned(f, p, &f->raw[step][p]));
        else
            TRY(open_tuned(f, step, p));
        if (step == 0)
            f->kept[0].phase[p] = f->raw[0][p];
        else
            TRY(keep(f, step, p));
    }
    return OK;
}

/* --- requests */

/* Each pairing once: what is kept is often a step's own, or that of the step before. */
static int pairing_at(struct cell *f, const struct pairing *x)
{
    int i = 0;

    while (i < f->n_pairs && memcmp(&f->pairs[i], x, sizeof(*x)) != 0)
        i++;
    if (i == f->n_pairs)
        f->pairs[f->n_pairs++] = *x;
    return i;
}

static void pair_all(struct cell *f)
{
    for (int s = 0; s < N_STEPS; s++) {
        const struct pairing raw = {{f->raw[s][0], f->raw[s][1]}};

        f->raw_at[s] = pairing_at(f, &raw);
    }
    for (int s = 0; s < N_STEPS; s++)
        f->kept_at[s] = pairing_at(f, &f->kept[s]);
}

/* The prompts of a batch come one after the other, and one of them is timed for all. */
static int request(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    const struct opts *o = f->o;
    double one;

    TRY(model_bench_steps_prefill(&f->engine.steps, f->pairs[i].phase[0], o->n_prompt_tok,
                                  &one));
    t->seconds = (double)o->batch * one;
    for (int64_t k = 1; k < o->n_output_tok; k++) {
        TRY(model_bench_steps_decode(&f->engine.steps, f->pairs[i].phase[1],
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
static double report_pairing(const struct cell *f, int i, const char *prefix, int step)
{
    double tok_s = n_tok(f->o) / f->rounds.time[i].estimate;
    char name[64];

    snprintf(name, sizeof(name), "%stok_s_%s", prefix, step_names[step]);
    study_value(f->out, name, tok_s, "a time was not a number");
    snprintf(name, sizeof(name), "%srequest_s_%s", prefix, step_names[step]);
    study_series(f->out, name, "s", study_compare_times(&f->rounds, i),
                 (size_t)f->rounds.n_rounds);
    return tok_s;
}

/* --- what is reported of every target */

static void report_plan(const struct cell *f)
{
    const struct opts *o = f->o;
    const struct plan *p = &f->plan.plan;
    const struct model_cost_types types = {.weight = f->planner.model.weight_type,
                                           .kv = KERN_KV_F32};
    const struct study_number all[] = {
        {"prefill_ranks", p->prefill.n_ranks},
        {"prefill_threads", p->prefill.n_threads},
        {"decode_ranks", p->decode.n_ranks},
        {"decode_threads", p->decode.n_threads},
        {"plan_s", f->plan_s},
        {"token_bytes", model_cost_decode(&f->planner.model, types,
                                          (double)o->n_prompt_tok + 1, o->batch)
                            .read_bytes}};

    STUDY_VALUES(f->out, all, "a time was not a number");
    study_evidence(f->out, "model", "token_bytes");
    study_note(f->out, "plan", plan_to_json(p));
}

static int measure_host(struct cell *f)
{
    const struct opts *o = f->o;
    const struct model_bench_opts engine = {.precision =
                                                (enum kern_precision)o->precision,
                                            .n_seqs = (int)o->batch,
                                            .max_tok = o->n_prompt_tok + o->n_output_tok,
                                            .seed = (uint64_t)o->seed,
                                            .cpus = f->cpus,
                                            .n_cpus = f->n_cpus};
    double first = NAN, last = NAN;

    TRY(study_engine_open(&f->engine, o->model, &engine));
    TRY(tune_bench_open(&f->bench, f->engine.team,
                        &(struct tune_bench_opts){.seed = o->seed}));
    for (int s = 0; s < N_STEPS; s++) {
        study_progress(f->out, (double)s / N_STEPS, "open, tune and compare");
        TRY(open_step(f, s));
    }
    pair_all(f);
    f->rounds = (struct study_compare){.doing = "all steps in turn"};
    TRY(study_compare(&f->rounds, f->out, f->n_pairs, o->rounds, request, f));
    for (int s = 0; s < N_STEPS; s++) {
        report_pairing(f, f->raw_at[s], "raw_", s);
        last = report_pairing(f, f->kept_at[s], "", s);
        first = s ? first : last;
    }
    study_value(f->out, "speedup_all", last / first, "a time was not a number");
    study_value(f->out, "tuning_s", f->tuning_s, "a time was not a number");
    study_value(f->out, "n_kept", f->n_kept, NULL);
    study_engine_report(f->out, &f->engine);
    return OK;
}

/* --- a simulated machine */

/* Output rate by the expected times of both phases. */
static double expected_tok_s(const struct opts *o, const struct plan *p)
{
    return n_tok(o) / ((double)o->batch * p->prefill.expected_s +
                       (double)(o->n_output_tok - 1) * p->decode.expected_s);
}

static int simulate(struct cell *f)
{
    double tok_s[N_STEPS], kept = NAN;
    struct plan_search_result *even = mem_new(MEM_HARNESS, 1, sizeof(*even));
    char name[64];
    int rc = even ? study_plan(even, &f->planner, "even_split", 0) : ERR_NOMEM;

    for (int s = 0; s < N_STEPS; s++)
        tok_s[s] = NAN;
    if (rc == OK) {
        tok_s[STEP_communication] = expected_tok_s(f->o, &even->plan);
        tok_s[STEP_service_config] = expected_tok_s(f->o, &f->plan.plan);
        plan_search_result_free(even);
    }
    mem_free(even);
    for (int s = 0; s < N_STEPS && rc == OK; s++) {
        bool known = !isnan(tok_s[s]);

        kept = known ? fmax(tok_s[s], kept) : kept;
        snprintf(name, sizeof(name), "raw_tok_s_%s", step_names[s]);
        study_value(f->out, name, tok_s[s], UNKNOWN);
        snprintf(name, sizeof(name), "tok_s_%s", step_names[s]);
        study_value(f->out, name, known ? kept : NAN, UNKNOWN);
    }
    study_evidence(f->out, "simulated", NULL);
    study_evidence(f->out, "measured", "plan_s");
    return rc;
}

static int run(struct cell *f)
{
    TRY(open_planner(f));
    TRY(search(f));
    report_plan(f);
    if (study_target_is_simulated(f->o->model))
        return simulate(f);
    number_cpus(f);
    number_base(f);
    return measure_host(f);
}

static void end(struct cell *f)
{
    for (int s = 0; s < N_STEPS; s++)
        for (int p = 0; p < 2; p++) {
            model_phase_close(&f->raw[s][p]);
            model_phase_close(&f->checked[s][p]);
        }
    study_compare_close(&f->rounds);
    study_compare_close(&f->before_after);
    tune_bench_close(&f->bench);
    model_bench_close(&f->engine);
    plan_search_result_free(&f->plan);
    study_planner_close(&f->planner);
}

STUDY(ablation, "one optimization after the other, as it comes and as it is kept");
