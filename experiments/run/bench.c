#include "experiments/run/bench.h"

#include <math.h>
#include <poll.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text_number.h"
#include "datasets/dataset.h"
#include "experiments/load/search.h"
#include "experiments/load/stages.h"
#include "experiments/record/journal.h"
#include "experiments/run/bench_answer.h"
#include "experiments/run/clients.h"
#include "experiments/run/run.h"
#include "experiments/run/session.h"

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
    OPT_ROW(STR, dataset, NULL,
            "Take prompts and lengths from this file, in place of --prompt-tok and "
            "--output-tok: conversations or a trace (datasets/data.md).",
            .unit = "FILE"),
    OPT_ROW(ENUM, turns, "first",
            "What a conversation of --dataset becomes. first: its first answered "
            "question. each: every one, with all turns before it. conversation: the "
            "same, each sent --think-s after the answer to the one before. chat: the "
            "same with the server's own answers as history.",
            .values = "first|each|conversation|chat"),
    OPT_ROW(F64, think_s, "0", "Time from an answer to the next turn.", .unit = "s",
            .min = 0, .max = 86400),
    OPT_ROW(STR, stages, NULL,
            "Put this load on the server in place of a search: stages of requests a "
            "second for a time, one after the other, and ramps. Example: "
            "1@60s,1-4@30s,4@60s.",
            .unit = "LIST"),
    OPT_ROW(INT, users, "0",
            "In place of a search, N users, each of whom sends the next request, or "
            "begins the next conversation, when the last one has ended. 0: none.",
            .unit = "N", .min = 0, .max = 65536),
    OPT_ROW(BOOL, replay, "false",
            "In place of a search, send the requests of --dataset at its own times."),
    OPT_ROW(INT, requests, "0",
            "Requests of --users, --replay or --stages. 0: all of the data set, 100 "
            "without one, all that come within the stages.",
            .min = 0, .max = 1e7),
    OPT_ROW(STR, limit, NULL,
            "End such a load after this time: what is under way is canceled and counts "
            "as not completed, the rest is not sent. Examples: 90s, 10m.",
            .unit = "TIME"),
    OPT_ROW(
        STR, clients, NULL,
        "Send the load from these machines, in commas, in place of this one. Each sends "
        "a share of the requests, from a common beginning on. Files of --dataset and the "
        "variable of --api-key-env must be there, too. The record states each clock's "
        "distance from this machine's, and its error.",
        .unit = "HOSTS"),
    OPT_ROW(
        STR, client_command, "ssh -o BatchMode=yes $HOST testbed",
        "What starts this testbed on a machine of --clients, for the shell; \"bench -\" "
        "follows.",
        .unit = "COMMAND"),
    OPT_ROW(STR, out, NULL,
            "Keep a record in this folder, with the times of every request and token.",
            .unit = "DIR"),
    OPT_ROW(BOOL, json, "false", "Print the answer as JSON."),
    {0},
};

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
#define MAX_RATES    24
#define PRECISION    0.1                  /* of the rate, at which the search ends */
#define QUIET_NS     UINT64_C(5000000000) /* of waiting, after which a line says for what */

#define DEFAULT_REQUESTS 100 /* of a given load without a data set */
#define REQUEST_LIMIT_S  600 /* of a given load: a request's time */

struct bench {
    const struct run_bench_opts *o;
    struct run_system *system;
    struct dataset *dataset; /* NULL: lengths are those of the options */
    struct dataset_opts dataset_opts;
    struct journal *journal;     /* NULL: no record */
    struct run_clients *clients; /* NULL: this machine sends the load */
    uint64_t end_ns;
    struct run_bench_answer a;
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
    uint64_t end_ns; /* when it ends; 0: with its last request */
    const char *why; /* it then ends */
    FILE *in; /* of a client: it ends when something comes from there; NULL: never */
    uint64_t t_shown_ns;
    bool over;
    size_t n_ended; /* before it was over */
};

