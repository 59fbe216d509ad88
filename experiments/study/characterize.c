/* What a person measures first on a new CPU: the full machine card, the tree of what
 * computes together, and where this engine's own prefill and decode stand below the
 * roof that the card found.   Paper: Sandwich 3.1, MNN-LLM V. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "characterize/counters/trust.h"
#include "characterize/probe.h"
#include "experiments/study/support/card.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/topo.h"
#include "measure/card.h"

struct opts {
    char *model, *dir;
    int precision;
    int64_t n_prompt_tok, n_ctx_tok, rounds, read_mb;
    double card_s, read_s;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL, "Model file, larger than the last-level cache."),
    ROW_PRECISION,
    OPT_ROW(INT, n_prompt_tok, "512", "Tokens of the prompt.", .min = 1, .max = 65536),
    OPT_ROW(INT, n_ctx_tok, "128", "Tokens before the decoded one.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, rounds, "7",
            "Rounds of read bandwidth, decode and prefill, interleaved.", .min = 3,
            .max = 999),
    OPT_ROW(F64, card_s, "50", "Time for all probes together.", .unit = "s", .min = 0,
            .max = 600),
    OPT_ROW(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",
            .min = 0.01, .max = 60),
    OPT_ROW(INT, read_mb, "0", "Size of the buffer to read. 0: as for the machine card.",
            .unit = "MiB", .min = 0, .max = 1 << 20),
    OPT_ROW(STR, dir, "results/machine",
            "Folder of the card, which is written as HOST-full.json."),
    {0},
};

static const struct study_metric metrics[] = {
    {"read_gbps_1t", "GB/s", "higher", "read bandwidth of main memory, 1 thread"},
    {"read_gbps_all", "GB/s", "higher",
     "read bandwidth of main memory, all CPUs of the budget"},
    {"peak_gflops_f32", "GFLOP/s", "higher", "peak of f32, all CPUs"},
    {"peak_gflops_bf16", "GFLOP/s", "higher",
     "peak with bf16 weights computed exactly, by the fastest method, all CPUs"},
    {"peak_gflops_bf16_dot", "GFLOP/s", "higher",
     "peak of the bf16 dot product instruction, all CPUs"},
    {"peak_gflops_bf16_tile", "GFLOP/s", "higher",
     "peak of bf16 tile registers (AMX), all CPUs"},
    {"peak_gflops_fp16", "GFLOP/s", "higher", "peak with half-precision sums, all CPUs"},
    {"peak_gops_int8", "GOP/s", "higher",
     "peak of the int8 dot product instruction, all CPUs"},
    {"decode_bandwidth_frac", "", "higher",
     "bytes a decoded token must read / its time / bandwidth measured in the same round"},
    {"prefill_peak_frac", "", "higher",
     "arithmetic of a prompt / its time / peak of its type and precision"},
    {"decode_gbps", "GB/s", "higher", "bytes a decoded token must read / its time"},
    {"decode_gflops", "GFLOP/s", "", "arithmetic of a decoded token / its time"},
    {"decode_flop_per_byte", "FLOP/B", "",
     "arithmetic of a decoded token / bytes it must read"},
    {"decode_read_gbps", "GB/s", "", "read bandwidth measured in the rounds, median"},
    {"prefill_gflops", "GFLOP/s", "higher", "arithmetic of a prompt / its time"},
    {"prefill_flop_per_byte", "FLOP/B", "",
     "arithmetic of a prompt / bytes it must read, which are the weights once"},
    {"latency_ns", "ns", "lower",
     "time of a dependent read in the largest working set, huge pages"},
    {"latency_small_ns", "ns", "lower",
     "time of a dependent read in the largest working set, small pages"},
    {"random_frac_4k", "", "higher",
     "speed of reading blocks of 4 KiB in random order / in sequence, small pages"},
    {"random_frac_4k_huge", "", "higher",
     "speed of reading blocks of 4 KiB in random order / in sequence, huge pages"},
    {"handoff_ns_min", "ns", "lower",
     "time to pass a cache line to another CPU, nearest pair"},
    {"handoff_ns_max", "ns", "lower",
     "time to pass a cache line to another CPU, farthest measured pair"},
    {"barrier_ns", "ns", "lower", "time of a barrier of all CPUs"},
    {"allreduce_ns_4k", "ns", "lower",
     "time of an all-reduce of 4 KiB among all CPUs, fastest algorithm"},
    {"fault_small_ns", "ns", "lower",
     "time of the first touch of a small page, 1 thread"},
    {"fault_huge_ns", "ns", "lower", "time of the first touch of a huge page, 1 thread"},
    {"share_speed_min", "", "higher",
     "speed while another CPU computes / speed alone; about 0.5 if they share a core"},
    {"noise_compute_cv", "", "lower",
     "standard deviation of compute time / its mean, all CPUs"},
    {"noise_read_cv", "", "lower",
     "standard deviation of read time / its mean, all CPUs"},
    {"steal_ns_per_s", "ns/s", "lower", "CPU time that the host took away, per second"},
    {"events_trusted", "", "higher", "hardware events that count known work correctly"},
    {"events_off", "", "lower", "hardware events that count known work wrongly"},
    {"events_unavailable", "", "lower",
     "hardware events that cannot be counted on this machine"},
    {"card_s", "s", "", "wall time of the probes"},
    {0},
};

/* --- the card */

