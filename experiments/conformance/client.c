#include "experiments/conformance/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "baselines/http.h"
#include "baselines/openai.h"
#include "baselines/sse.h"

#define CONNECT_S 10
#define METRICS_S 5
#define BODY_MAX  (4 << 20)

struct conform_client {
    struct sut_openai_probe probe;
    struct sut_http *http;
    char root[1024]; /* the URL without its path */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t next_id;
    bool ask_ids, ask_probs; /* llama-server sends ids with probabilities only */
};

/* One request on its way. Its answer is written by the thread of `http` under the lock. */
struct exchange {
    struct conform_client *c;
    struct conform_answer *a;
    const struct conform_request *q;
    struct sut_sse sse;
    struct text body; /* of an answer that is no stream */
    uint64_t begun_ns;
    int64_t id;
};

/* --- the request */

static const char *const words[] = {
    " time",   " year",  " people", " way",   " day",    " man",  " thing", " woman",
    " life",   " child", " world",  " house", " state",  " tree", " group", " water",
    " little", " big",   " red",    " old",   " girl",   " dog",  " said",  " went",
    " saw",    " happy", " sad",    " sun",   " friend", " play", " found", " and"};
#define N_WORDS (sizeof(words) / sizeof(words[0]))

static json_t *prompt_json(const struct conform_client *c,
                           const struct conform_request *q)
{
    struct text t = {0};
    json_t *j = c->probe.as_text ? NULL : json_array();

    for (int64_t i = 0; i < q->n_prompt; i++) {
        if (c->probe.as_text)
            text_puts(&t, words[(uint32_t)q->prompt[i] % N_WORDS]);
        else
            json_array_append_new(j, json_integer(q->prompt[i]));
    }
    if (c->probe.as_text && t.rc == OK)
        j = json_stringn(t.p ? t.p : "", t.n);
    text_fini(&t);
    return j;
}

/* Is this field beyond the standard accepted? */
static bool takes(const struct conform_client *c, const char *name)
{
    for (int i = 0; i < SUT_OPENAI_N_EXTRAS; i++)
        if (strcmp(sut_openai_extras[i], name) == 0)
            return c->probe.extras & 1u << i;
    return false;
}

