/* One load on a cluster, and what its requests waited for. */
#include <math.h>
#include <time.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/study/support/cluster.h"

/* The requests of one load, in order of arrival. */
struct stream {
    const struct study_cluster *c;
    double rate, t_s, first_s; /* first_s: of the trace's first request that is used */
    int64_t at;                /* recorded: the next request of the trace */
    struct rng sizes, arrivals;
};

static struct stream new_stream(const struct study_cluster *c, double rate)
{
    struct stream s = {.c = c, .rate = rate};

    rng_init(&s.sizes, (uint64_t)c->o->seed, "sample");
    rng_init(&s.arrivals, (uint64_t)c->o->seed, "arrival");
    s.at = (int64_t)rng_below(&s.arrivals, (uint64_t)c->trace->n_items);
    s.first_s = c->trace->items[s.at].arrival_s;
    return s;
}

/* A recorded trace is repeated from its beginning after its end. */
static const struct dataset_item *next_recorded(struct stream *s)
{
    const struct dataset *d = s->c->trace;
    const struct dataset_item *e = &d->items[s->at];

    s->t_s = (e->arrival_s - s->first_s) * s->c->trace_rate / s->rate;
    if (++s->at == d->n_items) {
        s->at = 0;
        s->first_s -= e->arrival_s + 1 / s->c->trace_rate;
    }
    return e;
}

static bool next_request(void *ctx, struct cluster_arrival *out)
{
    struct stream *s = ctx;
    const struct dataset *d = s->c->trace;
    const struct dataset_item *e;

    if (s->c->o->arrivals == STUDY_CLUSTER_RECORDED) {
        e = next_recorded(s);
    } else {
        e = &d->items[rng_below(&s->sizes, (uint64_t)d->n_items)];
        s->t_s += rng_exp(&s->arrivals) / s->rate;
    }
    *out = (struct cluster_arrival){.t_ns = (int64_t)(1e9 * s->t_s),
                                    .n_prompt = s->c->prompt_tok > 0 ? s->c->prompt_tok
                                                : e->n_prompt > 0    ? e->n_prompt
                                                                     : 1,
                                    .n_output = e->n_output > 0 ? e->n_output : 1};
    return s->t_s < s->c->o->duration_s;
}

/* ---- what is measured ---- */

struct collector {
    const struct study_cluster *c;
    const struct study_cluster_load *load;
    struct study_cluster_result *out;
    struct stream stream;
    int n_prompt;
    int64_t from_ns, to_ns; /* measured */
    int64_t n_expected[CLUSTER_N_LATENCIES], n[CLUSTER_N_LATENCIES];
    int64_t n_over[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES];
    double *ms[CLUSTER_N_LATENCIES], *slowdown[CLUSTER_N_LATENCIES]; /* [n_expected] */
    double gaps_ms;
    int64_t n_completed;
};

static bool is_measured(const struct collector *k, int64_t t_ns)
{
    return t_ns >= k->from_ns && t_ns < k->to_ns;
}

static void add(struct collector *k, int latency, double ms, double reference_ms)
{
    int64_t n = k->n_expected[latency];
    double slowdown = ms / reference_ms;

    k->ms[latency][k->n[latency]] = ms;
    k->slowdown[latency][k->n[latency]++] = slowdown;
    for (int i = 0; i < CLUSTER_N_PERCENTILES; i++) {
        int64_t rank = (int64_t)ceil(cluster_percentiles[i] * (double)n);

        k->n_over[latency][i] += !(slowdown <= cluster_slo[latency][i]);
        if (k->load->stop_early && k->n_over[latency][i] > n - rank)
            k->out->stopped = true;
    }
}

/* A request that is refused never has its tokens. */
static void add_request(struct collector *k, const struct cluster_done *d)
{
    struct cluster_work prompt = {.n_prompt_tok = d->n_prompt,
                                  .sum_prompt_sq =
                                      (double)d->n_prompt * (double)d->n_prompt};
    struct cluster_work token = {.n_decode = 1, .ctx_tok = d->n_prompt};
    double ttft = 1e-6 * (double)cluster_perf_step_ns(&k->c->reference, &prompt);
    double tbt = 1e-6 * (double)cluster_perf_step_ns(&k->c->reference, &token);
    double later = (double)(d->n_output - 1);
    double first_ms = 1e-6 * (double)(d->first_ns - d->arrival_ns);
    double last_ms = 1e-6 * (double)(d->last_ns - d->arrival_ns);

    if (d->refused)
        first_ms = last_ms = INFINITY;
    k->out->n_refused += d->refused;
    add(k, CLUSTER_TTFT, first_ms, ttft);
    add(k, CLUSTER_E2E, last_ms, ttft + later * tbt);
    if (d->n_output == 1)
        return;
    add(k, CLUSTER_TBT,
        d->refused ? INFINITY
                   : (last_ms - first_ms) / (k->c->tbt_over_all ? later + 1 : later),
        tbt);
    k->gaps_ms += 1e-6 * (double)d->max_gap_ns;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct collector *k = ctx;

    if (k->load->watch.done)
        k->load->watch.done(k->load->watch.ctx, d);
    k->n_completed += !d->refused && is_measured(k, d->last_ns);
    if (is_measured(k, d->arrival_ns))
        add_request(k, d);
}

