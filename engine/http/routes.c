/* From a request's header to its route. */
#include "http/server.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/frame.h"

#define MODELS     "/v1/models"
#define HOST_BYTES 300

/* ---- the routes that only report ---- */

static enum MHD_Result respond_json(struct http_exchange *x, int status, json_t *j)
{
    char *s = j ? json_text(j, JSON_COMPACT) : NULL;
    struct text body = {.p = s, .n = s ? strlen(s) : 0};
    enum MHD_Result rc = s ? http_respond(x, status, "application/json", &body) : MHD_NO;

    json_decref(j);
    mem_free(s);
    return rc;
}

static enum MHD_Result get_health(struct http_exchange *x)
{
    bool draining;

    pthread_mutex_lock(&x->h->lock);
    draining = x->h->draining;
    pthread_mutex_unlock(&x->h->lock);
    return draining ? http_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "shutting down")
                    : respond_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

static json_t *model_object(const struct http *h)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:{s:I}}", "id", h->model, "object",
                     "model", "created", (json_int_t)h->started_s, "owned_by", "sandwich",
                     "max_model_len", (json_int_t)h->s->max_tok, "meta", "n_vocab",
                     (json_int_t)serve_vocab(h->s));
}

static enum MHD_Result get_models(struct http_exchange *x)
{
    return respond_json(
        x, MHD_HTTP_OK,
        json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(x->h)));
}

/* The name may have slashes. */
static enum MHD_Result get_model(struct http_exchange *x)
{
    if (strcmp(x->path + strlen(MODELS "/"), x->h->model) == 0)
        return respond_json(x, MHD_HTTP_OK, model_object(x->h));
    (void)err_set(ERR_NOTFOUND, "request: model: this server has \"%.200s\" only",
                  x->h->model);
    return http_refuse_error(x, ERR_NOTFOUND, "model");
}