struct cell {
    const struct opts *o;
    struct study_cell *out;
    json_t *card;
    struct cpu_budget budget;
    struct topo_machine *machine;
    struct topo_tree *tree;
    struct model_bench engine;
    struct model_phase *phase;
    struct study_compare rounds, tokens;
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
    {"barrier_ns", "barrier_ns", false},
    {"fault_small_ns", "fault_small_ns", true},
    {"fault_huge_ns", "fault_huge_ns", true},
    {"noise_compute_cv", "noise_compute_cv", false},
    {"noise_read_cv", "noise_read_cv", false},
    {"steal_ns_per_s", "noise_steal_ns_per_s", false},
};

static void report_taken(struct study_cell *c, const struct cell *f)
{
    const char *why;

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        double v = measure_card_range(f->card, taken[i].prefix,
                                      taken[i].one_thread ? 1 : f->budget.n, &why)
                       .most;

        study_value(c, taken[i].metric, v, why);
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

static double random_frac(const struct cell *f, const char *pages)
{
    char random[48], sequential[48];

    snprintf(random, sizeof(random), "random_gbps_%s_4096B", pages);
    snprintf(sequential, sizeof(sequential), "sequential_gbps_%s", pages);
    return measure_card_value(f->card, random, f->budget.n, NULL) /
           measure_card_value(f->card, sequential, f->budget.n, NULL);
}

static double fastest_allreduce(const struct cell *f)
{
    double best = NAN;

    for (int k = 0; par_colls[k]; k++) {
        char name[48];

        snprintf(name, sizeof(name), "allreduce_ns_%s_4096B", par_colls[k]->name);
        best = fmin(best, measure_card_range(f->card, name, 0, NULL).most);
    }
    return best;
}

static void report_card(struct study_cell *c, const struct cell *f)
{
    int n = f->budget.n;
    struct measure_card_range handoff =
        measure_card_range(f->card, "handoff_ns", 0, NULL);
    struct measure_card_range share = measure_card_range(f->card, "share_speed", 0, NULL);
    const char *doubt = measure_card_doubt(f->card, "", 0);
    const struct study_number roof[] = {
        {"read_gbps_1t", measure_card_read_gbps(f->card, 1)},
        {"read_gbps_all", measure_card_read_gbps(f->card, n)},
        {"peak_gflops_f32", measure_card_peak_gflops(f->card, "f32", "exact", n)},
        {"peak_gflops_bf16", measure_card_peak_gflops(f->card, "bf16", "exact", n)},
        {"card_s", json_number_value(json_object_get(f->card, "duration_s"))},
    };
    const struct study_number pages[] = {
        {"latency_ns", last_latency(f->card, "huge")},
        {"random_frac_4k_huge", random_frac(f, "huge")},
        {"latency_small_ns", last_latency(f->card, "small")},
        {"random_frac_4k", random_frac(f, "small")},
    };
    const struct study_number pairs[] = {
        {"handoff_ns_min", handoff.least},
        {"handoff_ns_max", handoff.most},
        {"share_speed_min", share.least},
        {"allreduce_ns_4k", fastest_allreduce(f)},
    };

    STUDY_VALUES(c, roof, doubt ? doubt : "the probe found no memory, or no time");
    STUDY_VALUES(c, pages, "the card says why: no such pages, or no memory");
    STUDY_VALUES(c, pairs, "one CPU only, or no memory");
    report_taken(c, f);
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
    struct cell *f = arg;

    (void)i;
    return model_bench_steps_decode(&f->engine.steps, f->phase, f->o->n_ctx_tok,
                                    &t->seconds);
}

/* Tokens after a first one, which wakes the team. */
static int decode_some(struct cell *f, double *seconds)
{
    f->tokens = (struct study_compare){.how = {.min_rounds = TOKENS_MIN,
                                               .max_rounds = TOKENS_MAX,
                                               .budget_s = TOKENS_S}};
    int rc = study_compare(&f->tokens, NULL, 1, 0, token, f);

    *seconds = f->tokens.time[0].estimate;
    study_compare_close(&f->tokens);
    return rc;
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    struct study_threads threads = {
        .budget = f->budget, .team = f->engine.team, .n = f->budget.n};

    if (i == DECODE)
        return decode_some(f, &t->seconds);
    if (i == PREFILL)
        return model_bench_steps_prefill(&f->engine.steps, f->phase, f->o->n_prompt_tok,
                                         &t->seconds);
    /* What a token must read, at the bandwidth of now. A buffer of few caches would not do:
     * what of it is still in the cache then passes for memory's bandwidth. */
    t->seconds = 1e-9 * f->token_bytes /
                 study_read_gbps(&threads, (size_t)f->o->read_mb << 20, f->o->read_s);
    return OK;
}

static int run_engine(struct cell *f)
{
    const struct opts *o = f->o;
    int64_t max_tok = o->n_prompt_tok > o->n_ctx_tok ? o->n_prompt_tok : o->n_ctx_tok;
    const struct model *m;

    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = max_tok + 1,
                                   .seed = 1}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->budget.n));
    m = f->engine.model;
    f->token_bytes = model_cost_decode(model_config_of(m), model_cost_types_of(m),
                                       (double)o->n_ctx_tok + 1, 1)
                         .read_bytes;
    f->rounds = (struct study_compare){.doing = "prefill, decode and bandwidth in turn",
                                       .from = 0.7};
    return study_compare(&f->rounds, f->out, N_MEASURED, o->rounds, trial, f);
}