static void on_step(void *ctx, const struct cluster_step *s)
{
    struct collector *k = ctx;
    int home = s->machine >= k->n_prompt;
    int64_t n_tok = s->n_prompt_tok + s->n_decode;
    double seconds = 1e-9 * (double)(s->end_ns - s->start_ns);

    if (k->load->watch.step)
        k->load->watch.step(k->load->watch.ctx, s);
    if (!is_measured(k, s->start_ns))
        return;
    k->out->busy_s[home] += seconds;
    k->out->busy_mixed_s += s->pool == CLUSTER_MIXED ? seconds : 0;
    k->out
        ->by_tok_s[home][n_tok < STUDY_CLUSTER_TOK_MAX ? n_tok : STUDY_CLUSTER_TOK_MAX] +=
        seconds;
}

static void on_moved(void *ctx, const struct cluster_move *m)
{
    struct collector *k = ctx;

    if (k->load->watch.moved)
        k->load->watch.moved(k->load->watch.ctx, m);
}

/* How many requests will be measured: the same stream, once before. */
static int open_collector(struct collector *k)
{
    struct stream s = new_stream(k->c, k->load->rate);
    struct cluster_arrival a;

    k->stream = s;
    while (next_request(&s, &a)) {
        bool measured = is_measured(k, a.t_ns);

        k->out->n_measured += measured;
        k->out->n_excluded += !measured;
        k->n_expected[CLUSTER_TTFT] += measured;
        k->n_expected[CLUSTER_E2E] += measured;
        k->n_expected[CLUSTER_TBT] += measured && a.n_output > 1;
    }
    if (k->n_expected[CLUSTER_TBT] < 1)
        return err_set(ERR_ARG,
                       "no request with two tokens arrives between %g and %g s at %g per "
                       "second",
                       1e-9 * (double)k->from_ns, 1e-9 * (double)k->to_ns, k->load->rate);
    for (int i = 0; i < CLUSTER_N_LATENCIES; i++) {
        k->ms[i] = mem_new(MEM_HARNESS, (size_t)k->n_expected[i], sizeof(double));
        k->slowdown[i] = mem_new(MEM_HARNESS, (size_t)k->n_expected[i], sizeof(double));
    }
    return OK;
}

static void close_collector(struct collector *k)
{
    for (int i = 0; i < CLUSTER_N_LATENCIES; i++) {
        mem_free(k->ms[i]);
        mem_free(k->slowdown[i]);
    }
}

/* Requests that never end. */
static void add_stuck(struct collector *k)
{
    k->out->n_stuck = k->n_expected[CLUSTER_TTFT] - k->n[CLUSTER_TTFT];
    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        while (k->n[i] < k->n_expected[i])
            add(k, i, INFINITY, 1);
}

static void summarize(struct collector *k)
{
    struct study_cluster_result *r = k->out;

    for (int i = 0; i < CLUSTER_N_LATENCIES; i++) {
        size_t n = (size_t)k->n[i];

        r->mean_ms[i] = stats_mean(k->ms[i], n);
        for (int p = 0; p < CLUSTER_N_PERCENTILES; p++) {
            double q = cluster_percentiles[p];

            r->ms[i][p] = stats_percentile(k->ms[i], n, q);
            r->slowdown[i][p] = stats_percentile(k->slowdown[i], n, q);
        }
    }
    r->met = !r->stopped &&
             cluster_slo_met((const double(*)[CLUSTER_N_PERCENTILES])r->slowdown);
    r->max_gap_ms = k->gaps_ms / (double)k->n[CLUSTER_TBT];
    r->completed_rps = (double)k->n_completed / (1e-9 * (double)(k->to_ns - k->from_ns));
}

static void fill_machines(struct cluster_machine_opts *m, const struct study_cluster *c,
                          const struct study_cluster_load *load)
{
    for (int i = 0; i < load->n_prompt + load->n_token; i++) {
        bool is_prompt = i < load->n_prompt;
        const struct cluster_card *card = is_prompt ? &c->prompt_card : &c->token_card;

        m[i] = (struct cluster_machine_opts){
            .home = c->is_baseline ? CLUSTER_MIXED
                    : is_prompt    ? CLUSTER_PROMPT
                                   : CLUSTER_TOKEN,
            .perf = is_prompt ? &c->prompt_perf : &c->token_perf,
            .kv_tok = is_prompt ? c->prompt_kv_tok : c->token_kv_tok,
            .link_gbps = card->link_gbps,
            .link_alpha_ns = 1e6 * card->link_alpha_ms};
    }
}

