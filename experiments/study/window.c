/* The window of the tuner over M, and the number of like choices after which it freezes: what
 * tuning the matrices of a model costs, and what requests take with the schedules that it
 * found in place of the default ones, as the engine loads them. All in turn in one cell.
 * Paper: Sandwich 6, 8.4, Table 3. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/tuning.h"
#include "tune/schedule_cache.h"

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(STR, policy, "sandwich", "Tuning policy.")                                         \
    X(INT, sigma, "16", "Length of the sliding window.", .unit = "shapes", .min = 1,     \
      .max = 1000)                                                                       \
    X(INT, freeze, "0",                                                                  \
      "Number of like choices in a row that end the search. 0: the window's length.",    \
      .unit = "shapes", .min = 0, .max = 1000)                                           \
    X(INT, n_shapes, "24",                                                               \
      "Number of values of M that each matrix is tuned for: random ones up to the "      \
      "prompt, each octave equally likely, and those of prefill and decode.",            \
      .min = 2, .max = STUDY_SHAPES_MAX - 2)                                             \
    X(F64, budget_s, "0",                                                                \
      "Measuring time for each matrix. Values of M that it does not reach keep the "     \
      "default schedule. 0: no limit.",                                                  \
      .unit = "s", .min = 0, .max = 1e6)                                                 \
    X(INT, n_prompt_tok, "256", "Prompt tokens of a request.", .min = 4, .max = 65536)   \
    X(INT, n_output_tok, "16", "Output tokens of a request.", .min = 2, .max = 65536)    \
    X(INT, rounds, "15", "Rounds of tuned and default schedules, interleaved.",          \
      .min = 3, .max = 99)                                                               \
    OPTION_CACHE_MB(X)                                                                   \
    X(INT, seed, "1", "Seed of the values of M, of token ids and of the policy.")

#define RESULTS(X)                                                                       \
    X(tuning_s, "s", LOWER, "time spent in measurements, warm-up included")              \
    X(tuning_wall_s, "s", 0,                                                             \
      "wall time of the policy, its own computation and preparing operands included")    \
    X(n_measurements, "", LOWER, "number of schedules measured")                         \
    X(n_shapes, "", 0, "matrices and values of M that were tuned")                       \
    X(n_frozen, "", 0, "of these, those that used the frozen schedule without a search") \
    X(ttft_ms, "ms", LOWER, "time of the prompt with the tuned schedules")               \
    X(ttft_ms_default, "ms", 0, "time of the prompt with the default schedules")         \
    X(ttft_gain, "x", HIGHER, "median over the rounds of ttft_ms_default / ttft_ms")     \
    X(tok_s, "tok/s", HIGHER,                                                            \
      "output tokens / time of the request with the tuned schedules")                    \
    X(tok_s_default, "tok/s", 0, "the same with the default schedules")

FRAME_TYPES;

/* The alternatives: by phase, with the default and with the tuned schedules. */
enum { PREFILL_DEFAULT, PREFILL_TUNED, DECODE_DEFAULT, DECODE_TUNED, N_WAYS };

struct window {
    FRAME_CELL;
    struct model_bench engine;
    struct model_phase *phase[2]; /* with default schedules, with tuned ones */
    struct tune_bench *bench;
    struct tune_cache *cache;
    struct tune_opts tune;
    int n_matrices;
};

/* --- tuning */

static int window_done(void *arg, int i, const struct kern_schedule *s,
                       const struct measure_report *t)
{
    struct window *c = arg;

    (void)i, (void)s;
    c->r->n_frozen += t == NULL;
    return OK;
}

/* Drawn ones, and those of a step that decodes and of the prompt. */
static int shapes_of(const struct window *c, const struct tune_shape *like, int64_t m_max,
                     struct tune_shape *out, int *n)
{
    int64_t m[STUDY_SHAPES_MAX + 1], drawn = c->o->n_shapes;
    char name[64];

