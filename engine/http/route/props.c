/* What llama-server's clients ask for first: the context and the slots. */
#include "http/route.h"

#include "base/build.h"

static enum MHD_Result answer(struct http_exchange *x)
{
    const struct http *h = x->h;

    return http_respond_json(
        x, MHD_HTTP_OK,
        json_pack(
            "{s:{s:I, s:{s:f, s:f, s:f, s:i, s:i}}, s:I, s:s, s:s?, s:o}",
            "default_generation_settings", "n_ctx", (json_int_t)h->s->max_tok, "params",
            "temperature", 1.0, "top_p", 1.0, "min_p", 0.0, "top_k", 0, "n_predict", -1,
            "total_slots", (json_int_t)h->max_seqs, "model_alias", h->model,
            "chat_template_origin", h->chat ? chat_origin(h->chat) : NULL, "build_info",
            json_sprintf("sandwich %s (%.12s)", build_info.version, build_info.commit)));
}

const struct http_route http_route_props = {
    .urls = {"/props"}, .key = true, .answer = answer};
