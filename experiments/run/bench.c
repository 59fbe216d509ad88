#include "experiments/run/bench.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text_number.h"
#include "experiments/load/search.h"
#include "experiments/run/run.h"

#define OPT_OF struct run_bench_opts
const struct opt_row run_bench_opt_table[] = {
    OPT_ROW(F64, slo_ttft_ms, "1000",
            "Objective: time from a request's arrival to its first token.", .unit = "ms",
            .min = 0.001, .max = 1e6),
    OPT_ROW(F64, slo_tpot_ms, "100",
            "Objective: mean time per token after the first. 100 is faster than most "
            "people read.",
            .unit = "ms", .min = 0.001, .max = 1e6),
    OPT_ROW(INT, prompt_tok, "128", "Length of every prompt.", .unit = "tok", .min = 1,
            .max = 1e6),
    OPT_ROW(INT, output_tok, "32", "Length of every answer.", .unit = "tok", .min = 2,
            .max = 1e5),
    OPT_ROW(F64, budget_s, "100",
            "Time to spend. The last measurement may end a little later.", .unit = "s",
            .min = 0.1, .max = 86400),
    OPT_ROW(INT, seed, "1", "Seed of prompts and arrival times.", .min = 0, .max = 1e9),
    OPT_ROW(STR, model, NULL,
            "The model's name at the server. Default: the first that it lists.",
            .unit = "NAME"),
    OPT_ROW(STR, api_key_env, NULL, "Environment variable that holds the API key.",
            .unit = "NAME"),
    OPT_ROW(BOOL, any_length, "false",
            "Measure answers by the tokens that came, for servers that end them before "
            "--output-tok whatever they are asked for."),
    {0},
};

#define TARGET_FRAC 0.9 /* of requests within the objectives */
/* When each part has ended, as fractions of the budget, whatever the server does. */
#define PROBE_END    0.5
#define ONE_USER_END 0.75
#define ALL_END      1.1
#define OTHER_PATH_S 10   /* to look for the interface at another path, at most */
#define ONE_USER     0.15 /* of the budget, at most, if the server answers */
#define MAX_ONE_USER 20   /* requests of one user */
#define TRIAL_FRAC   0.12 /* of the budget for one rate */
#define MIN_REQUESTS 10   /* of a trial: fewer say nothing about a share of 0.9 */
#define MAX_REQUESTS 2000
#define MAX_TRIALS   24
#define PRECISION    0.1                  /* of the rate, at which the search ends */
#define QUIET_NS     UINT64_C(5000000000) /* of waiting, after which a line says for what */

/* One measurement. */
struct trial {
    double rate_rps; /* 0: one user */
    double n, n_failed, ttft_ms, p90_ttft_ms, tpot_ms, tok_s, within_frac;
    char error[96]; /* of the first request that failed, "" */
};

struct bench {
    const struct run_bench_opts *o;
    struct run_system *system;
    json_t *described;
    uint64_t end_ns;
    struct trial one, trials[MAX_TRIALS];
    int n_trials;
    struct load_bracket bracket; /* of the rates at which the objectives hold */
};

static double left_s(const struct bench *b)
{
    return ((double)b->end_ns - (double)clock_ns()) / 1e9;
}

/* The seconds left of a part that ends at this fraction of the budget. */
static double until_s(const struct bench *b, double end_frac)
{
    return left_s(b) + (end_frac - 1) * b->o->budget_s;
}

/* --- waiting */

struct waiting {
    struct bench *b;
    char what[64];
    size_t n;
    double end_frac; /* of the budget, when it ends */
    uint64_t t_shown_ns;
    bool over;
    size_t n_ended; /* before it was over */
};

