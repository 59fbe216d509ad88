/* Any server that speaks the OpenAI protocol: one that runs already, by its URL, or one that
 * we start as its file in baselines/systems/ says. Each request is one stream of
 * /completions with token ids as its prompt, or with words where the server takes no ids, or of
 * /chat/completions where it has only chats.
 * What the server is and what it accepts is found out at open, by asking it. */
#include "baselines/sut.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/stats.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "baselines/http.h"
#include "baselines/openai.h"
#include "baselines/openai_probe.h"
#include "baselines/server.h"
#include "baselines/sse.h"

#define MAX_LAGS      65536
#define MAX_EVENT_IDS 1024
#define ERROR_BYTES   4096 /* of an error answer that are read */

struct openai_opts {
    char *url, *system, *model, *program, *plan, *cpus, *served_name, *api_key_env, *args;
    int64_t threads, slots, port, vocab, max_tok;
    int prompt;
    bool any_length;
    double connect_timeout_s, timeout_s, ready_s, probe_s;
};

#define OPT_OF struct openai_opts
static const struct opt_row openai_opts[] = {
    OPT_ROW(STR, url, NULL,
            "A server that runs: its address, such as http://127.0.0.1:8080. /v1 is "
            "appended where it has no path.",
            .unit = "URL"),
    OPT_ROW(STR, system, NULL,
            "In place of url: a server to start, by a name in baselines/systems/ or the "
            "path of such a file.",
            .unit = "NAME"),
    OPT_ROW(STR, model, NULL, "With system: the model file or folder.", .unit = "PATH"),
    OPT_ROW(STR, program, NULL, "With system: the program, where it is not in PATH.",
            .unit = "PATH"),
    OPT_ROW(
        STR, args, NULL,
        "With system: arguments that are appended to its command, with blanks between "
        "them, such as \"--ubatch-size 64\".",
        .unit = "WORDS"),
    OPT_ROW(STR, plan, NULL,
            "With system: a plan of `sandwich plan`, whose CPUs and threads it gets.",
            .unit = "FILE"),
    OPT_ROW(STR, cpus, NULL,
            "With system: the CPUs that it may use, such as 0-3,8. Default: one per core "
            "that this process may use.",
            .unit = "LIST"),
    OPT_ROW(INT, threads, "0", "With system: its threads. 0: one per CPU.", .min = 0,
            .max = 1024),
    OPT_ROW(INT, slots, "8", "With system: requests that it serves at once.", .min = 1,
            .max = 4096),
    OPT_ROW(INT, port, "0", "With system: its port. 0: one that is free.", .min = 0,
            .max = 65535),
    OPT_ROW(F64, ready_s, "0",
            "With system: how long it may take to become ready. 0: as its file states.",
            .unit = "s", .min = 0, .max = 86400),
    OPT_ROW(STR, served_name, NULL,
            "The model's name at the server. Default: the first that it lists.",
            .unit = "NAME"),
    OPT_ROW(ENUM, prompt, "auto",
            "What a prompt is sent as. auto: token ids, or words where the server takes "
            "no ids; the record says which, and why.",
            .values = "auto|ids|words"),
    OPT_ROW(BOOL, any_length, "false",
            "For servers that end an answer before it has the length asked for: such a "
            "request is complete, with the tokens that came."),
    OPT_ROW(INT, vocab, "0",
            "Number of token ids. 0: as the server states, else 1000, which every "
            "vocabulary has.",
            .unit = "tok", .min = 0, .max = 1e9),
    OPT_ROW(INT, max_tok, "0", "Longest sequence. 0: as the server states, else 2048.",
            .unit = "tok", .min = 0, .max = 1e9),
    OPT_ROW(STR, api_key_env, NULL,
            "Environment variable that holds the API key. The key itself is not "
            "recorded.",
            .unit = "NAME"),
    OPT_ROW(F64, connect_timeout_s, "10", "Longest time to connect.", .unit = "s",
            .min = 0.001, .max = 3600),
    OPT_ROW(
        F64, probe_s, "0",
        "Longest time to find out what the server accepts, all questions together. 0: "
        "no limit but 120 s of each.",
        .unit = "s", .min = 0, .max = 86400),
    OPT_ROW(F64, timeout_s, "600",
            "Longest time of a request. 0: no limit but load.timeout_s.", .unit = "s",
            .min = 0, .max = 86400),
    {0},
};
#define DEFAULT_CTX_TOK 2048

