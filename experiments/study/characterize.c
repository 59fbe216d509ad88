/* The first measurements on a new CPU: the full machine card, the tree of what
 * computes together, and where this engine's own prefill and decode stand below the
 * roof that the card found.   Paper: Sandwich 3.1, MNN-LLM V. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "characterize/counters/trust.h"
#include "characterize/probe.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/card.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/topo.h"
#include "measure/card.h"

#define OPTIONS(X)                                                                       \
    X(STR, model, NULL, "Model file, larger than the last-level cache.")                 \
    OPTION_PRECISION(X)                                                                  \
    X(INT, n_prompt_tok, "512", "Tokens of the prompt.", .min = 1, .max = 65536)         \
    X(INT, n_ctx_tok, "128", "Tokens before the decoded one.", .min = 1, .max = 65536)   \
    X(INT, rounds, "7", "Rounds of read bandwidth, decode and prefill, interleaved.",    \
      .min = 3, .max = 999)                                                              \
    X(F64, card_s, "50", "Time for all probes together.", .unit = "s", .min = 0,         \
      .max = 600)                                                                        \
    X(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",      \
      .min = 0.01, .max = 60)                                                            \
    X(INT, read_mb, "0",                                                                 \
      "Size of the buffer to read, here and for the card. 0: by the last-level cache.",  \
      .unit = "MiB", .min = 0, .max = 1 << 20)                                           \
    X(STR, dir, "results/machine",                                                       \
      "Folder of the card, which is written as HOST-full.json.")

#define RESULTS(X)                                                                       \
    X(read_gbps_1t, "GB/s", HIGHER, "read bandwidth of main memory, 1 thread")           \
    X(read_gbps_all, "GB/s", HIGHER,                                                     \
      "read bandwidth of main memory, all CPUs of the budget")                           \
    X(peak_gflops_f32, "GFLOP/s", HIGHER, "peak of f32, all CPUs")                       \
    X(peak_gflops_bf16, "GFLOP/s", HIGHER,                                               \
      "peak with bf16 weights computed exactly, by the fastest method, all CPUs")        \
    X(peak_gflops_bf16_dot, "GFLOP/s", HIGHER,                                           \
      "peak of the bf16 dot product instruction, all CPUs")                              \
    X(peak_gflops_bf16_tile, "GFLOP/s", HIGHER,                                          \
      "peak of bf16 tile registers (AMX), all CPUs")                                     \
    X(peak_gflops_fp16, "GFLOP/s", HIGHER, "peak with half-precision sums, all CPUs")    \
    X(peak_gops_int8, "GOP/s", HIGHER,                                                   \
      "peak of the int8 dot product instruction, all CPUs")                              \
    X(peak_gops_int8_tile, "GOP/s", HIGHER,                                              \
      "peak of int8 tile registers (AMX), all CPUs")                                     \
    X(decode_bandwidth_frac, "", HIGHER,                                                 \
      "bytes a decoded token must read / its time / bandwidth measured in the same "     \
      "round")                                                                           \
    X(prefill_peak_frac, "", HIGHER,                                                     \
      "arithmetic of a prompt / its time / peak of its type and precision")              \
    X(decode_gbps, "GB/s", HIGHER, "bytes a decoded token must read / its time")         \
    X(decode_gflops, "GFLOP/s", 0, "arithmetic of a decoded token / its time")           \
    X(decode_flop_per_byte, "FLOP/B", MODEL,                                             \
      "arithmetic of a decoded token / bytes it must read")                              \
    X(decode_read_gbps, "GB/s", 0, "read bandwidth measured in the rounds, median")      \
    X(prefill_gflops, "GFLOP/s", HIGHER, "arithmetic of a prompt / its time")            \
    X(prefill_flop_per_byte, "FLOP/B", MODEL,                                            \
      "arithmetic of a prompt / bytes it must read, which are the weights once")         \
    X(latency_ns, "ns", LOWER,                                                           \
      "time of a dependent read in the largest working set, huge pages")                 \
    X(latency_small_ns, "ns", LOWER,                                                     \
      "time of a dependent read in the largest working set, small pages")                \
    X(random_frac_4k, "", HIGHER,                                                        \
      "speed of reading blocks of 4 KiB in random order / in sequence, small pages")     \
    X(random_frac_4k_huge, "", HIGHER,                                                   \
      "speed of reading blocks of 4 KiB in random order / in sequence, huge pages")      \
    X(handoff_ns_min, "ns", LOWER,                                                       \
      "time to pass a cache line to another CPU, nearest pair")                          \
    X(handoff_ns_max, "ns", LOWER,                                                       \
      "time to pass a cache line to another CPU, farthest measured pair")                \
    X(barrier_ns, "ns", LOWER, "time of a barrier of all CPUs")                          \
    X(allreduce_ns_4k, "ns", LOWER,                                                      \
      "time of an all-reduce of 4 KiB among all CPUs, fastest algorithm")                \
    X(fault_small_ns, "ns", LOWER, "time of the first touch of a small page, 1 thread")  \
    X(fault_huge_ns, "ns", LOWER, "time of the first touch of a huge page, 1 thread")    \
    X(share_speed_min, "", HIGHER,                                                       \
      "speed while another CPU computes / speed alone; about 0.5 if they share a core")  \
    X(noise_compute_cv, "", LOWER,                                                       \
      "standard deviation of compute time / its mean, all CPUs")                         \
    X(noise_read_cv, "", LOWER, "standard deviation of read time / its mean, all CPUs")  \
    X(steal_ns_per_s, "ns/s", LOWER, "CPU time that the host took away, per second")     \
    X(events_trusted, "", HIGHER, "hardware events that count known work correctly")     \
    X(events_off, "", LOWER, "hardware events that count known work wrongly")            \
    X(events_unavailable, "", LOWER,                                                     \
      "hardware events that cannot be counted on this machine")                          \
    X(card_s, "s", 0, "wall time of the probes")

FRAME_TYPES;

/* --- the card */

