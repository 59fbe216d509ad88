/* The window of the tuner over M, and the number of like choices after which it freezes: what
 * tuning the matrices of a model costs, and what requests take with the schedules that it
 * found in place of the default ones, as the engine loads them. All in turn in one cell.
 * Paper: Sandwich 6, 8.4, Table 3. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tuning.h"
#include "tune/schedule_cache.h"

struct opts {
    char *model, *policy;
    int precision;
    int64_t sigma, freeze, n_shapes, n_prompt_tok, n_output_tok, rounds, cache_mb, seed;
    double budget_s;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(STR, policy, "sandwich", "Tuning policy."),
    OPT_ROW(INT, sigma, "16", "Length of the sliding window.", .unit = "shapes", .min = 1,
            .max = 1000),
    OPT_ROW(
        INT, freeze, "0",
        "Number of like choices in a row that end the search. 0: the window's length.",
        .unit = "shapes", .min = 0, .max = 1000),
    OPT_ROW(INT, n_shapes, "24",
            "Number of values of M that each matrix is tuned for: random ones up to the "
            "prompt, each octave equally likely, and those of prefill and decode.",
            .min = 2, .max = STUDY_SHAPES_MAX - 2),
    OPT_ROW(F64, budget_s, "0",
            "Measuring time for each matrix. Values of M that it does not reach keep the "
            "default schedule. 0: no limit.",
            .unit = "s", .min = 0, .max = 1e6),
    OPT_ROW(INT, n_prompt_tok, "256", "Prompt tokens of a request.", .min = 4,
            .max = 65536),
    OPT_ROW(INT, n_output_tok, "16", "Output tokens of a request.", .min = 2,
            .max = 65536),
    OPT_ROW(INT, rounds, "15", "Rounds of tuned and default schedules, interleaved.",
            .min = 3, .max = 99),
    ROW_CACHE_MB,
    OPT_ROW(INT, seed, "1", "Seed of the values of M, of token ids and of the policy."),
    {0},
};

static const struct study_metric metrics[] = {
    {"tuning_s", "s", "lower", "time spent in measurements, warm-up included"},
    {"tuning_wall_s", "s", "",
     "wall time of the policy, its own computation and preparing operands included"},
    {"n_measurements", "", "lower", "number of schedules measured"},
    {"n_shapes", "", "", "matrices and values of M that were tuned"},
    {"n_frozen", "", "",
     "of these, those that used the frozen schedule without a search"},
    {"ttft_ms", "ms", "lower", "time of the prompt with the tuned schedules"},
    {"ttft_ms_default", "ms", "", "time of the prompt with the default schedules"},
    {"ttft_gain", "x", "higher", "median over the rounds of ttft_ms_default / ttft_ms"},
    {"tok_s", "tok/s", "higher",
     "output tokens / time of the request with the tuned schedules"},
    {"tok_s_default", "tok/s", "", "the same with the default schedules"},
    {0},
};

/* The alternatives: by phase, with the default and with the tuned schedules. */
enum { PREFILL_DEFAULT, PREFILL_TUNED, DECODE_DEFAULT, DECODE_TUNED, N_WAYS };

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct model_bench engine;
    struct model_phase *phase[2]; /* with default schedules, with tuned ones */
    struct tune_bench *bench;
    struct tune_cache *cache;
    struct tune_opts tune;
    struct study_compare ways;
    int n_shapes, n_frozen, n_matrices;
    double wall_s;
};

/* --- tuning */

static int on_done(void *arg, int i, const struct kern_schedule *s,
                   const struct measure_report *t)
{
    struct cell *f = arg;

    (void)i, (void)s;
    f->n_frozen += t == NULL;
    return OK;
}

/* Drawn ones, and those of a step that decodes and of the prompt. */
static int shapes_of(const struct cell *f, const struct tune_shape *like, int64_t m_max,
                     struct tune_shape *out, int *n)
{
    int64_t m[STUDY_SHAPES_MAX + 1], drawn = f->o->n_shapes;
    char name[64];

    snprintf(name, sizeof(name), "%lldx%lld", (long long)like->n, (long long)like->k);
    drawn = drawn < m_max ? drawn : m_max;
    TRY(study_rows_draw(m, drawn, m_max, f->o->seed, name));
    *n = 0;
    if (m[0] > 1)
        out[(*n)++] = *like;
    for (int i = 0; i < drawn; i++) {
        out[*n] = *like;
        out[(*n)++].m = m[i];
    }
    if (m[drawn - 1] < m_max) {
        out[*n] = *like;
        out[(*n)++].m = m_max;
    }
    return OK;
}

static int tune(struct cell *f, const struct tune_shape *shapes, int n, int n_threads)
{
    struct kern_schedule best[STUDY_SHAPES_MAX];
    struct tune_ctx c = {.bench = f->bench,
                         .n_threads = n_threads,
                         .o = &f->tune,
                         .shapes = shapes,
                         .n_shapes = n,
                         .done = on_done,
                         .arg = f};
    const struct tune_policy *p;
    uint64_t start_ns = clock_ns();

    TRY(tune_policy_find(f->o->policy, &p));
    TRY(p->run(&c, best));
    f->wall_s += (double)(clock_ns() - start_ns) * 1e-9;
    f->n_shapes += n;
    for (int i = 0; i < n; i++)
        TRY(tune_cache_put(f->cache, &shapes[i], &best[i], NULL));
    return OK;
}

