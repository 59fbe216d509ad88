/* Responses, and errors in OpenAI's shape. */
#include "base/mem.h"
#include "http/impl.h"

#include <stdio.h>

#include "base/clock.h"

#define RETRY_AFTER_S "1"

void http_phase_set(struct http_exchange *x, enum http_phase phase)
{
    pthread_mutex_lock(&x->h->lock);
    x->conn->phase = phase;
    x->conn->since_ns = clock_ns();
    pthread_mutex_unlock(&x->h->lock);
}

enum MHD_Result http_send(struct http_exchange *x, int status, const char *type,
                          struct MHD_Response *r)
{
    enum MHD_Result rc;
    bool draining;

    if (!r)
        return MHD_NO;
    pthread_mutex_lock(&x->h->lock);
    draining = x->h->draining;
    pthread_mutex_unlock(&x->h->lock);
    MHD_add_response_header(r, "Content-Type", type);
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", "GET, HEAD, POST");
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(r, "Retry-After", RETRY_AFTER_S);
    if (draining)
        MHD_add_response_header(r, "Connection", "close");
    http_metrics_status(&x->h->metrics, status);
    http_phase_set(x, HTTP_WRITE);
    rc = MHD_queue_response(x->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

enum MHD_Result http_respond(struct http_exchange *x, int status, const char *type,
                             const struct text *body)
{
    return http_send(x, status, type,
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

enum MHD_Result http_refuse_error(struct http_exchange *x, int rc, const char *param)
{
    char message[512];

    snprintf(message, sizeof(message), "%s", err_msg());
    switch (rc) {
    case ERR_NOTFOUND:
        return refuse(x, MHD_HTTP_NOT_FOUND, "model_not_found", param, message);
    case ERR_LIMIT:
        return refuse(x, MHD_HTTP_BAD_REQUEST, "context_length_exceeded", param, message);
    case ERR_NOMEM:
        return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, param, message);
    case ERR_STATE:
    case ERR_IO:
        return refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, param, message);
    default:
        return refuse(x, MHD_HTTP_BAD_REQUEST, NULL, param, message);
    }
}
