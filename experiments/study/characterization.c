/* Prefill and decode steps of the engine under every counter there is: the hardware's
 * seven metrics, the kernel's software events, the engine's own totals through PAPI, and
 * a cache simulation. What a machine cannot count is NaN with its reason; estimates from
 * arithmetic and time are recorded under names of their own.   Paper: Sandwich 3.1, Fig. 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/counted/counted.h"
#include "experiments/study/support/options.h"

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(ENUM, phase, "prefill", "Phase whose steps are counted.",                          \
      .values = "prefill|decode")                                                        \
    X(INT, batch, "1", "Number of sequences in a step.", .min = 1, .max = 64)            \
    X(INT, prompt_tok, "128", "Prompt tokens of each sequence.", .min = 1, .max = 65536) \
    X(INT, steps, "8", "Number of decode steps that are counted.", .min = 1,             \
      .max = 4096)                                                                       \
    OPTION_THREADS(X, "0", "Number of threads. 0: one per available CPU core.")          \
    X(STR, small_model, NULL,                                                            \
      "Model for callgrind, at batch 1. Without it nothing is simulated.")               \
    X(INT, ll_kb, "1024",                                                                \
      "Simulated last-level cache: a power of two, smaller than the model.",             \
      .unit = "KiB", .min = 16, .max = 1 << 20)

#define RESULTS(X)                                                                       \
    X(ipc, "instr/cycle", HIGHER, "hardware: instructions per cycle")                    \
    X(l3lpki, "", 0, "hardware: reads of the last-level cache per 1000 instructions")    \
    X(dtlb_miss, "", 0, "hardware: page walks / loads")                                  \
    X(rar, "", 0, "hardware: remote / all memory accesses")                              \
    X(mclpki, "", 0, "hardware: lines from memory controllers per 1000 instructions")    \
    X(mcipki, "", 0, "hardware: their standard deviation per 1000 instructions")         \
    X(buspki, "", 0, "hardware: bus cycles per 1000 instructions")                       \
    X(page_faults, "", 0, "kernel: page faults of all threads in the counted steps")     \
    X(context_switches, "", 0,                                                           \
      "kernel: context switches of all threads in the counted steps")                    \
    X(task_clock_s, "s", 0, "kernel: CPU time of all threads in the counted steps")      \
    X(sde_steps, "", 0, "engine through PAPI: steps counted")                            \
    X(sde_tok, "tok", 0, "engine through PAPI: tokens put through the model")            \
    X(sde_weight_bytes, "B", 0, "engine through PAPI: weights read")                     \
    X(sde_kv_bytes, "B", 0, "engine through PAPI: keys and values read")                 \
    X(sde_flop, "FLOP", 0, "engine through PAPI: floating-point operations")             \
    X(sde_wait_s, "s", 0,                                                                \
      "engine through PAPI: time that a thread waited for the others, the mean")         \
    X(estimated_bytes_per_tok, "B/tok", MODEL,                                           \
      "bytes of weights, keys and values read / tokens")                                 \
    X(estimated_flop_per_byte, "FLOP/B", MODEL, "arithmetic intensity of the steps")     \
    X(estimated_gbps, "GB/s", HIGHER,                                                    \
      "bytes of weights, keys and values read / time in the step")                       \
    X(estimated_gflops, "GFLOP/s", HIGHER,                                               \
      "floating-point operations / time in the forward step")                            \
    X(estimated_cycles_per_tok, "cycles/tok", LOWER,                                     \
      "ticks of the constant clock (x86: time stamp counter, Arm: cntvct) of all "       \
      "threads in the counted steps / tokens; not the core's own clock")                 \
    X(estimated_tick_ghz, "GHz", 0, "rate of that clock, measured during the steps")     \
    X(callgrind_ll_misses_per_tok, "lines/tok", SIMULATED,                               \
      "simulated: lines of data read from memory per token of the small model")          \
    X(callgrind_lines_per_tok, "lines/tok", SIMULATED,                                   \
      "computed: lines that the weights of that model fill")                             \
    X(callgrind_instructions_per_tok, "", SIMULATED,                                     \
      "simulated: instructions per token, with avx2")                                    \
    X(callgrind_ll_mpki, "", SIMULATED,                                                  \
      "simulated: last-level misses per 1000 instructions")

FRAME_TYPES;

struct characterization {
    FRAME_CELL;
    struct study_counted counted;
};

/* --- what is reported */

static void report_count(struct characterization *c, double *x,
                         const struct counters_value *v, double unit)
{
    frame_set(c->f, x, v->value * unit, v->why);
}