/* Tunes the layers' matrices and dispatches as the engine does with a file of schedules. The
 * head, which a prompt has one row of, keeps the default. */
static int tune_rows(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct cell *f = ctx;
    const struct tune_shape like = {
        .v = v, .m = 1, .n = w->n, .k = w->k, .k_unit = w->n_units > 1 ? w->k_unit : 0};
    struct tune_shape shapes[STUDY_SHAPES_MAX];
    int64_t most = f->o->n_prompt_tok < m_max ? f->o->n_prompt_tok : m_max;
    int n = 0;

    study_progress(f->out, fmin(0.15 * f->n_matrices++, 0.75), "tune");
    if (w->n != model_config_of(f->engine.model)->vocab) {
        TRY(shapes_of(f, &like, most, shapes, &n));
        TRY(tune(f, shapes, n, n_threads));
    }
    return tune_table(f->cache, v, w, m_max, n_threads, out, NULL);
}

/* --- requests */

static int one_trial(void *arg, int way, struct measure_trial *t)
{
    struct cell *f = arg;
    struct model_phase *p = f->phase[way == PREFILL_TUNED || way == DECODE_TUNED];
    double one;

    if (way < DECODE_DEFAULT)
        return model_bench_steps_prefill(&f->engine.steps, p, f->o->n_prompt_tok,
                                         &t->seconds);
    t->seconds = 0;
    for (int64_t i = 1; i < f->o->n_output_tok; i++) {
        TRY(model_bench_steps_decode(&f->engine.steps, p, f->o->n_prompt_tok + i - 1,
                                     &one));
        t->seconds += one;
    }
    return OK;
}

static void report(const struct cell *f)
{
    const struct measure_report *way = f->ways.time;
    struct tune_cost cost;
    double n_tok = (double)f->o->n_output_tok;

    tune_cost_of(f->bench, &cost);
    const struct study_number all[] = {
        {"tuning_s", cost.seconds},
        {"tuning_wall_s", f->wall_s},
        {"n_measurements", (double)cost.n_measurements},
        {"n_shapes", f->n_shapes},
        {"n_frozen", f->n_frozen},
        {"ttft_ms", 1e3 * way[PREFILL_TUNED].estimate},
        {"ttft_ms_default", 1e3 * way[PREFILL_DEFAULT].estimate},
        {"tok_s", n_tok / (way[PREFILL_TUNED].estimate + way[DECODE_TUNED].estimate)},
        {"tok_s_default",
         n_tok / (way[PREFILL_DEFAULT].estimate + way[DECODE_DEFAULT].estimate)}};

    STUDY_VALUES(f->out, all, "a time was not a number");
    study_compare_ratio(&f->ways, "ttft_gain", PREFILL_DEFAULT, PREFILL_TUNED, 0);
    study_engine_report(f->out, &f->engine);
}

static int set_policy(struct cell *f)
{
    const struct opts *o = f->o;

    TRY(opt_init(tune_opt_table, &f->tune));
    f->tune.sigma = o->sigma;
    f->tune.freeze = o->freeze;
    f->tune.budget_s = o->budget_s;
    f->tune.seed = o->seed;
    return OK;
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    const struct model_bench_opts engine = {.precision =
                                                (enum kern_precision)o->precision,
                                            .n_seqs = 1,
                                            .max_tok = o->n_prompt_tok + o->n_output_tok,
                                            .seed = (uint64_t)o->seed};
    int n;

    TRY(set_policy(f));
    TRY(study_engine_open(&f->engine, o->model, &engine));
    n = f->engine.budget.n;
    TRY(tune_cache_of_json(&f->cache, NULL, "schedules"));
    TRY(tune_cache_use(f->cache, f->engine.budget.cpus, n));
    TRY(tune_bench_open(&f->bench, f->engine.team,
                        &(struct tune_bench_opts){
                            .cache_bytes = (size_t)o->cache_mb << 20, .seed = o->seed}));
    for (int i = 0; i < 2; i++)
        TRY(study_engine_phase(&f->engine, &f->phase[i], 1, n));
    TRY(model_phase_schedules(f->phase[1], tune_rows, f));
    f->ways = (struct study_compare){
        .series = (const char *const[]){"prefill_s_default", "prefill_s",
                                        "decode_s_default", "decode_s"},
        .doing = "requests in turn",
        .from = 0.9};
    TRY(study_compare(&f->ways, f->out, N_WAYS, o->rounds, one_trial, f));
    report(f);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->ways);
    model_phase_close(&f->phase[0]);
    model_phase_close(&f->phase[1]);
    tune_bench_close(&f->bench);
    tune_cache_close(&f->cache);
    opt_free(tune_opt_table, &f->tune);
    model_bench_close(&f->engine);
}

STUDY(window, "the tuner's window over M: its cost, and requests with its schedules");