    snprintf(name, sizeof(name), "%lldx%lld", (long long)like->n, (long long)like->k);
    drawn = drawn < m_max ? drawn : m_max;
    TRY(study_rows_draw(m, drawn, m_max, c->o->seed, name));
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

static int tune(struct window *c, const struct tune_shape *shapes, int n, int n_threads)
{
    struct kern_schedule best[STUDY_SHAPES_MAX];
    struct tune_ctx x = {.bench = c->bench,
                         .n_threads = n_threads,
                         .o = &c->tune,
                         .shapes = shapes,
                         .n_shapes = n,
                         .done = window_done,
                         .arg = c};
    const struct tune_policy *p;
    uint64_t start_ns = clock_ns();

    TRY(tune_policy_find(c->o->policy, &p));
    TRY(p->run(&x, best));
    c->r->tuning_wall_s += (double)(clock_ns() - start_ns) * 1e-9;
    c->r->n_shapes += n;
    for (int i = 0; i < n; i++)
        TRY(tune_cache_put(c->cache, &shapes[i], &best[i], NULL));
    return OK;
}

/* Tunes the layers' matrices and dispatches as the engine does with a file of schedules. The
 * head, which a prompt has one row of, keeps the default. */
static int tune_rows(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct window *c = ctx;
    const struct tune_shape like = {
        .v = v, .m = 1, .n = w->n, .k = w->k, .k_unit = w->n_units > 1 ? w->k_unit : 0};
    struct tune_shape shapes[STUDY_SHAPES_MAX];
    int64_t most = c->o->n_prompt_tok < m_max ? c->o->n_prompt_tok : m_max;
    int n = 0;

    study_progress(c->out, fmin(0.15 * c->n_matrices++, 0.75), "tune");
    if (w->n != model_config_of(c->engine.model)->vocab) {
        TRY(shapes_of(c, &like, most, shapes, &n));
        TRY(tune(c, shapes, n, n_threads));
    }
    return tune_table(c->cache, v, w, m_max, n_threads, out, NULL);
}

/* --- requests */

static int window_request(void *arg, int way, struct measure_trial *t)
{
    struct window *c = arg;
    struct model_phase *p = c->phase[way == PREFILL_TUNED || way == DECODE_TUNED];
    double one;

    if (way < DECODE_DEFAULT)
        return model_bench_steps_prefill(&c->engine.steps, p, c->o->n_prompt_tok,
                                         &t->seconds);
    t->seconds = 0;
    for (int64_t i = 1; i < c->o->n_output_tok; i++) {
        TRY(model_bench_steps_decode(&c->engine.steps, p, c->o->n_prompt_tok + i - 1,
                                     &one));
        t->seconds += one;
    }
    return OK;
}

static void window_report(struct window *c)
{
    double n_tok = (double)c->o->n_output_tok;
    struct results *r = c->r;
    double s[N_WAYS];
    struct tune_cost cost;

    for (int i = 0; i < N_WAYS; i++)
        s[i] = frame_seconds(c->f, i);
    tune_cost_of(c->bench, &cost);
    frame_why(c->f, NULL, "a time was not a number");
    r->tuning_s = cost.seconds;
    r->n_measurements = (double)cost.n_measurements;
    r->ttft_ms = 1e3 * s[PREFILL_TUNED];
    r->ttft_ms_default = 1e3 * s[PREFILL_DEFAULT];
    r->tok_s = n_tok / (s[PREFILL_TUNED] + s[DECODE_TUNED]);
    r->tok_s_default = n_tok / (s[PREFILL_DEFAULT] + s[DECODE_DEFAULT]);
    frame_ratio(c->f, &r->ttft_gain, PREFILL_DEFAULT, PREFILL_TUNED, 0);
    frame_times_series(c->f, "prefill_s_default", PREFILL_DEFAULT);
    frame_times_series(c->f, "prefill_s", PREFILL_TUNED);
    frame_times_series(c->f, "decode_s_default", DECODE_DEFAULT);
    frame_times_series(c->f, "decode_s", DECODE_TUNED);
    study_engine_report(c->out, &c->engine);
}

static void close_tuner(struct window *c)
{
    tune_bench_close(&c->bench);
    tune_cache_close(&c->cache);
    opt_free(tune_opt_table, &c->tune);
}

static int window_run(struct window *c)
{
    const struct opts *o = c->o;
    const struct model_bench_opts engine = {.precision =
                                                (enum kern_precision)o->precision,
                                            .n_seqs = 1,
                                            .max_tok = o->n_prompt_tok + o->n_output_tok,
                                            .seed = (uint64_t)o->seed};
    int n;

    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, close_tuner, c);
    c->r->tuning_wall_s = c->r->n_shapes = c->r->n_frozen = 0;
    TRY(opt_init(tune_opt_table, &c->tune));
    c->tune.sigma = o->sigma;
    c->tune.freeze = o->freeze;
    c->tune.budget_s = o->budget_s;
    c->tune.seed = o->seed;
    TRY(study_engine_open(&c->engine, o->model, &engine));
    n = c->engine.budget.n;
    TRY(tune_cache_of_json(&c->cache, NULL, "schedules"));
    TRY(tune_cache_use(c->cache, c->engine.budget.cpus, n));
    TRY(tune_bench_open(&c->bench, c->engine.team,
                        &(struct tune_bench_opts){
                            .cache_bytes = (size_t)o->cache_mb << 20, .seed = o->seed}));
    for (int i = 0; i < 2; i++) {
        FRAME_CLOSE(c->f, model_phase_close, &c->phase[i]);
        TRY(study_engine_phase(&c->engine, &c->phase[i], 1, n));
    }
    TRY(model_phase_schedules(c->phase[1], tune_rows, c));
    c->f->progress = 0.9;
    TRY(frame_rounds(c->f, "requests in turn", N_WAYS, o->rounds, window_request, c));
    window_report(c);
    return OK;
}

STUDY(window, "the tuner's window over M: its cost, and requests with its schedules");
