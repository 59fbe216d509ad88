/* Prefill and decode steps of the engine under every counter there is: the hardware's
 * seven metrics, the kernel's software events, the engine's own totals through PAPI, and
 * a cache simulation. What a machine cannot count is NaN with its reason; estimates from
 * arithmetic and time stand beside under names of their own.   Paper: Sandwich 3.1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "characterize/counters/metrics.h"
#include "characterize/counters/program.h"
#include "characterize/counters/publish.h"
#include "cpu/cpu.h"
#include "experiments/harness/study.h"
#include "experiments/study/support/rows.h"
#include "serve/serve.h"

struct opts {
    char *model, *program, *small_model, *events;
    int64_t batch, prompt_tok, steps, threads, seed, ll_kb;
    int phase;
};

static const struct opt_row table[] = {
    ROW_STR(model, NULL, "path"),
    ROW_ENUM(phase, "prefill|decode", "prefill", "which steps are counted"),
    ROW_INT(batch, 1, 64, "1", "sequences in a step"),
    ROW_INT(prompt_tok, 1, 65536, "128", "of each sequence"),
    ROW_INT(steps, 1, 4096, "8", "of decode that are counted"),
    ROW_THREADS("0", "0: all CPUs of the budget"),
    ROW_INT(seed, 0, 0, "1", "of the prompts' ids"),
    ROW_STR(events, COUNTERS_EVENTS_DIR, "folder of the lists of events"),
    ROW_STR(program, "build/sandwich", "the engine that runs under callgrind"),
    ROW_STR(small_model, NULL, "for callgrind, at batch 1; without it no simulation"),
    {ROW_(ll_kb, OPT_INT, "1024",
          "simulated last level: a power of two, below the model"),
     .unit = "KiB", .min = 16, .max = 1 << 20},
    {0},
};

static const struct study_metric metrics[] = {
    {"ipc", "instr/cycle", "", "hardware: instructions per cycle"},
    {"l3lpki", "", "", "hardware: reads of the last-level cache per 1000 instructions"},
    {"dtlb_miss", "", "", "hardware: page walks over loads"},
    {"rar", "", "", "hardware: remote over all memory accesses"},
    {"mclpki", "", "", "hardware: lines from memory controllers per 1000 instructions"},
    {"mcipki", "", "", "hardware: their standard deviation per 1000 instructions"},
    {"buspki", "", "", "hardware: bus cycles per 1000 instructions"},
    {"page_faults", "", "", "kernel: of all threads in the counted steps"},
    {"context_switches", "", "", "kernel: of all threads in the counted steps"},
    {"task_clock_s", "s", "", "kernel: of all threads in the counted steps"},
    {"sde_steps", "", "", "engine through PAPI: steps counted"},
    {"sde_tok", "tok", "", "engine through PAPI: tokens put through the model"},
    {"sde_weight_bytes", "B", "", "engine through PAPI: weights read"},
    {"sde_kv_bytes", "B", "", "engine through PAPI: keys and values read"},
    {"sde_flop", "FLOP", "", "engine through PAPI: operations"},
    {"sde_wait_s", "s", "", "engine through PAPI: thread 0 at barriers"},
    {"sde_equal", "", "", "1: what PAPI reads is what the engine accounts, to the byte"},
    {"estimated_bytes_per_tok", "B/tok", "", "weights, keys and values over tokens"},
    {"estimated_flop_per_byte", "FLOP/B", "", "arithmetic intensity of the steps"},
    {"estimated_gbps", "GB/s", "", "bytes over time in the forward step"},
    {"estimated_gflops", "GFLOP/s", "", "operations over time in the forward step"},
    {"estimated_cycles_per_tok", "cycles/tok", "",
     "time x threads x nominal frequency (cpu MHz), over tokens"},
    {"callgrind_ll_misses_per_tok", "lines/tok", "",
     "simulated: data read from memory, small model"},
    {"callgrind_lines_per_tok", "lines/tok", "", "arithmetic: that model's weights"},
    {"callgrind_instructions_per_tok", "", "", "simulated run: instructions, avx2"},
    {"callgrind_ll_mpki", "", "", "simulated: misses per 1000 instructions"},
    {0},
};

#define MAX_THREADS CPU_MAX
static const char *const soft_names[] = {"page-faults", "context-switches", "task-clock"};
#define N_SOFT 3

/* The engine's totals that are published, in the order of the sde_ metrics. */
static const struct {
    const char *name, *metric;
    size_t offset;
    double unit;
} totals[] = {
    {"n_steps", "sde_steps", offsetof(struct serve_totals, n_steps), 1},
    {"n_tok", "sde_tok", offsetof(struct serve_totals, n_tok), 1},
    {"weight_bytes", "sde_weight_bytes", offsetof(struct serve_totals, weight_bytes), 1},
    {"kv_bytes", "sde_kv_bytes", offsetof(struct serve_totals, kv_bytes), 1},
    {"flop", "sde_flop", offsetof(struct serve_totals, flop), 1},
    {"wait_ns", "sde_wait_s", offsetof(struct serve_totals, wait_ns), 1e-9},
};
#define N_TOTALS ((int)(sizeof(totals) / sizeof(totals[0])))