static void on_tick(void *ctx, size_t n_ended, size_t n_failed)
{
    struct waiting *w = ctx;
    uint64_t now = clock_ns();

    (void)n_failed;
    if (!w->over)
        w->n_ended = n_ended;
    w->over = w->over || until_s(w->b, w->end_frac) <= 0;
    if (w->over) {
        run_cell_end(w->b->system, "the time for this measurement was over");
    } else if (now - w->t_shown_ns >= QUIET_NS) {
        w->t_shown_ns = now;
        log_info("%s: waiting for %zu of %zu requests, %.0f s more at most", w->what,
                 w->n - n_ended, w->n, until_s(w->b, w->end_frac));
    }
}

/* --- one measurement */

static double value(const struct metrics *m, const char *name)
{
    const struct metrics_value *v = metrics_find(m, name);

    return v ? v->value : NAN;
}

static void read_metrics(struct trial *t, const struct metrics *m,
                         const struct run_result *r)
{
    t->n = value(m, "n_requests");
    t->n_failed = t->n - value(m, "n_completed");
    t->ttft_ms = value(m, "p50_ttft_ms");
    t->p90_ttft_ms = value(m, "p90_ttft_ms");
    t->tpot_ms = value(m, "p50_tpot_ms");
    t->tok_s = value(m, "output_throughput_tok_s");
    t->within_frac = value(m, "slo_attainment_frac");
    for (size_t i = 0; i < r->n && !t->error[0]; i++)
        if (r->rows[i].status == METRICS_FAILED)
            snprintf(t->error, sizeof(t->error), "%s", r->rows[i].error);
}

static void compute(struct trial *t, const struct bench *b, const struct run_result *r)
{
    const struct metrics_input in = {
        .rows = r->rows,
        .n_rows = r->n,
        .slo = {.ttft_ms = b->o->slo_ttft_ms, .tpot_ms = b->o->slo_tpot_ms},
        .read_gbps = NAN,
        .peak_gflops = NAN,
        .read_why = "not measured",
        .peak_why = "not measured",
        .timer_error_us = r->timer_error_us,
        .n_timer_error = r->n_timer_error};
    struct metrics m;

    metrics_compute(&m, &in);
    read_metrics(t, &m, r);
    metrics_fini(&m);
}

/* A request that has not ended by then has missed its objectives. */
static double timeout_s(const struct bench *b)
{
    const struct run_bench_opts *o = b->o;

    return 1.2 * (o->slo_ttft_ms + o->slo_tpot_ms * (double)(o->output_tok - 1)) / 1e3;
}

/* n requests after n_warmup others: one user's (rate 0), or arrivals at a rate. A prompt
 * never comes twice, so that a server cannot answer from what it has kept. */
static int measure(struct trial *t, struct bench *b, double rate_rps, int64_t n,
                   int64_t n_warmup, struct waiting *w)
{
    static char closed[] = "closed", poisson[] = "poisson";
    const struct run_bench_opts *o = b->o;
    struct dataset_item item = {
        .n_prompt = o->prompt_tok, .n_output = o->output_tok, .arrival_s = NAN};
    const struct dataset d = {.source = "bench", .items = &item, .n_items = 1};
    const struct dataset_opts wide = {.min_prompt_tok = 1,
                                      .max_prompt_tok = o->prompt_tok,
                                      .max_output_tok = o->output_tok};
    const struct load_opts load = {.process = rate_rps > 0 ? poisson : closed,
                                   .rate_rps = rate_rps,
                                   .concurrency = 1,
                                   .n_requests = n,
                                   .warmup_requests = n_warmup,
                                   .timeout_s = rate_rps > 0 ? timeout_s(b) : 0};
    const int64_t seed = o->seed * 1000 + b->n_trials + (rate_rps > 0);
    const struct load_seeds seeds = {seed, seed, seed, seed};
    struct run_requests q = {0};
    struct run_result r = {0};
    int rc = run_requests_new(&q, b->system, &d, &wide, &load, &seeds);

    *t = (struct trial){.rate_rps = rate_rps};
    w->b = b;
    w->n = q.n;
    w->t_shown_ns = clock_ns();
    if (rc == OK && q.n_cut)
        rc = err_set(ERR_ARG,
                     "--prompt-tok %lld and --output-tok %lld: together more than the "
                     "longest sequence that the server accepts",
                     (long long)o->prompt_tok, (long long)o->output_tok);
    if (rc == OK)
        rc = run_cell(&r, b->system, &q, &load, on_tick, w);
    if (rc == OK)
        compute(t, b, &r);
    if (r.system_stuck)
        run_system_close(&b->system); /* it may still read the prompts freed below */
    if (rc == OK && !b->system)
        rc = err_set(ERR_IO, "the server does not end requests that are canceled");
    run_result_fini(&r);
    run_requests_fini(&q);
    return rc;
}

