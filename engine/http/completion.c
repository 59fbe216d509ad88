/* Responses: errors, and those of requests that are prepared, with waiting for the engine. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

#define RETRY_AFTER_S  "1"
#define CORS_MAX_AGE_S "600"

void http_phase_set(struct http_exchange *x, enum http_phase phase)
{
    pthread_mutex_lock(&x->h->lock);
    x->conn->phase = phase;
    x->conn->since_ns = clock_ns();
    pthread_mutex_unlock(&x->h->lock);
}

/* Add the headers that a browser requires before a page of an allowed origin may see the answer. */
static void add_cors(const struct http_exchange *x, int status, struct MHD_Response *r)
{
    const char *origin = http_access_cors(
        &x->h->access,
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Origin"));

    const char *asked = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                    "Access-Control-Request-Headers");

    if (x->h->access.cors)
        MHD_add_response_header(r, "Vary", "Origin");
    if (!origin)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
    if (status != MHD_HTTP_NO_CONTENT)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST");
    if (asked)
        MHD_add_response_header(r, "Access-Control-Allow-Headers", asked);
    MHD_add_response_header(r, "Access-Control-Max-Age", CORS_MAX_AGE_S);
}

/* Add what all responses carry, and send it; destroys `r`. */
static enum MHD_Result send_body(struct http_exchange *x, int status, const char *type,
                                 struct MHD_Response *r)
{
    enum MHD_Result rc;
    bool draining;

    if (!r)
        return MHD_NO;
    pthread_mutex_lock(&x->h->lock);
    draining = x->h->draining;
    pthread_mutex_unlock(&x->h->lock);
    if (type)
        MHD_add_response_header(r, "Content-Type", type);
    add_cors(x, status, r);
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", http_allowed(x));
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(r, "Retry-After", RETRY_AFTER_S);
    if (draining || x->bad)
        MHD_add_response_header(r, "Connection", "close");
    MHD_add_response_header(r, "Server", x->h->server);
    http_metrics_status(&x->h->metrics, status);
    x->status = status;
    http_phase_set(x, HTTP_WRITE);
    rc = MHD_queue_response(x->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

enum MHD_Result http_respond(struct http_exchange *x, int status, const char *type,
                             const struct text *body)
{
    return send_body(x, status, type,
                     MHD_create_response_from_buffer(body->n, body->p ? body->p : "",
                                                     MHD_RESPMEM_MUST_COPY));
}

static const char *error_type(int status)
{
    if (status == MHD_HTTP_TOO_MANY_REQUESTS)
        return "rate_limit_error";
    return status < 500 ? "invalid_request_error" : "server_error";
}

static const char *error_code(int status)
{
    switch (status) {
    case MHD_HTTP_UNAUTHORIZED:
        return "invalid_api_key";
    case MHD_HTTP_TOO_MANY_REQUESTS:
        return "rate_limit_exceeded";
    default:
        return NULL;
    }
}

static enum MHD_Result refuse(struct http_exchange *x, int status, const char *code,
                              const char *param, const char *message)
{
    struct text body = {0};
    enum MHD_Result rc = MHD_NO;

    if (http_error_text(&body, message, error_type(status), code, param) == OK)
        rc = http_respond(x, status, "application/json", &body);
    text_fini(&body);
    return rc;
}

enum MHD_Result http_refuse(struct http_exchange *x, int status, const char *param,
                            const char *message)
{
    return refuse(x, status, error_code(status), param, message);
}

/* The same for the error `rc`, with err_msg(). */
enum MHD_Result http_refuse_error(struct http_exchange *x, int rc, const char *param)
{
    const char *limit = x->request.too_long ? "context_length_exceeded" : NULL;
    char message[512];

    snprintf(message, sizeof(message), "%s", err_msg());
    switch (rc) {
    case ERR_NOTFOUND:
        return refuse(x, MHD_HTTP_NOT_FOUND, "model_not_found", param, message);
    case ERR_LIMIT:
        return refuse(x, MHD_HTTP_BAD_REQUEST, limit, param, message);
    case ERR_NOMEM:
        return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, param, message);
    case ERR_STATE:
    case ERR_IO:
        return refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, param, message);
    default:
        return refuse(x, MHD_HTTP_BAD_REQUEST, NULL, param, message);
    }
}

