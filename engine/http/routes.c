/* From a request's header to its route. */
#include "http/server.h"

#include <stdio.h>
#include <string.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/frame.h"
#include "http/route.h"

#define HOST_BYTES 300

enum MHD_Result http_respond_json(struct http_exchange *x, int status, json_t *j)
{
    char *s = j ? json_text(j, JSON_COMPACT) : NULL;
    struct text body = {.p = s, .n = s ? strlen(s) : 0};
    enum MHD_Result rc = s ? http_respond(x, status, "application/json", &body) : MHD_NO;

    json_decref(j);
    mem_free(s);
    return rc;
}

static bool matches(const char *route, const char *url)
{
    size_t n = strlen(route);

    return route[n - 1] == '/' ? strncmp(url, route, n) == 0 && url[n]
                               : strcmp(url, route) == 0;
}

static const struct http_route *find_route(const char *url)
{
    for (const struct http_route *const *r = http_routes; *r; r++)
        for (const char *const *u = (*r)->urls; *u; u++)
            if (matches(*u, url))
                return *r;
    return NULL;
}

/* "POST /v1/completions, GET /health ...": the first path of each route. */
static void list_routes(char *out, size_t n)
{
    size_t at = 0;

    out[0] = '\0';
    for (const struct http_route *const *r = http_routes; *r && at < n; r++)
        if (!(*r)->refused)
            at += (size_t)snprintf(out + at, n - at, "%s%s %s", at ? ", " : "",
                                   (*r)->prepare ? "POST" : "GET", (*r)->urls[0]);
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
    if (r->refused)
        return MHD_HTTP_NOT_FOUND;
    return (r->prepare ? post : get) ? 0 : MHD_HTTP_METHOD_NOT_ALLOWED;
}

static enum MHD_Result refuse(struct http_exchange *x)
{
    const char *why = NULL;
    char message[512];
    size_t n;

    switch (x->refused) {
    case MHD_HTTP_NO_CONTENT:
        return http_respond(x, x->refused, NULL, &(struct text){0});
    case MHD_HTTP_BAD_REQUEST:
    case MHD_HTTP_NOT_IMPLEMENTED:
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
        if (x->route) {
            snprintf(message, sizeof(message), "%.80s: %s", x->path, x->route->refused);
            break;
        }
        n = (size_t)snprintf(message, sizeof(message), "no such route; known are ");
        list_routes(message + n, sizeof(message) - n);
        break;
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        why = x->route->prepare ? "wrong method: this route takes POST"
                                : "wrong method: this route takes GET";
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
    x->begun_ns = clock_ns();
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
        x->refused = x->bad_status;
        return refuse(x);
    }
    x->refused = check_head(x, url, method);
    if (!length || strtoull(length, NULL, 10) <= (uint64_t)x->h->o->max_body_bytes)
        return MHD_YES;
    x->refused = x->refused ? x->refused : MHD_HTTP_CONTENT_TOO_LARGE;
    return refuse(x);
}

const char *http_allowed(const struct http_exchange *x)
{
    return x->route && x->route->prepare ? "POST" : "GET, HEAD";
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
        snprintf(x->method, sizeof(x->method), "%s", method);
        x->bad = http_frame_check(c, url, target, method, version, &x->bad_status);
        return begin(x, url, method);
    }
    if (*n_body > 0) {
        if (!x->refused && *n_body > (size_t)x->h->o->max_body_bytes - x->body.n) {
            x->refused =
                MHD_HTTP_CONTENT_TOO_LARGE; /* chunked: no answer can be sent now */
            text_fini(&x->body);
        }
        if (!x->refused)
            text_put(&x->body, body, *n_body);
        *n_body = 0;
        return x->body.rc == OK ? MHD_YES : MHD_NO;
    }
    if (x->refused)
        return refuse(x);
    if (x->prepared)
        return http_continue(x);
    return x->route->prepare ? http_begin(x) : x->route->answer(x);
}

/* One line for a response, as other servers write it, with tokens and time. */
static void log_access(const struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[64] = "?", tokens[80] = "";
    int64_t n_prompt = 0, n_new = 0;

    if (info && getnameinfo(info->client_addr, sizeof(struct sockaddr_in6), host,
                            sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(host, sizeof(host), "?");
    for (int i = 0; x->g && i < x->g->n_seqs; i++) {
        n_prompt += x->g->seqs[i].n_prompt;
        n_new += x->g->seqs[i].n_told;
    }
    if (x->g)
        snprintf(tokens, sizeof(tokens), ", %lld prompt and %lld new tokens",
                 (long long)n_prompt, (long long)n_new);
    log_info("%s %s %.200s %d %.1f ms%s", host, x->method, x->path ? x->path : "?",
             x->status, (double)(clock_ns() - x->begun_ns) * 1e-6, tokens);
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
    (void)how;
    if (x->submitted) /* what goes on, after a failure of a part of it too */
        http_gen_cancel(x->g);
    if (h->o->access_log)
        log_access(x);
    http_answer_fini(&x->answer);
    http_gen_unref(x->g);
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
