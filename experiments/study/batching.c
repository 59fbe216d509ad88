/* Decode in batches by the whole engine: how many tokens a second, how far below the roof
 * min(peak, bandwidth x intensity) with attention included, and what a step spends outside
 * the forward pass. Weights are read once for all sequences of a step, keys and values once
 * for each, so the intensity grows with the batch until attention or the peak bounds it. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/serving.h"
#include "par/team.h"

#define BATCH_MAX  64
#define ROUNDS_MAX 99
#define HANDOFF_S  0.01

struct opts {
    char *model, *policy;
    int precision, kv_type;
    int64_t batch, n_prompt_tok, n_steps, rounds, read_mb;
    double read_s, peak_s;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(INT, batch, "1", "Sequences that are decoded together.", .min = 1,
            .max = BATCH_MAX),
    OPT_ROW(STR, policy, "continuous", "Scheduling policy."),
    ROW_KV_TYPE("f32"),
    OPT_ROW(INT, n_prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, n_steps, "32", "Decode steps that are timed in a round, each by itself.",
            .min = 1, .max = 4096),
    OPT_ROW(INT, rounds, "7", "Rounds of peak, read bandwidth and decode, interleaved.",
            .min = 3, .max = ROUNDS_MAX),
    OPT_ROW(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",
            .min = 0.01, .max = 60),
    OPT_ROW(F64, peak_s, "0.2", "Time of one measurement of the peak.", .unit = "s",
            .min = 0.01, .max = 60),
    OPT_ROW(INT, read_mb, "0", "Size of the buffer to read. 0: as for the machine card.",
            .unit = "MiB", .min = 0, .max = 1 << 20),
    {0},
};

static const struct study_metric metrics[] = {
    {"tokens_per_s", "tok/s", "higher",
     "sequences / time from one decode step to the next, sampling and scheduling "
     "included"},
    {"batch_roof_frac", "", "higher",
     "time of a step at the roof / time of a step; peak and bandwidth of the same round"},
    {"roof_tokens_per_s", "tok/s", "",
     "sequences / the longer of: operations of a step / peak, bytes it must read / "
     "bandwidth"},
    {"memory_roof_tokens_per_s", "tok/s", "", "the roof by bandwidth alone"},
    {"compute_roof_tokens_per_s", "tok/s", "", "the roof by the peak alone"},
    {"step_ms", "ms", "lower", "time of a decode step, sampling and scheduling included"},
    {"flop_per_byte", "FLOP/B", "",
     "operations of a step / bytes of weights, keys and values it must read"},
    {"kv_bytes_frac", "", "", "share of keys and values in those bytes"},
    {"step_gbps", "GB/s", "", "bytes a step must read / its time"},
    {"step_gflops", "GFLOP/s", "", "operations of a step / its time"},
    {"read_gbps", "GB/s", "", "read bandwidth measured in the rounds, median"},
    {"peak_gflops", "GFLOP/s", "",
     "peak of the weights' type and precision measured in the rounds, median"},
    {"sched_overhead_frac", "", "lower",
     "share of a step that is neither forward pass nor sampling: queue, policy, memory, "
     "batch, callbacks; median of the rounds"},
    {"sample_frac", "", "lower",
     "share of a step for choosing tokens from logits, median of the rounds"},
    {"wait_frac", "", "lower",
     "share of the forward pass that a thread waits for others"},
    {"linear_frac", "", "", "share of the forward pass in the layers' matrix products"},
    {"attn_frac", "", "", "share of the forward pass in attention"},
    {"head_frac", "", "", "share of the forward pass in the output projection"},
    {"norm_rope_frac", "", "",
     "share of the forward pass in normalising, rotating and packing"},
    {0},
};

/* The classes of operators, as the engine's description names their times. */
static const struct {
    const char *key, *metric;
} classes[] = {{"linear_s", "linear_frac"},
               {"attn_s", "attn_frac"},
               {"head_s", "head_frac"},
               {"norm_rope_s", "norm_rope_frac"},
               {"forward_s", NULL}};
enum { N_CLASSES = sizeof(classes) / sizeof(classes[0]), FORWARD = N_CLASSES - 1 };

