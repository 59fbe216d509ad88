/* From the body of a completion request to tokens in the engine's queue. */
#include "http/server.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/mem.h"

#define DEFAULT_MAX_NEW 16 /* of a completion without max_tokens, as OpenAI defines it */

/* ---- the prompt as ids ---- */

static int copy_ids(const json_t *v, int32_t **ids, size_t *n)
{
    *n = json_array_size(v);
    *ids = mem_new(MEM_OTHER, *n, sizeof(**ids));
    for (size_t i = 0; *ids && i < *n; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(v, i));
    return *ids ? OK : ERR_NOMEM;
}

/* A longer text has too many tokens in any case, so that encoding it is of no use. The factor
 * is for normal form C, which makes texts shorter. */
static size_t max_text(const struct http *h)
{
    return 4 * tok_longest(h->tok) * (size_t)h->s->max_tok;
}

static int too_long(struct http_request *r, size_t n)
{
    r->too_long = true;
    return err_set(ERR_LIMIT,
                   "request: a prompt of %zu bytes is longer than --max-tok "
                   "tokens",
                   n);
}

/* The template writes BOS itself where the model wants it. */
static int encode_chat(const struct http *h, struct http_request *r, int32_t **ids,
                       size_t *n)
{
    struct chat_conversation in = {.messages = r->chat,
                                   .tools = r->tools,
                                   .more = r->template_variables,
                                   .continue_final = r->continue_final,
                                   .time_s = h->chat_time_s};
    struct chat_prompt p = {0};
    int rc;

    r->param = "messages";
    if (!h->chat)
        return err_set(ERR_UNSUPPORTED, "%s", h->no_chat);
    if (in.time_s < 0)
        in.time_s = (int64_t)time(NULL);
    in.max_bytes = max_text(h);
    rc = chat_write(h->chat, &in, &p);
    r->param = in.param;
    if (rc == ERR_LIMIT && in.too_long)
        rc = too_long(r, in.max_bytes + 1);
    else if (rc == ERR_LIMIT) /* of the template's work */
        rc = err_set(ERR_ARG, "%s", err_msg());
    if (rc == OK)
        rc = tok_encode_parts(h->tok, p.text.p ? p.text.p : "", p.parts, p.n_parts, 0,
                              ids, n);
    chat_prompt_fini(&p);
    return rc;
}

/* A completion's prompt is the text as the model sees it: control tokens in it are meant, unless
 * the request says that it is a user's, and where it begins with BOS it gets no other. */
static int encode_text(const struct http *h, struct http_request *r, int32_t **ids,
                       size_t *n)
{
    const char *text = r->text;
    size_t n_text = r->n_text;
    unsigned flags = SERVE_BOS | (r->special ? SERVE_SPECIAL : 0);
    size_t n_bos = 0;
    const char *bos;

    if (!h->tok)
        return err_set(ERR_UNSUPPORTED, "request: prompt: the model has no tokenizer; "
                                        "expected an array of token ids");
    if (n_text > max_text(h))
        return too_long(r, n_text);
    if (r->special && serve_bos(h->s) >= 0 &&
        tok_piece(h->tok, serve_bos(h->s), true, &bos, &n_bos) == OK && n_bos > 0 &&
        n_bos <= n_text && memcmp(text, bos, n_bos) == 0)
        flags = SERVE_SPECIAL;
    return serve_encode(h->s, text, n_text, flags, ids, n);
}

static int encode(struct http_exchange *x, int32_t **ids, size_t *n)
{
    struct http_request *r = &x->request;
    int bos = serve_bos(x->h->s), rc;

    *ids = NULL;
    *n = 0;
    if (r->chat)
        rc = encode_chat(x->h, r, ids, n);
    else if (r->ids)
        rc = copy_ids(r->ids, ids, n);
    else
        rc = encode_text(x->h, r, ids, n);
    if (rc != OK || *n > 0)
        return rc;
    if (bos < 0)
        return err_set(ERR_ARG,
                       "request: the prompt is empty, and the model has no token "
                       "to begin with");
    mem_free(*ids);
    *ids = mem_new(MEM_OTHER, 1, sizeof(**ids));
    if (!*ids)
        return ERR_NOMEM;
    (*ids)[0] = bos;
    *n = 1;
    return OK;
}

/* ---- submitting ---- */

