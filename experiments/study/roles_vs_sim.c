/* A prompt machine and a token machine as processes, and the simulated cluster of the same two on
 * the same arrivals: TTFT and TPOT of both. The performance model, the contention of both machines
 * and the fixed cost of a hand-over are measured before, on other requests, once for all cells.
 * Paper: Splitwise V-B.   The simulator reserves memory before a prompt, as real machines do. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "cluster/cluster.h"
#include "datasets/dataset.h"
#include "experiments/study/support/pair_steps.h"
#include "experiments/study/support/roles_run.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/step_times.h"

#define POINTS_MAX  64
#define REPEATS_MAX 8
#define LONE_N      12
#define LONE_S      0.4 /* between requests that are alone */

struct opts {
    char *model, *transport, *fit, *batches, *contexts, *prompts;
    int precision;
    bool contention;
    double load;
    int64_t n_requests, repeats, max_seqs, max_step_tok, max_prompt_tok, max_output_tok;
    int64_t rounds, pair_rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(STR, transport, "shm", "How keys and values move.", .unit = "NAME"),
    OPT_ROW(STR, fit, "sharegpt", "Lengths of the requests: a fit of a data set.",
            .unit = "NAME"),
    OPT_ROW(F64, load, "0.5",
            "Rate of the requests / the rate at which the prompt machine would always be "
            "busy with one prompt at a time, alone.",
            .min = 0.01, .max = 100),
    OPT_ROW(BOOL, contention, "true", "Simulate that both machines slow each other."),
    OPT_ROW(INT, n_requests, "80", "Requests.", .min = 4, .max = 100000),
    OPT_ROW(INT, repeats, "2", "Real runs of the same requests.", .min = 2,
            .max = REPEATS_MAX),
    OPT_ROW(INT, max_seqs, "16", "Sequences of a machine.", .min = 1, .max = 1024),
    OPT_ROW(INT, max_step_tok, "512", "Tokens of a step.", .unit = "tok", .min = 1,
            .max = 65536),
    OPT_ROW(INT, max_prompt_tok, "128", "Longer prompts are cut.", .unit = "tok",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, max_output_tok, "32", "Longer outputs are cut.", .unit = "tok", .min = 1,
            .max = 1 << 20),
    OPT_ROW(STR, batches, "1 2 4 8 12 16", "Profile: batches, with every context."),
    OPT_ROW(STR, contexts, "16 64", "Profile: contexts, and the prompts before them.",
            .unit = "tok"),
    OPT_ROW(STR, prompts, "8 32 128", "Profile: lengths of single prompts.",
            .unit = "tok"),
    OPT_ROW(INT, rounds, "3", "Profile: rounds, each of all points.", .min = 1,
            .max = 99),
    OPT_ROW(INT, pair_rounds, "5",
            "Rounds of steps alone and next to those of the other machine.", .min = 1,
            .max = 32),
    OPT_ROW(INT, seed, "1", "Seed of lengths and arrivals.", .min = 1, .max = 1 << 30),
    {0},
};

#define METRICS_OF(x, text)                                                              \
    {x "_real_ms", "ms", "lower", text ", real: mean of the repeats"},                   \
        {x "_sim_ms", "ms", "lower", text ", simulated"},                                \
    {                                                                                    \
        x "_ratio", "x", "", text ": simulated / real, with the interval of the repeats" \
    }

static const struct study_metric metrics[] = {
    METRICS_OF("ttft_p50", "median time to the first token"),
    METRICS_OF("ttft_p90", "90th percentile of the time to the first token"),
    METRICS_OF("tpot_p50", "median time per later token"),
    METRICS_OF("tpot_p90", "90th percentile of the time per later token"),
    {"worst_error", "%", "lower", "the largest of the four |ratio - 1|"},
    {"n_within", "", "higher",
     "of the four: within 5 %, or within the 95 % interval of the repeats"},
    {"slow_prompt_by_prompt", "x", "lower", "time of a prompt next to a prompt / alone"},
    {"slow_prompt_by_token", "x", "lower",
     "time of a prompt next to token steps / alone"},
    {"slow_token_by_prompt", "x", "lower",
     "time of a token step next to prompts / alone"},
    {"slow_token_by_token", "x", "lower", "time of a token step next to others / alone"},
    {"handover_ms", "ms", "lower", "fixed time from a request to its prompt machine"},
    {"transfer_ms", "ms", "lower", "fixed time from a prompt's end to its token machine"},
    {"rate_rps", "/s", "", "rate of the requests"},
    {"n_requests", "", "", "requests"},
    {0},
};

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

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct calibration *known;
    int n;
    struct roles_run_request *r; /* [n] */
    double *real[N_LATENCIES];   /* [repeats][n] */
    double *sim[N_LATENCIES];    /* [n] */
    size_t n_of[N_LATENCIES];    /* of the n requests those that have it */
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

static int profile(struct cell *c)
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

/* What a request takes next to its steps: of requests that are alone, of two tokens. */
static int calibrate_handover(struct cell *c)
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

static int calibrate(struct cell *c)
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

static int draw_requests(struct cell *c)
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
    c->r = mem_new(MEM_HARNESS, (size_t)c->n, sizeof(*c->r));
    for (int i = 0; i < c->n; i++) {
        c->r[i].n_prompt = set->items[i].n_prompt > 0 ? set->items[i].n_prompt : 1;
        c->r[i].n_output = set->items[i].n_output > 0 ? set->items[i].n_output : 1;
        busy_ms += prompt_ms(&c->known->perf, c->r[i].n_prompt);
    }
    dataset_close(&set);
    c->rate = o->load * 1e3 * c->n / busy_ms;
    rng_init(&rng, (uint64_t)o->seed, "arrival");
    for (int i = 0; i < c->n; i++)
        c->r[i].arrival_s = t += rng_exp(&rng) / c->rate;
    return OK;
}