int study_cluster_run(struct study_cluster_result *out, const struct study_cluster *c,
                      const struct study_cluster_load *load)
{
    int n = load->n_prompt + load->n_token;
    struct cluster_machine_opts *machines;
    struct cluster_opts o = c->cluster;
    struct collector k = {.c = c, .load = load, .out = out, .n_prompt = load->n_prompt};
    double measured_s = c->o->duration_s - c->o->warmup_s - c->o->cooldown_s;
    clock_t start;
    int rc;

    *out = (struct study_cluster_result){
        .machine_s = {load->n_prompt * measured_s, load->n_token * measured_s}};
    k.from_ns = (int64_t)(1e9 * c->o->warmup_s);
    k.to_ns = (int64_t)(1e9 * (c->o->duration_s - c->o->cooldown_s));
    machines = mem_new(MEM_HARNESS, (size_t)n, sizeof(*machines));
    fill_machines(machines, c, load);
    o.machines = machines;
    o.n_machines = n;
    o.next = next_request;
    o.next_ctx = &k.stream;
    o.stop = &out->stopped;
    o.observer = (struct cluster_observer){
        .ctx = &k, .step = on_step, .moved = on_moved, .done = on_done};
    rc = open_collector(&k);
    start = clock();
    if (rc == OK)
        rc = cluster_run(&out->stat, &o);
    out->wall_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (rc == ERR_STATE) { /* machines that are full wait for each other */
        add_stuck(&k);
        err_clear();
        rc = OK;
    }
    if (rc == OK)
        summarize(&k);
    close_collector(&k);
    mem_free(machines);
    return rc;
}

double study_cluster_up_to(int n_tok, const double *by_tok_s)
{
    double sum = 0;

    for (int i = 0; i <= n_tok; i++)
        sum += by_tok_s[i];
    return sum;
}

double study_cluster_mean_tok(const double *by_tok_s)
{
    double sum = 0;

    for (int i = 0; i <= STUDY_CLUSTER_TOK_MAX; i++)
        sum += i * by_tok_s[i];
    return sum / study_cluster_up_to(STUDY_CLUSTER_TOK_MAX, by_tok_s);
}

void study_cluster_up_to_each(struct study_cell *out, const char *name, const double *at,
                              int n, const double *by_tok_s, double all_s)
{
    double *frac = mem_new(MEM_HARNESS, (size_t)n, sizeof(*frac));

    for (int i = 0; i < n; i++)
        frac[i] = study_cluster_up_to((int)at[i], by_tok_s) / all_s;
    study_series(out, name, "", frac, (size_t)n);
    mem_free(frac);
}

double study_cluster_slo_use(const struct study_cluster_result *r)
{
    double most = 0;

    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        for (int p = 0; p < CLUSTER_N_PERCENTILES; p++)
            most = fmax(most, r->slowdown[i][p] / cluster_slo[i][p]);
    return most;
}

/* ---- the highest rate ---- */

#define REQUESTS_MIN   20 /* measured, at the lowest rate */
#define RATE_MAX       1e5
#define RATE_TOLERANCE 0.02

struct rates {
    const struct study_cluster *c;
    int n_prompt, n_token;
};

int study_cluster_meets(bool *met, const struct study_cluster *c, int n_prompt,
                        int n_token, double rate)
{
    struct study_cluster_result *r = mem_new(MEM_HARNESS, 1, sizeof(*r));
    struct study_cluster_load load = {
        .n_prompt = n_prompt, .n_token = n_token, .rate = rate, .stop_early = true};
    struct study_cluster tuned = *c;
    int rc = OK;

    *met = false;
    for (int i = 0; i < c->n_thresholds && rc == OK && !*met; i++) {
        tuned.cluster.token_threshold = c->token_thresholds[i];
        rc = study_cluster_run(r, &tuned, &load);
        *met = rc == OK && r->met;
    }
    mem_free(r);
    return rc;
}

static int meets(void *ctx, double rate, bool *met)
{
    const struct rates *x = ctx;

    return study_cluster_meets(met, x->c, x->n_prompt, x->n_token, rate);
}

int study_cluster_max_rate(double *out, const struct study_cluster *c, int n_prompt,
                           int n_token, double above)
{
    struct rates x = {c, n_prompt, n_token};
    double measured_s = c->o->duration_s - c->o->warmup_s - c->o->cooldown_s;
    double least = above > 0 ? above * (1 + RATE_TOLERANCE) : REQUESTS_MIN / measured_s;
    double lo = fmax(above > 0 ? 0 : n_prompt + n_token, least), hi;
    bool met;

    *out = 0;
    TRY(meets(&x, lo, &met));
    while (!met && lo > least) {
        lo = fmax(lo / 2, least);
        TRY(meets(&x, lo, &met));
    }
    if (!met)
        return OK;
    for (hi = 2 * lo; met && hi < RATE_MAX; hi *= 2) {
        TRY(meets(&x, hi, &met));
        lo = met ? hi : lo;
    }
    return cluster_max_rate(out, meets, &x, lo, fmin(2 * lo, RATE_MAX), RATE_TOLERANCE);
}
