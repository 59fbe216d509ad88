/* The two routes that generate: from the body to tokens, and back as an answer. */
#include "http/impl.h"

#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

#define DEFAULT_MAX_NEW 16 /* of a completion without max_tokens, as OpenAI defines it */
#define BLOCK_BYTES     8192

/* ---- the prompt as ids ---- */

static int copy_ids(const json_t *v, int32_t **ids, size_t *n)
{
    *n = json_array_size(v);
    *ids = mem_new(MEM_OTHER, *n, sizeof(**ids));
    for (size_t i = 0; *ids && i < *n; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(v, i));
    return *ids ? OK : ERR_NOMEM;
}

static int encode_chat(const struct http *h, const json_t *messages, int32_t **ids,
                       size_t *n)
{
    struct http_prompt p = {0};
    int rc;

    if (!h->template)
        return err_set(ERR_UNSUPPORTED, "%s", h->no_template);
    rc = http_template_render(h->template, messages, &p);
    if (rc == OK)
        rc = tok_encode_parts(h->tok, p.text.p, p.parts, p.n_parts, 0, ids, n);
    http_prompt_fini(&p);
    return rc;
}

/* A completion's prompt is the text as the model sees it, so that control tokens in it are
 * meant. */
static int encode(struct http_exchange *x, int32_t **ids, size_t *n)
{
    const struct http_request *r = &x->request;
    int bos = serve_bos(x->h->s), rc;

    *ids = NULL;
    *n = 0;
    if (r->chat)
        rc = encode_chat(x->h, r->chat, ids, n);
    else if (r->ids)
        rc = copy_ids(r->ids, ids, n);
    else
        rc = serve_encode(x->h->s, r->text, r->n_text, SERVE_BOS | SERVE_SPECIAL, ids, n);
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

static int choose_max_new(const struct http_exchange *x, size_t n_prompt, int64_t *out)
{
    int64_t max_tok = serve_max_tok(x->h->s), left = max_tok - (int64_t)n_prompt;

    *out = x->request.max_new;
    if (*out == 0)
        *out = x->request.chat || left < DEFAULT_MAX_NEW ? left : DEFAULT_MAX_NEW;
    if (left >= 1 && *out <= left)
        return OK;
    return err_set(ERR_LIMIT,
                   "request: %zu prompt tokens and %lld new ones: expected at most %lld "
                   "together",
                   n_prompt, (long long)(*out < 1 ? 1 : *out), (long long)max_tok);
}

static void leave_list(struct http *h, struct http_gen *g)
{
    pthread_mutex_lock(&h->lock);
    h->n_gens--;
    *g->link = g->next;
    if (g->next)
        g->next->link = g->link;
    pthread_mutex_unlock(&h->lock);
}

static void enter_list(struct http *h, struct http_gen *g)
{
    pthread_mutex_lock(&h->lock);
    h->n_gens++;
    g->next = h->gens;
    g->link = &h->gens;
    if (g->next)
        g->next->link = &g->next;
    h->gens = g;
    pthread_mutex_unlock(&h->lock);
}

/* On the stepping thread. */
static void on_end(struct http_gen *g)
{
    http_metrics_ended(g->metrics, g->finish == HTTP_CANCELED,
                       g->t_last_ns - g->t_submit_ns);
    leave_list(g->list_owner, g);
}

/* Called by another thread, for an exchange that waits. */
static void wake(void *arg)
{
    struct http_exchange *x = arg;

    MHD_resume_connection(x->connection);
}

static void park(void *arg)
{
    struct http_exchange *x = arg;

    MHD_suspend_connection(x->connection);
}

static int submit(struct http_exchange *x, const int32_t *ids, size_t n_ids)
{
    const struct http_request *r = &x->request;
    struct http *h = x->h;
    int64_t max_new;
    int rc;

    TRY(choose_max_new(x, n_ids, &max_new));
    TRY(http_gen_new(&x->g, r, (int64_t)n_ids, max_new, h->tok, serve_vocab(h->s)));
    x->g->wake = wake;
    x->g->on_end = on_end;
    x->g->ctx = x;
    x->g->list_owner = h;
    x->g->metrics = &h->metrics;
    x->g->wake_at_end = !r->stream;
    TRY(http_answer_init(&x->answer, r, x->g, h->tok, h->model, ++h->n_requests));
    enter_list(h, x->g);
    rc = http_gen_submit(x->g, h->s, ids, &r->sampling, r->ignore_eos);
    if (rc != OK) {
        leave_list(h, x->g);
        return rc;
    }
    http_metrics_accepted(&h->metrics, (int64_t)n_ids);
    pthread_mutex_lock(&h->lock);
    x->conn->g = x->g;
    pthread_mutex_unlock(&h->lock);
    return OK;
}

/* 0: there is a place for one more request. Only this thread adds any. */
static int check_load(struct http *h)
{
    int status = 0;

    pthread_mutex_lock(&h->lock);
    if (h->draining)
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
    else if (h->n_gens >= h->max_seqs + h->o->max_queue)
        status = MHD_HTTP_TOO_MANY_REQUESTS;
    pthread_mutex_unlock(&h->lock);
    return status;
}

/* ---- answering ---- */

static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_exchange *x = arg;
    size_t n, unused;
    int64_t n_tok;
    bool hung_up;

    (void)pos;
    if (x->n_written == x->out.n) {
        x->n_written = x->out.n = 0;
        while (x->out.n == 0) {
            (void)http_gen_state(x->g, &n_tok, &unused, &hung_up);
            if (hung_up || http_answer_stream(&x->answer, &x->out) != OK)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            if (x->out.n > 0)
                break;
            if (x->answer.ended)
                return MHD_CONTENT_READER_END_OF_STREAM;
            http_phase_set(x, HTTP_COMPUTE);
            if (!http_gen_ready(x->g, x->answer.n_told, park))
                return 0;
        }
    }
    http_phase_set(x, HTTP_WRITE);
    n = x->out.n - x->n_written;
    n = n < max ? n : max;
    memcpy(buf, x->out.p + x->n_written, n);
    x->n_written += n;
    return (ssize_t)n;
}