static char *body_of(const struct conform_client *c, const struct conform_request *q)
{
    json_t *j = json_pack("{s:s, s:o, s:I, s:b, s:f}", "model", c->probe.model, "prompt",
                          prompt_json(c, q), "max_tokens", (json_int_t)q->n_output,
                          "stream", q->stream, "temperature", q->seed ? 0.8 : 0.0);
    char *text;

    if (q->seed)
        json_object_set_new(j, "seed", json_integer(q->seed));
    if (q->stream && takes(c, "stream_options"))
        json_object_set_new(j, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (takes(c, "ignore_eos"))
        json_object_set_new(j, "ignore_eos", json_true());
    if (c->ask_ids && takes(c, "return_token_ids"))
        json_object_set_new(j, "return_token_ids", json_true());
    if (takes(c, "cache_prompt"))
        json_object_set_new(j, "cache_prompt", json_true());
    if (c->ask_probs)
        json_object_set_new(j, "n_probs", json_integer(1));
    text = json_text(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

/* --- what an answer holds */

void conform_answer_fini(struct conform_answer *a)
{
    text_fini(&a->text);
    mem_free(a->ids);
    *a = (struct conform_answer){0};
}

bool conform_answer_whole(const struct conform_answer *a)
{
    return a->status == 200 && a->ended && !a->hung && !a->left && !a->error[0] &&
           !a->malformed[0];
}

static void take_count(int64_t *to, const json_t *usage, const char *key)
{
    const json_t *n = json_object_get(usage, key);

    if (json_is_integer(n))
        *to = json_integer_value(n);
}

static int take_ids(struct conform_answer *a, const json_t *list, const char *key)
{
    size_t n = json_array_size(list);
    int32_t *ids;

    if (!json_is_array(list))
        return OK;
    ids = mem_resize(MEM_HARNESS, a->ids, (size_t)a->n_ids + n + 1, sizeof(*ids));
    a->ids = ids;
    a->has_ids = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);

        if (key)
            id = json_object_get(id, key);
        ids[a->n_ids++] = (int32_t)json_integer_value(id);
    }
    return OK;
}

/* Ids as vLLM and this project send them, or as llama-server does with log probabilities. */
static int take_choice(struct conform_answer *a, const json_t *choice)
{
    const json_t *finish = json_object_get(choice, "finish_reason");
    const json_t *text = json_object_get(choice, "text");
    const json_t *content =
        json_object_get(json_object_get(choice, "logprobs"), "content");

    if (json_is_string(text))
        text_put(&a->text, json_string_value(text), json_string_length(text));
    if (json_is_string(finish)) {
        a->has_finish = true;
        utf8_show(a->finish, sizeof(a->finish), json_string_value(finish));
    }
    if (json_is_array(json_object_get(choice, "token_ids")))
        TRY(take_ids(a, json_object_get(choice, "token_ids"), NULL));
    else if (json_object_get(json_array_get(content, 0), "id"))
        TRY(take_ids(a, content, "id"));
    return a->text.rc;
}

static bool is_error(const json_t *j)
{
    const json_t *e = json_object_get(j, "error");

    return (json_is_object(e) && json_object_size(e) > 0) ||
           (json_is_string(e) && json_string_length(e) > 0);
}

static int take_object(struct conform_answer *a, const json_t *j, const char *text,
                       size_t n)
{
    const json_t *usage = json_object_get(j, "usage");
    const json_t *choices = json_object_get(j, "choices");

    if (is_error(j)) {
        sut_openai_error(a->error, sizeof(a->error), text, n);
        return OK;
    }
    take_count(&a->usage_prompt, usage, "prompt_tokens");
    take_count(&a->usage_completion, usage, "completion_tokens");
    take_count(&a->usage_total, usage, "total_tokens");
    if (!json_is_array(choices) && !json_is_object(usage) && json_object_size(j) > 0)
        snprintf(a->malformed, sizeof(a->malformed), "an object without \"choices\"");
    return json_array_size(choices) ? take_choice(a, json_array_get(choices, 0)) : OK;
}

static int take_json(struct conform_answer *a, const char *text, size_t n,
                     const char *what)
{
    json_t *j = NULL;
    int rc = json_read_text_nul(&j, text, n, what);

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK)
        utf8_show(a->malformed, sizeof(a->malformed), err_msg());
    rc = rc == OK ? take_object(a, j, text, n) : OK;
    json_decref(j);
    return rc;
}

/* One event of a stream. What is wrong with it is kept in the answer. ERR_NOMEM. */
static int take_event(struct conform_answer *a, const char *data, size_t n)
{
    if (a->done) {
        a->after_done = true;
        return OK;
    }
    if (strcmp(data, "[DONE]") == 0) {
        a->done = true;
        return OK;
    }
    a->n_events++;
    return take_json(a, data, n, "event");
}

/* --- the answer, on the thread of `http` */

static int on_event(void *ctx, char *data, size_t n)
{
    struct exchange *x = ctx;
    int rc = take_event(x->a, data, n);

    if (rc == OK && x->q->leave_after && x->a->n_events >= x->q->leave_after) {
        x->a->left = true;
        return err_set(ERR_CANCELED, "the client leaves");
    }
    return rc;
}

static int on_body(void *ctx, const struct sut_http_head *h, const char *p, size_t n)
{
    struct exchange *x = ctx;
    int rc;

    pthread_mutex_lock(&x->c->lock);
    x->a->status = h->status;
    if (h->status == 200 && x->q->stream) {
        rc = sut_sse_feed(&x->sse, p, n, on_event, x);
    } else if (x->body.n + n > BODY_MAX) {
        rc = err_set(ERR_LIMIT, "an answer of more than %d bytes", BODY_MAX);
    } else {
        text_put(&x->body, p, n);
        rc = x->body.rc;
    }
    pthread_mutex_unlock(&x->c->lock);
    return rc;
}

