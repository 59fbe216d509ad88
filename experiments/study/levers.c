/* Which resource would make this CPU faster at what: elasticities d ln speed / d ln resource of
 * prefill, of decode and of serving, and of controls for which they are known. By causes instead of
 * counters: a resource is changed by a known amount, and what that does to the speed is measured.
 *
 * Where each core computes, there is no CPU on which a program could take nothing but bandwidth.
 * What takes slices of the cores' time stops the engine for that long, reads included: it takes
 * all resources alike, and whether it computes or reads in its slices makes no difference. So a
 * resource is not taken. Its work is changed instead, to three quarters, at equal other work: what
 * needs 3/4 of the bytes runs as if memory gave 4/3. The levers, each against the same step
 * without, in turn:
 *   compute    fewer tokens in a step, at equal weights
 *   bandwidth  fewer bytes of weights from memory, by the same instructions
 *   time       stressors that read the clock take a share of all cores' time (support/stressors.h)
 *   cache      stressors with equal slices that displace what the last-level cache holds. It comes
 *              back before their next slice, so that less capacity at all times costs more
 *   frequency  a lower limit of the clock, where it may be set
 * A lever changes more than its own resource: fewer tokens read fewer keys and values, and others'
 * programs take time from every trial, so that the CPU time that the threads got counts in each.
 * For a lever i, ln of the change of speed is the sum over resources r of x[i][r] e[r]
 * (support/elasticity.h), which is solved for e in each round; medians and intervals are over
 * the rounds.
 *
 * Time takes everything but what caches hold, so its elasticity is known to be 1 for whatever
 * does not sleep. It is 1 in the equations of the others; what its own lever says checks the
 * method. What compute, bandwidth and cache lack of 1 together is what none of them changes: work
 * of cores for each weight instead of each token, such as loading and widening it, latencies, and
 * barriers. Not in the five papers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/clock_limit.h"
#include "experiments/study/support/elasticity.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/stressors.h"
#include "experiments/study/support/lever_work.h"
#include "experiments/study/support/options.h"

#define ROUNDS_MAX   99
#define CLOCK_SHARE  0.8
#define CLOCK_PEAK_S 0.02
#define STEPS_MAX    4096

#define OPTIONS(X)                                                                       \
    X(STR, work, "prefill",                                                              \
      "What is computed: prefill, decode_N of N sequences, serving_N (a prompt and the " \
      "decode steps from it to the next one, in a closed loop of N sequences), or a "    \
      "control: fma, stream or cache. Example: decode_8")                                \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(INT, n_prompt_tok, "256", "Prompt tokens of prefill and serving.", .unit = "tok",  \
      .min = 4, .max = 65536)                                                            \
    X(INT, n_output_tok, "64", "Output tokens of a sequence of serving.", .unit = "tok", \
      .min = 1, .max = 65536)                                                            \
    X(INT, n_ctx_tok, "64", "Tokens of each sequence before a decode step.",             \
      .unit = "tok", .min = 1, .max = 65536)                                             \
    X(INT, rounds, "11", "Rounds of all levers, in turn.", .min = 3, .max = ROUNDS_MAX)  \
    X(F64, trial_s, "0.12", "Time of a trial at least.", .unit = "s", .min = 0.001,      \
      .max = 60)                                                                         \
    X(F64, time_share, "0.25", "Share of the cores' time that stressors take.",          \
      .min = 0.01, .max = 0.8)                                                           \
    X(F64, period_ms, "4.7", "From one slice of a stressor to the next.", .unit = "ms",  \
      .min = 0.2, .max = 1000)                                                           \
    X(INT, cache_mb, "0",                                                                \
      "Size of what stressors displace caches with. 0: 3/4 of the last-level cache.",    \
      .unit = "MiB", .min = 0, .max = 1 << 20)                                           \
    X(INT, stream_mb, "256", "Size of what the control `stream` reads.", .unit = "MiB",  \
      .min = 1, .max = 1 << 20)                                                          \
    X(BOOL, set_clock, "false",                                                          \
      "Limit the cores' clock in some trials, which needs root. A run that is killed "   \
      "meanwhile leaves the limit.")

/* Resources, in the order of the columns of the system. */
#define RESOURCES(Y, X)                                                                  \
    Y(X, compute, "operations a second of the cores")                                    \
    Y(X, bandwidth, "bytes a second from beyond a core's caches")                        \
    Y(X, cache, "share of the last-level cache that stressors leave; a lower bound")     \
    Y(X, time, "share of the cores' time; known to be 1")                                \
    Y(X, frequency, "clock of the cores")
