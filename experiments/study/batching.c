/* Decode in batches by the whole engine: how many tokens a second, how far below the roof
 * min(peak, bandwidth x intensity) with attention included, and what a step spends outside
 * the forward pass. Weights are read once for all sequences of a step, keys and values once
 * for each, so the intensity grows with the batch until attention or the peak bounds it. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/serving.h"
#include "par/team.h"

#define BATCH_MAX  64
#define ROUNDS_MAX 99
#define HANDOFF_S  0.01

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(INT, batch, "1", "Sequences that are decoded together.", .min = 1,                 \
      .max = BATCH_MAX)                                                                  \
    X(STR, policy, "continuous", "Scheduling policy.")                                   \
    OPTION_KV_TYPE(X, "f32")                                                             \
    X(INT, n_prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,             \
      .max = 65536)                                                                      \
    X(INT, n_steps, "32", "Decode steps that are timed in a round, each by itself.",     \
      .min = 1, .max = 4096)                                                             \
    X(INT, rounds, "7", "Rounds of peak, read bandwidth and decode, interleaved.",       \
      .min = 3, .max = ROUNDS_MAX)                                                       \
    X(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",      \
      .min = 0.01, .max = 60)                                                            \
    X(F64, peak_s, "0.2", "Time of one measurement of the peak.", .unit = "s",           \
      .min = 0.01, .max = 60)                                                            \
    X(INT, read_mb, "0", "Size of the buffer to read. 0: as for the machine card.",      \
      .unit = "MiB", .min = 0, .max = 1 << 20)

#define RESULTS(X)                                                                       \
    X(tokens_per_s, "tok/s", HIGHER,                                                     \
      "sequences / time from one decode step to the next, sampling and scheduling "      \
      "included")                                                                        \
    X(batch_roof_frac, "", HIGHER,                                                       \
      "time of a step at the roof / time of a step; peak and bandwidth of the same "     \
      "round")                                                                           \
    X(roof_tokens_per_s, "tok/s", MODEL,                                                 \
      "sequences / the longer of: operations of a step / peak, bytes it must read / "    \
      "bandwidth")                                                                       \
    X(memory_roof_tokens_per_s, "tok/s", MODEL, "the roof by bandwidth alone")           \
    X(compute_roof_tokens_per_s, "tok/s", MODEL, "the roof by the peak alone")           \
    X(step_ms, "ms", LOWER, "time of a decode step, sampling and scheduling included")   \
    X(flop_per_byte, "FLOP/B", MODEL,                                                    \
      "operations of a step / bytes of weights, keys and values it must read")           \
    X(kv_bytes_frac, "", MODEL, "share of keys and values in those bytes")               \
    X(step_gbps, "GB/s", 0, "bytes a step must read / its time")                         \
    X(step_gflops, "GFLOP/s", 0, "operations of a step / its time")                      \
    X(read_gbps, "GB/s", EACH, "read bandwidth measured in the rounds, median")          \
    X(peak_gflops, "GFLOP/s", EACH,                                                      \
      "peak of the weights' type and precision measured in the rounds, median")          \
    X(sched_overhead_frac, "", LOWER,                                                    \
      "share of a step that is neither forward pass nor sampling: queue, policy, "       \
      "memory, batch, callbacks; median of the rounds")                                  \
    X(sample_frac, "", LOWER,                                                            \
      "share of a step for choosing tokens from logits, median of the rounds")           \
    X(wait_frac, "", LOWER, "share of the forward pass that a thread waits for others")  \
    X(linear_frac, "", 0, "share of the forward pass in the layers' matrix products")    \
    X(attn_frac, "", 0, "share of the forward pass in attention")                        \
    X(head_frac, "", 0, "share of the forward pass in the output projection")            \
    X(norm_rope_frac, "", 0,                                                             \
      "share of the forward pass in normalising, rotating and packing")

FRAME_TYPES;

/* The classes of operators, as the engine's description names their times. */
static const char *const classes[] = {"linear", "attn", "head", "norm_rope", "forward"};
enum { N_CLASSES = sizeof(classes) / sizeof(classes[0]), FORWARD = N_CLASSES - 1 };