/* --- one user */

static int measure_one_user(struct bench *b)
{
    double share_s = ONE_USER * b->o->budget_s, begin_s = left_s(b), each_s;
    struct waiting w = {.what = "the first request", .end_frac = ONE_USER_END};
    int64_t n, n_most;

    log_info("one user at a time");
    TRY(measure(&b->one, b, 0, 1, 0, &w));
    if (w.over)
        return err_set(ERR_IO, "the first request got no whole answer within %.3g s",
                       begin_s - left_s(b));
    if (b->one.n_failed > 0)
        return err_set(ERR_IO, "the first request failed: %s%s", b->one.error,
                       strstr(b->one.error, "ended after")
                           ? "; --any-length measures what comes"
                           : "");
    each_s = begin_s - left_s(b);
    each_s = each_s > 1e-6 ? each_s : 1e-6;
    n = (int64_t)(share_s / each_s);
    /* Besides one that warms up; they may be slower than the first. */
    n_most = (int64_t)(until_s(b, ONE_USER_END) / (1.5 * each_s)) - 1;
    n = n < 3 ? 3 : n > MAX_ONE_USER ? MAX_ONE_USER : n;
    n = n < n_most ? n : n_most;
    if (n < 1)
        return OK; /* the first one has to do */
    w = (struct waiting){.what = "one user at a time", .end_frac = ONE_USER_END};
    TRY(measure(&b->one, b, 0, n, 1, &w));
    if (w.over)
        return err_set(ERR_IO,
                       "the server answers no more: of %lld requests, one after the "
                       "other, %zu ended in %.3g s, and the next one did not",
                       (long long)n + 1, w.n_ended, begin_s - left_s(b));
    if (b->one.n_failed >= b->one.n)
        return err_set(ERR_IO, "none of %.0f requests of one user completed: %s",
                       b->one.n, b->one.error);
    return OK;
}

/* --- capacity */

static double one_user_s(const struct bench *b)
{
    return (b->one.ttft_ms + b->one.tpot_ms * (double)(b->o->output_tok - 1)) / 1e3;
}

static int try_rate(struct bench *b, double rate_rps)
{
    struct trial *t = &b->trials[b->n_trials];
    double n = TRIAL_FRAC * b->o->budget_s * rate_rps;
    struct waiting w = {.end_frac = ALL_END};

    n = n < MIN_REQUESTS ? MIN_REQUESTS : n > MAX_REQUESTS ? MAX_REQUESTS : n;
    snprintf(w.what, sizeof(w.what), "%.3g requests a second", rate_rps);
    TRY(measure(t, b, rate_rps, (int64_t)n, 0, &w));
    if (w.over) { /* it says nothing about this rate */
        log_info("%s: the time was over before the rate could be judged", w.what);
        return OK;
    }
    b->n_trials++;
    log_info("%.3g requests a second: %.0f %% within the objectives", rate_rps,
             100 * t->within_frac);
    return OK;
}

/* Is there time for another trial at this rate? */
static bool has_time(const struct bench *b, double rate_rps)
{
    double share_s = TRIAL_FRAC * b->o->budget_s, few_s = MIN_REQUESTS / rate_rps;

    return left_s(b) > (share_s > few_s ? share_s : few_s) + one_user_s(b);
}