static int parse(struct http_exchange *x, enum http_api api)
{
    struct http_request *r = &x->request;

    TRY(http_request_parse(r, api, x->body.p ? x->body.p : "", x->body.n));
    r->param = "model";
    if (r->model && strcmp(r->model, x->h->model) != 0)
        return err_set(ERR_NOTFOUND, "request: model: this server has \"%.200s\" only",
                       x->h->model);
    r->param = "stop";
    if (r->n_stop > 0 && !x->h->tok)
        return err_set(ERR_UNSUPPORTED,
                       "request: stop: the model has no tokenizer to find texts with");
    r->param = NULL;
    if (!r->has_seed) {
        if (getrandom(&r->sampling.seed, sizeof(r->sampling.seed), 0) < 0)
            return err_set(ERR_IO, "no random numbers: %m");
        r->sampling.seed &= INT64_MAX;
    }
    return OK;
}

static int choose_max_new(struct http_exchange *x, size_t n_prompt, int64_t *out)
{
    int64_t max_tok = x->h->s->max_tok, left = max_tok - (int64_t)n_prompt;

    *out = x->request.max_new;
    if (*out == 0 && !x->request.no_new)
        *out = x->request.chat || left < DEFAULT_MAX_NEW ? left : DEFAULT_MAX_NEW;
    if (left >= !x->request.no_new && *out <= left)
        return OK;
    x->request.too_long = true;
    return err_set(ERR_LIMIT,
                   "request: %zu prompt tokens and %lld new ones: expected at most %lld "
                   "together",
                   n_prompt, (long long)(*out < 1 ? 1 : *out), (long long)max_tok);
}

static void enter_list(struct http *h, struct http_gen *g)
{
    pthread_mutex_lock(&h->lock);
    g->next = h->gens;
    g->link = &h->gens;
    if (g->next)
        g->next->link = &g->next;
    h->gens = g;
    pthread_mutex_unlock(&h->lock);
}

/* A request that was admitted is one no more. g: its generation, or NULL. */
static void leave(struct http *h, struct http_gen *g)
{
    pthread_mutex_lock(&h->lock);
    h->n_admitted--;
    if (g && g->link) {
        *g->link = g->next;
        if (g->next)
            g->next->link = g->link;
    }
    pthread_mutex_unlock(&h->lock);
}

/* On the stepping thread. */
static void on_end(struct http_gen *g)
{
    http_metrics_ended(g->metrics, g->now.finish == HTTP_CANCELED,
                       g->t_last_ns - g->t_submit_ns);
    leave(g->list_owner, g);
}

static void resume(void *arg)
{
    struct http_exchange *x = arg;

    MHD_resume_connection(x->connection);
}

static int submit(struct http_exchange *x, const int32_t *ids, size_t n_ids)
{
    const struct http_request *r = &x->request;
    struct http *h = x->h;
    int64_t max_new;

    if (r->logprobs && !h->s->ops->has_logits) {
        x->request.param = "logprobs";
        return err_set(ERR_ARG,
                       "request: logprobs: not available with --roles, where only "
                       "tokens come from the machines");
    }
    TRY(choose_max_new(x, n_ids, &max_new));
    TRY(http_gen_new(&x->g, r, (int64_t)n_ids, max_new, h->tok, serve_vocab(h->s)));
    x->g->wake = resume;
    x->g->on_end = on_end;
    x->g->ctx = x;
    x->g->list_owner = h;
    x->g->metrics = &h->metrics;
    x->g->wake_at_end = !r->stream;
    TRY(http_answer_init(&x->answer, r, x->g, h->tok, h->model, ++h->n_requests));
    enter_list(h, x->g);
    TRY(http_gen_submit(x->g, r, h->s, ids));
    http_metrics_accepted(&h->metrics, (int64_t)n_ids);
    pthread_mutex_lock(&h->lock);
    x->conn->g = x->g;
    pthread_mutex_unlock(&h->lock);
    return OK;
}

/* ---- the thread ---- */

static void prepare(struct http_exchange *x)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;

    x->rc = parse(x, x->api);
    if (x->rc == OK)
        x->rc = encode(x, &ids, &n_ids);
    if (x->rc == OK)
        x->rc = submit(x, ids, n_ids);
    if (x->rc != OK) {
        snprintf(x->why, sizeof(x->why), "%s", err_msg());
        leave(x->h, x->g);
    }
    mem_free(ids);
    text_fini(&x->body);
    x->prepared = true;
    resume(x);
}

void *http_prepare(void *arg)
{
    struct http *h = arg;
    struct http_exchange *x;

    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        x = h->to_prepare;
        if (!x) {
            pthread_cond_wait(&h->added, &h->lock);
            continue;
        }
        h->to_prepare = x->next;
        if (!h->to_prepare)
            h->last_to_prepare = &h->to_prepare;
        pthread_mutex_unlock(&h->lock);
        prepare(x);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}