enum { ROOF, DECODE, N_MEASURED };
/* Of each trial of the roof; of each trial of decode. */
enum { GBPS, PEAK, HANDOFF, SCHED = 0, SAMPLE, WAIT, N_PARTS };

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_threads threads; /* for the roof; the engine has its own */
    struct study_serving engine;
    struct study_compare rounds, steps;
    char weights[16];
    struct serve_totals step; /* sums over the timed steps of the latest trial */
    double class_s[N_CLASSES];
};

/* --- steps */

static int class_seconds(struct cell *f, double sign)
{
    const json_t *work;
    json_t *d;

    TRY(serve_describe(f->engine.serve, &d));
    work = json_object_get(d, "work");
    for (int i = 0; i < N_CLASSES; i++)
        f->class_s[i] += sign * json_number_value(json_object_get(work, classes[i].key));
    json_decref(d);
    return OK;
}

static int one_step(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;

    (void)i, (void)t;
    return study_serving_step(&f->engine);
}

/* Steps of the whole batch, all of decode: seconds of one of them. */
static int timed_steps(struct cell *f, double *seconds)
{
    const struct serve_totals *t = serve_totals_of(f->engine.serve, SERVE_DECODE);
    struct serve_totals before = *t;

    TRY(class_seconds(f, -1));
    TRY(study_compare(&f->steps, NULL, 1, f->o->n_steps, one_step, f));
    TRY(class_seconds(f, 1));
    *seconds = f->steps.time[0].estimate;
    f->step = serve_totals_since(t, &before);
    return f->step.n_steps == f->o->n_steps + 1 /* the first warms up */
               ? OK
               : err_set(ERR_STATE, "%lld of %lld steps were of decode alone",
                         (long long)f->step.n_steps, (long long)f->o->n_steps + 1);
}

static int decode(struct cell *f, double *seconds)
{
    int64_t n = f->o->batch, n_prompt = f->o->n_prompt_tok, ids[BATCH_MAX];
    struct study_serving *e = &f->engine;

    for (int64_t i = 0; i < n; i++)
        TRY(study_serving_submit(e, (uint64_t)i + 1, n_prompt,
                                 e->serve->max_tok - n_prompt, &ids[i]));
    TRY(study_serving_prefill(e, n * n_prompt));
    TRY(timed_steps(f, seconds));
    return study_serving_cancel(e, ids, n);
}

/* --- rounds */

static double step_bytes(const struct cell *f)
{
    return (double)(f->step.weight_bytes + f->step.kv_bytes) / (double)f->step.n_steps;
}

static double step_flop(const struct cell *f)
{
    return (double)f->step.flop / (double)f->step.n_steps;
}

/* The time of a step at the roof of now; NaN where either bound cannot be measured. */
static double roof_seconds(struct cell *f)
{
    double gbps = study_read_gbps(&f->threads, (size_t)f->o->read_mb << 20, f->o->read_s);
    double gflops = study_peak_now(&f->threads, f->weights,
                                   kern_precision_name(f->o->precision), f->o->peak_s);
    double read_s = step_bytes(f) / gbps * 1e-9,
           multiply_s = step_flop(f) / gflops * 1e-9;

    study_compare_put(&f->rounds, HANDOFF, study_handoff_now(&f->threads, HANDOFF_S));
    study_compare_put(&f->rounds, GBPS, gbps);
    study_compare_put(&f->rounds, PEAK, gflops);
    return isnan(read_s) || isnan(multiply_s) ? NAN : fmax(read_s, multiply_s);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    const struct serve_totals *s = &f->step;
    double ns;

    if (i == ROOF) {
        t->seconds = roof_seconds(f);
        return OK;
    }
    TRY(decode(f, &t->seconds));
    ns = (double)(s->forward_ns + s->sample_ns + s->sched_ns);
    study_compare_put(&f->rounds, SCHED, (double)s->sched_ns / ns);
    study_compare_put(&f->rounds, SAMPLE, (double)s->sample_ns / ns);
    study_compare_put(&f->rounds, WAIT, (double)s->wait_ns / (double)s->forward_ns);
    return OK;
}

static double median_of(const struct cell *f, int i, int part)
{
    return study_compare_median(&f->rounds, i, part);
}