#define ID(X, name, text) RESOURCE_##name,
enum { RESOURCES(ID, ) N_RESOURCES };
#define NAME(X, name, text) #name,
static const char *const resources[] = {RESOURCES(NAME, )};
/* Those that the sum is of, and among which the lever is. */
enum { N_SUMMED = RESOURCE_time };

#define RESOURCE_RESULTS(X, name, text)                                                  \
    X(elasticity_##name, "", 0, "d ln speed / d ln " #name ": " text)                    \
    X(change_##name, "", 0,                                                              \
      "what the lever " #name " left of it, as a ratio: above 1 is more")                \
    X(speed_##name, "x", 0, "speed with the lever " #name " over speed without")

#define RESULTS(X)                                                                       \
    RESOURCES(RESOURCE_RESULTS, X)                                                       \
    X(sum, "", HIGHER, "elasticities of compute, bandwidth and cache together")          \
    X(rest, "", LOWER,                                                                   \
      "what this sum lacks of 1: what none of "                                          \
      "the three changes")                                                               \
    X(lever, "", 0, "the largest of these three: 0 compute, 1 bandwidth, 2 cache")       \
    X(step_ms, "ms", LOWER, "time of a step, its lowest decile")                         \
    X(step_gflops, "GFLOP/s", 0, "operations of a step / its time")                      \
    X(step_gbps, "GB/s", 0, "bytes that a step must read / its time")                    \
    X(tokens_per_s, "tok/s", HIGHER,                                                     \
      "tokens of the prompt, or decoded tokens, / the time of a step")

FRAME_TYPES;

/* The alternatives that are timed in turn. The levers have the numbers of their resources. */
enum { BASE = N_RESOURCES, N_WAYS };

struct levers {
    FRAME_CELL;
    struct study_lever_work work;
    struct study_stressors *stressors;
    struct study_clock_limit clock;
    struct study_threads threads; /* the work's team */
    /* Medians of the trials: CPU time that the threads got / time, bytes displaced, clock. */
    double cpu[N_WAYS], touched_bytes[N_WAYS], ghz[N_WAYS];
    int n_resources; /* without the clock where it cannot be set */
    char why_no_clock[160];
    int n_steps;
};

/* ---- a trial ---- */

/* Ways are numbered without a gap: the last one is the base. */
static int lever_of(const struct levers *c, int way)
{
    return way < c->n_resources ? way : BASE;
}

static int begin_lever(struct levers *c, int lever)
{
    if (lever == RESOURCE_bandwidth)
        study_lever_bytes_set(&c->work, true);
    if (lever == RESOURCE_time)
        study_stressors_set(c->stressors, STUDY_STRESSORS_SPIN);
    if (lever == RESOURCE_cache)
        study_stressors_set(c->stressors, STUDY_STRESSORS_TOUCH);
    return lever == RESOURCE_frequency ? study_clock_limit_set(&c->clock, CLOCK_SHARE)
                                       : OK;
}

static int end_lever(struct levers *c, int lever)
{
    if (lever == RESOURCE_bandwidth)
        study_lever_bytes_set(&c->work, false);
    if (lever == RESOURCE_time || lever == RESOURCE_cache)
        study_stressors_set(c->stressors, STUDY_STRESSORS_OFF);
    return lever == RESOURCE_frequency ? study_clock_limit_set(&c->clock, 1) : OK;
}

static int steps(struct levers *c, int way, double *seconds)
{
    int lever = lever_of(c, way);
    enum study_lever_size size = lever == RESOURCE_compute ? LEVER_FEWER : LEVER_BASE;
    double one, sum = 0, cpu_s;

    TRY(study_lever_step(&c->work, size, &one)); /* warms up */
    cpu_s = study_lever_cpu_s(&c->work);
    for (int i = 0; i < c->n_steps; i++) {
        TRY(study_lever_step(&c->work, size, &one));
        sum += one;
    }
    cpu_s = study_lever_cpu_s(&c->work) - cpu_s;
    *seconds = sum / c->n_steps;
    frame_put(c->f, &c->cpu[way], cpu_s / sum);
    frame_put(c->f, &c->touched_bytes[way],
              lever == RESOURCE_cache ? study_stressors_touched_bytes(c->stressors) : 0);
    return OK;
}

static int levers_trial(void *arg, int way, struct measure_trial *t)
{
    struct levers *c = arg;
    int lever = lever_of(c, way), rc, ended;
    double clock = 1;

    rc = begin_lever(c, lever);
    if (rc == OK && c->n_resources > RESOURCE_frequency)
        clock = study_peak_now(&c->threads, "f32", "exact", CLOCK_PEAK_S);
    if (rc == OK)
        rc = steps(c, way, &t->seconds);
    frame_put(c->f, &c->ghz[way], clock);
    ended = end_lever(c, lever);
    return rc == OK ? ended : rc;
}

/* ---- what it comes to ---- */

static double levers_at(const struct levers *c, const double *of, int way, int round)
{
    return frame_each(c->f, &of[way])[round];
}

/* The share of each resource that a lever left in a round. */
static void changes(const struct levers *c, int lever, int round,
                    double x[STUDY_RESOURCES_MAX])
{
    const struct study_lever_work *w = &c->work;
    int base = c->n_resources;

    for (int r = 0; r < STUDY_RESOURCES_MAX; r++)
        x[r] = 1;
    x[RESOURCE_time] =
        levers_at(c, c->cpu, lever, round) / levers_at(c, c->cpu, base, round);
    if (c->n_resources > RESOURCE_frequency)
        x[RESOURCE_frequency] =
            levers_at(c, c->ghz, lever, round) / levers_at(c, c->ghz, base, round);
    if (lever == RESOURCE_compute) {
        x[RESOURCE_compute] = w->cost[LEVER_BASE].flop / w->cost[LEVER_FEWER].flop;
        x[RESOURCE_bandwidth] = w->cost[LEVER_BASE].bytes / w->cost[LEVER_FEWER].bytes;
    }
    if (lever == RESOURCE_bandwidth)
        x[RESOURCE_bandwidth] = w->cost[LEVER_BASE].bytes / w->fewer_bytes;
    if (lever == RESOURCE_cache)
        x[RESOURCE_cache] =
            1 - levers_at(c, c->touched_bytes, lever, round) / (double)cpu_cache_bytes(3);
}

struct rounds {
    double e[N_RESOURCES][ROUNDS_MAX], sum[ROUNDS_MAX], rest[ROUNDS_MAX];
    double change[N_RESOURCES][ROUNDS_MAX], speed[N_RESOURCES][ROUNDS_MAX];
};

static void solve_round(const struct levers *c, int round, struct rounds *out)
{
    int n = c->n_resources;
    double x[STUDY_RESOURCES_MAX][STUDY_RESOURCES_MAX], y[STUDY_RESOURCES_MAX],
        e[STUDY_RESOURCES_MAX];
    double base = frame_times(c->f, n)[round];

    for (int i = 0; i < n; i++) {
        changes(c, i, round, x[i]);
        out->change[i][round] = x[i][i];
        out->speed[i][round] = base / frame_times(c->f, i)[round];
        y[i] = log(out->speed[i][round]);
        for (int r = 0; r < n; r++)
            x[i][r] = log(x[i][r]);
    }
    (void)study_elasticity_known(e, n, RESOURCE_time, 1, x, y); /* NaN: says nothing */
    for (int r = 0; r < n; r++) {
        out->e[r][round] = e[r];
        out->sum[round] += r < N_SUMMED ? e[r] : 0;
    }
    out->rest[round] = 1 - out->sum[round];
}

static void report_median(struct levers *c, const char *what, const char *name,
                          const double *v, bool known)
{
    double *x = frame_named(c->f, "%s%s", what, name);
    struct study_estimate e = {NAN, NAN, NAN};
    char key[48];

    snprintf(key, sizeof(key), "%s%s", what, name);
    if (known) {
        e = study_estimate_median(v, c->f->n_rounds);
        study_series(c->out, key, "", v, (size_t)c->f->n_rounds);
    }
    frame_set(c->f, x, e.value, known ? "no round could be solved" : c->why_no_clock);
    frame_interval(c->f, x, e.lo, e.hi);
}

static void report_elasticities(struct levers *c)
{
    struct rounds *rounds = mem_new(MEM_HARNESS, 1, sizeof(*rounds));
    double best = -INFINITY, lever = NAN;

    for (int round = 0; round < c->f->n_rounds; round++)
        solve_round(c, round, rounds);
    for (int r = 0; r < N_RESOURCES; r++) {
        bool known = r < c->n_resources;
        double e = study_estimate_median(rounds->e[r], c->f->n_rounds).value;

        report_median(c, "elasticity_", resources[r], rounds->e[r], known);
        report_median(c, "change_", resources[r], rounds->change[r], known);
        report_median(c, "speed_", resources[r], rounds->speed[r], known);
        if (r < N_SUMMED && e > best) {
            best = e;
            lever = r;
        }
    }
    report_median(c, "sum", "", rounds->sum, true);
    report_median(c, "rest", "", rounds->rest, true);
    frame_set(c->f, &c->r->lever, lever, "no round could be solved");
    mem_free(rounds);
}

static void report_speed(const struct levers *c)
{
    double seconds = frame_seconds(c->f, c->n_resources);

    c->r->step_ms = seconds * 1e3;
    c->r->step_gflops = c->work.cost[LEVER_BASE].flop / seconds * 1e-9;
    c->r->step_gbps = c->work.cost[LEVER_BASE].bytes / seconds * 1e-9;
    frame_why(c->f, NULL, "no step was timed");
    frame_set(c->f, &c->r->tokens_per_s,
              c->work.phase ? (double)c->work.n_tok / seconds : NAN,
              "a control computes no tokens");
}

/* ---- the cell ---- */

/* How many steps a trial has. */
static int count_steps(struct levers *c)
{
    double one, fastest = INFINITY;

    for (int i = 0; i < 3; i++) {
        TRY(study_lever_step(&c->work, LEVER_BASE, &one));
        fastest = fmin(fastest, one);
    }
    c->n_steps = (int)fmin(STEPS_MAX, ceil(c->o->trial_s / fastest));
    return OK;
}

static int open_stressors(struct levers *c)
{
    size_t bytes =
        c->o->cache_mb ? (size_t)c->o->cache_mb << 20 : cpu_cache_bytes(3) / 4 * 3;
    const struct study_stressors_opts o = {.cpus = c->work.budget.cpus,
                                           .n = c->work.budget.n,
                                           .share = c->o->time_share,
                                           .period_s = c->o->period_ms * 1e-3,
                                           .footprint_bytes = bytes};

    if (bytes >= cpu_cache_bytes(3))
        return err_set(ERR_ARG,
                       "study.cache_mb: expected less than the last-level cache of %zu "
                       "MiB, found %lld",
                       cpu_cache_bytes(3) >> 20, (long long)c->o->cache_mb);
    return study_stressors_open(&c->stressors, &o);
}

static void open_clock(struct levers *c)
{
    const char *why = "study.set_clock is false";

    c->n_resources = RESOURCE_frequency;
    c->threads.budget = c->work.budget;
    c->threads.team = c->work.team;
    c->threads.n = c->work.budget.n;
    if (study_clock_limit_open(&c->clock, "", c->work.budget.cpus, c->work.budget.n) !=
        OK)
        why = err_msg();
    else if (c->o->set_clock)
        c->n_resources = N_RESOURCES;
    snprintf(c->why_no_clock, sizeof(c->why_no_clock), "%s", why);
}

static void restore_clock(struct study_clock_limit *clock)
{
    if (clock->lowered && study_clock_limit_set(clock, 1) != OK)
        err_clear();
}

static int levers_run(struct levers *c)
{
    const struct study_lever_opts o = {.work = c->o->work,
                                       .model = c->o->model,
                                       .precision = c->o->precision,
                                       .n_prompt_tok = c->o->n_prompt_tok,
                                       .n_output_tok = c->o->n_output_tok,
                                       .n_ctx_tok = c->o->n_ctx_tok,
                                       .stream_bytes = c->o->stream_mb << 20};

    FRAME_CLOSE(c->f, study_lever_close, &c->work);
    FRAME_CLOSE(c->f, study_stressors_close, &c->stressors);
    FRAME_CLOSE(c->f, restore_clock, &c->clock);
    TRY(study_lever_open(&c->work, &o));
    TRY(count_steps(c));
    TRY(open_stressors(c));
    open_clock(c);
    TRY(frame_rounds(c->f, "all levers in turn", c->n_resources + 1, c->o->rounds,
                     levers_trial, c));
    report_elasticities(c);
    report_speed(c);
    if (c->work.phase)
        study_engine_report(c->out, &c->work.engine);
    return OK;
}

STUDY(levers, "which resource would make prefill, decode and serving faster on this CPU");
