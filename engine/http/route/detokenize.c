/* Ids as text, for clients of llama-server ("content") and of vLLM ("prompt"). */
#include "http/route.h"

#include "base/json.h"

static int prepare(struct http_exchange *x)
{
    struct text all = {0};
    const json_t *id;
    size_t i, n = 0;
    const char *s;
    json_t *text;

    TRY(http_read_body(x));
    if (!x->h->tok)
        return err_set(ERR_UNSUPPORTED, "request: the model has no tokenizer");
    json_array_foreach(x->request.prompt, i, id)
    {
        int rc = tok_piece(x->h->tok, (int32_t)json_integer_value(id), true, &s, &n);

        if (rc != OK) {
            text_fini(&all);
            return rc;
        }
        text_put(&all, s, n);
    }
    text = all.rc == OK ? json_stringn_lossy(all.p ? all.p : "", all.n) : NULL;
    text_fini(&all);
    return http_put_out(x, text ? json_pack("{s:O, s:o}", "content", text, "prompt", text)
                                : NULL);
}

const struct http_route http_route_detokenize = {
    .urls = {"/detokenize"}, .key = true, .api = HTTP_DETOKENIZE, .prepare = prepare};