/* Of a part of the search that ends at this fraction of the budget. */
static struct waiting waiting_until(const struct bench *b, double end_frac)
{
    const double s = until_s(b, end_frac);

    return (struct waiting){.end_ns =
                                clock_ns() + (uint64_t)(1e9 * (s > 1e-6 ? s : 1e-6)),
                            .why = "the time for this measurement was over"};
}

static void on_tick(void *ctx, size_t n_ended, size_t n_failed)
{
    struct waiting *w = ctx;
    uint64_t now = clock_ns();

    (void)n_failed;
    if (!w->over)
        w->n_ended = n_ended;
    w->over = w->over || (w->end_ns && now >= w->end_ns);
    if (w->in) {
        struct pollfd p = {.fd = fileno(w->in), .events = POLLIN};

        w->over = w->over || poll(&p, 1, 0) > 0;
        w->t_shown_ns = now;
    }
    if (w->over) {
        run_cell_end(w->b->system, w->why);
    } else if (now - w->t_shown_ns >= QUIET_NS) {
        w->t_shown_ns = now;
        if (w->end_ns)
            log_info("%s: waiting for %zu of %zu requests, %.0f s more at most", w->what,
                     w->n - n_ended, w->n, (double)(w->end_ns - now) / 1e9);
        else
            log_info("%s: waiting for %zu of %zu requests", w->what, w->n - n_ended,
                     w->n);
    }
}

/* --- one measurement */

static double value(const struct metrics *m, const char *name)
{
    const struct metrics_value *v = metrics_find(m, name);

    return v ? v->value : NAN;
}

static void read_metrics(struct run_bench_trial *t, const struct metrics *m,
                         const struct metrics_row *rows, size_t n)
{
    t->n = value(m, "n_requests");
    t->n_failed = t->n - value(m, "n_completed");
    t->ttft_ms = value(m, "p50_ttft_ms");
    t->p90_ttft_ms = value(m, "p90_ttft_ms");
    t->tpot_ms = value(m, "p50_tpot_ms");
    t->tok_s = value(m, "output_throughput_tok_s");
    t->rps = value(m, "request_throughput_rps");
    t->within_frac = value(m, "slo_attainment_frac");
    t->lateness_ms = value(m, "p90_lateness_ms");
    for (size_t i = 0; i < n && !t->error[0]; i++)
        if (rows[i].status == METRICS_FAILED)
            snprintf(t->error, sizeof(t->error), "%s", rows[i].error);
}

static void compute(struct metrics *m, const struct bench *b, const struct run_result *r,
                    size_t first, size_t n)
{
    const struct metrics_input in = {
        .rows = r->rows + first,
        .n_rows = n,
        .slo = {.ttft_ms = b->o->slo_ttft_ms, .tpot_ms = b->o->slo_tpot_ms},
        .read_gbps = NAN,
        .peak_gflops = NAN,
        .read_why = "not measured",
        .peak_why = "not measured",
        .timer_error_us = r->timer_error_us,
        .n_timer_error = r->n_timer_error};

    metrics_compute(m, &in);
}

/* What comes of requests that were due in [begin_s, end_s). */
static void judge_stage(struct bench *b, const struct run_result *r,
                        const struct load_stage *s)
{
    struct run_bench_trial *t = &b->a.trials[b->a.n_trials];
    size_t first = 0, n = 0;
    struct metrics m;

    while (first < r->n && (double)r->rows[first].intended_ns < 1e9 * s->begin_s)
        first++;
    while (first + n < r->n && (double)r->rows[first + n].intended_ns < 1e9 * s->end_s)
        n++;
    *t = (struct run_bench_trial){.rate_rps = s->from_rps == s->to_rps ? s->to_rps : 0};
    if (s->from_rps == s->to_rps)
        snprintf(t->load, sizeof(t->load), "%s requests/s, %s s",
                 TEXT_NUMBER(s->to_rps, 3), TEXT_NUMBER(s->end_s - s->begin_s, 3));
    else
        snprintf(t->load, sizeof(t->load), "%s to %s requests/s, %s s",
                 TEXT_NUMBER(s->from_rps, 3), TEXT_NUMBER(s->to_rps, 3),
                 TEXT_NUMBER(s->end_s - s->begin_s, 3));
    compute(&m, b, r, first, n);
    read_metrics(t, &m, r->rows + first, n);
    metrics_fini(&m);
    b->a.n_trials++;
}