static enum MHD_Result begin_stream(struct http_exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x, NULL);

    if (r)
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    return http_send(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", r);
}

static enum MHD_Result answer_whole(struct http_exchange *x)
{
    enum MHD_Result rc;

    if (http_answer_whole(&x->answer, &x->out) != OK)
        return MHD_NO;
    rc = http_respond(x, MHD_HTTP_OK, "application/json", &x->out);
    text_fini(&x->out);
    return rc;
}

enum MHD_Result http_continue(struct http_exchange *x)
{
    size_t unused;
    int64_t n;
    bool hung_up;

    http_phase_set(x, HTTP_COMPUTE);
    if (!http_gen_ready(x->g, 0, park))
        return MHD_YES;
    switch (http_gen_state(x->g, &n, &unused, &hung_up)) {
    case HTTP_RUNNING: /* hung up */
        return MHD_NO;
    case HTTP_FAILED:
        return http_refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, x->g->why);
    case HTTP_CANCELED:
        return http_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL,
                           "the server is shutting down");
    default:
        return answer_whole(x);
    }
}

enum MHD_Result http_begin(struct http_exchange *x, enum http_api api)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc, status = check_load(x->h);

    if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
        return http_refuse(x, status, NULL, "the server is shutting down");
    if (status != 0)
        return http_refuse(x, status, NULL,
                           "the server is busy and its queue is full; try again later");
    rc = parse(x, api);
    if (rc == OK)
        rc = encode(x, &ids, &n_ids);
    if (rc == OK)
        rc = submit(x, ids, n_ids);
    mem_free(ids);
    text_fini(&x->body);
    if (rc != OK)
        return http_refuse_error(x, rc, x->request.param);
    return x->request.stream ? begin_stream(x) : http_continue(x);
}