static void report_hardware(struct characterization *c)
{
    const struct study_counted *w = &c->counted;
    double *const soft[STUDY_N_SOFT] = {&c->r->page_faults, &c->r->context_switches,
                                        &c->r->task_clock_s};

    for (int i = 0; i < COUNTERS_N_METRICS; i++)
        report_count(c, frame_named(c->f, "%s", metrics[i].name), &w->metrics[i], 1);
    for (int i = 0; i < STUDY_N_SOFT; i++)
        report_count(c, soft[i], &w->soft[i], i == STUDY_TASK_NS ? 1e-9 : 1);
}

/* The events behind the seven metrics, and for how long of the time each really counted. */
static void report_raw(struct characterization *c)
{
    const struct study_counted *w = &c->counted;
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
    study_note_text(c->out, "raw_events", names);
    study_series(c->out, "raw_count", "", count, n);
    study_series(c->out, "raw_enabled_ns", "ns", enabled, n);
    study_series(c->out, "raw_running_ns", "ns", running, n);
}

/* The export of the engine's own totals. That they come back unchanged says nothing about
 * whether they are right. */
static void report_sde(struct characterization *c)
{
    double *const totals[STUDY_N_TOTALS] = {&c->r->sde_steps,        &c->r->sde_tok,
                                            &c->r->sde_weight_bytes, &c->r->sde_kv_bytes,
                                            &c->r->sde_flop,         &c->r->sde_wait_s};

    for (int i = 0; i < STUDY_N_TOTALS; i++)
        report_count(c, totals[i], &c->counted.totals[i],
                     totals[i] == &c->r->sde_wait_s ? 1e-9 : 1);
}

static void report_estimates(struct characterization *c)
{
    const struct study_counted *w = &c->counted;
    const struct serve_totals *t = &w->own;
    double bytes = (double)(t->weight_bytes + t->kv_bytes), tok = (double)t->n_tok;
    double ns = (double)t->forward_ns, flop = (double)t->flop;

    c->r->estimated_bytes_per_tok = bytes / tok;
    c->r->estimated_flop_per_byte = flop / bytes;
    c->r->estimated_gbps = bytes / ns;
    c->r->estimated_gflops = flop / ns;
    c->r->estimated_cycles_per_tok = w->ticks / tok;
    c->r->estimated_tick_ghz = w->tick_ghz;
    frame_why(c->f, NULL, "this processor has no constant clock to read");
}

static void report_counted(struct characterization *c)
{
    const struct study_counted *w = &c->counted;
    report_hardware(c);
    report_raw(c);
    report_sde(c);
    report_estimates(c);
    study_note_text(c->out, "events", w->list.about);
    study_note(c->out, "n_threads", json_integer(w->n_threads));
    study_note(c->out, "n_passes", json_integer(w->n_passes));
}

static void report_simulated(struct characterization *c)
{
    const struct opts *o = c->o;
    struct study_simulated s = {NAN, NAN, NAN, NAN};
    char why[256] = "";

    study_progress(c->out, 0.7, "callgrind");
    if (o->batch > 1)
        snprintf(why, sizeof(why), "the simulation runs at batch 1");
    else if (!o->small_model)
        snprintf(why, sizeof(why), "no small_model was given");
    else if (study_simulated_run(&s, o->small_model,
                                 o->phase ? SERVE_DECODE : SERVE_PREFILL,
                                 o->ll_kb * 1024) != OK)
        snprintf(why, sizeof(why), "%.255s", err_msg());
    c->r->callgrind_ll_misses_per_tok = s.ll_misses_per_tok;
    c->r->callgrind_lines_per_tok = s.lines_per_tok;
    c->r->callgrind_instructions_per_tok = s.instructions_per_tok;
    c->r->callgrind_ll_mpki = s.ll_mpki;
    frame_why(c->f, NULL, why);
}

/* --- a cell */

static int characterization_run(struct characterization *c)
{
    const struct opts *o = c->o;
    const struct study_counted_opts co = {.model = o->model,
                                          .events = COUNTERS_EVENTS_DIR,
                                          .phase =
                                              o->phase ? SERVE_DECODE : SERVE_PREFILL,
                                          .batch = o->batch,
                                          .prompt_tok = o->prompt_tok,
                                          .steps = o->steps,
                                          .threads = o->threads,
                                          .seed = 1};

    TRY(study_counted_run(&c->counted, &co, c->out));
    report_counted(c);
    report_simulated(c);
    return OK;
}

STUDY(characterization, "prefill and decode under every counter there is");