/* One user's own rate is where to begin: a server that batches does more. */
static int find_capacity(struct bench *b)
{
    const struct load_search search = {.first_rps = 1 / one_user_s(b),
                                       .max_rps = INFINITY,
                                       .target_frac = TARGET_FRAC,
                                       .precision_frac = PRECISION,
                                       .n_seeds = 1,
                                       .n_verify = 1,
                                       .max_trials = MAX_TRIALS};
    struct load_trial done[MAX_TRIALS], next;
    size_t n = 0;

    b->bracket = (struct load_bracket){.low_rps = NAN, .high_rps = NAN};
    if (b->one.within_frac < TARGET_FRAC)
        return OK; /* not even one user */
    while (load_search_next(&search, done, n, &next) && has_time(b, next.rate_rps)) {
        TRY(try_rate(b, next.rate_rps));
        if (b->n_trials == (int)n)
            break; /* the time was over */
        next.within_frac = b->trials[n].within_frac;
        next.n_requests = b->trials[n].n;
        done[n++] = next;
    }
    b->bracket = load_search_bracket(&search, done, n, 0);
    return OK;
}

/* --- the answer */

static const char *text_of(const struct bench *b, const char *key, const char *otherwise)
{
    const char *s =
        json_string_value(json_object_get(json_object_get(b->described, "server"), key));

    return s && s[0] ? s : otherwise;
}

static const struct trial *trial_at(const struct bench *b, double rate_rps)
{
    for (int i = 0; i < b->n_trials; i++)
        if (b->trials[i].rate_rps == rate_rps)
            return &b->trials[i];
    return NULL;
}

static void print_capacity(const struct bench *b, FILE *out)
{
    const struct run_bench_opts *o = b->o;
    const struct trial *low = trial_at(b, b->bracket.low_rps);
    const struct trial *high = trial_at(b, b->bracket.high_rps);
    if (b->one.within_frac < TARGET_FRAC)
        fprintf(out,
                "Even alone, this user does not get the objectives of %g ms to the first "
                "token and %g ms per token in 90 %% of requests, so there is no rate at "
                "which it keeps them. ",
                o->slo_ttft_ms, o->slo_tpot_ms);
    else if (!low)
        fprintf(
            out,
            "No rate was found at which 90 %% of requests get their first token within "
            "%g ms and the others within %g ms each. ",
            o->slo_ttft_ms, o->slo_tpot_ms);
    else
        fprintf(out,
                "At %s requests a second, at least 90 %% of them get their first token "
                "within %g ms and the others within %g ms each, and the server writes "
                "%s tokens a second. ",
                TEXT_NUMBER(low->rate_rps, 3), o->slo_ttft_ms, o->slo_tpot_ms,
                TEXT_NUMBER(low->tok_s, 3));
    if (high)
        fprintf(out, "At %s requests a second it is %.0f %% of them%s%s%s.\n",
                TEXT_NUMBER(high->rate_rps, 3), 100 * high->within_frac,
                high->error[0] ? ", and requests fail: " : "", high->error,
                low ? "" : "; time was too short for lower rates");
    else if (b->n_trials)
        fprintf(out, "The time was too short to find a rate at which it no longer does; "
                     "a longer --budget-s finds it.\n");
    else
        fprintf(out, "Other objectives are set by --slo-ttft-ms and --slo-tpot-ms.\n");
}

static void print_row(const struct trial *t, FILE *out)
{
    if (t->rate_rps > 0)
        fprintf(out, "| %s requests/s |", TEXT_NUMBER(t->rate_rps, 3));
    else
        fprintf(out, "| one user |");
    fprintf(out, " %.0f | %.0f | %.1f | %.1f | %.2f | %.1f | %.0f %% |\n", t->n,
            t->n_failed, t->ttft_ms, t->p90_ttft_ms, t->tpot_ms, t->tok_s,
            100 * t->within_frac);
}

