/* Requests on machines in real time, and on the simulated cluster with the same arrivals. The
 * performance model and the contention of machines are measured before, on other requests, once for
 * all cells; the speed of steps and the cost of a hand-over again before each run. A second
 * simulation takes the time of the real steps: what is left is queue, scheduler and transfer.
 * Paper: Splitwise V-B.   The simulator reserves memory before a prompt, as real machines do. */
#include <math.h>

#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "cluster/cluster.h"
#include "datasets/dataset.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/pair_steps.h"
#include "experiments/study/support/roles_run.h"
#include "experiments/study/support/step_times.h"
#include "model/cost.h"

#define POINTS_MAX 64
#define SEEDS_MAX  32
#define LONE_N     8  /* requests that are alone */
#define LONE_TOK   32 /* of their output: its first steps are slow */
#define LONE_MS    30 /* from the expected end of a request that is alone to the next */
#define FITS       4  /* of the time of steps: batches change with it */

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(ENUM, machines, "two+transfer",                                                    \
      "one: an engine in this process; two: a prompt and a token machine as processes, " \
      "with one memory for keys and values; two+transfer: those, which send them.",      \
      .values = "one|two|two+transfer")                                                  \
    X(ENUM, steps, "engine",                                                             \
      "engine: steps of the model, profiled before. paced: a step of a prompt takes 2 "  \
      "ms and 0.5 ms a token, one of a batch of tokens 8 ms and 0.2 ms a sequence, so "  \
      "that an error is that of queue, scheduler or hand-over.",                         \
      .values = "engine|paced")                                                          \
    X(STR, paced_model, NULL, "Steps paced: a model whose own steps take less.",         \
      .unit = "FILE")                                                                    \
    X(STR, transport, "shm", "two+transfer: how keys and values move.", .unit = "NAME")  \
    X(STR, fit, "sharegpt", "Lengths of the requests: a fit of a data set.",             \
      .unit = "NAME")                                                                    \
    X(F64, load, "0.5",                                                                  \
      "Rate of the requests / that at which the machine of prompts is always busy.",     \
      .min = 0.01, .max = 100)                                                           \
    X(INT, n_requests, "80", "Requests of each seed.", .min = 4, .max = 100000)          \
    X(INT, n_seeds, "5", "Seeds, each with requests of its own.", .min = 2,              \
      .max = SEEDS_MAX)                                                                  \
    X(INT, max_seqs, "16", "Sequences of a machine.", .min = 1, .max = 1024)             \
    X(INT, max_step_tok, "512", "Tokens of a step.", .unit = "tok", .min = 1,            \
      .max = 65536)                                                                      \
    X(INT, max_prompt_tok, "128", "Longer prompts are cut.", .unit = "tok", .min = 1,    \
      .max = 1 << 20)                                                                    \
    X(INT, max_output_tok, "32", "Longer outputs are cut.", .unit = "tok", .min = 1,     \
      .max = 1 << 20)                                                                    \
    X(STR, batches, "1 2 4 8 12 16", "Profile: batches, with every context.")            \
    X(STR, contexts, "16 64", "Profile: contexts, and the prompts before them.",         \
      .unit = "tok")                                                                     \
    X(STR, prompts, "8 32 128", "Profile: lengths of single prompts.", .unit = "tok")    \
    X(INT, rounds, "3", "Profile: rounds, each of all points.", .min = 1, .max = 99)     \
    X(INT, pair_rounds, "5",                                                             \
      "Rounds of steps alone and next to those of the other machine.", .min = 1,         \
      .max = 32)                                                                         \
    X(INT, seed, "1", "First seed of lengths and arrivals.", .min = 1, .max = 1 << 30)

