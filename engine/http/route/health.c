/* Whether requests are taken. */
#include "http/route.h"

static enum MHD_Result answer(struct http_exchange *x)
{
    bool draining;

    pthread_mutex_lock(&x->h->lock);
    draining = x->h->draining;
    pthread_mutex_unlock(&x->h->lock);
    return draining
               ? http_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "shutting down")
               : http_respond_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

const struct http_route http_route_health = {.urls = {"/health"}, .answer = answer};