static void print_table(const struct bench *b, FILE *out)
{
    bool printed[MAX_TRIALS] = {0};

    fprintf(out,
            "\n| load | requests | not completed | TTFT p50 ms | TTFT p90 ms | TPOT p50 "
            "ms | output tokens/s | within objectives |\n"
            "|---|---|---|---|---|---|---|---|\n");
    print_row(&b->one, out);
    for (int i = 0; i < b->n_trials; i++) {
        int next = -1;

        for (int k = 0; k < b->n_trials; k++)
            if (!printed[k] &&
                (next < 0 || b->trials[k].rate_rps < b->trials[next].rate_rps))
                next = k;
        printed[next] = true;
        print_row(&b->trials[next], out);
    }
}

static void print_answer(const struct bench *b, const char *url, FILE *out)
{
    const struct run_bench_opts *o = b->o;

    fprintf(
        out,
        "The server at %s (%s, version %s) serves %s; each request here has a prompt of "
        "%lld %s and an answer of %s%lld tokens. ",
        url, text_of(b, "kind", "of a kind that it does not state"),
        text_of(b, "version", "not stated"), text_of(b, "model", "?"),
        (long long)o->prompt_tok,
        strcmp(text_of(b, "prompt", ""), "words") != 0 ? "token ids"
        : strstr(text_of(b, "path", ""), "chat") == NULL
            ? "tokens, sent as words"
            : "tokens, sent as words of a chat",
        o->any_length ? "at most " : "", (long long)o->output_tok);
    fprintf(
        out,
        "One user at a time waits %s ms for the first token and then gets %s tokens a "
        "second. ",
        TEXT_NUMBER(b->one.ttft_ms, 3), TEXT_NUMBER(1e3 / b->one.tpot_ms, 3));
    print_capacity(b, out);
    print_table(b, out);
}

/* --- the server */

static int open_at(struct bench *b, const char *url, double limit_s)
{
    json_t *config = json_pack("{s:s, s:s, s:f, s:b}", "adapter", "openai_http", "url",
                               url, "probe_s", limit_s, "any_length", b->o->any_length);
    int rc;

    log_info("asking %s what it serves, for at most %.3g s", url, limit_s);
    if (b->o->model)
        json_object_set_new(config, "served_name", json_string(b->o->model));
    if (b->o->api_key_env)
        json_object_set_new(config, "api_key_env", json_string(b->o->api_key_env));
    rc = run_system_open(&b->system, config);
    json_decref(config);
    return rc;
}

/* The interface is at /v1, at OpenVINO's server at /v3. */
static int find_server(struct bench *b, char *full, size_t n, const char *url)
{
    char first[512], other[1024];
    double limit_s;
    size_t len;
    int rc;

    if (snprintf(full, n, "%s%s", strstr(url, "://") ? "" : "http://", url) >= (int)n)
        return err_set(ERR_ARG, "%.60s...: a URL of more than %zu bytes", url, n);
    for (len = strlen(full); len && full[len - 1] == '/'; len--)
        full[len - 1] = '\0';
    rc = open_at(b, full, until_s(b, PROBE_END));
    limit_s = until_s(b, PROBE_END);
    if (rc != ERR_IO || strchr(strstr(full, "://") + 3, '/') || limit_s < 0.001)
        return rc;
    snprintf(first, sizeof(first), "%s", err_msg());
    snprintf(other, sizeof(other), "%.1000s/v3", full);
    limit_s = limit_s < OTHER_PATH_S ? limit_s : OTHER_PATH_S;
    return open_at(b, other, limit_s) == OK ? OK : err_set(rc, "%s", first);
}

int run_bench(const char *url, const struct run_bench_opts *o, FILE *out)
{
    struct bench b = {.o = o, .end_ns = clock_ns() + (uint64_t)(o->budget_s * 1e9)};
    char full[1024];
    int rc = find_server(&b, full, sizeof(full), url);

    if (rc == OK)
        rc = measure_one_user(&b);
    if (rc == OK)
        rc = find_capacity(&b);
    if (rc == OK)
        rc = run_system_describe(b.system, &b.described);
    if (rc == OK)
        print_answer(&b, full, out);
    run_system_close(&b.system);
    json_decref(b.described);
    return rc;
}