static void add(double **v, size_t *n, const struct roles_run_request *r)
{
    v[TTFT][n[TTFT]++] = r->first_ms;
    if (r->n_output > 1)
        v[TPOT][n[TPOT]++] = (r->last_ms - r->first_ms) / (double)(r->n_output - 1);
}

static int run_real(struct cell *c)
{
    const struct roles_run_opts o = run_opts(c->o, (uint64_t)c->o->seed);

    for (int64_t k = 0; k < c->o->repeats; k++) {
        double *v[N_LATENCIES] = {c->real[TTFT] + k * c->n, c->real[TPOT] + k * c->n};
        size_t n[N_LATENCIES] = {0};

        TRY(study_roles_run(c->r, c->n, &o, c->out));
        for (int i = 0; i < c->n; i++)
            add(v, n, &c->r[i]);
    }
    return OK;
}

/* ---- the simulation ---- */

static bool next_arrival(void *ctx, struct cluster_arrival *a)
{
    struct cell *c = ctx;
    const struct roles_run_request *r = &c->r[c->at];

    if (c->at++ >= c->n)
        return false;
    *a = (struct cluster_arrival){
        (int64_t)(1e9 * r->arrival_s + 1e6 * c->known->handover_ms), r->n_prompt,
        r->n_output};
    return true;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct cell *c = ctx;
    const struct roles_run_request r = {
        .n_output = d->n_output,
        .first_ms = c->known->handover_ms + 1e-6 * (double)(d->first_ns - d->arrival_ns),
        .last_ms = c->known->handover_ms + 1e-6 * (double)(d->last_ns - d->arrival_ns)};

    add(c->sim, c->n_of, &r);
}

static int simulate(struct cell *c)
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

/* ---- what comes out ---- */

/* Of the repeats' quantiles: mean, and the 95 % interval of it. */
static void compare(struct cell *c, int latency, int q, double *worst, int *n_within)
{
    double v[REPEATS_MAX], half, lo, hi, sim, ratio;
    int64_t n = c->o->repeats;
    char name[32];
    double mean;

    for (int64_t k = 0; k < n; k++)
        v[k] =
            stats_percentile(c->real[latency] + k * c->n, c->n_of[latency], quantiles[q]);
    mean = stats_mean(v, (size_t)n);
    half = stats_mean_half95(v, (size_t)n);
    lo = mean - half;
    hi = mean + half;
    sim = stats_percentile(c->sim[latency], c->n_of[latency], quantiles[q]);
    ratio = sim / mean;
    *worst = fmax(*worst, fabs(ratio - 1));
    *n_within += fabs(ratio - 1) <= 0.05 || (sim >= lo && sim <= hi);
    snprintf(name, sizeof(name), "%s_%s_real_ms", latency_names[latency],
             quantile_names[q]);
    study_value_interval(c->out, name, mean, lo, hi, "no request had it");
    snprintf(name, sizeof(name), "%s_%s_sim_ms", latency_names[latency],
             quantile_names[q]);
    study_value(c->out, name, sim, "no request had it");
    snprintf(name, sizeof(name), "%s_%s_ratio", latency_names[latency],
             quantile_names[q]);
    study_value_interval(c->out, name, ratio, lo > 0 ? sim / hi : NAN,
                         lo > 0 ? sim / lo : NAN, "no request had it");
}

static void report(struct cell *c)
{
    const struct calibration *k = c->known;
    double worst = 0;
    int n_within = 0;

    for (int i = 0; i < N_LATENCIES; i++)
        for (int q = 0; q < 2; q++)
            compare(c, i, q, &worst, &n_within);
    const struct study_number v[] = {
        {"worst_error", 100 * worst},
        {"n_within", n_within},
        {"slow_prompt_by_prompt", k->contention.slowdown[0][0]},
        {"slow_prompt_by_token", k->contention.slowdown[0][1]},
        {"slow_token_by_prompt", k->contention.slowdown[1][0]},
        {"slow_token_by_token", k->contention.slowdown[1][1]},
        {"handover_ms", k->handover_ms},
        {"transfer_ms", k->transfer_ms},
        {"rate_rps", c->rate},
        {"n_requests", c->n},
    };

    STUDY_VALUES(c->out, v, "it was not measured");
    for (int i = 0; i < N_LATENCIES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_real", latency_names[i]);
        study_series(c->out, name, "ms", c->real[i],
                     c->n_of[i]); /* of the first repeat */
        snprintf(name, sizeof(name), "%s_sim", latency_names[i]);
        study_series(c->out, name, "ms", c->sim[i], c->n_of[i]);
    }
    study_evidence(c->out, "simulated",
                   "ttft_p50_sim_ms ttft_p90_sim_ms tpot_p50_sim_ms tpot_p90_sim_ms "
                   "ttft_sim tpot_sim");
}

static int run(struct cell *c)
{
    size_t n;

    if (!c->o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(calibrate(c));
    TRY(draw_requests(c));
    n = (size_t)c->n;
    for (int i = 0; i < N_LATENCIES; i++) {
        c->real[i] = mem_new(MEM_HARNESS, n * (size_t)c->o->repeats, sizeof(double));
        c->sim[i] = mem_new(MEM_HARNESS, n, sizeof(double));
    }
    TRY(run_real(c));
    TRY(simulate(c));
    report(c);
    return OK;
}

static void end(struct cell *c)
{
    mem_free(c->r);
    for (int i = 0; i < N_LATENCIES; i++) {
        mem_free(c->real[i]);
        mem_free(c->sim[i]);
    }
}

STUDY(roles_vs_sim, "prompt and token machines as processes, and simulated",
      .kept_bytes = sizeof(struct calibration));
