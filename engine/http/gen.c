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
static void search(struct http_seq *q, int32_t id, struct http_token *t,
                   enum http_finish *finish)
{
    size_t n = 0;
    bool found;

    if (*finish != HTTP_EOS &&
        tok_stream_put(&q->stream, id, q->piece, q->capacity, &n) != OK)
        n = 0; /* an id of the model that the tokenizer does not have */
    found = http_stop_feed(&q->stop, q->piece, n);
    if (!found && (*finish == HTTP_EOS || *finish == HTTP_LENGTH)) {
        n = tok_stream_flush(&q->stream, q->piece, q->capacity);
        found = http_stop_feed(&q->stop, q->piece, n);
    }
    if (found) {
        *finish = HTTP_STOPPED;
        q->now.text_end = q->stop.found_at;
    }
    t->n_safe = http_stop_safe(&q->stop);
}

static void add_token(struct http_seq *q, int32_t id, const float *logits,
                      enum http_finish *finish)
{
    const struct http_gen *g = q->g;
    struct http_token *t = &q->tokens[q->now.n];
    double lse;

    *t = (struct http_token){.id = id, .n_safe = SIZE_MAX};
    if (g->logprobs) {
        lse = log_sum_exp(logits, g->vocab);
        t->logprob = (float)((double)logits[id] - lse);
        if (g->n_top > 0)
            find_top(logits, g->vocab, lse, q->top + q->now.n * g->n_top, g->n_top);
    }
    if (q->stop.n > 0)
        search(q, id, t, finish);
    q->now.n++;
}

static void count_token(struct http_seq *q)
{
    const bool first = q->now.n == q->n_echo + 1;
    uint64_t now = clock_ns();

    http_metrics_token(q->g->metrics, first, now - q->t_last_ns);
    if (first && q->t_start_ns)
        http_metrics_queued(q->g->metrics, q->t_start_ns - q->t_submit_ns);
    q->t_last_ns = now;
}

/* With the lock held. */
static void wake(struct http_gen *g)
{
    if (g->waiting)
        g->wake(g->ctx);
    g->waiting = false;
}

/* n sequences are not the engine's any more. */
static void end_seqs(struct http_gen *g, int n)
{
    bool all;

    pthread_mutex_lock(&g->lock);
    g->n_live -= n;
    all = g->n_live == 0;
    pthread_mutex_unlock(&g->lock);
    if (!all)
        return;
    g->on_end(g);
    http_gen_unref(g);
}

