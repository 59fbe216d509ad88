/* What it costs to go from prefill's service configuration to decode's between two steps:
 * nothing is copied, so the price is what caches and threads make of it. For comparison, the
 * time to pack the weights again, and one configuration for both phases.
 * Paper: Sandwich 3.1, 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"

struct opts {
    char *model;
    int64_t prefill_ranks, prefill_threads, decode_ranks, decode_threads;
    int64_t n_prompt_tok, n_output_tok, rounds;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(INT, prefill_ranks, "1", "Ranks of prefill.", .min = 1, .max = 64),
    OPT_ROW(INT, prefill_threads, "0",
            "Threads of each rank. 0: an equal share of the available CPU cores.",
            .min = 0, .max = CPU_MAX),
    OPT_ROW(INT, decode_ranks, "2", "Ranks of decode.", .min = 1, .max = 64),
    OPT_ROW(INT, decode_threads, "0",
            "Threads of each rank. 0: an equal share of the available CPU cores.",
            .min = 0, .max = CPU_MAX),
    OPT_ROW(INT, n_prompt_tok, "128", "Prompt tokens of a request.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, n_output_tok, "16", "Output tokens of a request.", .min = 2,
            .max = 65536),
    OPT_ROW(INT, rounds, "25", "Rounds of all alternatives, interleaved.", .min = 3,
            .max = 999),
    {0},
};

static const struct study_metric metrics[] = {
    {"bytes_copied", "B", "lower",
     "bytes of weights that decode reads and prefill does not, and of the prompt's keys "
     "and values that have another place or content after the first decode step"},
    {"switch_us_p50", "us", "lower",
     "time of the first decode step after prefill under the other configuration, minus "
     "that of the same step after prefill under decode's own"},
    {"switch_us_mad", "us", "", "median absolute deviation of that difference"},
    {"repack_ms", "ms", "",
     "time to read and pack the weights again, with the file in memory"},
    {"request_s", "s", "lower",
     "time of a request: prompt under prefill's configuration, output under decode's"},
    {"request_s_prefill_plan", "s", "",
     "time of a request, all of it under prefill's configuration"},
    {"request_s_decode_plan", "s", "",
     "time of a request, all of it under decode's configuration"},
    {"speedup_vs_best_one_plan", "x", "higher",
     "median over the rounds of (time under the better single configuration / "
     "request_s)"},
    {"token_bytes", "B", "", "bytes that a decoded token must read"},
    {"decode_gbps", "GB/s", "",
     "token_bytes / time of a later token under decode's own configuration"},
    {0},
};

#define ROUNDS_MAX 999
enum { SWITCH, PREFILL_PLAN, DECODE_PLAN, N_WAYS };
enum { FIRST_S, LATER_S, N_PARTS }; /* decode steps: the first, the fastest later one */

struct cell {
    struct study_cell *out;
    struct model_bench engine;
    struct model_phase *phase[2]; /* prefill's, decode's */
    const struct opts *o;
    struct study_compare ways;
    int64_t bytes_copied;
};

/* One request: a prompt by `p`, output tokens by `d`. */
static int request(void *arg, int way, struct measure_trial *t)
{
    struct cell *f = arg;
    const struct opts *o = f->o;
    struct model_phase *p = f->phase[way == DECODE_PLAN];
    struct model_phase *d = f->phase[way != PREFILL_PLAN];
    double one = NAN, later = INFINITY;

    TRY(model_bench_steps_prefill(&f->engine.steps, p, o->n_prompt_tok, &t->seconds));
    for (int64_t i = 1; i < o->n_output_tok; i++) {
        TRY(model_bench_steps_decode(&f->engine.steps, d, o->n_prompt_tok + i - 1, &one));
        t->seconds += one;
        if (i == 1)
            study_compare_put(&f->ways, FIRST_S, one);
        else
            later = fmin(later, one);
    }
    study_compare_put(&f->ways, LATER_S, later);
    return OK;
}

