/* http/http.h - an HTTP server in front of the engine, compatible with OpenAI's API.
 *
 * Routes: POST /v1/completions and /v1/chat/completions (whole, or streamed as server-sent
 * events), GET /v1/models, /health and /metrics.
 * Four threads: the one that calls http_run() steps the engine and never waits for a client;
 * one of libmicrohttpd reads requests and writes answers; one parses requests and encodes
 * prompts; one ends connections that are too slow or have gone. libmicrohttpd counts any
 * byte as activity and never times out a request that waits for the engine, so the
 * deadlines are kept here. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"
#include "serve/serve.h"

struct http;

struct http_opts {
    char *host;
    int64_t port;                               /* 0: any free one */
    char *api_key, *api_key_env, *api_key_file; /* NULL: none is asked for */
    char *allow_host, *cors; /* names, separated by commas; NULL: none */
    char *model_name;        /* NULL: that of the file */
    char *chat_template;     /* NULL: the model's own */
    char *chat_date;         /* YYYY-MM-DD; NULL: today */
    int64_t max_queue, max_body_bytes, max_connections, max_connections_per_address;
    double header_timeout_s, idle_timeout_s, body_timeout_s, write_timeout_s;
    double drain_timeout_s;
    bool access_log;
};
extern const struct opt_row http_opt_table[];

/* Take the address and the key, before a large model is loaded in vain. Nothing is accepted
 * yet. `o` is lent until http_close(). ERR_ARG, ERR_IO: the address cannot be used;
 * http_access_open() */
MUST int http_bind(struct http **out, const struct http_opts *o);
/* Accept connections. `s` is lent until http_close(), and was opened with `so`. The calling
 * thread may be pinned: those started here run on the CPUs that the caller of http_bind() had.
 * ERR_IO, ERR_NOMEM; ERR_ARG, ERR_NOTFOUND: the chat template does not fit. */
MUST int http_start(struct http *h, struct serve *s, const struct serve_opts *so);
int http_port(const struct http *h);
bool http_wants_key(const struct http *h);
/* Step the engine until *stop is not 0. Then no connection and no request is accepted any
 * more, and running requests end; those that take longer than drain_timeout_s are cancelled.
 * An error of the engine is returned after the requests were answered with it. */
MUST int http_run(struct http *h, const volatile sig_atomic_t *stop);
void http_close(struct http **h);

#endif