/* A request that has not ended by then has missed its objectives. */
static double timeout_s(const struct bench *b, const struct run_requests *q)
{
    const struct run_bench_opts *o = b->o;
    int64_t most = 2;

    for (size_t i = 0; i < q->n; i++)
        most = q->v[i].n_output > most ? q->v[i].n_output : most;
    return 1.2 * (o->slo_ttft_ms + o->slo_tpot_ms * (double)(most - 1)) / 1e3;
}

/* What was not sent is not counted as if it had been. */
static void drop_unsent(struct bench *b, struct run_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (r->rows[i].dispatch_ns == METRICS_NEVER)
            continue;
        r->rows[n] = r->rows[i];
        r->rows[n].request = (int64_t)n;
        n++;
    }
    b->a.n_not_sent = r->n - n;
    r->n = n;
}

static json_t *attributes(struct bench *b, const char *key, const struct load_opts *load,
                          const struct load_seeds *seeds, const struct run_requests *q,
                          double wall_s)
{
    const struct run_bench_opts *o = b->o;
    json_t *data = b->dataset
                       ? opt_to_json(dataset_opt_table, &b->dataset_opts)
                       : json_pack("{s:I s:I}", "prompt_tok", (json_int_t)o->prompt_tok,
                                   "output_tok", (json_int_t)o->output_tok);

    return json_pack(
        "{s:O s:o s:o s:o s:{s:f s:f} s:{s:s} s:i s:s s:o s:O s:{s:I s:I} s:f s:b s:s}",
        "system", b->system->config, "dataset", data, "load",
        opt_to_json(load_opt_table, load), "seeds",
        opt_to_json(load_seeds_opt_table, seeds), "slo", "ttft_ms", o->slo_ttft_ms,
        "tpot_ms", o->slo_tpot_ms, "axes", "load", key, "repeat", 0, "label", key,
        "warnings", json_warnings_take(), "described", b->a.described, "requests",
        "n_cut", (json_int_t)q->n_cut, "n_repeated", (json_int_t)q->n_repeated, "wall_s",
        wall_s, "valid", 1, "invalid_why", "");
}

static int record(struct bench *b, const char *key, json_t *measured,
                  const struct run_result *r, struct metrics *m)
{
    const struct record_cell c = {.key = key,
                                  .state = RECORD_DONE,
                                  .attributes = measured,
                                  .rows = r->rows,
                                  .n_rows = r->n,
                                  .values = m->values,
                                  .n_values = m->n_values,
                                  .series = m->series,
                                  .n_series = m->n_series,
                                  .evidence = "measured"};
    int rc = journal_begin(b->journal, key);

    return rc == OK ? journal_cell(b->journal, &c) : rc;
}

/* What the system says of itself and of the requests since the last time. */
static int describe(struct bench *b)
{
    json_t *now = NULL;
    int rc = run_system_describe(b->system, &now);

    if (rc != OK)
        return rc;
    json_decref(b->a.described);
    b->a.described = now;
    return OK;
}

