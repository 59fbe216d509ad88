/* Completions of texts or ids, as OpenAI's older API has them. */
#include "http/route.h"

const struct http_route http_route_completions = {
    .urls = {"/v1/completions", "/completions"},
    .key = true,
    .api = HTTP_COMPLETION,
    .prepare = http_generate,
};