struct characterize {
    FRAME_CELL;
    json_t *card;
    struct cpu_budget budget;
    struct topo_machine *machine;
    struct topo_tree *tree;
    struct model_bench engine;
    struct model_phase *phase;
    double token_bytes; /* that a token must read */
};

/* Values of the card under names of ours. */
static const struct card_value {
    const char *metric, *prefix;
    bool one_thread;
} taken[] = {
    {"peak_gflops_bf16_dot", "peak_bf16_dot_", false},
    {"peak_gflops_bf16_tile", "peak_bf16_tile_", false},
    {"peak_gflops_fp16", "peak_fp16_fma_", false},
    {"peak_gops_int8", "peak_i8_dot_", false},
    {"peak_gops_int8_tile", "peak_i8_tile_", false},
    {"barrier_ns", "barrier_ns", false},
    {"fault_small_ns", "fault_small_ns", true},
    {"fault_huge_ns", "fault_huge_ns", true},
    {"noise_compute_cv", "noise_compute_cv", false},
    {"noise_read_cv", "noise_read_cv", false},
    {"steal_ns_per_s", "noise_steal_ns_per_s", false},
};

static void report_taken(struct characterize *c)
{
    const char *why;

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        double v = measure_card_range(c->card, taken[i].prefix,
                                      taken[i].one_thread ? 1 : c->budget.n, &why)
                       .most;

        frame_set(c->f, frame_named(c->f, "%s", taken[i].metric), v, why);
    }
}

/* Latency of the largest working set that was measured. */
static double last_latency(const json_t *card, const char *pages)
{
    double last = NAN;

    for (size_t kib = 16; kib <= 512 << 10; kib *= 2) {
        char name[48];
        double v;

        snprintf(name, sizeof(name), "latency_ns_%s_%zuKiB", pages, kib);
        v = measure_card_value(card, name, 1, NULL);
        last = isnan(v) ? last : v;
    }
    return last;
}

static double random_frac(const struct characterize *c, const char *pages)
{
    char random[48], sequential[48];

    snprintf(random, sizeof(random), "random_gbps_%s_4096B", pages);
    snprintf(sequential, sizeof(sequential), "sequential_gbps_%s", pages);
    return measure_card_value(c->card, random, c->budget.n, NULL) /
           measure_card_value(c->card, sequential, c->budget.n, NULL);
}

static double fastest_allreduce(const struct characterize *c)
{
    double best = NAN;

    for (int k = 0; par_colls[k]; k++) {
        char name[48];

        snprintf(name, sizeof(name), "allreduce_ns_%s_4096B", par_colls[k]->name);
        best = fmin(best, measure_card_range(c->card, name, 0, NULL).most);
    }
    return best;
}