struct work {
    const struct opts *o;
    struct serve *serve;
    enum serve_phase phase;
    struct counters_list list;
    /* One of each for a thread, opened by it. */
    struct counters_meter *meters[MAX_THREADS];
    struct counters *soft[MAX_THREADS];
    int rcs[MAX_THREADS];
    int n_threads, n_passes, pass;
    struct counters *sde;
    struct serve_totals counted; /* the engine's own account of what SDE counted */
    int32_t *prompt;
    int64_t n_done;
};

/* ---- on each thread ---- */

static void open_here(void *ctx, int id, int n)
{
    const struct counters_provider *perf;
    struct work *w = ctx;
    int rc;

    w->n_threads = n; /* every thread writes the same; id 0 reads it when all are done */
    rc = counters_provider_find("perf_event", &perf);
    if (rc == OK)
        rc = counters_meter_open(&w->meters[id], &w->list, id == 0);
    if (rc == OK)
        rc = counters_open(&w->soft[id], perf, soft_names, N_SOFT);
    w->rcs[id] = rc;
}

static void close_here(void *ctx, int id, int n)
{
    struct work *w = ctx;

    (void)n;
    counters_meter_close(&w->meters[id]);
    counters_close(&w->soft[id]);
}

static void start_here(void *ctx, int id, int n)
{
    struct work *w = ctx;

    (void)n;
    if (w->pass == 0)
        counters_start(w->soft[id], 0);
    counters_meter_start(w->meters[id], w->pass);
}

static void stop_here(void *ctx, int id, int n)
{
    struct work *w = ctx;

    (void)n;
    counters_meter_stop(w->meters[id], w->pass);
    if (w->pass == 0)
        counters_stop(w->soft[id], 0);
}

/* ---- the work ---- */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct work *w = ctx;

    (void)request, (void)id, (void)logits;
    w->n_done += finish != SERVE_RUNNING;
}

static int step(struct work *w)
{
    bool busy;

    return serve_step(w->serve, &busy);
}

/* All requests of a pass; sequences that were prefilled first decode while others still
 * wait for their turn, so each may have that many tokens more. */
static int submit(struct work *w, int64_t *ids)
{
    int64_t more = w->phase == SERVE_DECODE ? w->o->steps + w->o->batch : 0;
    int rc = OK;

    for (int64_t i = 0; i < w->o->batch && rc == OK; i++) {
        const struct serve_request r = {.prompt = w->prompt,
                                        .n_prompt = w->o->prompt_tok,
                                        .max_new = 1 + more,
                                        .ignore_eos = true,
                                        .sampling = {.top_p = 1},
                                        .on_token = on_token,
                                        .ctx = w};

        rc = serve_submit(w->serve, &r, &ids[i]);
    }
    return rc;
}

static struct serve_totals minus(struct serve_totals a, const struct serve_totals *b)
{
    a.n_steps -= b->n_steps;
    a.n_tok -= b->n_tok;
    a.weight_bytes -= b->weight_bytes;
    a.kv_bytes -= b->kv_bytes;
    a.flop -= b->flop;
    a.forward_ns -= b->forward_ns;
    a.wait_ns -= b->wait_ns;
    return a;
}

