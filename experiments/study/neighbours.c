/* The engine under load next to thieves of CPU time, memory bandwidth, last-level cache and page
 * cache, each with four strengths: what a policy and a number of threads lose to each, and whether
 * elasticities (levers.c) say to which they lose the most.
 *
 * A thief is a thread on the last CPU of the budget, with the engine's priority. Its strength is
 * the share of the time for which it wants to run (support/stressors.h). What it gets is its dose,
 * which is measured. All thieves and strengths run in turn in each round, next to the same requests
 * of a closed loop. At 0 % a thief wakes and sleeps: these trials, one of each thief, are what the
 * others are compared with, and the control, as each has to be as fast as the other three.
 *
 * Every thief takes CPU time from an engine that computes on its CPU. An engine of fewer threads
 * leaves that CPU alone and meets only what both share.   Not in the five papers. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/elasticity.h"
#include "experiments/study/support/lever_work.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/serving.h"
#include "experiments/study/support/stressors.h"
#include "measure/card.h"

#define ROUNDS_MAX   99
#define LEVER_ROUNDS 11
#define PERIOD_S     0.0047 /* of a thief */
#define LINE_BYTES   64
#define PAGE_BYTES   4096

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    OPTION_THREADS(X, "0", "Number of threads. 0: all, on the CPU of the thief, too.")   \
    X(STR, policy, "continuous", "Scheduling policy.")                                   \
    X(INT, n_requests, "12", "Requests of a trial.", .min = 1, .max = 10000)             \
    X(INT, clients, "8",                                                                 \
      "Clients, each of which sends its next request when one was answered.", .min = 1,  \
      .max = 256)                                                                        \
    X(INT, n_prompt_tok, "32", "Longest prompt. Lengths are drawn from a quarter on.",   \
      .unit = "tok", .min = 4, .max = 4096)                                              \
    X(INT, n_output_tok, "32", "Longest output. Lengths are drawn from a quarter on.",   \
      .unit = "tok", .min = 4, .max = 4096)                                              \
    X(INT, max_step_tok, "32", "Most tokens of a step, and so of a piece of a prompt.",  \
      .unit = "tok", .min = 1, .max = 65536)                                             \
    X(F64, ttft_ms, "500", "Objective for the time to the first token.", .unit = "ms")   \
    X(F64, tpot_ms, "50", "Objective for the time per output token.", .unit = "ms")      \
    X(INT, rounds, "9", "Rounds of all thieves and strengths, in turn.", .min = 1,       \
      .max = ROUNDS_MAX)                                                                 \
    X(INT, stream_mb, "0",                                                               \
      "What the thief of bandwidth reads. 0: twice the last-level cache.",               \
      .unit = "MiB", .min = 0, .max = 1 << 20)

/* The thieves: modes, and units and meaning of their doses. */
#define THIEVES(Y, X)                                                                    \
    Y(X, cpu, SPIN, "s/s", "its CPU time a second")                                      \
    Y(X, bandwidth, TOUCH, "GB/s", "what it reads a second, far above the caches")       \
    Y(X, cache, TOUCH, "Mlines/s", "lines that it reads of half the last-level cache")   \
    Y(X, page_cache, EVICT, "pages/s", "pages of the model's file: dropped, read again")
#define ID(X, name, mode, unit, what)   THIEF_##name,
#define NAME(X, name, mode, unit, what) #name,
#define MODE(X, name, mode, unit, what) STUDY_STRESSORS_##mode,
enum { THIEVES(ID, ) N_THIEVES };
static const char *const thieves[] = {THIEVES(NAME, )};
static const enum study_stressors_mode modes[] = {THIEVES(MODE, )};
static const int strengths[] = {0, 25, 50, 100}; /* % */
enum { N_STRENGTHS = 4, STRONGEST = 3, N_WAYS = N_THIEVES * N_STRENGTHS };