static void report_card(struct characterize *c)
{
    int n = c->budget.n;
    struct measure_card_range handoff =
        measure_card_range(c->card, "handoff_ns", 0, NULL);
    struct measure_card_range share = measure_card_range(c->card, "share_speed", 0, NULL);
    const char *doubt = measure_card_doubt(c->card, "", 0);

    c->r->read_gbps_1t = measure_card_read_gbps(c->card, 1);
    c->r->read_gbps_all = measure_card_read_gbps(c->card, n);
    c->r->peak_gflops_f32 = measure_card_peak_gflops(c->card, "f32", "exact", n);
    c->r->peak_gflops_bf16 = measure_card_peak_gflops(c->card, "bf16", "exact", n);
    c->r->card_s = json_number_value(json_object_get(c->card, "duration_s"));
    frame_why(c->f, NULL, doubt ? doubt : "the probe found no memory, or no time");
    c->r->latency_ns = last_latency(c->card, "huge");
    c->r->random_frac_4k_huge = random_frac(c, "huge");
    c->r->latency_small_ns = last_latency(c->card, "small");
    c->r->random_frac_4k = random_frac(c, "small");
    frame_why(c->f, NULL, "the card says why: no such pages, or no memory");
    c->r->handoff_ns_min = handoff.least;
    c->r->handoff_ns_max = handoff.most;
    c->r->share_speed_min = share.least;
    c->r->allreduce_ns_4k = fastest_allreduce(c);
    frame_why(c->f, NULL, "one CPU only, or no memory");
    report_taken(c);
}

/* --- the engine below the roof */

/* Bandwidth changes from one second to the next where memory is shared with others, so it
 * is measured in the same rounds. */
enum { READ, DECODE, PREFILL, N_MEASURED };
#define TOKENS_MIN 9
#define TOKENS_MAX 36
#define TOKENS_S   1.0

static int token(void *arg, int i, struct measure_trial *t)
{
    struct characterize *c = arg;

    (void)i;
    return model_bench_steps_decode(&c->engine.steps, c->phase, c->o->n_ctx_tok,
                                    &t->seconds);
}

/* Tokens after a first one, which wakes the team. */
static int decode_some(struct characterize *c, double *seconds)
{
    struct measure_opts how = {
        .min_rounds = TOKENS_MIN, .max_rounds = TOKENS_MAX, .budget_s = TOKENS_S};

    return frame_rounds_within(c->f, &how, token, c, seconds);
}

static int characterize_trial(void *arg, int i, struct measure_trial *t)
{
    struct characterize *c = arg;
    struct study_threads threads = {
        .budget = c->budget, .team = c->engine.team, .n = c->budget.n};

    if (i == DECODE)
        return decode_some(c, &t->seconds);
    if (i == PREFILL)
        return model_bench_steps_prefill(&c->engine.steps, c->phase, c->o->n_prompt_tok,
                                         &t->seconds);
    /* The bytes that a token must read, at the bandwidth of now. A buffer of few caches would not
     * do: what of it is still in the cache then passes for memory's bandwidth. */
    t->seconds = 1e-9 * c->token_bytes /
                 study_read_gbps(&threads, (size_t)c->o->read_mb << 20, c->o->read_s);
    return OK;
}

static int run_engine(struct characterize *c)
{
    const struct opts *o = c->o;
    int64_t max_tok = o->n_prompt_tok > o->n_ctx_tok ? o->n_prompt_tok : o->n_ctx_tok;
    const struct model *m;

    TRY(study_engine_open(
        &c->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = max_tok + 1,
                                   .seed = 1}));
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->budget.n));
    m = c->engine.model;
    c->token_bytes = model_cost_decode(model_config_of(m), model_cost_types_of(m),
                                       (double)o->n_ctx_tok + 1, 1)
                         .read_bytes;
    c->f->progress = 0.7;
    return frame_rounds(c->f, "prefill, decode and bandwidth in turn", N_MEASURED,
                        o->rounds, characterize_trial, c);
}

