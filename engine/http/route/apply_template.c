/* The prompt that the model's template writes of a conversation. */
#include "http/route.h"

#include "base/json.h"

static int prepare(struct http_exchange *x)
{
    struct chat_prompt p = {0};
    json_t *j = NULL;
    int rc = http_read_body(x);

    if (rc == OK)
        rc = http_write_chat(x, &p);
    if (rc == OK)
        j = json_pack("{s:o}", "prompt",
                      json_stringn_lossy(p.text.p ? p.text.p : "", p.text.n));
    chat_prompt_fini(&p);
    return rc == OK ? http_put_out(x, j) : rc;
}

const struct http_route http_route_apply_template = {
    .urls = {"/apply-template"}, .key = true, .api = HTTP_CHAT, .prepare = prepare};
