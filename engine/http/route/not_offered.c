/* Routes of other servers whose clients are told why they get no answer. */
#include "http/route.h"

const struct http_route http_route_not_offered = {
    .urls = {"/v1/embeddings", "/v1/responses", "/v1/responses/", "/v1/messages",
             "/v1/messages/", "/v1/audio/", "/v1/images/"},
    .key = true,
    .refused = "this server generates texts by /v1/completions and /v1/chat/completions, "
               "and offers no embeddings, Responses API, Messages API, sounds or images",
};
