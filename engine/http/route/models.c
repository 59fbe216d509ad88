/* The one model, in a list and by its name, which may have slashes. */
#include "http/route.h"

#include <string.h>

#define BELOW "models/"

static json_t *model_object(const struct http *h)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:{s:I}}", "id", h->model, "object",
                     "model", "created", (json_int_t)h->started_s, "owned_by", "sandwich",
                     "max_model_len", (json_int_t)h->s->max_tok, "meta", "n_vocab",
                     (json_int_t)serve_vocab(h->s));
}

static enum MHD_Result answer(struct http_exchange *x)
{
    const char *name = strstr(x->path, BELOW);

    if (!name)
        return http_respond_json(
            x, MHD_HTTP_OK,
            json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(x->h)));
    if (strcmp(name + strlen(BELOW), x->h->model) == 0)
        return http_respond_json(x, MHD_HTTP_OK, model_object(x->h));
    (void)err_set(ERR_NOTFOUND, "request: model: this server has \"%.200s\" only",
                  x->h->model);
    return http_refuse_error(x, ERR_NOTFOUND, "model");
}

const struct http_route http_route_models = {
    .urls = {"/v1/models", "/v1/models/"},
    .key = true,
    .answer = answer,
};