static int conclude(struct bench *b, struct run_bench_trial *t,
                    const struct load_opts *load, const struct load_seeds *seeds,
                    const struct run_requests *q, struct run_result *r)
{
    struct metrics m;
    int rc = OK;

    drop_unsent(b, r);
    compute(&m, b, r, 0, r->n);
    read_metrics(t, &m, r->rows, r->n);
    if (!r->system_stuck)
        rc = describe(b);
    if (rc == OK && b->journal && !r->system_stuck) {
        json_t *measured = attributes(b, t->load, load, seeds, q, r->wall_s);

        if (b->a.clients)
            json_object_set(measured, "clients", b->a.clients);
        rc = record(b, t->load, measured, r, &m);
        json_decref(measured);
    }
    metrics_fini(&m);
    return rc;
}

/* Of the data set, or of the lengths of the options. Of the latter a prompt never comes twice, so
 * that a server cannot answer from what it has kept. */
static int make_requests(struct run_requests *q, const struct bench *b,
                         const struct load_opts *load, const struct load_seeds *seeds)
{
    const struct run_bench_opts *o = b->o;
    struct dataset_item item = {
        .n_prompt = o->prompt_tok, .n_output = o->output_tok, .arrival_s = NAN};
    const struct dataset made = {.source = "bench", .items = &item, .n_items = 1};
    const struct dataset_opts wide = {.min_prompt_tok = 1,
                                      .max_prompt_tok = o->prompt_tok,
                                      .max_output_tok = o->output_tok};

    return run_requests_new(q, b->system, b->dataset ? b->dataset : &made,
                            b->dataset ? &b->dataset_opts : &wide, load, seeds);
}

static int send_by_clients(struct bench *b, struct run_result *r,
                           const struct load_opts *load, int64_t seed, struct waiting *w)
{
    TRY(run_clients_cell(r, b->clients, load, seed, w->n, w->end_ns));
    w->over = w->end_ns && clock_ns() >= w->end_ns;
    for (size_t i = 0; i < r->n; i++)
        w->n_ended += r->rows[i].status <= METRICS_FAILED;
    json_decref(b->a.clients);
    b->a.clients = run_clients_json(b->clients);
    return OK;
}

/* One load, which `t->load` names. */
static int measure(struct bench *b, struct run_bench_trial *t, struct load_opts load,
                   struct waiting *w, struct run_result *r)
{
    const struct run_bench_opts *o = b->o;
    const int64_t seed = o->seed * 1000 + b->a.n_trials + (load.rate_rps > 0);
    const struct load_seeds seeds = {seed, seed, seed, seed};
    struct run_requests q = {0};
    int rc = make_requests(&q, b, &load, &seeds);

    w->b = b;
    w->n = q.n;
    w->t_shown_ns = clock_ns();
    snprintf(w->what, sizeof(w->what), "%s", t->load);
    if (rc == OK && q.n_cut && !b->dataset)
        rc = err_set(ERR_ARG,
                     "--prompt-tok %lld and --output-tok %lld: together more than the "
                     "longest sequence that the server accepts",
                     (long long)o->prompt_tok, (long long)o->output_tok);
    if (rc == OK && q.n_cut)
        log_info("%s: %zu requests were cut to the longest sequence that the server "
                 "accepts",
                 t->load, q.n_cut);
    if (rc == OK && load.rate_rps > 0)
        load.timeout_s = timeout_s(b, &q);
    if (rc == OK)
        rc = b->clients ? send_by_clients(b, r, &load, seed, w)
                        : run_cell(r, b->system, &q, &load, on_tick, w);
    if (rc == OK)
        rc = conclude(b, t, &load, &seeds, &q, r);
    if (r->system_stuck)
        run_system_close(&b->system); /* it may still read the prompts freed below */
    if (rc == OK && !b->system)
        rc = err_set(ERR_IO, "the server does not end requests that are canceled");
    run_requests_fini(&q);
    return rc;
}

static struct load_opts load_of(const struct bench *b, char *process)
{
    return (struct load_opts){.process = process,
                              .concurrency = 1,
                              .burstiness = 1,
                              .time_scale = 1,
                              .think_s = b->o->think_s,
                              .order = b->dataset && !b->o->replay ? LOAD_ORDER_SHUFFLE
                                                                   : LOAD_ORDER_DATASET,
                              .lateness_warn_ms = 2,
                              .saturation = LOAD_SATURATION_OFF};
}