enum { ROOF, DECODE, N_MEASURED };
struct batching {
    FRAME_CELL;
    struct study_threads threads; /* for the roof; the engine has its own */
    struct study_serving engine;
    double handoff_ns;
    char weights[16];
    struct serve_totals step; /* sums over the timed steps of the latest trial */
    double class_s[N_CLASSES];
};

/* --- steps */

static int class_seconds(struct batching *c, double sign)
{
    const json_t *work;
    json_t *d;

    TRY(serve_describe(c->engine.serve, &d));
    work = json_object_get(d, "work");
    for (int i = 0; i < N_CLASSES; i++) {
        char key[24];

        snprintf(key, sizeof(key), "%s_s", classes[i]);
        c->class_s[i] += sign * json_number_value(json_object_get(work, key));
    }
    json_decref(d);
    return OK;
}

static int batching_step(void *arg, int i, struct measure_trial *t)
{
    struct batching *c = arg;

    (void)i, (void)t;
    return study_serving_step(&c->engine);
}

/* Steps of the whole batch, all of decode: seconds of one of them. */
static int timed_steps(struct batching *c, double *seconds)
{
    const struct serve_totals *t = serve_totals_of(c->engine.serve, SERVE_DECODE);
    struct serve_totals before = *t;
    const struct measure_opts steps = {MEASURE_EXACTLY((int)c->o->n_steps)};

    TRY(class_seconds(c, -1));
    TRY(frame_rounds_within(c->f, &steps, batching_step, c, seconds));
    TRY(class_seconds(c, 1));
    c->step = serve_totals_since(t, &before);
    return c->step.n_steps == c->o->n_steps + 1 /* the first warms up */
               ? OK
               : err_set(ERR_STATE, "%lld of %lld steps were of decode alone",
                         (long long)c->step.n_steps, (long long)c->o->n_steps + 1);
}

static int decode(struct batching *c, double *seconds)
{
    int64_t n = c->o->batch, n_prompt = c->o->n_prompt_tok, ids[BATCH_MAX];
    struct study_serving *e = &c->engine;

    for (int64_t i = 0; i < n; i++)
        TRY(study_serving_submit(e, (uint64_t)i + 1, n_prompt,
                                 e->serve->max_tok - n_prompt, &ids[i]));
    TRY(study_serving_prefill(e, n * n_prompt));
    TRY(timed_steps(c, seconds));
    return study_serving_cancel(e, ids, n);
}

/* --- rounds */

static double step_bytes(const struct batching *c)
{
    return (double)(c->step.weight_bytes + c->step.kv_bytes) / (double)c->step.n_steps;
}

static double step_flop(const struct batching *c)
{
    return (double)c->step.flop / (double)c->step.n_steps;
}

/* The time of a step at the roof of now; NaN where either bound cannot be measured. */
static double roof_seconds(struct batching *c)
{
    double gbps = study_read_gbps(&c->threads, (size_t)c->o->read_mb << 20, c->o->read_s);
    double gflops = study_peak_now(&c->threads, c->weights,
                                   kern_precision_name(c->o->precision), c->o->peak_s);
    double read_s = step_bytes(c) / gbps * 1e-9,
           multiply_s = step_flop(c) / gflops * 1e-9;

    frame_put(c->f, &c->handoff_ns, study_handoff_now(&c->threads, HANDOFF_S));
    frame_put(c->f, &c->r->read_gbps, gbps);
    frame_put(c->f, &c->r->peak_gflops, gflops);
    return isnan(read_s) || isnan(multiply_s) ? NAN : fmax(read_s, multiply_s);
}

