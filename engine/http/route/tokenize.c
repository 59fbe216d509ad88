/* A text or a conversation as ids, for clients of llama-server ("content") and of vLLM ("prompt" or
 * "messages"). */
#include "http/route.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Its text, or its bytes where they are only a part of a character. */
static json_t *piece(const struct http *h, int32_t id)
{
    const char *s;
    size_t n = 0;
    json_t *bytes;

    if (tok_piece(h->tok, id, true, &s, &n) != OK)
        return json_string("");
    if (utf8_valid(s, n))
        return json_stringn(s, n);
    bytes = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)s[i]));
    return bytes;
}

static json_t *list(const struct http *h, const struct http_prompt *p, bool ids,
                    bool pieces)
{
    json_t *all = json_array();

    for (size_t i = 0; i < p->n; i++) {
        json_t *id = ids ? json_integer(p->ids[i]) : NULL;
        json_t *text = pieces ? piece(h, p->ids[i]) : NULL;

        json_array_append_new(all, id && text
                                       ? json_pack("{s:o, s:o}", "id", id, "piece", text)
                                       : (id ? id : text));
    }
    return all;
}

static int prepare(struct http_exchange *x)
{
    const struct http_request *r = &x->request;
    struct http_prompt p = {0};
    json_t *j;

    TRY(http_read_body(x));
    if (!x->h->tok)
        return err_set(ERR_UNSUPPORTED, "request: the model has no tokenizer");
    if (r->several)
        return err_set(ERR_UNSUPPORTED, "request: prompt: expected one text");
    TRY(http_encode(x, 0, &p));
    j = json_pack("{s:o, s:I, s:I}", "tokens", list(x->h, &p, true, r->pieces), "count",
                  (json_int_t)p.n, "max_model_len", (json_int_t)x->h->s->max_tok);
    if (r->strings)
        json_object_set_new(j, "token_strs", list(x->h, &p, false, true));
    mem_free(p.ids);
    return http_put_out(x, j);
}

const struct http_route http_route_tokenize = {
    .urls = {"/tokenize"}, .key = true, .api = HTTP_TOKENIZE, .prepare = prepare};