static enum MHD_Result get_metrics(struct http_exchange *x)
{
    struct http *h = x->h;
    struct http_gauges g = {.max_seqs = h->max_seqs,
                            .rss_bytes = (int64_t)mem_rss_bytes()};
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

static const struct http_route {
    const char *url;
    bool post, key; /* key: needs the API key, if there is one */
    enum MHD_Result (*answer)(struct http_exchange *x);
    enum http_api api; /* of those that generate */
} routes[] = {
    {"/v1/completions", true, true, http_begin, HTTP_COMPLETION},
    {"/v1/chat/completions", true, true, http_begin, HTTP_CHAT},
    {MODELS, false, true, get_models, 0},
    {MODELS "/", false, true, get_model, 0}, /* and all below it */
    {"/health", false, false, get_health, 0},
    {"/metrics", false, false, get_metrics, 0},
};
#define N_ROUTES ((int)(sizeof(routes) / sizeof(routes[0])))

static const struct http_route *find_route(const char *url)
{
    for (int i = 0; i < N_ROUTES; i++) {
        const char *route = routes[i].url;
        size_t n = strlen(route);

        if (route[n - 1] == '/' ? strncmp(url, route, n) == 0 && url[n]
                                : strcmp(url, route) == 0)
            return &routes[i];
    }
    return NULL;
}

/* ---- what the header decides ---- */

static const char *header(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* A browser asks whether a page may send what it wants to send, or a client what the server as a
 * whole can do. */
static bool only_asks(const struct http_exchange *x, const char *url, const char *method)
{
    return strcmp(method, "OPTIONS") == 0 &&
           (strcmp(url, "*") == 0 ||
            (header(x, "Origin") && header(x, "Access-Control-Request-Method")));
}

/* The path of a target, which may have the form "http://HOST/PATH": that host counts then, not the
 * header's (RFC 9112, 3.2.2). *host is left alone otherwise. */
static const char *path_of(const char *url, char host[HOST_BYTES])
{
    static const char scheme[] = "http://";
    const char *name = url + sizeof(scheme) - 1;
    size_t n;

    if (strncasecmp(url, scheme, sizeof(scheme) - 1) != 0)
        return url;
    n = strcspn(name, "/");
    snprintf(host, HOST_BYTES, "%.*s", n < HOST_BYTES ? (int)n : 0, name);
    return name[n] ? name + n : "/";
}

/* 0: the request may go on, by x->route. */
static int check_head(struct http_exchange *x, const char *url, const char *method)
{
    const struct http_access *a = &x->h->access;
    char in_target[HOST_BYTES] = "\n"; /* none */
    const char *path = x->path = path_of(url, in_target);
    const char *host = *in_target == '\n' ? header(x, "Host") : in_target;
    const struct http_route *r = x->route = find_route(path);
    int refused = http_access_check(a, host, header(x, "Origin"));
    bool post = strcmp(method, "POST") == 0;
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;

    if (refused)
        return refused;
    if (only_asks(x, path, method))
        return MHD_HTTP_NO_CONTENT;
    if (a->key && (!r || r->key) && !http_access_has_key(a, x->connection))
        return MHD_HTTP_UNAUTHORIZED;
    if (!r)
        return MHD_HTTP_NOT_FOUND;
    x->api = r->api;
    return (r->post ? post : get) ? 0 : MHD_HTTP_METHOD_NOT_ALLOWED;
}

static enum MHD_Result refuse(struct http_exchange *x)
{
    const char *why = NULL;
    char message[160];

    switch (x->refused) {
    case MHD_HTTP_NO_CONTENT:
        return http_respond(x, x->refused, NULL, &(struct text){0});
    case MHD_HTTP_BAD_REQUEST:
        snprintf(message, sizeof(message), "request: %s", x->bad);
        break;
    case MHD_HTTP_MISDIRECTED_REQUEST:
        why = "the header Host has a name that is not known as this server's; "
              "--allow-host NAME allows it";
        break;
    case MHD_HTTP_FORBIDDEN:
        why = "pages of another origin may not use this server; --cors ORIGIN allows one";
        break;
    case MHD_HTTP_UNAUTHORIZED:
        why = "expected the header \"Authorization: Bearer KEY\" with this server's key";
        break;
    case MHD_HTTP_NOT_FOUND:
        why = "no such route; known are POST /v1/completions and /v1/chat/completions, "
              "GET /v1/models, /v1/models/ID, /health and /metrics";
        break;
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        why = "wrong method: completions take POST, other routes GET";
        break;
    default:
        snprintf(message, sizeof(message),
                 "request: expected a body of at most %lld bytes",
                 (long long)x->h->o->max_body_bytes);
    }
    return http_refuse(x, x->refused, NULL, why ? why : message);
}

static struct http_exchange *new_exchange(struct http *h, struct MHD_Connection *c)
{
    struct http_exchange *x = mem_new(MEM_OTHER, 1, sizeof(*x));

    if (!x)
        return NULL;
    x->h = h;
    x->connection = c;
    x->conn =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (!x->conn) { /* there was no memory for it */
        mem_free(x);
        return NULL;
    }
    pthread_mutex_lock(&h->lock);
    h->n_exchanges++;
    pthread_mutex_unlock(&h->lock);
    return x;
}

/* A body that is announced as too large is not read: the answer comes first and the
 * connection is closed. Other answers wait for the body, so that the client reads them. */
static enum MHD_Result begin(struct http_exchange *x, const char *url, const char *method)
{
    const char *length = header(x, "Content-Length");

    http_phase_set(x, HTTP_BODY);
    if (x->bad) { /* where its body ends is not known */
        x->refused = MHD_HTTP_BAD_REQUEST;
        return refuse(x);
    }
    x->refused = check_head(x, url, method);
    if (!length || strtoull(length, NULL, 10) <= (uint64_t)x->h->o->max_body_bytes)
        return MHD_YES;
    x->refused = x->refused ? x->refused : MHD_HTTP_CONTENT_TOO_LARGE;
    return refuse(x);
}

enum MHD_Result http_on_request(void *arg, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *body,
                                size_t *n_body, void **exchange)
{
    struct http_exchange *x = *exchange;

    if (!x || http_frame_is_target(x)) {
        const void *target = x;

        x = *exchange = new_exchange(arg, c);
        if (!x)
            return MHD_NO;
        x->bad = http_frame_check(c, url, target, method, version);
        return begin(x, url, method);
    }
    if (*n_body > 0) {
        if (*n_body > (size_t)x->h->o->max_body_bytes - x->body.n)
            return MHD_NO; /* chunked, so its length was unknown: no answer can be sent now */
        if (!x->refused)
            text_put(&x->body, body, *n_body);
        *n_body = 0;
        return x->body.rc == OK ? MHD_YES : MHD_NO;
    }
    if (x->refused)
        return refuse(x);
    return x->prepared ? http_continue(x) : x->route->answer(x);
}

void http_on_completed(void *arg, struct MHD_Connection *c, void **exchange,
                       enum MHD_RequestTerminationCode how)
{
    struct http_exchange *x = *exchange;
    struct http *h = arg;

    (void)c;
    if (!x)
        return;
    *exchange = NULL;
    if (http_frame_is_target(x)) /* there was no memory for an exchange */
        return;
    pthread_mutex_lock(&h->lock);
    x->conn->phase = HTTP_HEAD;
    x->conn->since_ns = clock_ns();
    x->conn->used = true;
    x->conn->g = NULL;
    h->n_exchanges--;
    pthread_mutex_unlock(&h->lock);
    if (x->g && how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        http_gen_cancel(x->g);
    http_gen_unref(x->g);
    http_answer_fini(&x->answer);
    http_request_fini(&x->request);
    text_fini(&x->body);
    text_fini(&x->out);
    mem_free(x);
}

void http_on_connection(void *arg, struct MHD_Connection *c, void **conn,
                        enum MHD_ConnectionNotificationCode how)
{
    struct http_conn *k = *conn;
    struct http *h = arg;

    if (how == MHD_CONNECTION_NOTIFY_STARTED) {
        k = *conn = mem_new(MEM_OTHER, 1, sizeof(*k));
        if (!k)
            return;
        k->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        k->since_ns = clock_ns();
        pthread_mutex_lock(&h->lock);
        h->n_conns++;
        k->next = h->conns;
        k->link = &h->conns;
        if (k->next)
            k->next->link = &k->next;
        h->conns = k;
        pthread_mutex_unlock(&h->lock);
    } else if (k) {
        pthread_mutex_lock(&h->lock);
        h->n_conns--;
        *k->link = k->next;
        if (k->next)
            k->next->link = k->link;
        pthread_mutex_unlock(&h->lock);
        mem_free(k);
        *conn = NULL;
    }
}