/* What a round gives of a thief and a strength: median, interval and series. */
#define VALUES(Y, X, thief, s, unit, what)                                               \
    Y(X, tok_s, thief, s, "tok/s", HIGHER, "tokens generated a second next to it")       \
    Y(X, itl_p95_ms, thief, s, "ms", LOWER, "95th percentile of times between tokens")   \
    Y(X, attained, thief, s, "", HIGHER, "share of requests that met both objectives")   \
    Y(X, goodput_rps, thief, s, "1/s", HIGHER, "requests a second that met both")        \
    Y(X, left, thief, s, "x", HIGHER,                                                    \
      "tok_s / its mean at 0 % in that round, of all thieves; at 0 %, of the others")    \
    Y(X, taken, thief, s, "", 0, "CPU time that the thief got / time")                   \
    Y(X, dose, thief, s, unit, 0, what)
#define VALUE_ID(X, value, thief, s, unit, flags, text)   V_##value,
#define VALUE_NAME(X, value, thief, s, unit, flags, text) #value,
#define VALUE_RESULT(X, value, thief, s, unit, flags, text)                              \
    X(value##_##thief##_##s, unit, flags, text)
enum { VALUES(VALUE_ID, , , , , ) N_VALUES };
static const char *const values[] = {VALUES(VALUE_NAME, , , , , )};

#define THIEF_RESULTS(X, thief, mode, unit, what)                                        \
    VALUES(VALUE_RESULT, X, thief, 0, unit, what)                                        \
    VALUES(VALUE_RESULT, X, thief, 25, unit, what)                                       \
    VALUES(VALUE_RESULT, X, thief, 50, unit, what)                                       \
    VALUES(VALUE_RESULT, X, thief, 100, unit, what)                                      \
    X(slope_##thief, "", LOWER,                                                          \
      "loss of ln tok_s by all of this thief's strength: a line through its strengths")  \
    X(rises_##thief, "", HIGHER,                                                         \
      "share of rounds in which its dose rises with each strength")                      \
    X(predicted_##thief, "x", MODEL,                                                     \
      "left at 100 % by its dose and elasticities: 1 for time, that of bandwidth")
#define RESULTS(X)                                                                       \
    THIEVES(THIEF_RESULTS, X)                                                            \
    X(elasticity_bandwidth, "", 0,                                                       \
      "d ln speed / d ln bandwidth of such a load without thieves, as levers finds it")

FRAME_TYPES;

struct request {
    uint64_t sent_ns, first_ns, last_ns; /* first, last: of its tokens */
    int64_t n_tok;
};

struct neighbours {
    FRAME_CELL;
    struct cpu_budget budget;
    size_t stream_bytes;
    int fd; /* of the model's file, + 1; 0: not open */
    struct study_stressors *stressors;
    struct study_lever_work lever;
    struct study_serving serving;
    struct request *requests; /* [n_requests] of the running trial, with their gaps */
    double *gap_ms;           /* [n_requests * n_output_tok] times between tokens */
    size_t n_gaps;
    int64_t first_id, n_sent;
    bool failed; /* a request did not end with all of its tokens */
    double v[N_VALUES][N_WAYS][ROUNDS_MAX], read_gbps[N_WAYS];
};

/* ---- a trial ---- */

static void neighbours_on_token(void *ctx, int64_t request, int32_t id,
                                const float *logits, enum serve_finish finish)
{
    struct neighbours *c = ctx;
    struct request *q = &c->requests[request - c->first_id];
    uint64_t now_ns = clock_ns();

    (void)logits;
    c->failed |= finish != SERVE_RUNNING && finish != SERVE_LENGTH;
    if (id < 0)
        return;
    if (q->n_tok++ == 0)
        q->first_ns = now_ns;
    else
        c->gap_ms[c->n_gaps++] = (double)(now_ns - q->last_ns) * 1e-6;
    q->last_ns = now_ns;
}

static int64_t draw(struct rng *rng, int64_t longest)
{
    return longest / 4 + (int64_t)rng_below(rng, (uint64_t)(longest - longest / 4 + 1));
}

/* Request i is the same in every trial. */
static int send_next(struct neighbours *c)
{
    int64_t i = c->n_sent++, n_prompt, id;
    struct rng rng;

    rng_init(&rng, (uint64_t)i, "lengths");
    n_prompt = draw(&rng, c->o->n_prompt_tok);
    c->requests[i] = (struct request){.sent_ns = clock_ns()};
    TRY(study_serving_submit(&c->serving, (uint64_t)i, n_prompt,
                             draw(&rng, c->o->n_output_tok), &id));
    c->first_id = id - i;
    return OK;
}

static int serve_all(struct neighbours *c, double *seconds)
{
    uint64_t begin_ns = clock_ns();

    c->n_sent = 0;
    c->n_gaps = 0;
    do {
        while (c->n_sent < c->o->n_requests && c->serving.n_live < c->o->clients)
            TRY(send_next(c));
        TRY(study_serving_step(&c->serving));
        if (c->failed)
            return err_set(ERR_STATE, "a request failed: %s", err_msg());
    } while (c->serving.n_live > 0 || c->n_sent < c->o->n_requests);
    *seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    return OK;
}

static void keep_requests(struct neighbours *c, double v[N_VALUES], double seconds)
{
    bool enough = c->n_gaps >= stats_percentile_floor(0.95);
    double n_tok = 0, n_met = 0;

    for (int64_t i = 0; i < c->o->n_requests; i++) {
        const struct request *q = &c->requests[i];
        double later = (double)(q->last_ns - q->first_ns) * 1e-6;

        n_tok += (double)q->n_tok;
        n_met += (double)(q->first_ns - q->sent_ns) * 1e-6 <= c->o->ttft_ms &&
                 later <= c->o->tpot_ms * (double)(q->n_tok - 1);
    }
    v[V_tok_s] = n_tok / seconds;
    v[V_itl_p95_ms] = enough ? stats_percentile(c->gap_ms, c->n_gaps, 0.95) : NAN;
    v[V_attained] = n_met / (double)c->o->n_requests;
    v[V_goodput_rps] = n_met / seconds;
}

static int neighbours_trial(void *arg, int way, struct measure_trial *t)
{
    struct neighbours *c = arg;
    int thief = way / N_STRENGTHS, rc;
    struct study_stressors_dose d;
    double v[N_VALUES] = {0};

    study_stressors_begin(
        c->stressors, modes[thief], strengths[way % N_STRENGTHS] / 100.0,
        thief == THIEF_cache ? cpu_cache_bytes(3) / 2 : c->stream_bytes);
    rc = serve_all(c, &t->seconds);
    study_stressors_dose(c->stressors, &d);
    study_stressors_set(c->stressors, STUDY_STRESSORS_OFF);
    TRY(rc);
    keep_requests(c, v, t->seconds);
    v[V_taken] = d.cpu_s / t->seconds;
    v[V_dose] =
        (const double[]){d.cpu_s, d.read_bytes * 1e-9, d.read_bytes / LINE_BYTES * 1e-6,
                         d.disk_bytes / PAGE_BYTES}[thief] /
        t->seconds;
    for (int i = 0; i < N_VALUES; i++)
        c->v[i][way][c->f->round] = v[i];
    frame_put(c->f, &c->read_gbps[way], d.read_bytes * 1e-9 / t->seconds);
    return OK;
}

/* ---- what is reported ---- */

static void report_rounds(struct neighbours *c, const char *name, const double *v,
                          const char *why)
{
    double *x = frame_named(c->f, "%s", name);
    struct study_estimate e = study_estimate_median(v, c->f->n_rounds);

    frame_set(c->f, x, e.value, why);
    frame_interval(c->f, x, e.lo, e.hi);
    study_series(c->out, name, metrics[x - (double *)c->r].unit, v,
                 (size_t)c->f->n_rounds);
}

static void report_way(struct neighbours *c, int way)
{
    char name[64];

    for (int i = 0; i < N_VALUES; i++) {
        snprintf(name, sizeof(name), "%s_%s_%d", values[i], thieves[way / N_STRENGTHS],
                 strengths[way % N_STRENGTHS]);
        report_rounds(c, name, c->v[i][way],
                      i == V_itl_p95_ms ? "too few tokens for a 95th percentile"
                                        : "threads have no CPU clock here");
    }
}

/* Over the geometric mean at 0 % in the round, of the other thieves where it is one of these. */
static void find_left(struct neighbours *c, int way, int round)
{
    bool own = way % N_STRENGTHS == 0;
    double sum = 0;

    for (int zero = 0; zero < N_WAYS; zero += N_STRENGTHS)
        sum += zero == way ? 0 : log(c->v[V_tok_s][zero][round]);
    c->v[V_left][way][round] = c->v[V_tok_s][way][round] / exp(sum / (N_THIEVES - own));
}

/* The line of least squares from no loss without a thief. *rises: does its dose rise? */
static double slope_of(const struct neighbours *c, int thief, int round, bool *rises)
{
    double xy = 0, xx = 0;

    *rises = true;
    for (int s = 1; s < N_STRENGTHS; s++) {
        int way = thief * N_STRENGTHS + s;
        double x = strengths[s] / 100.0;

        xy -= x * log(c->v[V_left][way][round]);
        xx += x * x;
        *rises &= c->v[V_dose][way][round] > c->v[V_dose][way - 1][round];
    }
    return xy / xx;
}

/* Less of the time of all CPUs, and of the bandwidth by what the thief reads. */
static double predict(const struct neighbours *c, int way)
{
    double taken = stats_median(c->v[V_taken][way], (size_t)c->f->n_rounds);
    double gbps = measure_card_read_gbps(study_machine(c->out), c->budget.n);
    double left = 1 - c->read_gbps[way] / gbps, e = c->r->elasticity_bandwidth;

    return left > 0 && !isnan(e) ? (1 - taken / c->budget.n) * pow(left, e) : NAN;
}

/* A slope is missing where the dose does not rise in half of the rounds. */
static void report_thief(struct neighbours *c, int thief)
{
    double v[ROUNDS_MAX], n_rises = 0;
    char name[64];
    bool rises;

    for (int i = 0; i < c->f->n_rounds; i++) {
        v[i] = slope_of(c, thief, i, &rises);
        n_rises += rises;
    }
    for (int i = 0; n_rises < c->f->n_rounds / 2.0 && i < c->f->n_rounds; i++)
        v[i] = NAN;
    snprintf(name, sizeof(name), "slope_%s", thieves[thief]);
    report_rounds(c, name, v, "the thief's dose does not rise with its strength");
    *frame_named(c->f, "rises_%s", thieves[thief]) = n_rises / c->f->n_rounds;
    frame_set(c->f, frame_named(c->f, "predicted_%s", thieves[thief]),
              predict(c, thief * N_STRENGTHS + STRONGEST),
              "levers are of all threads, on a machine with a card");
}

static void neighbours_report(struct neighbours *c)
{
    for (int way = 0; way < N_WAYS; way++) {
        for (int i = 0; i < c->f->n_rounds; i++)
            find_left(c, way, i);
        report_way(c, way);
    }
    for (int thief = 0; thief < N_THIEVES; thief++)
        report_thief(c, thief);
}

/* ---- the cell ---- */

static int lever_trial(void *arg, int fewer, struct measure_trial *t)
{
    struct neighbours *c = arg;
    int rc;

    study_lever_bytes_set(&c->lever, fewer);
    rc = study_lever_step(&c->lever, LEVER_BASE, &t->seconds);
    study_lever_bytes_set(&c->lever, false);
    return rc;
}

/* As levers.c does: the same instructions with three quarters of the weights' bytes. */
static int find_elasticity(struct neighbours *c)
{
    struct study_lever_work *w = &c->lever;
    double v[LEVER_ROUNDS];
    char work[32];

    frame_set(c->f, &c->r->elasticity_bandwidth, NAN, "levers are of all threads");
    if (c->o->threads > 0 && c->o->threads < c->budget.n)
        return OK;
    snprintf(work, sizeof(work), "serving_%lld", (long long)c->o->clients);
    TRY(study_lever_open(
        w, &(struct study_lever_opts){.work = work,
                                      .model = c->o->model,
                                      .precision = c->o->precision,
                                      .n_prompt_tok = c->o->n_prompt_tok * 5 / 8,
                                      .n_output_tok = c->o->n_output_tok * 5 / 8,
                                      .n_ctx_tok = c->o->n_prompt_tok}));
    TRY(frame_rounds(c->f, "fewer bytes, in turn", 2, LEVER_ROUNDS, lever_trial, c));
    for (int i = 0; i < c->f->n_rounds; i++)
        v[i] = log(frame_times(c->f, 0)[i] / frame_times(c->f, 1)[i]) /
               log(w->cost[LEVER_BASE].bytes / w->fewer_bytes);
    report_rounds(c, "elasticity_bandwidth", v, "no round");
    study_lever_close(w);
    return OK;
}

static int open_stressors(struct neighbours *c)
{
    const int fd = c->o->model ? open(c->o->model, O_RDONLY | O_CLOEXEC) : -1;
    const struct opts *o = c->o;

    if (fd < 0)
        return err_set(ERR_ARG, "study.model: expected a file, found %s",
                       o->model ? o->model : "none");
    c->fd = fd + 1;
    (void)fdatasync(fd); /* what is not on disk yet cannot be dropped */
    c->stream_bytes = o->stream_mb ? (size_t)o->stream_mb << 20 : 2 * cpu_cache_bytes(3);
    return study_stressors_open(
        &c->stressors,
        &(struct study_stressors_opts){.cpus = &c->budget.cpus[c->budget.n - 1],
                                       .n = 1,
                                       .period_s = PERIOD_S,
                                       .footprint_bytes = c->stream_bytes,
                                       .fd = fd});
}

static int open_serving(struct neighbours *c)
{
    const struct opts *o = c->o;
    struct serve_opts so;

    c->serving.on_token = neighbours_on_token;
    c->serving.ctx = c;
    TRY(study_serving_opts(&so, o->model, o->policy));
    so.precision = o->precision;
    so.threads = o->threads;
    so.max_tok = o->n_prompt_tok + o->n_output_tok;
    so.max_seqs = o->clients;
    so.max_step_tok = o->max_step_tok;
    return study_serving_open(&c->serving, &so);
}

static void neighbours_close(struct neighbours *c)
{
    study_serving_close(&c->serving);
    study_lever_close(&c->lever);
    study_stressors_close(&c->stressors);
    if (c->fd > 0)
        close(c->fd - 1);
}

static int neighbours_run(struct neighbours *c)
{
    const struct opts *o = c->o;
    size_t n = (size_t)o->n_requests;
    double seconds;

    c->requests = frame_new(c->f, n, sizeof(*c->requests));
    c->gap_ms = frame_new(c->f, n * (size_t)o->n_output_tok, sizeof(*c->gap_ms));
    FRAME_CLOSE(c->f, neighbours_close, c);
    TRY(cpu_budget_get(&c->budget));
    TRY(open_stressors(c));
    TRY(find_elasticity(c));
    TRY(open_serving(c));
    TRY(serve_all(c, &seconds)); /* warms up */
    /* The thief's first pass over the file reads from disk, too. */
    (void)posix_fadvise(c->fd - 1, 0, 0, POSIX_FADV_DONTNEED);
    TRY(frame_rounds_by(
        c->f, "all thieves and strengths, in turn", N_WAYS,
        &(struct measure_opts){MEASURE_EXACTLY((int)o->rounds), .n_warm_up = -1},
        neighbours_trial, c));
    neighbours_report(c);
    return OK;
}

STUDY(neighbours, "the engine under load next to thieves of time, bandwidth and caches",
      .wants_machine = true);