/* The account since the last describe(). */
struct account {
    int64_t n_requests, n_failed;
    int64_t n_events[SUT_OPENAI_N_SOURCES], n_late_tok, n_tok_event_max;
    int64_t n_prompt_differs, n_prompt_max_excess, n_count_differs;
    size_t n_lags;
};

/* What stands before the next turn of a chat. */
struct transcript {
    struct transcript *next;
    int64_t request; /* of the turn that has ended */
    char *text;      /* NULL: the server did not send its answer's ids */
};

struct sut {
    struct openai_opts o;
    struct sut_openai_probe probe;
    struct sut_server *server; /* NULL: not ours */
    struct sut_http *http;
    sut_event_fn on_event;
    void *ctx;
    pthread_mutex_t lock; /* of what follows */
    struct account account;
    double *lag_ms; /* [MAX_LAGS] */
    struct transcript *transcripts;
};

/* One request on its way. Only the thread of http touches it after its start. */
struct flight {
    struct sut *sut;
    int64_t request, n_output, n_prompt;
    struct sut_sse sse;
    struct sut_openai_stream stream;
    struct text error; /* the beginning of an answer that is an error */
    struct sut_openai_request sent;
    struct text answer; /* if sent.keeps */
    char *before;       /* of sent */
};

/* --- events, on the thread of http */

static void report(const struct flight *f, enum sut_event_kind kind, int32_t token,
                   const char *error)
{
    const struct sut_event e = {.request = f->request,
                                .kind = kind,
                                .token = token,
                                .any_length = f->sut->o.any_length,
                                .error = error};

    f->sut->on_event(f->sut->ctx, &e);
}

static int on_sse(void *ctx, char *data, size_t n)
{
    struct flight *f = ctx;
    int32_t ids[MAX_EVENT_IDS];
    int64_t n_new, n_ids;
    int rc = sut_openai_event(&f->stream, data, n, &n_new, ids, MAX_EVENT_IDS, &n_ids);

    for (int64_t i = 0; i < n_new && rc == OK; i++)
        report(f, SUT_TOKEN, i < n_ids ? ids[i] : -1, NULL);
    return rc;
}

static int on_body(void *ctx, const struct sut_http_head *h, const char *p, size_t n)
{
    static const char wanted[] = "text/event-stream";
    struct flight *f = ctx;

    if (h->status != 200) {
        if (f->error.n >= ERROR_BYTES)
            return err_set(ERR_LIMIT, "a long error"); /* replaced at the end */
        text_put(&f->error, p, n < ERROR_BYTES ? n : ERROR_BYTES);
        return f->error.rc;
    }
    if (strncasecmp(h->type, wanted, sizeof(wanted) - 1) != 0)
        return err_set(ERR_FORMAT, "expected a stream of type %s, found \"%.60s\"",
                       wanted, h->type);
    return sut_sse_feed(&f->sse, p, n, on_sse, f);
}

static void describe_status(const struct flight *f, const struct sut_http_head *h,
                            char *out, size_t n)
{
    char message[200] = "", retry[48] = "";

    if (f->error.n)
        sut_openai_error(message, sizeof(message), f->error.p, f->error.n);
    if (h->retry_after_s >= 0)
        snprintf(retry, sizeof(retry), " (retry after %ld s)", h->retry_after_s);
    snprintf(out, n, "HTTP %ld%s%s%s", h->status, retry, message[0] ? ": " : "", message);
}

