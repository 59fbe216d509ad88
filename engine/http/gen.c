#include "http/gen.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* ---- on the stepping thread ---- */

/* log(sum of exp) of all logits, so that logit - this is a log probability. */
static double log_sum_exp(const float *logits, int n)
{
    float highest = logits[0];
    double sum = 0;

    for (int i = 1; i < n; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    for (int i = 0; i < n; i++)
        sum += expf(logits[i] - highest);
    return (double)highest + log(sum);
}

/* The n_top largest, best first; of equal ones the lower id. */
static void find_top(const float *logits, int vocab, double lse, struct http_top *top,
                     int64_t n_top)
{
    int64_t n = 0;

    for (int id = 0; id < vocab; id++) {
        int64_t at = n;
        float logprob = (float)((double)logits[id] - lse);

        if (n == n_top && !(logprob > top[n - 1].logprob))
            continue;
        for (at = n < n_top ? n++ : n - 1; at > 0 && logprob > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct http_top){id, logprob};
    }
}

static enum http_finish finish_of(enum serve_finish f)
{
    switch (f) {
    case SERVE_RUNNING:
        return HTTP_RUNNING;
    case SERVE_LENGTH:
        return HTTP_LENGTH;
    case SERVE_EOS:
        return HTTP_EOS;
    case SERVE_CANCELED:
        return HTTP_CANCELED;
    case SERVE_ERROR:
        break;
    }
    return HTTP_FAILED;
}

/* The text of the new token, searched for stop strings, and behind the last one that of bytes
 * that form no character. */
static void search(struct http_gen *g, int32_t id, struct http_token *t,
                   enum http_finish *finish)
{
    size_t n = 0;
    bool found;

    if (*finish != HTTP_EOS &&
        tok_stream_put(&g->stream, id, g->piece, g->capacity, &n) != OK)
        n = 0; /* an id of the model that the tokenizer does not have */
    found = http_stop_feed(&g->stop, g->piece, n);
    if (!found && (*finish == HTTP_EOS || *finish == HTTP_LENGTH)) {
        n = tok_stream_flush(&g->stream, g->piece, g->capacity);
        found = http_stop_feed(&g->stop, g->piece, n);
    }
    if (found) {
        *finish = HTTP_STOPPED;
        g->now.text_end = g->stop.found_at;
    }
    t->n_safe = http_stop_safe(&g->stop);
}

static void add_token(struct http_gen *g, int32_t id, const float *logits,
                      enum http_finish *finish)
{
    struct http_token *t = &g->tokens[g->now.n];
    double lse;

    *t = (struct http_token){.id = id, .n_safe = SIZE_MAX};
    if (g->logprobs) {
        lse = log_sum_exp(logits, g->vocab);
        t->logprob = (float)((double)logits[id] - lse);
        if (g->n_top > 0)
            find_top(logits, g->vocab, lse, g->top + g->now.n * g->n_top, g->n_top);
    }
    if (g->stop.n > 0)
        search(g, id, t, finish);
    g->now.n++;
}

static void count_token(struct http_gen *g)
{
    uint64_t now = clock_ns();

    http_metrics_token(g->metrics, g->now.n == g->n_echo + 1, now - g->t_last_ns);
    g->t_last_ns = now;
}

/* With the lock held. */
static void wake(struct http_gen *g)
{
    if (g->waiting)
        g->wake(g->ctx);
    g->waiting = false;
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish how)
{
    struct http_gen *g = ctx;
    enum http_finish finish = finish_of(how);

    pthread_mutex_lock(&g->lock);
    if (g->now.finish ==
        HTTP_RUNNING) { /* else what follows a stop string: its cancellation */
        if (id >= 0) {
            add_token(g, id, logits, &finish);
            if (g->now.n > g->n_echo)
                count_token(g);
        }
        if (finish == HTTP_FAILED)
            snprintf(g->why, sizeof(g->why), "%s", err_msg());
        if (finish == HTTP_STOPPED && how == SERVE_RUNNING)
            serve_cancel(g->serve, request);
        g->now.finish = finish;
        if (finish != HTTP_RUNNING || !g->wake_at_end)
            wake(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (how != SERVE_RUNNING) {
        g->on_end(g);
        http_gen_unref(g);
    }
}

/* ---- the owners ---- */

static int take_stops(struct http_gen *g, const struct http_request *r)
{
    if (r->n_stop == 0)
        return OK;
    g->stop.word = mem_new(MEM_OTHER, (size_t)r->n_stop, sizeof(*g->stop.word));
    g->capacity = 8 + 3 * tok_longest(g->tok);
    g->piece = mem_new(MEM_OTHER, g->capacity, 1);
    if (!g->stop.word || !g->piece)
        return ERR_NOMEM;
    g->stop.n = r->n_stop;
    for (int i = 0; i < r->n_stop; i++)
        http_stop_set(&g->stop, i, json_string_value(r->stop[i]),
                      json_string_length(r->stop[i]));
    tok_stream_init(&g->stream, g->tok);
    g->stream.at_start &= r->api == HTTP_CHAT; /* a completion continues the prompt */
    return OK;
}

int http_gen_new(struct http_gen **out, const struct http_request *r, int64_t n_prompt,
                 int64_t max_new, const struct tok *tok, int vocab)
{
    struct http_gen *g = mem_new(MEM_OTHER, 1, sizeof(*g));
    int rc = ERR_NOMEM;
    size_t n;

    *out = NULL;
    if (!g)
        return rc;
    g->n_owners = 1;
    g->id = -1;
    g->tok = tok;
    g->vocab = vocab;
    g->n_prompt = n_prompt;
    g->max_new = max_new;
    g->logprobs = r->logprobs;
    g->n_top = r->n_top < vocab ? r->n_top : vocab;
    g->n_echo = r->echo ? n_prompt : 0;
    n = (size_t)(g->n_echo + max_new);
    rc = thread_mutex_init(&g->lock);
    if (rc != OK)
        goto out;
    rc = ERR_NOMEM;
    g->tokens = mem_new(MEM_OTHER, n, sizeof(*g->tokens));
    if (g->n_top > 0)
        g->top = mem_new(MEM_OTHER, n * (size_t)g->n_top, sizeof(*g->top));
    if (g->tokens && (g->top || g->n_top == 0))
        rc = take_stops(g, r);
    if (rc == OK)
        *out = g, g = NULL;
out:
    http_gen_unref(g);
    return rc;
}

void http_gen_unref(struct http_gen *g)
{
    int left;

    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    left = --g->n_owners;
    pthread_mutex_unlock(&g->lock);
    if (left > 0)
        return;
    pthread_mutex_destroy(&g->lock);
    mem_free(g->tokens);
    mem_free(g->top);
    mem_free(g->stop.word);
    mem_free(g->piece);
    mem_free(g);
}

int http_gen_submit(struct http_gen *g, const struct http_request *r, struct serve *s,
                    const int32_t *prompt)
{
    const int64_t n_scored = g->n_echo > 0 && r->logprobs ? g->n_prompt - 1 : 0;
    const struct serve_request request = {.prompt = prompt,
                                          .n_prompt = g->n_prompt,
                                          .n_reused = &g->n_reused,
                                          .max_new = g->max_new,
                                          .n_scored = n_scored,
                                          .ignore_eos = r->ignore_eos,
                                          .sampling = r->sampling,
                                          .on_token = on_token,
                                          .ctx = g};
    int rc;

    for (; g->now.n < g->n_echo - n_scored; g->now.n++)
        g->tokens[g->now.n] = (struct http_token){
            .id = prompt[g->now.n], .logprob = NAN, .n_safe = SIZE_MAX};
    g->serve = s;
    g->t_submit_ns = g->t_last_ns = clock_ns();
    pthread_mutex_lock(&g->lock); /* its first token waits until the number is known */
    g->n_owners++;
    rc = serve_submit(s, &request, &g->id);
    if (rc != OK)
        g->n_owners--;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- the reader ---- */

bool http_gen_ready(struct http_gen *g, int64_t n, void (*park)(void *ctx),
                    struct http_progress *now)
{
    bool ready;

    pthread_mutex_lock(&g->lock);
    *now = g->now;
    ready =
        now->finish != HTTP_RUNNING || now->hung_up || (now->n > n && !g->wake_at_end);
    if (!ready) {
        g->waiting = true;
        park(g->ctx);
    }
    pthread_mutex_unlock(&g->lock);
    return ready;
}

void http_gen_cancel(struct http_gen *g)
{
    int64_t id;

    pthread_mutex_lock(&g->lock);
    id = g->now.finish == HTTP_RUNNING ? g->id : -1;
    pthread_mutex_unlock(&g->lock);
    if (id >= 0)
        serve_cancel(g->serve, id);
}

void http_gen_fail(struct http_gen *g, const char *why)
{
    http_gen_cancel(g);
    pthread_mutex_lock(&g->lock);
    if (g->now.finish == HTTP_RUNNING) {
        snprintf(g->why, sizeof(g->why), "%s", why);
        g->now.finish = HTTP_FAILED;
        wake(g);
    }
    pthread_mutex_unlock(&g->lock);
}

void http_gen_hang_up(struct http_gen *g)
{
    http_gen_cancel(g);
    pthread_mutex_lock(&g->lock);
    g->now.hung_up = true;
    wake(g);
    pthread_mutex_unlock(&g->lock);
}
