/* A prompt machine and a token machine as processes, and the simulated cluster of the same two on
 * the same arrivals: TTFT and TPOT of both. The performance model, the contention of both machines
 * and the fixed cost of a hand-over are measured before, on other requests, once for all cells.
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

#define POINTS_MAX  64
#define REPEATS_MAX 8
#define LONE_N      12
#define LONE_S      0.4 /* between requests that are alone */

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(STR, transport, "shm", "How keys and values move.", .unit = "NAME")                \
    X(STR, fit, "sharegpt", "Lengths of the requests: a fit of a data set.",             \
      .unit = "NAME")                                                                    \
    X(F64, load, "0.5",                                                                  \
      "Rate of the requests / the rate at which the prompt machine would always be "     \
      "busy with one prompt at a time, alone.",                                          \
      .min = 0.01, .max = 100)                                                           \
    X(BOOL, contention, "true", "Simulate that both machines slow each other.")          \
    X(INT, n_requests, "80", "Requests.", .min = 4, .max = 100000)                       \
    X(INT, repeats, "2", "Real runs of the same requests.", .min = 2,                    \
      .max = REPEATS_MAX)                                                                \
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
    X(INT, seed, "1", "Seed of lengths and arrivals.", .min = 1, .max = 1 << 30)

#define RESULTS_OF(X, id, text)                                                          \
    X(id##_real_ms, "ms", LOWER, text ", real: mean of the repeats")                     \
    X(id##_sim_ms, "ms", LOWER | SIMULATED, text ", simulated")                          \
    X(id##_ratio, "x", 0, text ": simulated / real, with the interval of the repeats")
#define RESULTS(X)                                                                       \
    RESULTS_OF(X, ttft_p50, "median time to the first token")                            \
    RESULTS_OF(X, ttft_p90, "90th percentile of the time to the first token")            \
    RESULTS_OF(X, tpot_p50, "median time per later token")                               \
    RESULTS_OF(X, tpot_p90, "90th percentile of the time per later token")               \
    X(worst_error, "%", LOWER, "the largest of the four |ratio - 1|")                    \
    X(n_within, "", HIGHER,                                                              \
      "of the four: within 5 %, or within the 95 % interval of the repeats")             \
    X(slow_prompt_by_prompt, "x", LOWER, "time of a prompt next to a prompt / alone")    \
    X(slow_prompt_by_token, "x", LOWER, "time of a prompt next to token steps / alone")  \
    X(slow_token_by_prompt, "x", LOWER, "time of a token step next to prompts / alone")  \
    X(slow_token_by_token, "x", LOWER, "time of a token step next to others / alone")    \
    X(handover_ms, "ms", LOWER, "fixed time from a request to its prompt machine")       \
    X(transfer_ms, "ms", LOWER, "fixed time from a prompt's end to its token machine")   \
    X(rate_rps, "/s", 0, "rate of the requests")                                         \
    X(n_requests, "", 0, "requests")

FRAME_TYPES;

struct calibration {
    bool measured;
    struct cluster_perf perf;
    struct cluster_contention contention;
    double handover_ms, transfer_ms;
};

enum { TTFT, TPOT, N_LATENCIES };
static const char *const latency_names[] = {"ttft", "tpot"};
static const double quantiles[] = {0.5, 0.9};
static const char *const quantile_names[] = {"p50", "p90"};

struct roles_vs_sim {
    FRAME_CELL;
    struct calibration *known;
    int n;
    struct roles_run_request *requests; /* [n] */
    double *real[N_LATENCIES];          /* [repeats][n] */
    double *sim[N_LATENCIES];           /* [n] */
    size_t n_of[N_LATENCIES];           /* of the n requests those that have it */
    double rate;
    int at; /* next arrival of the simulation */
};

/* ---- calibration ---- */

static int add_points(struct cluster_point *p, int *n, const char *batches,
                      const char *contexts)
{
    int batch, context, used;

    for (const char *b = batches; sscanf(b, " %d%n", &batch, &used) == 1; b += used)
        for (const char *c = contexts; sscanf(c, " %d%n", &context, &used) == 1;
             c += used) {
            bool known = false;

            for (int i = 0; i < *n; i++)
                known |= p[i].batch == batch && p[i].prompt_tok == context;
            if (known)
                continue;
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

static double token_ms(const struct cluster_perf *p, int64_t ctx)
{
    const struct cluster_work w = {.n_decode = 1, .ctx_tok = ctx};

    return 1e-6 * (double)cluster_perf_step_ns(p, &w);
}

static struct roles_run_opts run_opts(const struct opts *o, uint64_t seed)
{
    return (struct roles_run_opts){.model = o->model,
                                   .roles = "prompt=1:threads=1,token=1:threads=1",
                                   .transport = o->transport,
                                   .precision = o->precision,
                                   .max_seqs = o->max_seqs,
                                   .max_step_tok = o->max_step_tok,
                                   .max_tok = o->max_prompt_tok + o->max_output_tok,
                                   .seed = seed};
}

/* The time of a request beyond its steps, by requests of two tokens that are alone. */
static int calibrate_handover(struct roles_vs_sim *c)
{
    const struct roles_run_opts o = run_opts(c->o, 77);
    struct roles_run_request r[LONE_N];
    double before[LONE_N], between[LONE_N];
    int64_t most = c->o->max_prompt_tok;

    for (int i = 0; i < LONE_N; i++)
        r[i] = (struct roles_run_request){.arrival_s = LONE_S * i,
                                          .n_prompt = 1 + (most - 1) * i / LONE_N,
                                          .n_output = 2};
    TRY(study_roles_run(r, LONE_N, &o, c->out));
    for (int i = 0; i < LONE_N; i++) {
        before[i] = r[i].first_ms - prompt_ms(&c->known->perf, r[i].n_prompt);
        between[i] =
            r[i].last_ms - r[i].first_ms - token_ms(&c->known->perf, r[i].n_prompt);
    }
    c->known->handover_ms = fmax(stats_median(before, LONE_N), 0);
    c->known->transfer_ms = fmax(stats_median(between, LONE_N), 0);
    return OK;
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
    double alone_ms[2];

    c->known = study_kept(c->out);
    if (c->known->measured)
        return OK;
    TRY(study_pair_steps(c->known->contention.slowdown, alone_ms, &pairs, c->out));
    TRY(profile(c));
    TRY(calibrate_handover(c));
    c->known->measured = true;
    return OK;
}

/* ---- requests ---- */

static int draw_requests(struct roles_vs_sim *c)
{
    const struct opts *o = c->o;
    struct dataset_opts d = {.fit = o->fit,
                             .reader = "synth",
                             .n = o->n_requests,
                             .seed = o->seed,
                             .min_prompt_tok = 1,
                             .max_prompt_tok = o->max_prompt_tok,
                             .max_output_tok = o->max_output_tok};
    struct dataset *set;
    struct rng rng;
    double busy_ms = 0, t = 0;

    TRY(dataset_open(&set, &d));
    c->n = (int)set->n_items;
    c->requests = frame_new(c->f, (size_t)c->n, sizeof(*c->requests));
    for (int i = 0; i < c->n; i++) {
        c->requests[i].n_prompt = set->items[i].n_prompt > 0 ? set->items[i].n_prompt : 1;
        c->requests[i].n_output = set->items[i].n_output > 0 ? set->items[i].n_output : 1;
        busy_ms += prompt_ms(&c->known->perf, c->requests[i].n_prompt);
    }
    dataset_close(&set);
    c->rate = o->load * 1e3 * c->n / busy_ms;
    rng_init(&rng, (uint64_t)o->seed, "arrival");
    for (int i = 0; i < c->n; i++)
        c->requests[i].arrival_s = t += rng_exp(&rng) / c->rate;
    return OK;
}

static void add(double **v, size_t *n, const struct roles_run_request *r)
{
    v[TTFT][n[TTFT]++] = r->first_ms;
    if (r->n_output > 1)
        v[TPOT][n[TPOT]++] = (r->last_ms - r->first_ms) / (double)(r->n_output - 1);
}

static int run_real(struct roles_vs_sim *c)
{
    const struct roles_run_opts o = run_opts(c->o, (uint64_t)c->o->seed);

    for (int64_t k = 0; k < c->o->repeats; k++) {
        double *v[N_LATENCIES] = {c->real[TTFT] + k * c->n, c->real[TPOT] + k * c->n};
        size_t n[N_LATENCIES] = {0};

        TRY(study_roles_run(c->requests, c->n, &o, c->out));
        for (int i = 0; i < c->n; i++)
            add(v, n, &c->requests[i]);
    }
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
        (int64_t)(1e9 * r->arrival_s + 1e6 * c->known->handover_ms), r->n_prompt,
        r->n_output};
    return true;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct roles_vs_sim *c = ctx;
    const struct roles_run_request r = {
        .n_output = d->n_output,
        .first_ms = c->known->handover_ms + 1e-6 * (double)(d->first_ns - d->arrival_ns),
        .last_ms = c->known->handover_ms + 1e-6 * (double)(d->last_ns - d->arrival_ns)};

    add(c->sim, c->n_of, &r);
}

static int simulate(struct roles_vs_sim *c)
{
    const struct opts *o = c->o;
    struct cluster_machine_opts m[2];
    struct cluster_stat stat;
    struct cluster_opts co;

    for (int i = 0; i < 2; i++)
        m[i] = (struct cluster_machine_opts){
            .home = i ? CLUSTER_TOKEN : CLUSTER_PROMPT,
            .perf = &c->known->perf,
            .kv_tok = o->max_seqs * (o->max_prompt_tok + o->max_output_tok),
            .link_alpha_ns = 1e6 * c->known->transfer_ms,
            .controller = 1};
    TRY(cluster_opts_init(&co));
    TRY(sched_policy_find("continuous", &co.policy));
    co.machines = m;
    co.n_machines = 2;
    co.n_layers = 1;
    co.prompt_threshold = co.token_threshold = INT64_MAX;
    co.max_batch_prompt_tok = 0;
    co.max_step_tok = o->max_step_tok;
    co.max_seqs = o->max_seqs;
    co.keep_frac = 0;
    co.reserve_first = true;
    co.contention = o->contention ? &c->known->contention : NULL;
    co.next = next_arrival;
    co.next_ctx = c;
    co.observer = (struct cluster_observer){.ctx = c, .done = on_done};
    TRY(cluster_run(&stat, &co));
    return stat.n_done == c->n ? OK
                               : err_set(ERR_STATE, "%d of %d requests were simulated",
                                         (int)stat.n_done, c->n);
}

/* ---- comparison ---- */

/* The mean of the repeats' quantiles, with its 95 % interval, and the simulated quantile. */
static void compare(struct roles_vs_sim *c, int latency, int q)
{
    const char *name = latency_names[latency], *of = quantile_names[q];
    double v[REPEATS_MAX], half, lo, hi, mean, sim, error;
    double *real_ms = frame_named(c->f, "%s_%s_real_ms", name, of);
    double *ratio = frame_named(c->f, "%s_%s_ratio", name, of);
    int64_t n = c->o->repeats;

    for (int64_t k = 0; k < n; k++)
        v[k] =
            stats_percentile(c->real[latency] + k * c->n, c->n_of[latency], quantiles[q]);
    mean = stats_mean(v, (size_t)n);
    half = stats_mean_half95(v, (size_t)n);
    lo = mean - half;
    hi = mean + half;
    sim = stats_percentile(c->sim[latency], c->n_of[latency], quantiles[q]);
    error = fabs(sim / mean - 1);
    c->r->worst_error = fmax(c->r->worst_error, 100 * error);
    c->r->n_within += error <= 0.05 || (sim >= lo && sim <= hi);
    *real_ms = mean;
    frame_interval(c->f, real_ms, lo, hi);
    *frame_named(c->f, "%s_%s_sim_ms", name, of) = sim;
    *ratio = sim / mean;
    frame_interval(c->f, ratio, lo > 0 ? sim / hi : NAN, lo > 0 ? sim / lo : NAN);
}

static void roles_vs_sim_report(struct roles_vs_sim *c)
{
    const struct calibration *k = c->known;
    struct results *r = c->r;

    frame_why(c->f, NULL, "no request had it");
    r->worst_error = r->n_within = 0;
    for (int i = 0; i < N_LATENCIES; i++)
        for (int q = 0; q < 2; q++)
            compare(c, i, q);
    r->slow_prompt_by_prompt = k->contention.slowdown[0][0];
    r->slow_prompt_by_token = k->contention.slowdown[0][1];
    r->slow_token_by_prompt = k->contention.slowdown[1][0];
    r->slow_token_by_token = k->contention.slowdown[1][1];
    r->handover_ms = k->handover_ms;
    r->transfer_ms = k->transfer_ms;
    r->rate_rps = c->rate;
    r->n_requests = c->n;
    for (int i = 0; i < N_LATENCIES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_real", latency_names[i]);
        study_series(c->out, name, "ms", c->real[i],
                     c->n_of[i]); /* of the first repeat */
        snprintf(name, sizeof(name), "%s_sim", latency_names[i]);
        study_series(c->out, name, "ms", c->sim[i], c->n_of[i]);
    }
    study_evidence(c->out, "simulated", "ttft_sim tpot_sim");
}

static int roles_vs_sim_run(struct roles_vs_sim *c)
{
    size_t n;

    if (!c->o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(calibrate(c));
    TRY(draw_requests(c));
    n = (size_t)c->n;
    for (int i = 0; i < N_LATENCIES; i++) {
        c->real[i] = frame_new(c->f, n * (size_t)c->o->repeats, sizeof(double));
        c->sim[i] = frame_new(c->f, n, sizeof(double));
    }
    TRY(run_real(c));
    TRY(simulate(c));
    roles_vs_sim_report(c);
    return OK;
}

STUDY(roles_vs_sim, "prompt and token machines as processes, and simulated",
      .kept_bytes = sizeof(struct calibration));