/* n requests of one user after n_warmup others (rate 0), or n arrivals at a rate. */
static int measure_rate(struct bench *b, struct run_bench_trial *t, double rate_rps,
                        int64_t n, int64_t n_warmup, struct waiting *w)
{
    static char closed[] = "closed", poisson[] = "poisson";
    struct load_opts load = load_of(b, rate_rps > 0 ? poisson : closed);
    struct run_result r = {0};
    int rc;

    load.rate_rps = rate_rps;
    load.n_requests = n;
    load.warmup_requests = n_warmup;
    rc = measure(b, t, load, w, &r);
    run_result_fini(&r);
    return rc;
}

/* --- one user */

static int measure_one_user(struct bench *b)
{
    double share_s = ONE_USER * b->o->budget_s, begin_s = left_s(b), each_s;
    struct waiting w = waiting_until(b, ONE_USER_END);
    int64_t n, n_most;

    log_info("one user at a time");
    b->a.one = (struct run_bench_trial){.load = "the first request"};
    TRY(measure_rate(b, &b->a.one, 0, 1, 0, &w));
    if (w.over)
        return err_set(ERR_IO, "the first request got no whole answer within %.3g s",
                       begin_s - left_s(b));
    if (b->a.one.n_failed > 0)
        return err_set(ERR_IO, "the first request failed: %s%s", b->a.one.error,
                       strstr(b->a.one.error, "ended after")
                           ? "; --any-length measures what comes"
                           : "");
    each_s = begin_s - left_s(b);
    each_s = each_s > 1e-6 ? each_s : 1e-6;
    n = (int64_t)(share_s / each_s);
    /* Besides one that warms up; they may be slower than the first. */
    n_most = (int64_t)(until_s(b, ONE_USER_END) / (1.5 * each_s)) - 1;
    n = n < 3 ? 3 : n > MAX_ONE_USER ? MAX_ONE_USER : n;
    n = n < n_most ? n : n_most;
    if (n < 1) {
        snprintf(b->a.one.load, sizeof(b->a.one.load), "one user");
        return OK; /* the first one has to do */
    }
    w = waiting_until(b, ONE_USER_END);
    b->a.one = (struct run_bench_trial){.load = "one user"};
    TRY(measure_rate(b, &b->a.one, 0, n, 1, &w));
    if (w.over)
        return err_set(ERR_IO,
                       "the server answers no more: of %lld requests, one after the "
                       "other, %zu ended in %.3g s, and the next one did not",
                       (long long)n + 1, w.n_ended, begin_s - left_s(b));
    if (b->a.one.n_failed >= b->a.one.n)
        return err_set(ERR_IO, "none of %.0f requests of one user completed: %s",
                       b->a.one.n, b->a.one.error);
    return OK;
}

/* --- capacity */

/* How long one user waits for an answer; lengths are those of the options, or of the data set. */
static double one_user_s(const struct bench *b)
{
    if (b->dataset)
        return 1 / b->a.one.rps;
    return (b->a.one.ttft_ms + b->a.one.tpot_ms * (double)(b->o->output_tok - 1)) / 1e3;
}