#define BLOCK_BYTES 8192

static void park(void *arg)
{
    struct http_exchange *x = arg;

    MHD_suspend_connection(x->connection);
}

/* ---- answering ---- */

static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_exchange *x = arg;
    bool hung_up;
    size_t n;

    (void)pos;
    if (x->n_written == x->out.n) {
        if (x->answer.ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        x->n_written = x->out.n = 0;
        http_phase_set(x, HTTP_COMPUTE);
        if (!http_gen_ready(x->g, park, &hung_up))
            return 0;
        if (hung_up || http_answer_stream(&x->answer, &x->out) != OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    http_phase_set(x, HTTP_WRITE);
    n = x->out.n - x->n_written;
    n = n < max ? n : max;
    memcpy(buf, x->out.p + x->n_written, n);
    x->n_written += n;
    return (ssize_t)n;
}

static enum MHD_Result begin_stream(struct http_exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x, NULL);

    if (r)
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    return send_body(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", r);
}

static enum MHD_Result respond_out(struct http_exchange *x)
{
    enum MHD_Result rc = http_respond(x, MHD_HTTP_OK, "application/json", &x->out);

    text_fini(&x->out);
    return rc;
}

/* Has one of the sequences ended so? */
static bool any(const struct http_gen *g, enum http_finish how)
{
    for (int i = 0; i < g->n_seqs; i++)
        if (g->seqs[i].seen.finish == how)
            return true;
    return false;
}

static enum MHD_Result wait_for_whole(struct http_exchange *x)
{
    bool hung_up;

    if (!http_gen_ready(x->g, park, &hung_up))
        return MHD_YES;
    if (any(x->g, HTTP_RUNNING)) /* hung up */
        return MHD_NO;
    if (any(x->g, HTTP_FAILED))
        return http_refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, x->g->why);
    if (any(x->g, HTTP_CANCELED))
        return http_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL,
                           "the server is shutting down");
    return http_answer_whole(&x->answer, &x->out) == OK ? respond_out(x) : MHD_NO;
}

/* ---- the way of a request ---- */

/* 0: it may be prepared, and waits for that. Otherwise the status to refuse it with. */
static int admit(struct http_exchange *x)
{
    struct http *h = x->h;
    int status = 0;

    pthread_mutex_lock(&h->lock);
    if (h->draining) {
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
    } else if (h->n_admitted >= h->max_seqs + h->o->max_queue) {
        status = MHD_HTTP_TOO_MANY_REQUESTS;
    } else {
        h->n_admitted++;
        park(x);
        *h->last_to_prepare = x;
        h->last_to_prepare = &x->next;
        pthread_cond_signal(&h->added);
    }
    pthread_mutex_unlock(&h->lock);
    return status;
}

enum MHD_Result http_begin(struct http_exchange *x)
{
    int status;

    http_phase_set(x, HTTP_COMPUTE);
    status = admit(x);
    if (status == 0)
        return MHD_YES;
    return http_refuse(x, status, NULL,
                       status == MHD_HTTP_SERVICE_UNAVAILABLE
                           ? "the server is shutting down"
                           : "the server is busy and its queue is full; try again later");
}

enum MHD_Result http_continue(struct http_exchange *x)
{
    bool closing;

    pthread_mutex_lock(&x->h->lock);
    closing = x->conn->closing;
    pthread_mutex_unlock(&x->h->lock);
    if (closing) /* while it was prepared, perhaps; the watcher does so once */
        return MHD_NO;
    if (x->busy)
        return http_refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, NULL, x->why);
    if (x->rc != OK)
        return http_refuse_error(x, err_set(x->rc, "%s", x->why), x->request.param);
    if (!x->g)
        return respond_out(x);
    return x->request.stream ? begin_stream(x) : wait_for_whole(x);
}