static void report_speed(struct study_cell *c, const struct cell *f)
{
    double n = (double)f->o->batch, bytes = step_bytes(f), flop = step_flop(f);
    double gbps = median_of(f, ROOF, GBPS), gflops = median_of(f, ROOF, PEAK);
    const struct measure_report *r = f->rounds.time;
    const struct study_number all[] = {
        {"tokens_per_s", n / r[DECODE].estimate},
        {"roof_tokens_per_s", n / r[ROOF].estimate},
        {"memory_roof_tokens_per_s", n * gbps / bytes * 1e9},
        {"compute_roof_tokens_per_s", n * gflops / flop * 1e9},
        {"step_ms", r[DECODE].estimate * 1e3},
        {"flop_per_byte", flop / bytes},
        {"kv_bytes_frac", (double)f->step.kv_bytes / (bytes * (double)f->step.n_steps)},
        {"step_gbps", bytes / r[DECODE].estimate * 1e-9},
        {"step_gflops", flop / r[DECODE].estimate * 1e-9},
        {"read_gbps", gbps},
        {"peak_gflops", gflops},
    };

    STUDY_VALUES(c, all, "peak and bandwidth cannot be measured");
    study_compare_ratio(&f->rounds, "batch_roof_frac", ROOF, DECODE, 0);
    study_compare_series(&f->rounds, "read_gbps", "GB/s", ROOF, GBPS);
    study_compare_series(&f->rounds, "peak_gflops", "GFLOP/s", ROOF, PEAK);
    study_compare_series(&f->rounds, "handoff_ns", "ns", ROOF, HANDOFF);
    study_evidence(c, "model",
                   "roof_tokens_per_s memory_roof_tokens_per_s compute_roof_tokens_per_s "
                   "flop_per_byte kv_bytes_frac");
}

static void report_shares(struct study_cell *c, struct cell *f)
{
    const struct study_number all[] = {
        {"sched_overhead_frac", median_of(f, DECODE, SCHED)},
        {"sample_frac", median_of(f, DECODE, SAMPLE)},
        {"wait_frac", median_of(f, DECODE, WAIT)},
    };

    STUDY_VALUES(c, all, "no step was timed");
    for (int i = 0; i < FORWARD; i++)
        study_value(c, classes[i].metric, f->class_s[i] / f->class_s[FORWARD],
                    "no step was timed");
}

/* --- the cell */

static int open_engine(struct cell *f)
{
    const struct opts *o = f->o;
    struct serve_opts so;

    TRY(study_serving_opts(&so, o->model, o->policy));
    so.precision = o->precision;
    so.kv_type = o->kv_type;
    so.max_seqs = o->batch;
    /* Some policies decode the first sequences while they compute the others' prompts. */
    so.max_tok = o->n_prompt_tok + o->n_steps + 4 * o->batch + 16;
    return study_serving_open(&f->engine, &so);
}

/* The peak is that of their type. */
static int find_weights(struct cell *f)
{
    json_t *d;

    TRY(serve_describe(f->engine.serve, &d));
    snprintf(f->weights, sizeof(f->weights), "%s",
             json_string_value(json_object_get(d, "weight_type")));
    study_note_text(f->out, "weights", f->weights);
    json_decref(d);
    return OK;
}

static int run(struct cell *f)
{
    double seconds;

    /* The engine pins this thread, so the CPUs are counted before. */
    TRY(cpu_budget_get(&f->threads.budget));
    TRY(open_engine(f));
    f->threads.n = f->threads.budget.n;
    TRY(par_team_open(&f->threads.team, f->threads.budget.cpus, f->threads.n, 1));
    study_note_machine(f->out, &f->threads);
    TRY(find_weights(f));
    TRY(decode(f, &seconds)); /* its bytes and operations are those of every later one */
    f->rounds = (struct study_compare){
        .series = (const char *const[]){[ROOF] = "roof_s", [DECODE] = "step_s"},
        .doing = "decode and its roof in turn"};
    TRY(study_compare(&f->rounds, f->out, N_MEASURED, f->o->rounds, trial, f));
    report_speed(f->out, f);
    report_shares(f->out, f);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->rounds);
    study_compare_close(&f->steps);
    study_threads_close(&f->threads);
    study_serving_close(&f->engine);
}

STUDY(batching, "decode in batches by the whole engine, compared with its roof");