static int try_rate(struct bench *b, double rate_rps)
{
    struct run_bench_trial *t = &b->a.trials[b->a.n_trials];
    double n = TRIAL_FRAC * b->o->budget_s * rate_rps;
    struct waiting w = waiting_until(b, ALL_END);

    n = n < MIN_REQUESTS ? MIN_REQUESTS : n > MAX_REQUESTS ? MAX_REQUESTS : n;
    *t = (struct run_bench_trial){.rate_rps = rate_rps};
    snprintf(t->load, sizeof(t->load), "%s requests/s", TEXT_NUMBER(rate_rps, 3));
    TRY(measure_rate(b, t, rate_rps, (int64_t)n, 0, &w));
    if (w.over) { /* it says nothing about this rate */
        log_info("%s: the time was over before the rate could be judged", w.what);
        return OK;
    }
    b->a.n_trials++;
    log_info("%s: %.0f %% within the objectives", t->load, 100 * t->within_frac);
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
                                       .target_frac = RUN_BENCH_TARGET_FRAC,
                                       .precision_frac = PRECISION,
                                       .n_seeds = 1,
                                       .n_verify = 1,
                                       .max_trials = MAX_RATES};
    struct load_trial done[MAX_RATES], next;
    size_t n = 0;

    b->a.bracket = (struct load_bracket){.low_rps = NAN, .high_rps = NAN};
    if (b->a.one.within_frac < RUN_BENCH_TARGET_FRAC)
        return OK; /* not even one user */
    while (load_search_next(&search, done, n, &next) && has_time(b, next.rate_rps)) {
        TRY(try_rate(b, next.rate_rps));
        if (b->a.n_trials == (int)n)
            break; /* the time was over */
        next.within_frac = b->a.trials[n].within_frac;
        next.n_requests = b->a.trials[n].n;
        done[n++] = next;
    }
    b->a.bracket = load_search_bracket(&search, done, n, 0);
    return OK;
}

/* --- a load that is given */

static struct load_opts given_load(const struct bench *b, char *stages)
{
    static char closed[] = "closed", trace[] = "trace", in_stages[] = "stages";
    const struct run_bench_opts *o = b->o;
    struct load_opts load = load_of(b, stages ? in_stages : o->replay ? trace : closed);

    load.stages = stages;
    load.timeout_s = REQUEST_LIMIT_S;
    load.n_requests =
        o->requests || b->dataset || stages ? o->requests : DEFAULT_REQUESTS;
    if (o->users)
        load.concurrency = o->users;
    return load;
}

static int measure_given(struct bench *b)
{
    const struct run_bench_opts *o = b->o;
    struct run_bench_trial *all = &b->a.trials[0];
    struct load_stage stages[LOAD_STAGES_MAX];
    struct waiting w = {.why = "the time of --limit was over"};
    struct run_result r = {0};
    double limit_s;
    int n_stages = 0, rc = OK;

    if (o->stages)
        TRY(load_stages_read(stages, &n_stages, o->stages, "--stages"));
    *all = (struct run_bench_trial){0};
    snprintf(all->load, sizeof(all->load), "%lld users at a time", (long long)o->users);
    if (o->stages || o->replay)
        snprintf(all->load, sizeof(all->load), "%s",
                 o->stages ? "all stages" : "as recorded");
    if (o->limit) {
        TRY(opt_seconds(&limit_s, o->limit, "--limit"));
        w.end_ns = clock_ns() + (uint64_t)(1e9 * limit_s);
    }
    b->a.is_given = true;
    rc = measure(b, all, given_load(b, o->stages), &w, &r);
    b->a.n_trials = 1;
    for (int i = 0; i < n_stages && rc == OK; i++)
        judge_stage(b, &r, &stages[i]);
    run_result_fini(&r);
    if (rc == OK && all->n_failed >= all->n)
        rc = err_set(ERR_IO, "none of %.0f requests completed%s%s", all->n,
                     all->error[0] ? ": " : "", all->error);
    return rc;
}

/* --- the record */

static int open_record(struct bench *b, const char *url)
{
    json_t *job = json_pack("{s:s s:o s:{}}", "url", url, "options",
                            opt_to_json(run_bench_opt_table, b->o), "claim");
    json_t *header = NULL;
    int rc = run_header_new(&header, "bench", "a running server, by testbed bench",
                            "measured", false, job);

    if (rc == OK)
        rc = journal_open(&b->journal, b->o->out, "bench", header, true);
    json_decref(header);
    json_decref(job);
    return rc;
}

