/* The two routes that generate: waiting for the engine, and writing. */
#include "http/impl.h"

#include <string.h>

#define BLOCK_BYTES 8192

void http_wake(void *arg)
{
    struct http_exchange *x = arg;

    MHD_resume_connection(x->connection);
}

static void park(void *arg)
{
    struct http_exchange *x = arg;

    MHD_suspend_connection(x->connection);
}

/* ---- answering ---- */

static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_exchange *x = arg;
    size_t n, unused;
    int64_t n_tok;
    bool hung_up;

    (void)pos;
    if (x->n_written == x->out.n) {
        x->n_written = x->out.n = 0;
        while (x->out.n == 0) {
            (void)http_gen_state(x->g, &n_tok, &unused, &hung_up);
            if (hung_up || http_answer_stream(&x->answer, &x->out) != OK)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            if (x->out.n > 0)
                break;
            if (x->answer.ended)
                return MHD_CONTENT_READER_END_OF_STREAM;
            http_phase_set(x, HTTP_COMPUTE);
            if (!http_gen_ready(x->g, x->answer.n_told, park))
                return 0;
        }
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
    return http_send(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", r);
}

static enum MHD_Result answer_whole(struct http_exchange *x)
{
    enum MHD_Result rc;

    if (http_answer_whole(&x->answer, &x->out) != OK)
        return MHD_NO;
    rc = http_respond(x, MHD_HTTP_OK, "application/json", &x->out);
    text_fini(&x->out);
    return rc;
}

static enum MHD_Result wait_for_whole(struct http_exchange *x)
{
    size_t unused;
    int64_t n;
    bool hung_up;

    if (!http_gen_ready(x->g, 0, park))
        return MHD_YES;
    switch (http_gen_state(x->g, &n, &unused, &hung_up)) {
    case HTTP_RUNNING: /* hung up */
        return MHD_NO;
    case HTTP_FAILED:
        return http_refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, x->g->why);
    case HTTP_CANCELED:
        return http_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL,
                           "the server is shutting down");
    default:
        return answer_whole(x);
    }
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

enum MHD_Result http_begin(struct http_exchange *x, enum http_api api)
{
    int status;

    x->api = api;
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
    if (x->rc != OK)
        return http_refuse_error(x, err_set(x->rc, "%s", x->why), x->request.param);
    return x->request.stream ? begin_stream(x) : wait_for_whole(x);
}