static void report_engine(struct characterize *c)
{
    const struct opts *o = c->o;
    const struct model *m = c->engine.model;
    const struct model_config *config = model_config_of(m);
    struct model_cost_types types = model_cost_types_of(m);
    double peak =
        measure_card_peak_gflops(c->card, kern_type_name(types.weight),
                                 kern_precision_name(o->precision), c->budget.n);
    struct model_cost token =
        model_cost_decode(config, types, (double)o->n_ctx_tok + 1, 1);
    struct model_cost prompt = model_cost_prefill(config, types, o->n_prompt_tok, 0);
    struct results *r = c->r;

    frame_rate(c->f, &r->decode_gbps, token.read_bytes * 1e-9, DECODE);
    frame_rate(c->f, &r->decode_gflops, token.flop * 1e-9, DECODE);
    r->decode_flop_per_byte = token.flop / token.read_bytes;
    frame_rate(c->f, &r->decode_read_gbps, c->token_bytes * 1e-9, READ);
    frame_rate(c->f, &r->prefill_gflops, prompt.flop * 1e-9, PREFILL);
    frame_rate(c->f, &r->prefill_peak_frac, prompt.flop * 1e-9 / peak, PREFILL);
    r->prefill_flop_per_byte = prompt.flop / prompt.weight_bytes;
    frame_why(c->f, NULL, "the card has no bound for it");
    frame_ratio(c->f, &r->decode_bandwidth_frac, READ, DECODE, 0);
    study_engine_report(c->out, &c->engine);
}

/* --- the cell */

static int report_machine(struct characterize *c)
{
    const struct topo_tree_opts keep = {.cpus = c->budget.cpus, .n_cpus = c->budget.n};
    char note[256] = "", root[1024];

    TRY(topo_tree_open(&c->tree, c->machine, &keep, note, sizeof(note)));
    FRAME_CLOSE(c->f, mem_free, c->tree);
    study_topo_report_tree(c->out, c->tree);
    study_note_text(c->out, "left_out", note);
    study_card_root(root, sizeof(root));
    study_note_text(c->out, "root", root);
    return OK;
}

/* "provider event|ratio|verdict" lines: short enough for an attribute, as figures read it;
 * the whole table with its reasons is recorded as well. */
static void report_event_lines(struct study_cell *c, const struct counters_trust *t,
                               int n)
{
    static const char *const verdicts[] = {"trusted", "off", "unavailable"};
    char lines[COUNTERS_TRUST_MAX * 96] = "";
    size_t at = 0;

    for (int i = 0; i < n && at < sizeof(lines); i++)
        at += (size_t)snprintf(lines + at, sizeof(lines) - at, "%s%s %.40s|%.4g|%s",
                               i ? "\n" : "", t[i].provider, t[i].event, t[i].ratio,
                               verdicts[t[i].verdict]);
    study_note_text(c, "trust_lines", lines);
}

/* Which hardware events count known work right, and why the others do not. */
static int report_events(struct characterize *c)
{
    struct counters_trust *t = mem_new(MEM_OTHER, COUNTERS_TRUST_MAX, sizeof(*t));
    json_t *events = NULL;
    const char *why = NULL;
    char *text;
    int n = 0, n_of[3] = {0}, rc = t ? counters_trust_run(t, &n) : ERR_NOMEM;

    if (rc == OK)
        rc = counters_trust_json(t, n, &events);
    if (rc != OK)
        goto out;
    for (int i = n - 1; i >= 0; i--) {
        n_of[t[i].verdict]++;
        if (t[i].verdict == COUNTERS_UNAVAILABLE)
            why = t[i].why; /* of the first */
    }
    c->r->events_trusted = n_of[COUNTERS_TRUSTED];
    c->r->events_off = n_of[COUNTERS_OFF];
    c->r->events_unavailable = n_of[COUNTERS_UNAVAILABLE];
    text = json_dumps(events, JSON_COMPACT);
    study_note_text(c->out, "trust", text);
    free(text);
    report_event_lines(c->out, t, n);
    if (why)
        study_note_text(c->out, "trust_why", why);
out:
    json_decref(events);
    mem_free(t);
    return rc;
}

static int characterize_run(struct characterize *c)
{
    const struct opts *o = c->o;
    const struct machine_card_opts card = {.dir = o->dir,
                                           .full = true,
                                           .force = true,
                                           .budget_s = o->card_s,
                                           .buffer_bytes = (size_t)o->read_mb << 20};

    FRAME_CLOSE(c->f, topo_machine_close, &c->machine);
    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase);
    TRY(cpu_budget_get(&c->budget));
    study_progress(c->out, 0, "probing the machine");
    TRY(machine_card_get(&c->card, &card));
    FRAME_CLOSE(c->f, json_decref, c->card);
    TRY(topo_machine_open(&c->machine, NULL));
    report_card(c);
    TRY(study_card_curves(c->out, c->card, &c->budget, c->machine));
    TRY(report_machine(c));
    TRY(report_events(c));
    TRY(run_engine(c));
    report_engine(c);
    return OK;
}

STUDY(characterize, "the full machine card, and where this engine stands below its roof");