static void on_end(void *ctx, const struct sut_http_end *e)
{
    struct exchange *x = ctx;
    struct conform_answer *a = x->a;
    const char *body = x->body.p ? x->body.p : "";

    pthread_mutex_lock(&x->c->lock);
    a->status = e->head.status;
    a->seconds = (double)(clock_ns() - x->begun_ns) / 1e9;
    if (e->error && !a->left && !a->hung)
        utf8_show(a->error, sizeof(a->error), e->error);
    else if (a->status != 200 && !a->hung)
        sut_openai_error(a->error, sizeof(a->error), body, x->body.n);
    else if (!x->q->stream && !a->hung && take_json(a, body, x->body.n, "answer") != OK)
        utf8_show(a->error, sizeof(a->error), err_msg());
    a->ended = true;
    pthread_cond_signal(&x->c->changed);
    pthread_mutex_unlock(&x->c->lock);
}

/* --- waiting */

static struct timespec time_at(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* Wait until all have ended or the time is over, with the lock held. */
static bool wait_all(struct conform_client *c, const struct conform_answer *a, int n,
                     uint64_t end_ns)
{
    const struct timespec end = time_at(end_ns);

    for (int i = 0; i < n;)
        if (a[i].ended)
            i++;
        else if (pthread_cond_timedwait(&c->changed, &c->lock, &end) == ETIMEDOUT)
            return false;
    return true;
}

static int post(struct exchange *x)
{
    char *body = body_of(x->c, x->q);
    const struct sut_http_call call = {.id = x->id,
                                       .path = "/completions",
                                       .body = body,
                                       .n_body = strlen(body),
                                       .on_body = on_body,
                                       .on_end = on_end,
                                       .ctx = x};
    int rc = sut_http_post(x->c->http, &call);

    mem_free(body);
    return rc;
}

/* Cancel those of the first n_posted that have not ended, and wait for their callbacks. */
static int cancel_rest(struct conform_client *c, struct exchange *x, int n_posted)
{
    bool all;

    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < n_posted; i++)
        x[i].a->hung = !x[i].a->ended;
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < n_posted; i++)
        if (x[i].a->hung)
            sut_http_cancel(c->http, x[i].id);
    pthread_mutex_lock(&c->lock);
    all = n_posted == 0 || wait_all(c, x[0].a, n_posted, UINT64_MAX / 2);
    pthread_mutex_unlock(&c->lock);
    return all ? OK : err_set(ERR_STATE, "requests that were canceled do not end");
}

int conform_client_ask(struct conform_client *c, const struct conform_request *q,
                       struct conform_answer *a, int n, uint64_t end_ns)
{
    struct exchange *x = mem_new(MEM_HARNESS, (size_t)n, sizeof(*x));
    int n_posted = 0, rc = OK, rc_end = OK;
    bool all;

    for (int i = 0; i < n; i++)
        a[i] = (struct conform_answer){.usage_prompt = CONFORM_NOT_STATED,
                                       .usage_completion = CONFORM_NOT_STATED,
                                       .usage_total = CONFORM_NOT_STATED};
    for (; rc == OK && n_posted < n; n_posted += rc == OK) {
        struct exchange *one = &x[n_posted];

        *one = (struct exchange){.c = c,
                                 .a = &a[n_posted],
                                 .q = &q[n_posted],
                                 .begun_ns = clock_ns(),
                                 .id = c->next_id++};
        rc = post(one);
    }
    pthread_mutex_lock(&c->lock);
    all = wait_all(c, a, n_posted, rc == OK ? end_ns : 0);
    pthread_mutex_unlock(&c->lock);
    if (!all)
        rc_end = cancel_rest(c, x, n_posted);
    for (int i = 0; i < n_posted; i++) {
        text_fini(&x[i].body);
        sut_sse_fini(&x[i].sse);
        text_put(&a[i].text, "", 1);
        a[i].text.n -= a[i].text.rc == OK;
        rc = rc != OK ? rc : a[i].text.rc;
    }
    mem_free(x);
    return rc != OK ? rc : rc_end;
}