/* The counted steps of a pass, between the start and stop of all counters. */
static int counted_steps(struct work *w, int64_t prefilled)
{
    const struct serve_totals *prefill = serve_totals_of(w->serve, SERVE_PREFILL);
    struct serve_totals before;
    int rc = OK;

    serve_each_thread(w->serve, start_here, w);
    if (w->pass == 0)
        counters_start(w->sde, 0);
    before = *serve_totals_of(w->serve, w->phase);
    if (w->phase == SERVE_PREFILL)
        while (rc == OK && prefill->n_tok < prefilled)
            rc = step(w);
    else
        for (int64_t i = 0; i < w->o->steps && rc == OK; i++)
            rc = step(w);
    if (w->pass == 0) {
        counters_stop(w->sde, 0);
        w->counted = minus(*serve_totals_of(w->serve, w->phase), &before);
    }
    serve_each_thread(w->serve, stop_here, w);
    return rc;
}

/* One run of the same deterministic work; `count` false warms up. */
static int one_pass(struct work *w, bool count)
{
    const struct serve_totals *prefill = serve_totals_of(w->serve, SERVE_PREFILL);
    int64_t ids[64], prefilled = prefill->n_tok + w->o->batch * w->o->prompt_tok;
    int rc = submit(w, ids);

    w->n_done = 0;
    if (w->phase == SERVE_DECODE || !count)
        while (rc == OK && prefill->n_tok < prefilled)
            rc = step(w);
    if (rc == OK && count)
        rc = counted_steps(w, prefilled);
    for (int64_t i = 0; i < w->o->batch && rc == OK; i++)
        serve_cancel(w->serve, ids[i]);
    while (rc == OK && w->n_done < w->o->batch)
        rc = step(w);
    return rc;
}

/* ---- opening ---- */

