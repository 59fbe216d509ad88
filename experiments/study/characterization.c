/* Prefill and decode steps of the engine under every counter there is: the hardware's
 * seven metrics, the kernel's software events, the engine's own totals through PAPI, and
 * a cache simulation. What a machine cannot count is NaN with its reason; estimates from
 * arithmetic and time are recorded under names of their own.   Paper: Sandwich 3.1, Fig. 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "experiments/study/counted/counted.h"
#include "experiments/study/support/rows.h"

struct opts {
    char *model, *small_model;
    int64_t batch, prompt_tok, steps, threads, ll_kb;
    int phase;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(ENUM, phase, "prefill", "Phase whose steps are counted.",
            .values = "prefill|decode"),
    OPT_ROW(INT, batch, "1", "Number of sequences in a step.", .min = 1, .max = 64),
    OPT_ROW(INT, prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, steps, "8", "Number of decode steps that are counted.", .min = 1,
            .max = 4096),
    ROW_THREADS("0", "Number of threads. 0: one per available CPU core."),
    OPT_ROW(STR, small_model, NULL,
            "Model for callgrind, at batch 1. Without it nothing is simulated."),
    OPT_ROW(INT, ll_kb, "1024",
            "Simulated last-level cache: a power of two, smaller than the model.",
            .unit = "KiB", .min = 16, .max = 1 << 20),
    {0},
};

static const struct study_metric metrics[] = {
    {"ipc", "instr/cycle", "higher", "hardware: instructions per cycle"},
    {"l3lpki", "", "", "hardware: reads of the last-level cache per 1000 instructions"},
    {"dtlb_miss", "", "", "hardware: page walks / loads"},
    {"rar", "", "", "hardware: remote / all memory accesses"},
    {"mclpki", "", "", "hardware: lines from memory controllers per 1000 instructions"},
    {"mcipki", "", "", "hardware: their standard deviation per 1000 instructions"},
    {"buspki", "", "", "hardware: bus cycles per 1000 instructions"},
    {"page_faults", "", "", "kernel: page faults of all threads in the counted steps"},
    {"context_switches", "", "",
     "kernel: context switches of all threads in the counted steps"},
    {"task_clock_s", "s", "", "kernel: CPU time of all threads in the counted steps"},
    {"sde_steps", "", "", "engine through PAPI: steps counted"},
    {"sde_tok", "tok", "", "engine through PAPI: tokens put through the model"},
    {"sde_weight_bytes", "B", "", "engine through PAPI: weights read"},
    {"sde_kv_bytes", "B", "", "engine through PAPI: keys and values read"},
    {"sde_flop", "FLOP", "", "engine through PAPI: floating-point operations"},
    {"sde_wait_s", "s", "",
     "engine through PAPI: time that a thread waited for the others, the mean"},
    {"estimated_bytes_per_tok", "B/tok", "",
     "bytes of weights, keys and values read / tokens"},
    {"estimated_flop_per_byte", "FLOP/B", "", "arithmetic intensity of the steps"},
    {"estimated_gbps", "GB/s", "higher",
     "bytes of weights, keys and values read / time in the step"},
    {"estimated_gflops", "GFLOP/s", "higher",
     "floating-point operations / time in the forward step"},
    {"estimated_cycles_per_tok", "cycles/tok", "lower",
     "ticks of the constant clock (x86: time stamp counter, Arm: cntvct) of all threads "
     "in the counted steps / tokens; not the core's own clock"},
    {"estimated_tick_ghz", "GHz", "", "rate of that clock, measured during the steps"},
    {"callgrind_ll_misses_per_tok", "lines/tok", "",
     "simulated: lines of data read from memory per token of the small model"},
    {"callgrind_lines_per_tok", "lines/tok", "",
     "computed: lines that the weights of that model fill"},
    {"callgrind_instructions_per_tok", "", "",
     "simulated: instructions per token, with avx2"},
    {"callgrind_ll_mpki", "", "", "simulated: last-level misses per 1000 instructions"},
    {0},
};

/* --- what is said */

static void report(struct study_cell *out, const char *name,
                   const struct counters_value *v, double unit)
{
    study_value(out, name, v->value * unit, v->why[0] ? v->why : NULL);
}

static void report_hardware(const struct study_counted *w, struct study_cell *out)
{
    static const struct {
        const char *name;
        double unit;
    } soft[STUDY_N_SOFT] = {
        {"page_faults", 1}, {"context_switches", 1}, {"task_clock_s", 1e-9}};

    for (int i = 0; i < COUNTERS_N_METRICS; i++)
        report(out, metrics[i].name, &w->metrics[i], 1);
    for (int i = 0; i < STUDY_N_SOFT; i++)
        report(out, soft[i].name, &w->soft[i], soft[i].unit);
}