/* --- the server */

/* Does an answer have ids, or else one with probabilities? A server that does not answer is for
 * the caller to find. */
static int find_ids(struct conform_client *c, uint64_t end_ns)
{
    static const int32_t prompt[] = {5, 6, 7, 8};
    const struct conform_request q = {.prompt = prompt, .n_prompt = 4, .n_output = 2};
    struct conform_answer a;
    bool ids, whole;

    for (int i = 0; i < 2; i++) {
        c->ask_probs = i == 1;
        TRY(conform_client_ask(c, &q, &a, 1, end_ns));
        ids = a.n_ids == q.n_output;
        whole = conform_answer_whole(&a);
        conform_answer_fini(&a);
        if (ids || (!whole && i == 0))
            return OK;
    }
    c->ask_probs = false;
    return OK;
}

static void root_of(char *out, size_t n, const char *url)
{
    const char *host = strstr(url, "://") + 3;

    snprintf(out, n, "%.*s%.*s", (int)(host - url), url, (int)strcspn(host, "/"), host);
}

int conform_client_open(struct conform_client **out, const char *url, const char *model,
                        const char *api_key, bool ids, double limit_s)
{
    struct conform_client *c = mem_new(MEM_HARNESS, 1, sizeof(*c));
    char with_scheme[1024], full[1024];
    const struct sut_http_opts http = {
        .url = full, .api_key = api_key, .connect_timeout_s = CONNECT_S};
    const struct sut_openai_probe_opts probe = {.model = model, .limit_s = limit_s};
    int rc;

    *out = NULL;
    rc = snprintf(with_scheme, sizeof(with_scheme), "%s%s",
                  strstr(url, "://") ? "" : "http://", url) >= (int)sizeof(with_scheme)
             ? err_set(ERR_ARG, "%.60s...: a URL of more than 1000 bytes", url)
             : sut_openai_url(full, sizeof(full), with_scheme);
    if (rc == OK)
        rc = thread_mutex_init(&c->lock);
    if (rc == OK)
        rc = thread_cond_init(&c->changed);
    if (rc == OK)
        rc = sut_openai_probe(&c->probe, &http, &probe);
    if (rc == OK)
        rc = sut_http_open(&c->http, &http);
    if (rc == OK)
        c->ask_ids = ids;
    if (rc == OK && ids)
        rc = find_ids(c, clock_ns() + (uint64_t)(limit_s * 1e9));
    if (rc == OK) {
        root_of(c->root, sizeof(c->root), full);
        *out = c, c = NULL; /* the caller's now */
    }
    conform_client_close(&c);
    return rc;
}

void conform_client_close(struct conform_client **cp)
{
    struct conform_client *c = *cp;

    if (!c)
        return;
    sut_http_close(&c->http);
    sut_openai_probe_fini(&c->probe);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
    *cp = NULL;
}

const struct sut_openai_probe *conform_client_probe(const struct conform_client *c)
{
    return &c->probe;
}

double conform_client_preemptions(const struct conform_client *c, uint64_t end_ns)
{
    const struct sut_http_opts http = {.url = c->root,
                                       .api_key = c->probe.api_key,
                                       .connect_timeout_s = METRICS_S,
                                       .timeout_s = METRICS_S,
                                       .end_ns = end_ns};
    struct text t = {0};
    double sum = -1;
    long status = 0;
    char *rest, *line;

    if (sut_http_fetch(&http, "/metrics", NULL, &t, &status) != OK || status != 200)
        t.n = 0;
    text_put(&t, "", 1);
    rest = t.rc == OK ? t.p : NULL;
    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *value = strrchr(line, ' ');

        if (line[0] != '#' && value && strstr(line, "preempt"))
            sum = (sum < 0 ? 0 : sum) + strtod(value, NULL);
    }
    text_fini(&t);
    return sum;
}
