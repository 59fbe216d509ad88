/* http/route.h - what the server answers: a route is one file in route/ that ends in one
 * `const struct http_route`; make lists the folder.
 *   Threads: each function says its own. */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include <stdbool.h>
#include <jansson.h>

#include "http/request.h"
#include "http/server.h"

struct http_route {
    /* Paths; one that ends in '/' is all that is below it. NULL ends them. */
    const char *urls[8];
    bool key;          /* needs the API key, if there is one */
    enum http_api api; /* prepare: how its body is read */
    /* GET: answer at once, on libmicrohttpd's thread, which must not be held up. */
    enum MHD_Result (*answer)(struct http_exchange *x);
    /* POST, in its place: from x->body to the generation x->g (http_generate()), or to x->out,
     * which is sent as JSON; on the preparer's thread. An error is answered with err_msg(). */
    int (*prepare)(struct http_exchange *x);
    const char *
        refused; /* in place of both, for any method: why this server does not offer it */
};
extern const struct http_route *const http_routes[]; /* written by make */

/* ---- for GET ---- */

/* Steals j; NULL: there was no memory for it. */
enum MHD_Result http_respond_json(struct http_exchange *x, int status, json_t *j);

/* ---- for POST ---- */

/* Read the body into x->request, and check that it is for this server's model. */
MUST int http_read_body(struct http_exchange *x);
/* The i-th prompt or the conversation as ids, which the caller frees. */
MUST int http_encode(struct http_exchange *x, int i, struct http_prompt *out);
/* The conversation as its template writes it; *out begins empty, chat_prompt_fini(). */
MUST int http_write_chat(struct http_exchange *x, struct chat_prompt *out);
/* All of it, and submit what the request asks for: x->g. */
MUST int http_generate(struct http_exchange *x);
/* Write x->out. Steals j; NULL: there was no memory for it. */
MUST int http_put_out(struct http_exchange *x, json_t *j);

#endif