/* Why the request failed, or "" */
static void judge(const struct flight *f, const struct sut_http_end *e, char *out,
                  size_t n)
{
    const struct sut_openai_stream *t = &f->stream;
    const char *finish = t->finish[0] ? t->finish : "none";

    out[0] = '\0';
    if (e->canceled)
        snprintf(out, n, "canceled");
    else if (e->head.status != 200 && e->head.status != 0)
        describe_status(f, &e->head, out, n);
    else if (e->error)
        snprintf(out, n, "%s", e->error);
    else if (!t->done)
        snprintf(out, n, "the stream ended after %lld of %lld tokens, without [DONE]",
                 (long long)t->n_tok, (long long)f->n_output);
    else if (t->n_tok != f->n_output && (t->n_tok == 0 || !f->sut->o.any_length))
        snprintf(out, n, "ended after %lld of %lld tokens (finish_reason %s)",
                 (long long)t->n_tok, (long long)f->n_output, finish);
}

static void account_for(struct sut *s, const struct flight *f,
                        const struct sut_http_end *e, bool failed)
{
    const struct sut_openai_stream *t = &f->stream;
    struct account *a = &s->account;
    int64_t excess = t->n_prompt - f->n_prompt;

    pthread_mutex_lock(&s->lock);
    a->n_requests++;
    a->n_failed += failed;
    for (int i = 0; i < SUT_OPENAI_N_SOURCES; i++)
        a->n_events[i] += t->n_events[i];
    a->n_late_tok += t->n_late;
    if (t->n_tok_event_max > a->n_tok_event_max)
        a->n_tok_event_max = t->n_tok_event_max;
    if (t->n_prompt && excess) {
        a->n_prompt_differs++;
        if (llabs(excess) > llabs(a->n_prompt_max_excess))
            a->n_prompt_max_excess = excess;
    }
    a->n_count_differs += !failed && t->n_completion && t->n_completion != t->n_tok;
    if (a->n_lags < MAX_LAGS && e->lag_ns > 0)
        s->lag_ms[a->n_lags++] = (double)e->lag_ns / 1e6;
    pthread_mutex_unlock(&s->lock);
}

/* --- chats */

static void keep_turn(struct sut *s, const struct flight *f)
{
    struct transcript *t = mem_new(MEM_HARNESS, 1, sizeof(*t));
    struct text next = {0};

    t->request = f->request;
    if (!f->stream.answer_lost && sut_openai_turn(&next, &f->sent, &f->answer) == OK)
        t->text = next.p;
    pthread_mutex_lock(&s->lock);
    t->next = s->transcripts;
    s->transcripts = t;
    pthread_mutex_unlock(&s->lock);
}

/* *before: the caller's, mem_free(). */
static int take_turn(struct sut *s, int64_t request, char **before)
{
    struct transcript **at = &s->transcripts, *t;

    pthread_mutex_lock(&s->lock);
    while (*at && (*at)->request != request)
        at = &(*at)->next;
    t = *at;
    if (t)
        *at = t->next;
    pthread_mutex_unlock(&s->lock);
    *before = t ? t->text : NULL;
    if (!t)
        return err_set(ERR_STATE, "the turn before it failed");
    mem_free(t);
    return *before ? OK
                   : err_set(ERR_UNSUPPORTED,
                             "the server sends no token ids, which the next turn needs: "
                             "expected prompt = words");
}

static void flight_free(struct flight *f)
{
    text_fini(&f->answer);
    mem_free(f->before);
    sut_sse_fini(&f->sse);
    text_fini(&f->error);
    mem_free(f);
}

static void on_end(void *ctx, const struct sut_http_end *e)
{
    struct flight *f = ctx;
    char why[256];

    judge(f, e, why, sizeof(why));
    account_for(f->sut, f, e, why[0]);
    if (f->sent.keeps && !why[0])
        keep_turn(f->sut, f); /* while the prompt is there */
    report(f, why[0] ? SUT_FAILED : SUT_DONE, -1, why[0] ? why : NULL);
    flight_free(f);
}

/* --- requests */