static struct record_headline headline(const char *name, const char *unit,
                                       const char *better, double v)
{
    return (struct record_headline){.name = name,
                                    .unit = unit,
                                    .better = better,
                                    .value = v,
                                    .why = isnan(v) ? "it was not measured" : NULL,
                                    .evidence = "measured"};
}

static int finish_record(struct bench *b)
{
    const struct run_bench_answer *a = &b->a;
    const struct run_bench_trial *t = a->is_given ? &a->trials[0] : &a->one;
    const struct record_headline v[] = {
        headline("ttft_p50", "ms", "lower", t->ttft_ms),
        headline("tpot_p50", "ms", "lower", t->tpot_ms),
        headline("slo_attainment_frac", "", "higher", t->within_frac),
        headline("output_throughput", "tok/s", "higher", t->tok_s),
        headline("capacity_rps", "req/s", "higher", a->bracket.low_rps)};

    return record_finish(&b->journal, v, a->is_given ? 4 : 5, false, &b->a.record);
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

/* Of options that go together only. */
static int check_opts(const struct run_bench_opts *o)
{
    const int n_given = (o->stages != NULL) + (o->users > 0) + o->replay;

    if (n_given > 1)
        return err_set(ERR_ARG,
                       "--stages, --users, --replay: expected at most one, found %d",
                       n_given);
    if (o->replay && !o->dataset)
        return err_set(ERR_ARG, "--replay: expected --dataset, a file with times");
    if ((o->turns || o->think_s > 0) && !o->dataset)
        return err_set(ERR_ARG,
                       "--turns, --think-s: expected --dataset with conversations");
    if ((o->limit || o->requests) && !n_given)
        return err_set(ERR_ARG, "--limit, --requests: expected --stages, --users or "
                                "--replay; a search has --budget-s");
    return OK;
}

static int open_dataset(struct bench *b)
{
    const struct run_bench_opts *o = b->o;

    TRY(opt_init(dataset_opt_table, &b->dataset_opts));
    b->dataset_opts.path = mem_strdup(MEM_HARNESS, o->dataset);
    b->dataset_opts.turns = o->turns;
    return dataset_open(&b->dataset, &b->dataset_opts);
}

static int open_clients(struct bench *b, const char *url)
{
    json_t *hello = json_pack("{s:s s:s s:o}", "url", url, "commit", build_info.commit,
                              "options", opt_to_json(run_bench_opt_table, b->o));
    int rc =
        hello ? run_clients_open(&b->clients, b->o->clients, b->o->client_command, hello)
              : ERR_NOMEM;

    json_decref(hello);
    return rc;
}

static int measure_all(struct bench *b)
{
    const struct run_bench_opts *o = b->o;

    if (o->stages || o->users || o->replay)
        return measure_given(b);
    TRY(measure_one_user(b));
    return find_capacity(b);
}

static void print(const struct bench *b, FILE *out)
{
    json_t *j;

    if (!b->o->json) {
        run_bench_print(&b->a, out);
        return;
    }
    j = run_bench_json(&b->a);
    json_dumpf(j, out, JSON_INDENT(1));
    fputc('\n', out);
    json_decref(j);
}

static void close_bench(struct bench *b)
{
    run_system_close(&b->system);
    dataset_close(&b->dataset);
    opt_free(dataset_opt_table, &b->dataset_opts);
    json_decref(b->a.described);
}

int run_bench(const char *url, const struct run_bench_opts *o, FILE *out)
{
    struct bench b = {.o = o, .end_ns = clock_ns() + (uint64_t)(o->budget_s * 1e9)};
    char full[1024];
    int rc = check_opts(o);

    b.a.o = o;
    b.a.bracket = (struct load_bracket){.low_rps = NAN, .high_rps = NAN};
    if (rc == OK && o->dataset)
        rc = open_dataset(&b);
    if (rc == OK)
        rc = find_server(&b, full, sizeof(full), url);
    if (rc == OK && o->clients)
        rc = open_clients(&b, full);
    if (rc == OK && o->out)
        rc = open_record(&b, full);
    if (rc == OK)
        rc = measure_all(&b);
    if (rc == OK && o->out)
        rc = finish_record(&b);
    b.a.url = full;
    if (rc == OK)
        print(&b, out);
    journal_close(&b.journal);
    run_clients_close(&b.clients);
    close_bench(&b);
    json_decref(b.a.clients);
    mem_free(b.a.record);
    return rc;
}

/* --- a client of another bench */

/* A load: this client's share of its requests. */
static int client_cell(struct bench *b, const json_t *m, FILE *in, FILE *out)
{
    const int64_t seed = json_int_at(m, "seed");
    const struct load_seeds seeds = {seed, seed, seed, seed};
    struct waiting w = {.b = b, .in = in, .why = "its time was over"};
    struct run_requests q = {0};
    struct run_result r = {0};
    struct load_opts load;
    json_t *begin = NULL;
    int rc = opt_init(load_opt_table, &load);

    if (rc == OK)
        rc = opt_from_json(load_opt_table, &load, json_object_get(m, "load"), "load");
    if (rc == OK)
        rc = make_requests(&q, b, &load, &seeds);
    if (rc == OK)
        rc = run_client_write(out, json_pack("{s:I}", "n_requests", (json_int_t)q.n));
    if (rc == OK)
        rc = run_client_wait(&begin, in, out);
    if (rc == OK) {
        run_requests_share(&q, &load, (int)json_int_at(m, "share"),
                           (int)json_int_at(m, "of"));
        q.start_ns = (uint64_t)json_int_at(begin, "begin_ns");
        w.end_ns = (uint64_t)json_int_at(begin, "end_ns");
        rc = run_cell(&r, b->system, &q, &load, on_tick, &w);
    }
    if (rc == OK && r.system_stuck)
        rc = err_set(ERR_IO, "the server does not end requests that are canceled");
    if (rc == OK)
        rc = run_client_rows(out, &r);
    if (r.system_stuck)
        run_system_close(&b->system); /* it may still read the prompts freed below */
    json_decref(begin);
    run_result_fini(&r);
    run_requests_fini(&q);
    opt_free(load_opt_table, &load);
    return rc;
}

int run_bench_client(FILE *in, FILE *out)
{
    struct run_bench_opts o;
    struct bench b = {.o = &o};
    char full[1024];
    json_t *m = NULL;
    int rc = opt_init(run_bench_opt_table, &o);

    if (rc == OK)
        rc = run_client_wait(&m, in, out);
    if (rc == OK && strcmp(json_str_at(m, "commit", ""), build_info.commit) != 0)
        rc = err_set(ERR_UNSUPPORTED,
                     "this testbed is of commit %s, the one that asks is not",
                     build_info.commit);
    if (rc == OK)
        rc = opt_from_json(run_bench_opt_table, &o, json_object_get(m, "options"),
                           "options");
    b.end_ns = clock_ns() + (uint64_t)(o.budget_s * 1e9);
    if (rc == OK && o.dataset)
        rc = open_dataset(&b);
    if (rc == OK)
        rc = find_server(&b, full, sizeof(full), json_str_at(m, "url", ""));
    json_decref(m);
    if (rc == OK)
        rc = run_client_write(out, json_pack("{s:b}", "ready", 1));
    while (rc == OK && run_client_wait(&m, in, out) == OK) {
        rc = client_cell(&b, m, in, out);
        json_decref(m);
    }
    if (rc != OK) /* there is who reports it */
        rc = run_client_write(out,
                              json_pack("{s:o}", "error", json_string_lossy(err_msg())));
    close_bench(&b);
    opt_free(run_bench_opt_table, &o);
    return rc;
}
