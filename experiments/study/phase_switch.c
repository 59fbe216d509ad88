/* The cost of going from prefill's service configuration to decode's between two steps:
 * nothing is copied, so the price is what caches and threads make of it. For comparison, the
 * time to pack the weights again, and one configuration for both phases.
 * Paper: Sandwich 3.1, 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(INT, prefill_ranks, "1", "Ranks of prefill.", .min = 1, .max = 64)                 \
    X(INT, prefill_threads, "0",                                                         \
      "Threads of each rank. 0: an equal share of the available CPU cores.", .min = 0,   \
      .max = CPU_MAX)                                                                    \
    X(INT, decode_ranks, "2", "Ranks of decode.", .min = 1, .max = 64)                   \
    X(INT, decode_threads, "0",                                                          \
      "Threads of each rank. 0: an equal share of the available CPU cores.", .min = 0,   \
      .max = CPU_MAX)                                                                    \
    X(INT, n_prompt_tok, "128", "Prompt tokens of a request.", .min = 1, .max = 65536)   \
    X(INT, n_output_tok, "16", "Output tokens of a request.", .min = 2, .max = 65536)    \
    X(INT, rounds, "25", "Rounds of all alternatives, interleaved.", .min = 3, .max = 999)

#define RESULTS(X)                                                                       \
    X(bytes_copied, "B", LOWER,                                                          \
      "bytes of weights that decode reads and prefill does not, and of the prompt's "    \
      "keys and values that have another place or content after the first decode step")  \
    X(switch_us_p50, "us", LOWER,                                                        \
      "time of the first decode step after prefill under the other configuration, "      \
      "minus that of the same step after prefill under decode's own")                    \
    X(switch_us_mad, "us", 0, "median absolute deviation of that difference")            \
    X(repack_ms, "ms", 0,                                                                \
      "time to read and pack the weights again, with the file in memory")                \
    X(request_s, "s", LOWER,                                                             \
      "time of a request: prompt under prefill's configuration, output under decode's")  \
    X(request_s_prefill_plan, "s", 0,                                                    \
      "time of a request, all of it under prefill's configuration")                      \
    X(request_s_decode_plan, "s", 0,                                                     \
      "time of a request, all of it under decode's configuration")                       \
    X(speedup_vs_best_one_plan, "x", HIGHER,                                             \
      "median over the rounds of (time under the better single configuration / "         \
      "request_s)")                                                                      \
    X(token_bytes, "B", MODEL, "bytes that a decoded token must read")                   \
    X(decode_gbps, "GB/s", 0,                                                            \
      "token_bytes / time of a later token under decode's own configuration")

FRAME_TYPES;

enum { SWITCH, PREFILL_PLAN, DECODE_PLAN, N_WAYS };

struct phase_switch {
    FRAME_CELL;
    struct model_bench engine;
    struct model_phase *phase[2]; /* prefill's, decode's */
    double first_s[N_WAYS],
        later_s[N_WAYS]; /* decode steps: the first, the fastest later one */
};

/* One request: a prompt by `p`, output tokens by `d`. */
static int phase_switch_request(void *arg, int way, struct measure_trial *t)
{
    struct phase_switch *c = arg;
    const struct opts *o = c->o;
    struct model_phase *p = c->phase[way == DECODE_PLAN];
    struct model_phase *d = c->phase[way != PREFILL_PLAN];
    double one = NAN, later = INFINITY;

    TRY(model_bench_steps_prefill(&c->engine.steps, p, o->n_prompt_tok, &t->seconds));
    for (int64_t i = 1; i < o->n_output_tok; i++) {
        TRY(model_bench_steps_decode(&c->engine.steps, d, o->n_prompt_tok + i - 1, &one));
        t->seconds += one;
        if (i == 1)
            frame_put(c->f, &c->first_s[way], one);
        else
            later = fmin(later, one);
    }
    frame_put(c->f, &c->later_s[way], later);
    return OK;
}

/* Keys and values of the prompt: `fn` of each run of them in `kv`. */
static void each_run(const struct phase_switch *c, const struct kv_slot *kv,
                     void (*fn)(void *ctx, const char *run, size_t bytes), void *ctx)
{
    struct kv_shape s;
    size_t bytes;

    model_kv_shape(c->engine.model, &s);
    bytes = (size_t)c->o->n_prompt_tok * s.vec_bytes;
    for (int i = 0; i < s.n_layers * s.n_kv_heads; i++)
        fn(ctx, kv_values_at(kv, i / s.n_kv_heads, i % s.n_kv_heads) - bytes, 2 * bytes);
}

struct snapshot {
    char *p; /* a copy of the runs, one after the other */
    int64_t n_changed;
};

static void keep_run(void *ctx, const char *run, size_t bytes)
{
    struct snapshot *k = ctx;

    memcpy(k->p, run, bytes);
    k->p += bytes;
}