static int openai_submit(struct sut *s, const struct sut_request *r)
{
    char *before = NULL;
    struct sut_openai_request q = {.model = s->probe.model,
                                   .prompt = r->prompt,
                                   .n_prompt = r->n_prompt,
                                   .n_output = r->n_output,
                                   .seed = r->seed,
                                   .as_text = s->probe.as_text,
                                   .n_text_words =
                                       sut_openai_n_words(&s->probe, r->n_prompt),
                                   .as_chat = s->probe.as_chat,
                                   .keeps = r->keeps,
                                   .extras = s->probe.extras};
    struct flight *f = mem_new(MEM_HARNESS, 1, sizeof(*f));
    struct text body = {0};
    int rc = r->continues ? take_turn(s, r->before, &before) : OK;

    q.before = f->before = before;
    if (rc == OK)
        rc = sut_openai_body(&body, &q);
    if (rc == OK) {
        *f = (struct flight){
            .sut = s,
            .request = r->request,
            .n_output = r->n_output,
            .n_prompt = r->n_before + r->n_prompt,
            .stream = {.n_limit = r->n_output, .answer_as_ids = !q.as_text},
            .sent = q,
            .before = before};
        f->stream.answer = r->keeps ? &f->answer : NULL;
        rc = sut_http_post(s->http,
                           &(struct sut_http_call){.id = r->request,
                                                   .path = sut_openai_path(q.as_chat),
                                                   .body = body.p,
                                                   .n_body = body.n - 1,
                                                   .on_body = on_body,
                                                   .on_end = on_end,
                                                   .ctx = f});
    }
    if (rc != OK && f)
        flight_free(f);
    text_fini(&body);
    return rc;
}

static void openai_cancel(struct sut *s, int64_t request)
{
    sut_http_cancel(s->http, request);
}

/* --- open and close */

static void openai_close(struct sut **sp)
{
    struct sut *s = *sp;

    if (!s)
        return;
    sut_http_close(&s->http);
    sut_server_stop(&s->server);
    sut_openai_probe_fini(&s->probe);
    for (struct transcript *t = s->transcripts, *next; t; t = next) {
        next = t->next;
        mem_free(t->text);
        mem_free(t);
    }
    pthread_mutex_destroy(&s->lock);
    opt_free(openai_opts, &s->o);
    mem_free(s->lag_ms);
    mem_free(s);
    *sp = NULL;
}

static int check_opts(const struct openai_opts *o)
{
    const bool starts = o->model || o->program || o->args || o->plan || o->cpus ||
                        o->threads || o->port || o->ready_s > 0;

    if (!o->url == !o->system)
        return err_set(ERR_ARG, "openai_http: expected url or system, found %s",
                       o->url ? "both" : "neither");
    if (o->url && starts)
        return err_set(ERR_ARG,
                       "openai_http: model, program, args, plan, cpus, threads, "
                       "port and ready_s are for a server that is started (system); "
                       "the one at a url runs already");
    return OK;
}

static int start_server(struct sut *s)
{
    const struct openai_opts *o = &s->o;
    const struct sut_server_opts q = {.system = o->system,
                                      .program = o->program,
                                      .model = o->model,
                                      .plan = o->plan,
                                      .cpus = o->cpus,
                                      .threads = o->threads,
                                      .ctx_tok =
                                          o->max_tok ? o->max_tok : DEFAULT_CTX_TOK,
                                      .slots = o->slots,
                                      .port = o->port,
                                      .ready_s = o->ready_s,
                                      .args = o->args};

    return sut_server_start(&s->server, &q);
}

static int connect_to(struct sut *s)
{
    const char *key = s->o.api_key_env ? getenv(s->o.api_key_env) : NULL;
    struct sut_http_opts http = {.api_key = key,
                                 .connect_timeout_s = s->o.connect_timeout_s,
                                 .timeout_s = s->o.timeout_s};
    struct sut_openai_probe_opts probe = {.model = s->o.served_name,
                                          .prompt = (enum sut_openai_prompt)s->o.prompt,
                                          .vocab = s->o.vocab,
                                          .max_tok = s->o.max_tok,
                                          .limit_s = s->o.probe_s};
    char url[1024];

    if (s->o.api_key_env && !key)
        return err_set(ERR_ARG, "system.api_key_env: $%s is not set", s->o.api_key_env);
    TRY(sut_openai_url(url, sizeof(url),
                       s->server ? sut_server_url(s->server) : s->o.url));
    http.url = url;
    TRY(sut_openai_probe(&s->probe, &http, &probe));
    return sut_http_open(&s->http, &http);
}