/* Keys and values of the prompt: `fn` of each run of them in `kv`. */
static void each_run(const struct cell *f, const struct kv_slot *kv,
                     void (*fn)(void *ctx, const char *run, size_t bytes), void *ctx)
{
    struct kv_shape s;
    size_t bytes;

    model_kv_shape(f->engine.model, &s);
    bytes = (size_t)f->o->n_prompt_tok * s.vec_bytes;
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
static int count_copied(struct cell *f)
{
    const struct kv_slot *kv = &f->engine.steps.kv[0];
    const struct kv_slot before = *kv;
    struct kv_shape s;
    struct snapshot k = {0};
    double seconds;
    char *all;
    int rc;

    model_kv_shape(f->engine.model, &s);
    all = mem_new(MEM_HARNESS, (size_t)f->o->n_prompt_tok, kv_token_bytes(&s));
    if (!all)
        return ERR_NOMEM;
    rc = model_bench_steps_prefill(&f->engine.steps, f->phase[0], f->o->n_prompt_tok,
                                   &seconds);
    k.p = all;
    each_run(f, &before, keep_run, &k);
    if (rc == OK)
        rc = model_bench_steps_decode(&f->engine.steps, f->phase[1], f->o->n_prompt_tok,
                                      &seconds);
    k.p = all;
    each_run(f, kv, compare_run, &k);
    f->bytes_copied = model_phase_moved_bytes(f->phase[0], f->phase[1]) +
                      (kv->base == before.base ? k.n_changed : k.p - all);
    mem_free(all);
    return rc;
}

static void report(const struct cell *f, const struct opts *o, struct study_cell *out)
{
    const struct model *m = f->engine.model;
    size_t n = (size_t)o->rounds;
    const struct measure_report *way = f->ways.time;
    const double *own = study_compare_part(&f->ways, DECODE_PLAN, FIRST_S);
    const double *switched = study_compare_part(&f->ways, SWITCH, FIRST_S);
    double switch_us[ROUNDS_MAX];
    double bytes = model_cost_decode(model_config_of(m), model_cost_types_of(m),
                                     (double)o->n_prompt_tok + 1, 1)
                       .read_bytes;

    for (size_t r = 0; r < n; r++)
        switch_us[r] = 1e6 * (switched[r] - own[r]);
    const struct study_number all[] = {
        {"bytes_copied", (double)f->bytes_copied},
        {"switch_us_p50", stats_median(switch_us, n)},
        {"switch_us_mad", stats_mad(switch_us, n)},
        {"repack_ms", 1e3 * model_load_stat_of(m)->load_s},
        {"request_s", way[SWITCH].estimate},
        {"request_s_prefill_plan", way[PREFILL_PLAN].estimate},
        {"request_s_decode_plan", way[DECODE_PLAN].estimate},
        {"token_bytes", bytes},
        {"decode_gbps",
         1e-9 * bytes / study_compare_median(&f->ways, DECODE_PLAN, LATER_S)}};

    STUDY_VALUES(out, all, "a time was not a number");
    study_evidence(out, "model", "token_bytes");
    study_compare_ratio(&f->ways, "speedup_vs_best_one_plan",
                        way[PREFILL_PLAN].estimate < way[DECODE_PLAN].estimate
                            ? PREFILL_PLAN
                            : DECODE_PLAN,
                        SWITCH, 0);
    study_series(out, "switch_us", "us", switch_us, n);
    study_engine_report(out, &f->engine);
}

/* n_threads = 0: an equal share of the CPUs for each rank. */
static int open_phase(struct cell *f, int phase, int64_t n_ranks, int64_t n_threads)
{
    int64_t share = f->engine.budget.n / n_ranks;

    n_threads = n_threads ? n_threads : share ? share : 1;
    return study_engine_phase(&f->engine, &f->phase[phase], (int)n_ranks, (int)n_threads);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;

    for (int i = 0; i < 2; i++) { /* the second time the file is in memory */
        model_bench_close(&f->engine);
        TRY(study_engine_open(
            &f->engine, o->model,
            &(struct model_bench_opts){
                .n_seqs = 1, .max_tok = o->n_prompt_tok + o->n_output_tok, .seed = 1}));
    }
    TRY(open_phase(f, 0, o->prefill_ranks, o->prefill_threads));
    TRY(open_phase(f, 1, o->decode_ranks, o->decode_threads));
    f->ways = (struct study_compare){
        .series = (const char *const[]){"request_s", "request_s_prefill_plan",
                                        "request_s_decode_plan"},
        .doing = "requests in turn"};
    TRY(study_compare(&f->ways, f->out, N_WAYS, o->rounds, request, f));
    TRY(count_copied(f));
    report(f, o, f->out);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->ways);
    model_phase_close(&f->phase[0]);
    model_phase_close(&f->phase[1]);
    model_bench_close(&f->engine);
}

STUDY(phase_switch,
      "from prefill's service configuration to decode's, between two steps");
