/* Counters and histograms for Prometheus. */
#include "http/route.h"

#include "base/mem.h"

static enum MHD_Result answer(struct http_exchange *x)
{
    struct http *h = x->h;
    struct http_gauges g = {.max_seqs = h->max_seqs, .started_s = h->started_s};
    struct text body = {0};
    enum MHD_Result rc = MHD_NO;

    serve_kv_stat(h->s, &g.kv);
    serve_draft_stat(h->s, &g.draft);
    pthread_mutex_lock(&h->lock);
    g.n_requests = h->n_admitted;
    g.n_connections = h->n_conns;
    pthread_mutex_unlock(&h->lock);
    http_metrics_text(&h->metrics, &g, &body);
    if (body.rc == OK)
        rc = http_respond(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                          &body);
    text_fini(&body);
    return rc;
}

const struct http_route http_route_metrics = {.urls = {"/metrics"}, .answer = answer};