#define RESULTS_OF(X, id, text)                                                          \
    X(id##_real_ms, "ms", LOWER, text ", real: mean of the seeds")                       \
    X(id##_sim_ms, "ms", LOWER | SIMULATED, text ", simulated: mean of the seeds")       \
    X(id##_ratio, "x", 0, text ": simulated / real, mean of the seeds")                  \
    X(id##_queue_ratio, "x", 0, text ": simulated with the time of the real steps / real")
#define RESULTS(X)                                                                       \
    RESULTS_OF(X, ttft_p50, "median time to the first token")                            \
    RESULTS_OF(X, ttft_p90, "90th percentile of the time to the first token")            \
    RESULTS_OF(X, tpot_p50, "median time per later token")                               \
    RESULTS_OF(X, tpot_p90, "90th percentile of the time per later token")               \
    X(worst_error, "%", LOWER, "the largest of the four |ratio - 1|")                    \
    X(worst_queue_error, "%", LOWER, "the largest of the four |queue ratio - 1|")        \
    X(between_error, "%", LOWER,                                                         \
      "the largest difference of two machines' queue ratios, of all that ran before")    \
    X(prompt_in_place, "x", 0, "time of prompt steps in the real run / alone before it") \
    X(token_in_place, "x", 0, "time of token steps in the real run / alone before it")   \
    X(slow_prompt_by_token, "x", LOWER, "time of a prompt next to token steps / alone")  \
    X(slow_token_by_prompt, "x", LOWER, "time of a token step next to prompts / alone")  \
    X(handover_ms, "ms", LOWER, "fixed time from a request to its prompt machine")       \
    X(transfer_ms, "ms", LOWER, "fixed time from a prompt's end to its token machine")   \
    X(rate_rps, "/s", 0, "rate of the requests: mean of the seeds")                      \
    X(n_requests, "", 0, "requests, of all seeds")

FRAME_TYPES;

enum { ONE, TWO, TWO_TRANSFER, N_MACHINES }; /* machines */
enum { ENGINE, PACED, N_STEPS };             /* steps */

enum { TTFT, TPOT, N_LATENCIES, N_SHOWN = 4 };
static const char *const latency_names[] = {"ttft", "tpot"};
static const char *const shown[] = {"ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"};

/* GIVEN_STEPS: simulated with the time that the real steps took. */
enum { REAL, PREDICTED, GIVEN_STEPS, N_KINDS };
static const char *const kind_names[] = {"real", "sim", "given"};

struct calibration {
    bool measured;
    struct cluster_perf perf;
    struct cluster_contention contention;
};

/* For all cells. */
struct calibrations {
    struct calibration of[N_STEPS];
    int64_t n_seeds[N_STEPS][N_MACHINES]; /* 0: no cell had it yet */
    double queue_ratio[N_STEPS][N_MACHINES][N_SHOWN][SEEDS_MAX];
};

struct roles_vs_sim {
    FRAME_CELL;
    struct calibrations *all;
    struct calibration *known; /* of these steps */
    struct serve_pace pace;
    struct cluster_perf perf; /* of the steps before a seed's run */
    int n;
    struct roles_run_request *lone, *requests; /* [LONE_N], and then [n] of a seed */
    double *ms[N_LATENCIES];                   /* [n] of a run */
    size_t n_ms[N_LATENCIES];                  /* of the n requests those that have it */
    /* All prompt steps and all token steps: of real requests that are alone and of others. */
    double real_ms[2][2], sim_ms[2];
    double shown[N_KINDS][N_SHOWN][SEEDS_MAX];
    double in_place[2][SEEDS_MAX]; /* of prompt steps, of token steps */
    double rate_rps[SEEDS_MAX], handover_ms[SEEDS_MAX], transfer_ms[SEEDS_MAX];
    int64_t i; /* the present seed */
    int at;    /* next arrival of the simulation */
};

/* ---- calibration ---- */

static int add_points(struct cluster_point *p, int *n, const char *batches,
                      const char *contexts)
{
    int batch, context, n_b, n_c; /* characters read */

    for (const char *b = batches; sscanf(b, " %d%n", &batch, &n_b) == 1; b += n_b)
        for (const char *c = contexts; sscanf(c, " %d%n", &context, &n_c) == 1;
             c += n_c) {
            if (*n == POINTS_MAX || batch < 1 || context < 1)
                return err_set(ERR_ARG,
                               "study.batches: expected up to %d points of at least "
                               "1 token and 1 sequence",
                               POINTS_MAX);
            p[(*n)++] = (struct cluster_point){
                batch ? context : 0, batch, 1, NAN, NAN, NAN, NAN, NAN};
        }
    return OK;
}

static int profile(struct roles_vs_sim *c)
{
    const struct opts *o = c->o;
    const struct step_times_opts how = {.model = o->model,
                                        .precision = o->precision,
                                        .threads = 1,
                                        .n_steps = 8,
                                        .rounds = o->rounds};
    struct cluster_point p[POINTS_MAX];
    double spread[2 * POINTS_MAX];
    int n = 0;

    TRY(add_points(p, &n, o->batches, o->contexts));
    TRY(add_points(p, &n, "1", o->prompts));
    if (n == 0)
        return err_set(ERR_ARG, "study.batches: expected at least one point");
    TRY(study_step_times(p, n, spread, &how, c->out));
    TRY(cluster_perf_find("host", &c->known->perf.kind));
    return c->known->perf.kind->fit(&c->known->perf, p, n);
}

static double prompt_ms(const struct cluster_perf *p, int64_t n)
{
    const struct cluster_work w = {.n_prompt_tok = n,
                                   .sum_prompt_sq = (double)n * (double)n};

    return 1e-6 * (double)cluster_perf_step_ns(p, &w);
}

/* Of `batch` sequences of this context. */
static double token_ms(const struct cluster_perf *p, int64_t batch, int64_t ctx)
{
    const struct cluster_work w = {.n_decode = batch, .ctx_tok = batch * ctx};

    return 1e-6 * (double)cluster_perf_step_ns(p, &w);
}

/* The work of a real step, as the simulator counts it. */
static int64_t paced_ns(void *perf, const struct model_chunk *chunks, int n)
{
    struct cluster_work w = {0};

    for (int i = 0; i < n; i++) {
        const struct model_chunk *c = &chunks[i];

        if (c->n_tok == 1 && c->pos0 > 0) {
            w.n_decode++;
            w.ctx_tok += c->pos0;
        } else {
            w.n_prompt_tok += c->n_tok;
            w.sum_prompt_sq += (double)c->n_tok * (double)c->n_tok;
        }
    }
    return cluster_perf_step_ns(perf, &w);
}

static struct roles_run_opts run_opts(const struct roles_vs_sim *c)
{
    const struct opts *o = c->o;

    return (struct roles_run_opts){
        .model = o->steps == PACED ? o->paced_model : o->model,
        .pace = o->steps == PACED ? &c->pace : NULL,
        .roles = o->machines == ONE ? NULL : "prompt=1:threads=1,token=1:threads=1",
        .transport = o->machines == TWO ? "map" : o->transport,
        .precision = o->precision,
        .max_seqs = o->max_seqs,
        .max_step_tok = o->max_step_tok,
        .max_tok = o->max_prompt_tok + o->max_output_tok + LONE_TOK,
        .seed = (uint64_t)(o->seed + c->i)};
}

static void scale(struct cluster_perf *p, const double by[2])
{
    for (int k = 0; k < 3; k++) {
        p->prompt_w[k] *= by[0];
        p->token_w[k] *= by[1];
    }
    for (int k = 0; k < p->n_prompt; k++)
        p->prompt_ms[k] *= by[0];
    for (int k = 0; k < p->n_token; k++) {
        p->token_ms[k] *= by[1];
        p->token_ctx_ms[k] *= by[1];
    }
}

/* Machines hardly rest between requests that are alone: after a rest steps take longer.
 *   model_ms  [2] of their steps by the profile: prompts, tokens */
static void make_lone(struct roles_vs_sim *c, double *model_ms)
{
    const struct cluster_perf *p = &c->known->perf;
    double t_ms = 0;

    for (int i = 0; i < LONE_N; i++) {
        int64_t n_tok = 1 + (c->o->max_prompt_tok - 1) * i / LONE_N;
        double first = prompt_ms(p, n_tok);
        double others = (LONE_TOK - 1) * token_ms(p, 1, n_tok + LONE_TOK / 2);

        c->lone[i] = (struct roles_run_request){
            .arrival_s = 1e-3 * t_ms, .n_prompt = n_tok, .n_output = LONE_TOK};
        t_ms += LONE_MS + 1.5 * (first + others);
        model_ms[0] += first;
        model_ms[1] += others;
    }
}

/* How long steps take now, in proportion to the profile's, and a request beyond its steps. */
static void fit_lone(struct roles_vs_sim *c, const double *model_ms,
                     const double *busy_ms)
{
    double before = 0, between = 0;

    for (int i = 0; i < LONE_N; i++) {
        before += c->lone[i].first_ms;
        between += c->lone[i].last_ms - c->lone[i].first_ms;
    }
    c->handover_ms[c->i] = fmax(before - busy_ms[0], 0) / LONE_N;
    c->transfer_ms[c->i] = fmax(between - busy_ms[1], 0) / LONE_N;
    c->perf = c->known->perf;
    scale(&c->perf, (double[]){busy_ms[0] / model_ms[0], busy_ms[1] / model_ms[1]});
}

/* Machines that sleep do not slow each other. */
static int set_pace(struct roles_vs_sim *c)
{
    c->known->perf =
        (struct cluster_perf){.prompt_w = {2, 0.5, 0}, .token_w = {8, 0, 0.2}};
    for (int i = 0; i < 4; i++)
        c->known->contention.slowdown[i / 2][i % 2] = 1;
    c->known->measured = true;
    return cluster_perf_find("distserve", &c->known->perf.kind);
}

static int calibrate(struct roles_vs_sim *c)
{
    const struct pair_steps_opts pairs = {.model = c->o->model,
                                          .precision = c->o->precision,
                                          .prompt_tok = (c->o->max_prompt_tok + 1) / 2,
                                          .batch = (c->o->max_seqs + 1) / 2,
                                          .ctx_tok = (c->o->max_prompt_tok + 1) / 2,
                                          .rounds = c->o->pair_rounds,
                                          .window_s = 0.3};

    c->all = study_kept(c->out);
    c->known = &c->all->of[c->o->steps];
    if (c->known->measured)
        return OK;
    if (c->o->steps == PACED)
        return set_pace(c);
    TRY(study_pair_steps(c->known->contention.slowdown, &pairs, c->out));
    TRY(profile(c));
    c->known->measured = true;
    return OK;
}

/* ---- requests ---- */

/* Of a request on its prompt machine, next to token steps; one: with full batches of decode. */
static double busy_ms(const struct roles_vs_sim *c, const struct roles_run_request *r)
{
    int64_t n = c->o->max_seqs, ctx = r->n_prompt + r->n_output / 2;
    double ms = prompt_ms(&c->known->perf, r->n_prompt);

    return c->o->machines == ONE ? ms + (double)(r->n_output - 1) / (double)n *
                                            token_ms(&c->known->perf, n, ctx)
                                 : ms * c->known->contention.slowdown[0][1];
}

static int draw_requests(struct roles_vs_sim *c)
{
    const struct opts *o = c->o;
    struct dataset_opts d = {.fit = o->fit,
                             .reader = "synth",
                             .n = o->n_requests,
                             .seed = o->seed + c->i,
                             .min_prompt_tok = 1,
                             .max_prompt_tok = o->max_prompt_tok,
                             .max_output_tok = o->max_output_tok};
    struct dataset *set;
    struct rng rng;
    double all_ms = 0, rate, t = 0;

    TRY(dataset_open(&set, &d));
    c->n = set->n_items < o->n_requests ? (int)set->n_items : (int)o->n_requests;
    for (int i = 0; i < c->n; i++) {
        struct roles_run_request *r = &c->requests[i];

        r->n_prompt = set->items[i].n_prompt > 0 ? set->items[i].n_prompt : 1;
        r->n_output = set->items[i].n_output > 0 ? set->items[i].n_output : 1;
        all_ms += busy_ms(c, r);
    }
    dataset_close(&set);
    c->rate_rps[c->i] = rate = o->load * 1e3 * c->n / all_ms;
    rng_init(&rng, (uint64_t)d.seed, "arrival");
    for (int i = 0; i < c->n; i++)
        c->requests[i].arrival_s = t += rng_exp(&rng) / rate;
    return OK;
}

static void add(struct roles_vs_sim *c, const struct roles_run_request *r)
{
    c->ms[TTFT][c->n_ms[TTFT]++] = r->first_ms;
    if (r->n_output > 1)
        c->ms[TPOT][c->n_ms[TPOT]++] =
            (r->last_ms - r->first_ms) / (double)(r->n_output - 1);
}

static int run_real(struct roles_vs_sim *c)
{
    const struct roles_run_opts o = run_opts(c);
    double model_ms[2] = {0};

    make_lone(c, model_ms);
    c->n_ms[TTFT] = c->n_ms[TPOT] = 0;
    TRY(study_roles_run(c->lone, LONE_N, LONE_N + c->n, c->real_ms, &o, c->out));
    fit_lone(c, model_ms, c->real_ms[0]);
    for (int i = 0; i < c->n; i++)
        add(c, &c->requests[i]);
    return OK;
}

/* ---- the simulation ---- */

static bool next_arrival(void *ctx, struct cluster_arrival *a)
{
    struct roles_vs_sim *c = ctx;
    const struct roles_run_request *r = &c->requests[c->at];

    if (c->at++ >= c->n)
        return false;
    *a = (struct cluster_arrival){
        (int64_t)(1e9 * r->arrival_s + 1e6 * c->handover_ms[c->i]), r->n_prompt,
        r->n_output};
    return true;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct roles_vs_sim *c = ctx;
    const struct roles_run_request r = {
        .n_output = d->n_output,
        .first_ms = c->handover_ms[c->i] + 1e-6 * (double)(d->first_ns - d->arrival_ns),
        .last_ms = c->handover_ms[c->i] + 1e-6 * (double)(d->last_ns - d->arrival_ns)};

    add(c, &r);
}

static int simulate(struct roles_vs_sim *c, const struct cluster_perf *perf,
                    const struct cluster_contention *contention)
{
    const struct opts *o = c->o;
    struct cluster_machine_opts m[2];
    struct cluster_stat stat;
    struct cluster_opts co;

    for (int i = 0; i < 2; i++)
        m[i] = (struct cluster_machine_opts){
            .home = o->machines == ONE ? CLUSTER_MIXED
                    : i                ? CLUSTER_TOKEN
                                       : CLUSTER_PROMPT,
            .perf = perf,
            .kv_tok = o->max_seqs * (o->max_prompt_tok + o->max_output_tok),
            .link_alpha_ns = 1e6 * c->transfer_ms[c->i],
            .controller = 1};
    TRY(cluster_opts_init(&co));
    TRY(sched_policy_find("continuous", &co.policy));
    co.machines = m;
    co.n_machines = o->machines == ONE ? 1 : 2;
    co.n_layers = 1;
    co.prompt_threshold = co.token_threshold = INT64_MAX;
    co.max_batch_prompt_tok = 0;
    co.max_step_tok = o->max_step_tok;
    co.max_seqs = o->max_seqs;
    co.keep_frac = 0;
    co.reserve_first = true;
    co.contention = contention;
    co.next = next_arrival;
    co.next_ctx = c;
    co.observer = (struct cluster_observer){.ctx = c, .done = on_done};
    c->at = 0;
    c->n_ms[TTFT] = c->n_ms[TPOT] = 0;
    TRY(cluster_run(&stat, &co));
    for (int k = 0; k < 2; k++)
        c->sim_ms[k] = 1e-6 * stat.busy_ns[k];
    return stat.n_done == c->n ? OK
                               : err_set(ERR_STATE, "%d of %d requests were simulated",
                                         (int)stat.n_done, c->n);
}

/* Simulate with steps that take what the real ones took in total: the model's, times in_place. */
static int simulate_given(struct roles_vs_sim *c)
{
    struct cluster_perf p = c->perf;
    double by[2];

    c->in_place[0][c->i] = c->in_place[1][c->i] = 1;
    TRY(simulate(c, &p, NULL));
    for (int n = 0; n < FITS; n++) {
        for (int k = 0; k < 2; k++) {
            by[k] = c->sim_ms[k] > 0 ? c->real_ms[1][k] / c->sim_ms[k] : 1;
            c->in_place[k][c->i] *= by[k];
        }
        scale(&p, by);
        TRY(simulate(c, &p, NULL));
    }
    return OK;
}

/* ---- comparison ---- */

/* The quantiles of the seed, and all of the first one. */
static void keep(struct roles_vs_sim *c, int kind)
{
    char name[32];

    for (int l = 0; l < N_LATENCIES; l++) {
        c->shown[kind][2 * l][c->i] = stats_percentile(c->ms[l], c->n_ms[l], 0.5);
        c->shown[kind][2 * l + 1][c->i] = stats_percentile(c->ms[l], c->n_ms[l], 0.9);
        snprintf(name, sizeof(name), "%s_%s", latency_names[l], kind_names[kind]);
        if (c->i == 0 && kind != GIVEN_STEPS)
            study_series(c->out, name, "ms", c->ms[l], c->n_ms[l]);
    }
}

static int run_seed(struct roles_vs_sim *c)
{
    TRY(draw_requests(c));
    TRY(run_real(c));
    keep(c, REAL);
    TRY(simulate(c, &c->perf, &c->known->contention));
    keep(c, PREDICTED);
    TRY(simulate_given(c));
    keep(c, GIVEN_STEPS);
    return OK;
}

/* *out: the mean of the seeds, with its interval, of which half is returned. */
static double mean_of(struct roles_vs_sim *c, double *out, const double *v)
{
    double half = stats_mean_half95(v, (size_t)c->o->n_seeds);

    *out = stats_mean(v, (size_t)c->o->n_seeds);
    frame_interval(c->f, out, *out - half, *out + half);
    return half;
}

/* The largest of several errors in %, and what it is at least and at most. */
struct worst {
    double at, least, most;
};

static void add_error(struct worst *w, double ratio, double half)
{
    const double error = fabs(ratio - 1);

    w->at = fmax(w->at, 100 * error);
    w->least = fmax(w->least, 100 * fmax(error - half, 0));
    w->most = fmax(w->most, 100 * (error + half));
}

static void put_worst(struct roles_vs_sim *c, double *out, const struct worst *w)
{
    *out = w->at;
    frame_interval(c->f, out, w->least, w->most);
}

/* Ratios to the real runs, and the largest error of all. Those of the last kind are kept. */
static void compare(struct roles_vs_sim *c, int kind, const char *name, double *worst)
{
    double(*kept)[SEEDS_MAX] = c->all->queue_ratio[c->o->steps][c->o->machines];
    struct worst w = {0};

    for (int i = 0; i < N_SHOWN; i++) {
        double *out = frame_named(c->f, "%s_%s", shown[i], name), half;

        for (int64_t k = 0; k < c->o->n_seeds; k++)
            kept[i][k] = c->shown[kind][i][k] / c->shown[REAL][i][k];
        half = mean_of(c, out, kept[i]);
        add_error(&w, *out, half);
    }
    put_worst(c, worst, &w);
}

/* How much the errors of two machines differ, seed by seed. */
static void add_between(struct roles_vs_sim *c, struct worst *w, int a, int b)
{
    const size_t n = (size_t)c->o->n_seeds;
    double ratio[SEEDS_MAX];

    for (int i = 0; i < N_SHOWN; i++) {
        for (size_t k = 0; k < n; k++)
            ratio[k] = c->all->queue_ratio[c->o->steps][b][i][k] /
                       c->all->queue_ratio[c->o->steps][a][i][k];
        add_error(w, stats_mean(ratio, n), stats_mean_half95(ratio, n));
    }
}

/* Between all machines of which cells have run; after compare() of steps that are given. */
static void compare_machines(struct roles_vs_sim *c)
{
    int64_t *n_seeds = c->all->n_seeds[c->o->steps];
    struct worst w = {0};
    int n = 0;

    n_seeds[c->o->machines] = c->o->n_seeds;
    for (int b = 0; b < N_MACHINES; b++)
        for (int a = 0; a < b; a++)
            if (n_seeds[a] == c->o->n_seeds && n_seeds[b] == c->o->n_seeds) {
                add_between(c, &w, a, b);
                n++;
            }
    frame_set(c->f, &c->r->between_error, n > 0 ? w.at : NAN,
              "no cell of other machines ran before");
    if (n > 0)
        frame_interval(c->f, &c->r->between_error, w.least, w.most);
}

static void roles_vs_sim_report(struct roles_vs_sim *c)
{
    const struct calibration *k = c->known;
    struct results *r = c->r;

    frame_why(c->f, NULL, "no request had it");
    for (int i = 0; i < N_SHOWN; i++) {
        mean_of(c, frame_named(c->f, "%s_real_ms", shown[i]), c->shown[REAL][i]);
        mean_of(c, frame_named(c->f, "%s_sim_ms", shown[i]), c->shown[PREDICTED][i]);
    }
    compare(c, PREDICTED, "ratio", &r->worst_error);
    compare(c, GIVEN_STEPS, "queue_ratio", &r->worst_queue_error);
    compare_machines(c);
    mean_of(c, &r->prompt_in_place, c->in_place[0]);
    mean_of(c, &r->token_in_place, c->in_place[1]);
    r->slow_prompt_by_token = k->contention.slowdown[0][1];
    r->slow_token_by_prompt = k->contention.slowdown[1][0];
    mean_of(c, &r->handover_ms, c->handover_ms);
    mean_of(c, &r->transfer_ms, c->transfer_ms);
    mean_of(c, &r->rate_rps, c->rate_rps);
    r->n_requests = (double)(c->o->n_seeds * c->n);
    study_evidence(c->out, "simulated", "ttft_sim tpot_sim");
}

static int roles_vs_sim_run(struct roles_vs_sim *c)
{
    size_t n = (size_t)c->o->n_requests;

    if (!(c->o->steps == PACED ? c->o->paced_model : c->o->model))
        return err_set(ERR_ARG, "study.%s: expected a path, found none",
                       c->o->steps == PACED ? "paced_model" : "model");
    TRY(calibrate(c));
    c->pace = (struct serve_pace){&c->known->perf, paced_ns};
    c->lone = frame_new(c->f, LONE_N + n, sizeof(*c->lone));
    c->requests = c->lone + LONE_N;
    for (int i = 0; i < N_LATENCIES; i++)
        c->ms[i] = frame_new(c->f, n, sizeof(double));
    for (c->i = 0; c->i < c->o->n_seeds; c->i++)
        TRY(run_seed(c));
    roles_vs_sim_report(c);
    return OK;
}

STUDY(roles_vs_sim, "machines in real time, and simulated: one, two, and with transfers",
      .kept_bytes = sizeof(struct calibrations));