static void report_engine(struct study_cell *out, const struct cell *f,
                          const struct opts *o)
{
    const struct model *m = f->engine.model;
    const struct model_config *c = model_config_of(m);
    struct model_cost_types types = model_cost_types_of(m);
    double peak =
        measure_card_peak_gflops(f->card, kern_type_name(types.weight),
                                 kern_precision_name(o->precision), f->budget.n);
    struct model_cost token = model_cost_decode(c, types, (double)o->n_ctx_tok + 1, 1);
    struct model_cost prompt = model_cost_prefill(c, types, o->n_prompt_tok, 0);
    double decode_s = f->rounds.time[DECODE].estimate;
    double prefill_s = f->rounds.time[PREFILL].estimate;
    const struct study_number all[] = {
        {"decode_gbps", token.read_bytes / decode_s * 1e-9},
        {"decode_gflops", token.flop / decode_s * 1e-9},
        {"decode_flop_per_byte", token.flop / token.read_bytes},
        {"decode_read_gbps", 1e-9 * f->token_bytes / f->rounds.time[READ].estimate},
        {"prefill_gflops", prompt.flop / prefill_s * 1e-9},
        {"prefill_peak_frac", prompt.flop / prefill_s * 1e-9 / peak},
        {"prefill_flop_per_byte", prompt.flop / prompt.weight_bytes},
    };

    study_compare_ratio(&f->rounds, "decode_bandwidth_frac", READ, DECODE, 0);
    STUDY_VALUES(out, all, "the card has no bound for it");
    study_evidence(out, "model", "decode_flop_per_byte prefill_flop_per_byte");
    study_engine_report(out, &f->engine);
}

/* --- the cell */

static int report_machine(struct study_cell *c, struct cell *f)
{
    const struct topo_tree_opts keep = {.cpus = f->budget.cpus, .n_cpus = f->budget.n};
    char note[256] = "", root[1024];

    TRY(topo_tree_open(&f->tree, f->machine, &keep, note, sizeof(note)));
    study_topo_report_tree(c, f->tree);
    study_note_text(c, "left_out", note);
    study_card_root(root, sizeof(root));
    study_note_text(c, "root", root);
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
static int report_events(struct study_cell *c)
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
    study_value(c, "events_trusted", n_of[COUNTERS_TRUSTED], NULL);
    study_value(c, "events_off", n_of[COUNTERS_OFF], NULL);
    study_value(c, "events_unavailable", n_of[COUNTERS_UNAVAILABLE], NULL);
    text = json_dumps(events, JSON_COMPACT);
    study_note_text(c, "trust", text);
    free(text);
    report_event_lines(c, t, n);
    if (why)
        study_note_text(c, "trust_why", why);
out:
    json_decref(events);
    mem_free(t);
    return rc;
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    const struct machine_card_opts card = {
        .dir = o->dir, .full = true, .force = true, .budget_s = o->card_s};

    TRY(cpu_budget_get(&f->budget));
    study_progress(f->out, 0, "probing the machine");
    TRY(machine_card_get(&f->card, &card));
    TRY(topo_machine_open(&f->machine, NULL));
    report_card(f->out, f);
    TRY(study_card_curves(f->out, f->card, &f->budget, f->machine));
    TRY(report_machine(f->out, f));
    TRY(report_events(f->out));
    TRY(run_engine(f));
    report_engine(f->out, f, o);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->rounds);
    study_compare_close(&f->tokens);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
    mem_free(f->tree);
    topo_machine_close(&f->machine);
    json_decref(f->card);
}

STUDY(characterize, "the full machine card, and where this engine stands below its roof");