static void compare_run(void *ctx, const char *run, size_t bytes)
{
    struct snapshot *k = ctx;

    k->n_changed += memcmp(k->p, run, bytes) == 0 ? 0 : (int64_t)bytes;
    k->p += bytes;
}

/* One more request, which is not timed: addresses of weights, keys and values before and
 * after the switch, and whether what prefill wrote is still what is there. */
static int count_copied(struct phase_switch *c)
{
    const struct kv_slot *kv = &c->engine.steps.kv[0];
    const struct kv_slot before = *kv;
    struct kv_shape s;
    struct snapshot k = {0};
    double seconds;
    char *all;
    int rc;

    model_kv_shape(c->engine.model, &s);
    all = mem_new(MEM_HARNESS, (size_t)c->o->n_prompt_tok, kv_token_bytes(&s));
    rc = model_bench_steps_prefill(&c->engine.steps, c->phase[0], c->o->n_prompt_tok,
                                   &seconds);
    k.p = all;
    each_run(c, &before, keep_run, &k);
    if (rc == OK)
        rc = model_bench_steps_decode(&c->engine.steps, c->phase[1], c->o->n_prompt_tok,
                                      &seconds);
    k.p = all;
    each_run(c, kv, compare_run, &k);
    c->r->bytes_copied = (double)model_phase_moved_bytes(c->phase[0], c->phase[1]) +
                         (double)(kv->base == before.base ? k.n_changed : k.p - all);
    mem_free(all);
    return rc;
}

static void phase_switch_report(struct phase_switch *c)
{
    const struct model *m = c->engine.model;
    size_t n = (size_t)c->f->n_rounds;
    const double *own = frame_each(c->f, &c->first_s[DECODE_PLAN]);
    const double *switched = frame_each(c->f, &c->first_s[SWITCH]);
    double *switch_us = frame_new(c->f, n, sizeof(*switch_us));
    struct results *r = c->r;

    for (size_t i = 0; i < n; i++)
        switch_us[i] = 1e6 * (switched[i] - own[i]);
    r->switch_us_p50 = stats_median(switch_us, n);
    r->switch_us_mad = stats_mad(switch_us, n);
    r->repack_ms = 1e3 * model_load_stat_of(m)->load_s;
    r->request_s = frame_seconds(c->f, SWITCH);
    r->request_s_prefill_plan = frame_seconds(c->f, PREFILL_PLAN);
    r->request_s_decode_plan = frame_seconds(c->f, DECODE_PLAN);
    r->token_bytes = model_cost_decode(model_config_of(m), model_cost_types_of(m),
                                       (double)c->o->n_prompt_tok + 1, 1)
                         .read_bytes;
    r->decode_gbps = 1e-9 * r->token_bytes / c->later_s[DECODE_PLAN];
    frame_why(c->f, NULL, "a time was not a number");
    frame_ratio(c->f, &r->speedup_vs_best_one_plan,
                r->request_s_prefill_plan < r->request_s_decode_plan ? PREFILL_PLAN
                                                                     : DECODE_PLAN,
                SWITCH, 0);
    frame_times_series(c->f, "request_s", SWITCH);
    frame_times_series(c->f, "request_s_prefill_plan", PREFILL_PLAN);
    frame_times_series(c->f, "request_s_decode_plan", DECODE_PLAN);
    study_series(c->out, "switch_us", "us", switch_us, n);
    study_engine_report(c->out, &c->engine);
}

/* n_threads = 0: an equal share of the CPUs for each rank. */
static int open_phase(struct phase_switch *c, int phase, int64_t n_ranks,
                      int64_t n_threads)
{
    int64_t share = c->engine.budget.n / n_ranks;

    n_threads = n_threads ? n_threads : share ? share : 1;
    return study_engine_phase(&c->engine, &c->phase[phase], (int)n_ranks, (int)n_threads);
}

static int phase_switch_run(struct phase_switch *c)
{
    const struct opts *o = c->o;

    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase[1]);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase[0]);
    for (int i = 0; i < 2; i++) { /* the second time the file is in memory */
        model_bench_close(&c->engine);
        TRY(study_engine_open(
            &c->engine, o->model,
            &(struct model_bench_opts){
                .n_seqs = 1, .max_tok = o->n_prompt_tok + o->n_output_tok, .seed = 1}));
    }
    TRY(open_phase(c, 0, o->prefill_ranks, o->prefill_threads));
    TRY(open_phase(c, 1, o->decode_ranks, o->decode_threads));
    TRY(frame_rounds(c->f, "requests in turn", N_WAYS, o->rounds, phase_switch_request,
                     c));
    TRY(count_copied(c));
    phase_switch_report(c);
    return OK;
}

STUDY(phase_switch,
      "from prefill's service configuration to decode's, between two steps");
