/* The public API over serve/serve.h: tokens wait in a queue for whoever polls. */
#include "api/sandwich.h"

#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "base/build.h"
#include "base/mem.h"
#include "base/text.h"
#include "serve/serve.h"

/* A request that has not ended, in a list. */
struct live {
    struct live *next;
    struct sandwich *s;
    struct tok_stream stream;
};
/* Of a token in the queue; its text stands in one buffer, at `at`. */
struct queued {
    struct sandwich_token token;
    size_t at;
};
struct sandwich {
    struct serve *serve;
    struct live *live;
    struct text queue, text; /* of struct queued; what their texts are */
    size_t n_taken;
    char *piece; /* [capacity]: of one token; NULL: there is no tokenizer */
    size_t capacity;
};

/* ---- the queue ---- */

static void forget(struct live *l)
{
    struct live **at = &l->s->live;

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    mem_free(l);
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct live *l = ctx;
    struct sandwich *s = l->s;
    struct queued q = {.token = {.request = request, .id = id}, .at = s->text.n};
    size_t n = 0;

    (void)logits;
    q.token.finish = (enum sandwich_finish)finish;
    if (finish == SERVE_ERROR)
        text_puts(&s->text, err_msg());
    else if (s->piece && id >= 0 && !serve_is_stop(s->serve, id) &&
             tok_stream_put(&l->stream, id, s->piece, s->capacity, &n) == OK)
        text_put(&s->text, s->piece, n);
    if (s->piece && finish != SERVE_RUNNING && finish != SERVE_ERROR)
        text_put(&s->text, s->piece, tok_stream_flush(&l->stream, s->piece, s->capacity));
    q.token.n_text = s->text.n - q.at;
    text_put(&s->text, "", 1);
    text_put(&s->queue, &q, sizeof(q));
    if (finish != SERVE_RUNNING)
        forget(l);
}

bool sandwich_poll(struct sandwich *s, struct sandwich_token *out)
{
    struct queued q;

    if ((s->n_taken + 1) * sizeof(q) > s->queue.n)
        return false;
    memcpy(&q, s->queue.p + s->n_taken++ * sizeof(q), sizeof(q));
    *out = q.token;
    out->text = s->text.p + q.at;
    return true;
}

/* ---- the engine ---- */

static int open_engine(struct sandwich *s, const char *options)
{
    struct serve_opts o;
    json_error_t error;
    json_t *j = json_loads(options, JSON_REJECT_DUPLICATES, &error);
    int rc;

    if (!j)
        return err_set(ERR_ARG, "options: offset %d: %s", error.position, error.text);
    rc = opt_init(serve_opt_table, &o);
    if (rc == OK)
        rc = json_is_object(j) ? opt_from_json(serve_opt_table, &o, j, "options")
                               : err_set(ERR_ARG, "options: expected a JSON object");
    if (rc == OK && !o.model)
        rc = err_set(ERR_ARG, "options: expected \"model\", the file of the model");
    if (rc == OK)
        rc = serve_open(&s->serve, &o);
    opt_free(serve_opt_table, &o);
    json_decref(j);
    if (rc != OK || !s->serve->tok)
        return rc;
    s->capacity = 16 + 3 * tok_longest(s->serve->tok);
    s->piece = mem_new(MEM_OTHER, s->capacity, 1);
    return s->piece ? OK : ERR_NOMEM;
}

int sandwich_open(struct sandwich **out, const char *options)
{
    struct sandwich *s = mem_new(MEM_OTHER, 1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return ERR_NOMEM;
    rc = open_engine(s, options);
    if (rc != OK)
        sandwich_close(&s);
    *out = s;
    return rc;
}

void sandwich_close(struct sandwich **s)
{
    if (!*s)
        return;
    serve_close(&(*s)->serve);
    while ((*s)->live)
        forget((*s)->live);
    text_fini(&(*s)->queue);
    text_fini(&(*s)->text);
    mem_free((*s)->piece);
    mem_free(*s);
    *s = NULL;
}

int sandwich_encode(struct sandwich *s, const char *text, bool special, int32_t **ids,
                    size_t *n_ids)
{
    return serve_encode(s->serve, text, strlen(text),
                        SERVE_BOS | (special ? SERVE_SPECIAL : 0), ids, n_ids);
}

static int submit(struct sandwich *s, const struct sandwich_request *r,
                  const int32_t *ids, size_t n_ids, int64_t *id)
{
    struct live *l = mem_new(MEM_OTHER, 1, sizeof(*l));
    int rc;

    if (!l)
        return ERR_NOMEM;
    l->s = s;
    if (s->piece)
        tok_stream_init(&l->stream, s->serve->tok);
    rc = serve_submit(
        s->serve,
        &(struct serve_request){.prompt = ids,
                                .n_prompt = (int64_t)n_ids,
                                .max_new = r->max_new,
                                .ignore_eos = r->ignore_eos,
                                .sampling = {.temperature = r->temperature,
                                             .top_p = r->top_p > 0 ? r->top_p : 1,
                                             .top_k = r->top_k,
                                             .seed = r->seed},
                                .on_token = on_token,
                                .ctx = l},
        id);
    if (rc != OK) {
        mem_free(l);
        return rc;
    }
    l->next = s->live;
    s->live = l;
    return OK;
}

int sandwich_submit(struct sandwich *s, const struct sandwich_request *r, int64_t *id)
{
    int32_t *ids = NULL;
    size_t n_ids;
    int rc;

    if (r->ids)
        return submit(s, r, r->ids, r->n_ids, id);
    if (!r->text)
        return err_set(ERR_ARG, "a request: expected ids or a text, found neither");
    TRY(sandwich_encode(s, r->text, false, &ids, &n_ids));
    rc = submit(s, r, ids, n_ids, id);
    mem_free(ids);
    return rc;
}

void sandwich_cancel(struct sandwich *s, int64_t id)
{
    serve_cancel(s->serve, id);
}

int sandwich_step(struct sandwich *s, bool *busy)
{
    s->queue.n = s->text.n = s->n_taken = 0;
    TRY(serve_step(s->serve, busy));
    return s->queue.rc == OK ? s->text.rc : s->queue.rc;
}

char *sandwich_describe(struct sandwich *s)
{
    struct text out = {0};
    json_t *j;
    char *text, *words = NULL;

    if (serve_describe(s->serve, &j) != OK)
        return NULL;
    text = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    if (text)
        text_puts(&out, text);
    free(text);
    return text_take(&out, &words) == OK ? words : NULL;
}

void sandwich_free(void *p)
{
    mem_free(p);
}

const char *sandwich_error(void)
{
    return err_msg();
}

const char *sandwich_version(void)
{
    return build_info.version;
}