static int batching_trial(void *arg, int i, struct measure_trial *t)
{
    struct batching *c = arg;
    const struct serve_totals *s = &c->step;
    double ns;

    if (i == ROOF) {
        t->seconds = roof_seconds(c);
        return OK;
    }
    TRY(decode(c, &t->seconds));
    ns = (double)(s->forward_ns + s->sample_ns + s->sched_ns);
    frame_put(c->f, &c->r->sched_overhead_frac, (double)s->sched_ns / ns);
    frame_put(c->f, &c->r->sample_frac, (double)s->sample_ns / ns);
    frame_put(c->f, &c->r->wait_frac, (double)s->wait_ns / (double)s->forward_ns);
    return OK;
}

static void batching_report(struct batching *c)
{
    double n = (double)c->o->batch, bytes = step_bytes(c), flop = step_flop(c);
    double step_s = frame_seconds(c->f, DECODE);
    struct results *r = c->r;

    r->tokens_per_s = n / step_s;
    r->roof_tokens_per_s = n / frame_seconds(c->f, ROOF);
    r->memory_roof_tokens_per_s = n * r->read_gbps / bytes * 1e9;
    r->compute_roof_tokens_per_s = n * r->peak_gflops / flop * 1e9;
    r->step_ms = step_s * 1e3;
    r->flop_per_byte = flop / bytes;
    r->kv_bytes_frac = (double)c->step.kv_bytes / (bytes * (double)c->step.n_steps);
    r->step_gbps = bytes / step_s * 1e-9;
    r->step_gflops = flop / step_s * 1e-9;
    for (int i = 0; i < FORWARD; i++)
        *frame_named(c->f, "%s_frac", classes[i]) = c->class_s[i] / c->class_s[FORWARD];
    frame_ratio(c->f, &r->batch_roof_frac, ROOF, DECODE, 0);
    frame_why(c->f, NULL, "peak and bandwidth cannot be measured");
    frame_times_series(c->f, "roof_s", ROOF);
    frame_times_series(c->f, "step_s", DECODE);
    frame_series(c->f, "handoff_ns", "ns", &c->handoff_ns);
}

/* --- the cell */

static int batching_open_engine(struct batching *c)
{
    const struct opts *o = c->o;
    struct serve_opts so;

    TRY(study_serving_opts(&so, o->model, o->policy));
    so.precision = o->precision;
    so.kv_type = o->kv_type;
    so.max_seqs = o->batch;
    /* Some policies decode the first sequences while they compute the others' prompts. */
    so.max_tok = o->n_prompt_tok + o->n_steps + 4 * o->batch + 16;
    return study_serving_open(&c->engine, &so);
}

/* The peak is that of their type. */
static int find_weights(struct batching *c)
{
    json_t *d;

    TRY(serve_describe(c->engine.serve, &d));
    snprintf(c->weights, sizeof(c->weights), "%s",
             json_string_value(json_object_get(d, "weight_type")));
    study_note_text(c->out, "weights", c->weights);
    json_decref(d);
    return OK;
}

static int batching_run(struct batching *c)
{
    double seconds;

    FRAME_CLOSE(c->f, study_serving_close, &c->engine);
    FRAME_CLOSE(c->f, study_threads_close, &c->threads);
    /* The engine pins this thread, so the CPUs are counted before. */
    TRY(cpu_budget_get(&c->threads.budget));
    TRY(batching_open_engine(c));
    c->threads.n = c->threads.budget.n;
    TRY(par_team_open(&c->threads.team, c->threads.budget.cpus, c->threads.n, 1));
    study_note_machine(c->out, &c->threads);
    TRY(find_weights(c));
    TRY(decode(c, &seconds)); /* its bytes and operations are those of every later one */
    TRY(frame_rounds(c->f, "decode and its roof in turn", N_MEASURED, c->o->rounds,
                     batching_trial, c));
    batching_report(c);
    return OK;
}

STUDY(batching, "decode in batches by the whole engine, compared with its roof");
