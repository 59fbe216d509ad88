/* From the body of a request to tokens in the engine's queue, or to an answer. */
#include "http/server.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/route.h"
#include "http/tools.h"

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

int http_write_chat(struct http_exchange *x, struct chat_prompt *out)
{
    const struct http *h = x->h;
    struct http_request *r = &x->request;
    struct chat_conversation in = {.messages = r->chat,
                                   .tools = r->tools,
                                   .more = r->template_variables,
                                   .continue_final = r->continue_final,
                                   .time_s = h->chat_time_s};
    int rc;

    r->param = "messages";
    if (!h->chat)
        return err_set(ERR_UNSUPPORTED, "%s", h->no_chat);
    if (in.time_s < 0)
        in.time_s = (int64_t)time(NULL);
    in.max_bytes = max_text(h);
    rc = chat_write(h->chat, &in, out);
    r->param = in.param;
    if (rc == ERR_LIMIT && in.too_long)
        rc = too_long(r, in.max_bytes + 1);
    else if (rc == ERR_LIMIT) /* of the template's work */
        rc = err_set(ERR_ARG, "%s", err_msg());
    return rc;
}

/* The template writes BOS itself where the model wants it. */
static int encode_chat(struct http_exchange *x, int32_t **ids, size_t *n)
{
    struct chat_prompt p = {0};
    int rc = http_write_chat(x, &p);

    if (rc == OK)
        rc = tok_encode_parts(x->h->tok, p.text.p ? p.text.p : "", p.parts, p.n_parts, 0,
                              ids, n);
    chat_prompt_fini(&p);
    return rc;
}

/* A completion's prompt is the text as the model sees it: control tokens in it are meant, unless
 * the request says that it is a user's, and where it begins with BOS it gets no other. */
static int encode_text(const struct http *h, struct http_request *r, const json_t *prompt,
                       int32_t **ids, size_t *n)
{
    const char *text = json_string_value(prompt);
    size_t n_text = json_string_length(prompt);
    unsigned flags = (r->bos ? SERVE_BOS : 0) | (r->special ? SERVE_SPECIAL : 0);
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
        flags &= ~(unsigned)SERVE_BOS;
    return serve_encode(h->s, text, n_text, flags, ids, n);
}

int http_encode(struct http_exchange *x, int i, struct http_prompt *out)
{
    struct http_request *r = &x->request;
    const json_t *prompt = http_request_prompt(r, i);

    *out = (struct http_prompt){0};
    if (r->chat)
        return encode_chat(x, &out->ids, &out->n);
    if (json_is_array(prompt))
        return copy_ids(prompt, &out->ids, &out->n);
    return encode_text(x->h, r, prompt, &out->ids, &out->n);
}

/* The same, and where that is nothing, a token to begin with. */
static int encode(struct http_exchange *x, int i, struct http_prompt *out)
{
    int bos = serve_bos(x->h->s);

    TRY(http_encode(x, i, out));
    if (out->n > 0)
        return OK;
    if (bos < 0)
        return err_set(ERR_ARG,
                       "request: the prompt is empty, and the model has no token "
                       "to begin with");
    mem_free(out->ids);
    out->ids = mem_new(MEM_OTHER, 1, sizeof(*out->ids));
    if (!out->ids)
        return ERR_NOMEM;
    out->ids[0] = bos;
    out->n = 1;
    return OK;
}

/* ---- submitting ---- */

/* Say once for each key that it changes nothing here. */
static void log_no_effect(struct http *h, const struct http_request *r)
{
    const uint64_t fresh = r->no_effect & ~h->said;

    for (int i = 0; http_request_key(i); i++)
        if (fresh >> i & 1)
            log_info("requests have the key \"%s\", which has no effect here",
                     http_request_key(i));
    h->said |= fresh;
}