static int openai_open(struct sut **out, const json_t *config, sut_event_fn on_event,
                       void *ctx)
{
    struct sut *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    int rc;

    *out = NULL;
    s->on_event = on_event;
    s->ctx = ctx;
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = opt_init(openai_opts, &s->o);
    if (rc == OK)
        rc = opt_from_json(openai_opts, &s->o, config, "openai_http");
    if (rc == OK)
        rc = check_opts(&s->o);
    s->lag_ms = rc == OK ? mem_new(MEM_HARNESS, MAX_LAGS, sizeof(double)) : NULL;
    if (rc == OK && s->o.system)
        rc = start_server(s);
    if (rc == OK)
        rc = connect_to(s);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
    openai_close(&s);
    return rc;
}

/* --- what it reports */

static int openai_encode(struct sut *s, const char *text, size_t n, int32_t **ids,
                         size_t *n_ids)
{
    return sut_openai_encode(&s->probe, text, n, ids, n_ids);
}

static int openai_limits(struct sut *s, int64_t *vocab, int64_t *max_tok)
{
    *vocab = s->probe.vocab;
    *max_tok = s->probe.max_tok;
    return OK;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *account_json(const struct account *a, const double *lag_ms)
{
    json_t *events = json_object();
    size_t n = a->n_lags;

    for (int i = 0; i < SUT_OPENAI_N_SOURCES; i++)
        json_object_set_new(events, sut_openai_source_names[i],
                            json_integer(a->n_events[i]));
    return json_pack(
        "{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:o, s:o, s:o}}", "n_requests",
        (json_int_t)a->n_requests, "n_failed", (json_int_t)a->n_failed,
        "n_events_counted_by", events, "n_tok_of_an_event_max",
        (json_int_t)a->n_tok_event_max, "n_tok_shown_at_the_end_only",
        (json_int_t)a->n_late_tok, "n_output_counts_that_differ",
        (json_int_t)a->n_count_differs, "n_prompt_counts_that_differ",
        (json_int_t)a->n_prompt_differs, "prompt_tok_excess_max",
        (json_int_t)a->n_prompt_max_excess, "dispatch_lag_ms", "n", (json_int_t)n, "p50",
        number(stats_percentile(lag_ms, n, 0.5)), "p90",
        number(stats_percentile(lag_ms, n, 0.9)), "max", number(stats_max(lag_ms, n)));
}

static int openai_describe(struct sut *s, json_t **out)
{
    json_t *server = NULL, *account;
    int rc;

    *out = NULL;
    if (s->server) {
        rc = sut_server_describe(s->server, &server);
        if (rc != OK)
            return rc;
    }
    pthread_mutex_lock(&s->lock);
    account = account_json(&s->account, s->lag_ms);
    s->account = (struct account){0};
    pthread_mutex_unlock(&s->lock);
    *out = json_pack("{s:s, s:o, s:o, s:o, s:o}", "system", "openai_http", "options",
                     opt_to_json(openai_opts, &s->o), "server",
                     sut_openai_probe_json(&s->probe), "streams", account, "started",
                     server ? server : json_string("no: it ran already"));
    return OK;
}

static int openai_cpu_clocks(struct sut *s, const clockid_t **out)
{
    *out = s->server ? sut_server_cpu_clock(s->server) : NULL;
    return *out != NULL;
}

const struct sut_adapter sut_adapter_openai_http = {
    .name = "openai_http",
    .help = "Any server that speaks the OpenAI protocol, by its URL or started by us.",
    .continues = true,
    .opts = openai_opts,
    .open = openai_open,
    .close = openai_close,
    .submit = openai_submit,
    .cancel = openai_cancel,
    .encode = openai_encode,
    .limits = openai_limits,
    .describe = openai_describe,
    .cpu_clocks = openai_cpu_clocks,
};
