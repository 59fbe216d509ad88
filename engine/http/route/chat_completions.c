/* Answers in a conversation, as OpenAI's API has them. */
#include "http/route.h"

const struct http_route http_route_chat_completions = {
    .urls = {"/v1/chat/completions", "/chat/completions"},
    .key = true,
    .api = HTTP_CHAT,
    .prepare = http_generate,
};