int http_read_body(struct http_exchange *x)
{
    struct http_request *r = &x->request;

    TRY(http_request_parse(r, x->route->api, x->body.p ? x->body.p : "", x->body.n));
    log_no_effect(x->h, r);
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

int http_put_out(struct http_exchange *x, json_t *j)
{
    char *s = j ? json_text(j, JSON_COMPACT) : NULL;

    json_decref(j);
    if (!s)
        return err_set(ERR_NOMEM, "no memory for an answer");
    text_puts(&x->out, s);
    mem_free(s);
    return x->out.rc;
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

/* A request that was admitted is one no more. g: its generation, where it has been submitted. */
static void leave(struct http *h, struct http_gen *g)
{
    pthread_mutex_lock(&h->lock);
    h->n_admitted -= g ? g->n_seqs : 1;
    if (g && g->link) {
        *g->link = g->next;
        if (g->next)
            g->next->link = g->link;
    }
    pthread_mutex_unlock(&h->lock);
}

/* On the stepping thread, or that of a failed http_gen_submit(). */
static void on_end(struct http_gen *g)
{
    leave(g->list_owner, g);
}

static void resume(void *arg)
{
    struct http_exchange *x = arg;

    MHD_resume_connection(x->connection);
}

/* A request counts as one until it is known how many sequences it has. */
static int admit_seqs(struct http_exchange *x, int n_seqs)
{
    struct http *h = x->h;
    const int64_t most = h->max_seqs + h->o->max_queue;
    int rc = OK;

    if (n_seqs > most)
        return err_set(ERR_LIMIT,
                       "request: prompt, n: %d sequences: expected at most %lld "
                       "(--max-seqs and --max-queue)",
                       n_seqs, (long long)most);
    pthread_mutex_lock(&h->lock);
    x->busy = h->n_admitted + n_seqs - 1 > most;
    if (!x->busy)
        h->n_admitted += n_seqs - 1;
    pthread_mutex_unlock(&h->lock);
    if (x->busy)
        rc = err_set(ERR_LIMIT,
                     "the server is busy and has no room for %d sequences; try "
                     "again later",
                     n_seqs);
    return rc;
}

static int prepare_gen(struct http_exchange *x, const struct http_prompt *prompts)
{
    const struct http_request *r = &x->request;
    struct http *h = x->h;
    const int n_seqs = r->n_prompts * (int)r->n;
    struct http_gen *g;

    if (r->logprobs && !h->s->ops->has_logits) {
        x->request.param = "logprobs";
        return err_set(ERR_ARG,
                       "request: logprobs: not available with --roles, where only "
                       "tokens come from the machines");
    }
    TRY(http_gen_new(&x->g, r, n_seqs, h->tok, serve_vocab(h->s)));
    g = x->g;
    g->wake = resume;
    g->on_end = on_end;
    g->ctx = x;
    g->list_owner = h;
    g->metrics = &h->metrics;
    g->wake_at_end = !r->stream;
    for (int i = 0; i < n_seqs; i++) {
        const size_t n_prompt = prompts[i / r->n].n;
        int64_t max_new;

        TRY(choose_max_new(x, n_prompt, &max_new));
        TRY(http_gen_size(g, i, r, (int64_t)n_prompt, max_new));
    }
    return http_answer_init(&x->answer, r, g, h->tok, h->model, ++h->n_requests);
}

static int submit(struct http_exchange *x, const struct http_prompt *prompts)
{
    struct http *h = x->h;

    TRY(prepare_gen(x, prompts));
    TRY(admit_seqs(x, x->g->n_seqs));
    enter_list(h, x->g);
    x->submitted = true;
    TRY(http_gen_submit(x->g, &x->request, h->s, prompts));
    for (int i = 0; i < x->request.n_prompts; i++)
        http_metrics_accepted(&h->metrics, (int64_t)prompts[i].n);
    pthread_mutex_lock(&h->lock);
    x->conn->g = x->g;
    pthread_mutex_unlock(&h->lock);
    return OK;
}

int http_generate(struct http_exchange *x)
{
    struct http_prompt prompts[HTTP_SEQS_MAX] = {{0}};
    int rc = http_read_body(x);

    for (int i = 0; rc == OK && i < x->request.n_prompts; i++)
        rc = encode(x, i, &prompts[i]);
    if (rc == OK && x->request.tools)
        rc = http_tools_prepare(&x->request, x->h->chat);
    if (rc == OK)
        rc = submit(x, prompts);
    for (int i = 0; i < x->request.n_prompts; i++)
        mem_free(prompts[i].ids);
    return rc;
}

/* ---- the thread ---- */

static void prepare(struct http_exchange *x)
{
    x->rc = x->route->prepare(x);
    if (x->rc != OK)
        snprintf(x->why, sizeof(x->why), "%s", err_msg());
    if (!x->submitted)
        leave(x->h, NULL);
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