/* The events behind the seven metrics, and for how long of the time each really counted. */
static void report_raw(const struct study_counted *w, struct study_cell *out)
{
    double count[COUNTERS_EVENTS_MAX], enabled[COUNTERS_EVENTS_MAX];
    double running[COUNTERS_EVENTS_MAX];
    char names[COUNTERS_EVENTS_MAX * 33] = "";
    size_t n = (size_t)w->list.n_events, at = 0;

    for (size_t i = 0; i < n; i++) {
        const struct counters_value *v = &w->raw[i];

        count[i] = v->value;
        enabled[i] = isnan(v->value) && !v->enabled_ns ? NAN : (double)v->enabled_ns;
        running[i] = isnan(v->value) && !v->enabled_ns ? NAN : (double)v->running_ns;
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? "|" : "",
                               w->list.events[i].name);
    }
    study_note_text(out, "raw_events", names);
    study_series(out, "raw_count", "", count, n);
    study_series(out, "raw_enabled_ns", "ns", enabled, n);
    study_series(out, "raw_running_ns", "ns", running, n);
}

/* The export of the engine's own totals. That they come back unchanged says nothing about
 * whether they are right. */
static void report_sde(const struct study_counted *w, struct study_cell *out)
{
    static const struct {
        const char *name;
        double unit;
    } said[STUDY_N_TOTALS] = {{"sde_steps", 1},        {"sde_tok", 1},
                              {"sde_weight_bytes", 1}, {"sde_kv_bytes", 1},
                              {"sde_flop", 1},         {"sde_wait_s", 1e-9}};

    for (int i = 0; i < STUDY_N_TOTALS; i++)
        report(out, said[i].name, &w->totals[i], said[i].unit);
}

static void report_estimates(const struct study_counted *w, struct study_cell *out)
{
    const struct serve_totals *t = &w->own;
    double bytes = (double)(t->weight_bytes + t->kv_bytes), tok = (double)t->n_tok;
    double ns = (double)t->forward_ns, flop = (double)t->flop;
    const struct study_number all[] = {{"estimated_bytes_per_tok", bytes / tok},
                                       {"estimated_flop_per_byte", flop / bytes},
                                       {"estimated_gbps", bytes / ns},
                                       {"estimated_gflops", flop / ns},
                                       {"estimated_cycles_per_tok", w->ticks / tok},
                                       {"estimated_tick_ghz", w->tick_ghz}};

    STUDY_VALUES(out, all, "this processor has no constant clock to read");
    study_evidence(out, "model", "estimated_bytes_per_tok estimated_flop_per_byte");
}

static void report_counted(const struct study_counted *w, struct study_cell *out)
{
    report_hardware(w, out);
    report_raw(w, out);
    report_sde(w, out);
    report_estimates(w, out);
    study_note_text(out, "events", w->list.about);
    study_note(out, "n_threads", json_integer(w->n_threads));
    study_note(out, "n_passes", json_integer(w->n_passes));
}

static void report_simulated(const struct opts *o, struct study_cell *out)
{
    struct study_simulated s = {NAN, NAN, NAN, NAN};
    char why[256] = "";

    study_progress(out, 0.7, "callgrind");
    if (o->batch > 1)
        snprintf(why, sizeof(why), "the simulation runs at batch 1");
    else if (!o->small_model)
        snprintf(why, sizeof(why), "no small_model was given");
    else if (study_simulated_run(&s, o->small_model,
                                 o->phase ? SERVE_DECODE : SERVE_PREFILL,
                                 o->ll_kb * 1024) != OK)
        snprintf(why, sizeof(why), "%.255s", err_msg());
    const struct study_number all[] = {
        {"callgrind_ll_misses_per_tok", s.ll_misses_per_tok},
        {"callgrind_lines_per_tok", s.lines_per_tok},
        {"callgrind_instructions_per_tok", s.instructions_per_tok},
        {"callgrind_ll_mpki", s.ll_mpki}};

    STUDY_VALUES(out, all, why);
    study_evidence(out, "simulated",
                   "callgrind_ll_misses_per_tok callgrind_lines_per_tok "
                   "callgrind_instructions_per_tok callgrind_ll_mpki");
}

/* --- a cell */

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    const struct study_counted_opts co = {.model = o->model,
                                          .events = COUNTERS_EVENTS_DIR,
                                          .phase =
                                              o->phase ? SERVE_DECODE : SERVE_PREFILL,
                                          .batch = o->batch,
                                          .prompt_tok = o->prompt_tok,
                                          .steps = o->steps,
                                          .threads = o->threads,
                                          .seed = 1};

    TRY(study_counted_run(context, &co, out));
    report_counted(context, out);
    report_simulated(o, out);
    return OK;
}

const struct study study_characterization = {
    .name = "characterization",
    .help = "prefill and decode under every counter there is",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct study_counted),
    .metrics = metrics,
    .run = run,
};