static int open_engine(struct work *w)
{
    struct serve_opts so;
    struct rng rng;
    int rc;

    if (!w->o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    rc = opt_init(serve_opt_table, &so);
    if (rc != OK)
        return rc;
    mem_free(so.policy);
    so.policy = mem_strdup(MEM_OTHER, "continuous");
    so.model = w->o->model;
    so.max_step_tok = w->o->batch * w->o->prompt_tok; /* all prompts in one step */
    so.threads = w->o->threads;
    so.max_seqs = w->o->batch;
    so.max_tok = w->o->prompt_tok + w->o->steps + w->o->batch + 2;
    rc = serve_open(&w->serve, &so);
    so.model = NULL;
    opt_free(serve_opt_table, &so);
    w->prompt = mem_new(MEM_OTHER, (size_t)w->o->prompt_tok, sizeof(*w->prompt));
    if (rc == OK && !w->prompt)
        rc = ERR_NOMEM;
    rng_init(&rng, (uint64_t)w->o->seed, "prompt");
    for (int64_t i = 0; i < w->o->prompt_tok && rc == OK; i++)
        w->prompt[i] = (int32_t)rng_below(&rng, (uint64_t)serve_vocab(w->serve));
    return rc;
}

static int open_sde(struct work *w)
{
    const struct counters_provider *p;
    const char *names[N_TOTALS];
    int rc = counters_provider_find("sde", &p);

    for (int i = 0; i < N_TOTALS && rc == OK; i++) {
        const char *t = (const char *)serve_totals_of(w->serve, w->phase);

        names[i] = totals[i].name;
        rc = counters_publish(names[i], (const int64_t *)(t + totals[i].offset));
    }
    return rc == OK ? counters_open(&w->sde, p, names, N_TOTALS) : rc;
}

static int open_counters(struct work *w)
{
    struct counters_cpu cpu;
    int rc = counters_cpu_get(&cpu);

    if (rc == OK)
        rc = counters_list_find(&w->list, w->o->events, &cpu);
    if (rc == OK)
        rc = open_sde(w);
    if (rc != OK)
        return rc;
    serve_each_thread(w->serve, open_here, w);
    w->n_passes = 1; /* even without hardware: SDE and time need a run */
    for (int i = 0; i < w->n_threads; i++) {
        if (w->rcs[i] != OK)
            return err_set(w->rcs[i], "thread %d cannot open its counters", i);
        if (counters_meter_passes(w->meters[i]) > w->n_passes)
            w->n_passes = counters_meter_passes(w->meters[i]);
    }
    return OK;
}

/* ---- what is said ---- */

static int say(struct study_cell *out, const char *name, const struct counters_value *v,
               double unit)
{
    return study_value(out, name, v->value * unit, v->why[0] ? v->why : NULL);
}

static int say_hardware(struct work *w, struct study_cell *out)
{
    static const char *const soft_metrics[] = {"page_faults", "context_switches",
                                               "task_clock_s"};
    static const double soft_units[] = {1, 1, 1e-9};
    struct counters_value raw[COUNTERS_EVENTS_MAX], one[COUNTERS_EVENTS_MAX];
    struct counters_value m[COUNTERS_N_METRICS], soft[N_SOFT];
    int rc = OK;

    for (int i = 0; i < COUNTERS_EVENTS_MAX; i++)
        raw[i] = counters_zero();
    for (int i = 0; i < N_SOFT; i++)
        soft[i] = counters_zero();
    for (int t = 0; t < w->n_threads; t++) {
        counters_meter_read(w->meters[t], one);
        for (int i = 0; i < w->list.n_events; i++)
            counters_add(&raw[i], &one[i]);
        counters_read(w->soft[t], one);
        for (int i = 0; i < N_SOFT; i++)
            counters_add(&soft[i], &one[i]);
    }
    counters_metrics(&w->list, raw, m);
    for (int i = 0; i < COUNTERS_N_METRICS && rc == OK; i++)
        rc = say(out, metrics[i].name, &m[i], 1);
    for (int i = 0; i < N_SOFT && rc == OK; i++)
        rc = say(out, soft_metrics[i], &soft[i], soft_units[i]);
    return rc;
}

static int say_sde(struct work *w, struct study_cell *out)
{
    struct counters_value v[N_TOTALS];
    bool equal = true;
    int rc = OK;

    counters_read(w->sde, v);
    for (int i = 0; i < N_TOTALS && rc == OK; i++) {
        const char *own = (const char *)&w->counted + totals[i].offset;

        equal &= v[i].value == (double)*(const int64_t *)own;
        rc = say(out, totals[i].metric, &v[i], totals[i].unit);
    }
    return rc == OK ? study_value(out, "sde_equal", equal, NULL) : rc;
}

/* The first "cpu MHz" of /proc/cpuinfo, in cycles per ns; NaN without one. */
static double nominal_ghz(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    double mhz = NAN;
    char line[256];

    while (f && isnan(mhz) && fgets(line, sizeof(line), f))
        if (sscanf(line, "cpu MHz : %lf", &mhz) != 1)
            mhz = NAN;
    if (f)
        fclose(f);
    return mhz / 1000;
}

static int say_estimates(struct work *w, struct study_cell *out)
{
    const struct serve_totals *t = &w->counted;
    double bytes = (double)(t->weight_bytes + t->kv_bytes), tok = (double)t->n_tok;
    double ns = (double)t->forward_ns, flop = (double)t->flop;
    const struct study_number all[] = {
        {"estimated_bytes_per_tok", bytes / tok},
        {"estimated_flop_per_byte", flop / bytes},
        {"estimated_gbps", bytes / ns},
        {"estimated_gflops", flop / ns},
        {"estimated_cycles_per_tok", ns * w->n_threads * nominal_ghz() / tok}};

    return STUDY_VALUES(out, all, "/proc/cpuinfo tells no frequency (cpu MHz)");
}

/* ---- the simulation ---- */

#define SMALL_PROMPT 8
#define SMALL_NEW    4

static int simulate(const struct work *w, struct study_number *all, double lines)
{
    const char *const argv[] = {w->o->program,
                                "run",
                                "--model",
                                w->o->small_model,
                                "--isa",
                                "avx2",
                                "--threads",
                                "1",
                                "--no-pin",
                                "--prompt-ids",
                                "3,4,5,6,7,8,9,10",
                                "-n",
                                "4",
                                "--ids",
                                NULL};
    char dir[] = "build/callgrind.XXXXXX";
    struct counters_program p = {.argv = argv,
                                 .function = "model_forward",
                                 .ll_bytes = w->o->ll_kb * 1024,
                                 .ll_ways = 16,
                                 .line_bytes = 64,
                                 .dir = dir,
                                 .limit_s = 600};
    struct counters_call *calls = NULL;
    double misses = 0, instructions = 0, tok = 0;
    int n = 0, rc;

    if (!mkdtemp(dir))
        return err_set(ERR_IO, "%s: cannot make it: %m", dir);
    rc = counters_program_run(&p, &calls, &n);
    remove(dir);
    if (rc == OK && n != SMALL_NEW)
        rc = err_set(ERR_FORMAT, "callgrind: expected %d steps, found %d", SMALL_NEW, n);
    for (int i = 0; i < n && rc == OK; i++) {
        if ((i == 0) != (w->phase == SERVE_PREFILL))
            continue;
        misses += (double)calls[i].ll_read_misses;
        instructions += (double)calls[i].instructions;
        tok += i ? 1 : SMALL_PROMPT;
    }
    mem_free(calls);
    if (rc != OK)
        return rc;
    all[0].value = misses / tok;
    all[1].value = lines / (w->phase == SERVE_PREFILL ? SMALL_PROMPT : 1);
    all[2].value = instructions / tok;
    all[3].value = 1000 * misses / instructions;
    return OK;
}

/* Weights a step of the small model reads, in lines; 0: it cannot be opened. */
static double small_lines(const struct work *w)
{
    struct serve_opts so;
    struct serve *s = NULL;
    double lines = 0;

    if (opt_init(serve_opt_table, &so) != OK)
        return 0;
    so.model = w->o->small_model;
    so.threads = 1;
    so.max_tok = 64;
    so.pin = false;
    if (serve_open(&s, &so) == OK)
        lines = (double)serve_token_bytes(s, 0) / 64;
    serve_close(&s);
    so.model = NULL;
    opt_free(serve_opt_table, &so);
    return lines;
}

static int say_simulated(const struct work *w, struct study_cell *out)
{
    struct study_number all[] = {{"callgrind_ll_misses_per_tok", NAN},
                                 {"callgrind_lines_per_tok", NAN},
                                 {"callgrind_instructions_per_tok", NAN},
                                 {"callgrind_ll_mpki", NAN}};
    char why[256] = "the simulation runs at batch 1";
    double lines;

    if (w->o->batch > 1)
        return STUDY_VALUES(out, all, why);
    if (!w->o->small_model)
        return STUDY_VALUES(out, all, "no small_model was given");
    study_progress((struct study_cell *)out, 0.7, "callgrind");
    lines = small_lines(w);
    if (lines == 0 || simulate(w, all, lines) != OK)
        snprintf(why, sizeof(why), "%.255s", err_msg());
    return STUDY_VALUES(out, all, why);
}

/* ---- a cell ---- */

static int count_all(struct work *w, struct study_cell *out)
{
    int rc = one_pass(w, false);

    for (w->pass = 0; w->pass < w->n_passes && rc == OK; w->pass++) {
        study_progress(out, 0.6 * w->pass / w->n_passes, "counted passes");
        rc = one_pass(w, true);
    }
    return rc;
}

static int say_all(struct work *w, struct study_cell *out)
{
    int rc = say_hardware(w, out);

    if (rc == OK)
        rc = say_sde(w, out);
    if (rc == OK)
        rc = say_estimates(w, out);
    if (rc == OK)
        rc = study_note(out, "events", json_string(w->list.about));
    if (rc == OK)
        rc = study_note(out, "n_threads", json_integer(w->n_threads));
    return rc == OK ? study_note(out, "n_passes", json_integer(w->n_passes)) : rc;
}

static int run(const void *opts, struct study_cell *out)
{
    struct work *w = mem_new(MEM_OTHER, 1, sizeof(*w));
    int rc;

    if (!w)
        return ERR_NOMEM;
    w->o = opts;
    w->phase = w->o->phase ? SERVE_DECODE : SERVE_PREFILL;
    rc = open_engine(w);
    if (rc == OK)
        rc = open_counters(w);
    if (rc == OK)
        rc = count_all(w, out);
    if (rc == OK)
        rc = say_all(w, out);
    if (w->serve)
        serve_each_thread(w->serve, close_here, w);
    counters_close(&w->sde);
    counters_withdraw(NULL);
    serve_close(&w->serve);
    if (rc == OK)
        rc = say_simulated(w, out);
    mem_free(w->prompt);
    mem_free(w);
    return rc;
}

const struct study study_characterization = {
    .name = "characterization",
    .help = "prefill and decode under every counter there is",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .metrics = metrics,
    .run = run,
};