static bool runs(const struct http_gen *g)
{
    for (int i = 0; i < g->n_seqs; i++)
        if (g->seqs[i].now.finish == HTTP_RUNNING)
            return true;
    return false;
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish how)
{
    struct http_seq *q = ctx;
    struct http_gen *g = q->g;
    enum http_finish finish = finish_of(how);

    pthread_mutex_lock(&g->lock);
    if (q->now.finish ==
        HTTP_RUNNING) { /* else what follows a stop string: its cancellation */
        if (id >= 0) {
            add_token(q, id, logits, &finish);
            if (q->now.n > q->n_echo)
                count_token(q);
        }
        if (finish == HTTP_FAILED)
            snprintf(g->why, sizeof(g->why), "%s", err_msg());
        if (finish == HTTP_STOPPED && how == SERVE_RUNNING)
            serve_cancel(g->serve, request);
        q->now.finish = finish;
        if (!g->wake_at_end || !runs(g))
            wake(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (how != SERVE_RUNNING) {
        http_metrics_ended(g->metrics, q->now.finish == HTTP_CANCELED,
                           q->t_last_ns - q->t_submit_ns);
        end_seqs(g, 1);
    }
}

/* ---- the owners ---- */

static int take_stops(struct http_seq *q, const struct http_request *r)
{
    if (r->n_stop == 0)
        return OK;
    q->stop.word = mem_new(MEM_OTHER, (size_t)r->n_stop, sizeof(*q->stop.word));
    q->capacity = 8 + 3 * tok_longest(q->g->tok);
    q->piece = mem_new(MEM_OTHER, q->capacity, 1);
    if (!q->stop.word || !q->piece)
        return ERR_NOMEM;
    q->stop.n = r->n_stop;
    for (int i = 0; i < r->n_stop; i++)
        http_stop_set(&q->stop, i, json_string_value(r->stop[i]),
                      json_string_length(r->stop[i]));
    tok_stream_init(&q->stream, q->g->tok);
    q->stream.at_start &= r->api == HTTP_CHAT; /* a completion continues the prompt */
    return OK;
}

int http_gen_new(struct http_gen **out, const struct http_request *r, int n_seqs,
                 const struct tok *tok, int vocab)
{
    struct http_gen *g = mem_new(MEM_OTHER, 1, sizeof(*g));
    int rc;

    *out = NULL;
    if (!g)
        return ERR_NOMEM;
    rc = thread_mutex_init(&g->lock);
    if (rc != OK) {
        mem_free(g);
        return rc;
    }
    g->n_owners = 1;
    g->tok = tok;
    g->vocab = vocab;
    g->logprobs = r->logprobs;
    g->n_top = r->n_top < vocab ? r->n_top : vocab;
    g->seqs = mem_new(MEM_OTHER, (size_t)n_seqs, sizeof(*g->seqs));
    if (!g->seqs) {
        http_gen_unref(g);
        return ERR_NOMEM;
    }
    g->n_seqs = n_seqs;
    for (int i = 0; i < n_seqs; i++)
        g->seqs[i] = (struct http_seq){.g = g, .id = -1};
    *out = g;
    return OK;
}

int http_gen_size(struct http_gen *g, int i, const struct http_request *r,
                  int64_t n_prompt, int64_t max_new)
{
    struct http_seq *q = &g->seqs[i];
    size_t n;

    q->n_prompt = n_prompt;
    q->max_new = max_new;
    q->n_echo = r->echo ? n_prompt : 0;
    n = (size_t)(q->n_echo + max_new);
    q->tokens = mem_new(MEM_OTHER, n, sizeof(*q->tokens));
    if (g->n_top > 0)
        q->top = mem_new(MEM_OTHER, n * (size_t)g->n_top, sizeof(*q->top));
    return q->tokens && (q->top || g->n_top == 0) ? take_stops(q, r) : ERR_NOMEM;
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
    for (int i = 0; i < g->n_seqs; i++) {
        mem_free(g->seqs[i].tokens);
        mem_free(g->seqs[i].top);
        mem_free(g->seqs[i].stop.word);
        mem_free(g->seqs[i].piece);
    }
    mem_free(g->seqs);
    mem_free(g);
}

static int submit_one(struct http_seq *q, const struct http_request *r,
                      const struct http_prompt *prompt, int64_t choice)
{
    struct http_gen *g = q->g;
    const int64_t n_scored = q->n_echo > 0 && r->logprobs ? q->n_prompt - 1 : 0;
    struct serve_request request = {.prompt = prompt->ids,
                                    .n_prompt = q->n_prompt,
                                    .n_reused = &q->n_reused,
                                    .started_ns = &q->t_start_ns,
                                    .max_new = q->max_new,
                                    .n_scored = n_scored,
                                    .ignore_eos = r->ignore_eos,
                                    .sampling = r->sampling,
                                    .bias = r->bias,
                                    .n_bias = r->n_bias,
                                    .stop_ids = r->stop_ids,
                                    .n_stop_ids = r->n_stop_ids,
                                    .min_new = r->min_new,
                                    .grammar = r->grammar,
                                    .on_token = on_token,
                                    .ctx = q};
    int rc;

    request.sampling.seed = (int64_t)((uint64_t)r->sampling.seed + (uint64_t)choice);
    for (; q->now.n < q->n_echo - n_scored; q->now.n++)
        q->tokens[q->now.n] = (struct http_token){
            .id = prompt->ids[q->now.n], .logprob = NAN, .n_safe = SIZE_MAX};
    q->t_submit_ns = q->t_last_ns = clock_ns();
    pthread_mutex_lock(&g->lock); /* its first token waits until the number is known */
    rc = serve_submit(g->serve, &request, &q->id);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int http_gen_submit(struct http_gen *g, const struct http_request *r, struct serve *s,
                    const struct http_prompt *prompts)
{
    int rc = OK, i = 0;

    g->serve = s;
    g->n_owners++;
    g->n_live = g->n_seqs;
    for (; i < g->n_seqs && rc == OK; i++)
        rc = submit_one(&g->seqs[i], r, &prompts[i / r->n], i % r->n);
    if (rc == OK)
        return OK;
    http_gen_cancel(g);
    end_seqs(g, g->n_seqs - i + 1); /* the one that failed and all after it */
    return rc;
}

/* ---- the reader ---- */

bool http_gen_ready(struct http_gen *g, void (*park)(void *ctx), bool *hung_up)
{
    bool ready = false;

    pthread_mutex_lock(&g->lock);
    *hung_up = g->hung_up;
    for (int i = 0; i < g->n_seqs; i++) {
        struct http_seq *q = &g->seqs[i];

        q->seen = q->now;
        ready |= q->now.n > q->n_told || (q->now.finish != HTTP_RUNNING && !q->told_end);
    }
    if (g->wake_at_end)
        ready = !runs(g);
    ready |= g->hung_up;
    if (!ready) {
        g->waiting = true;
        park(g->ctx);
    }
    pthread_mutex_unlock(&g->lock);
    return ready;
}

/* With the lock held, as on_token() does. */
static void cancel(struct http_gen *g)
{
    for (int i = 0; i < g->n_seqs; i++)
        if (g->seqs[i].now.finish == HTTP_RUNNING && g->seqs[i].id >= 0)
            serve_cancel(g->serve, g->seqs[i].id);
}

void http_gen_cancel(struct http_gen *g)
{
    pthread_mutex_lock(&g->lock);
    cancel(g);
    pthread_mutex_unlock(&g->lock);
}

void http_gen_fail(struct http_gen *g, const char *why)
{
    pthread_mutex_lock(&g->lock);
    cancel(g);
    if (runs(g)) {
        snprintf(g->why, sizeof(g->why), "%s", why);
        for (int i = 0; i < g->n_seqs; i++)
            if (g->seqs[i].now.finish == HTTP_RUNNING)
                g->seqs[i].now.finish = HTTP_FAILED;
        wake(g);
    }
    pthread_mutex_unlock(&g->lock);
}

void http_gen_hang_up(struct http_gen *g)
{
    pthread_mutex_lock(&g->lock);
    cancel(g);
    g->hung_up = true;
    wake(g);
    pthread_mutex_unlock(&g->lock);
}
