#include "tests/support/web_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"

#define BODY_MAX 262144

struct web_server {
    struct web_script s;
    char url[64];
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int stopping, n_seen, n_served, n_connections, n_used;
    struct web_seen seen[WEB_MAX_REQUESTS];
};

struct connection {
    struct web_server *w;
    int fd;
    char *buffer; /* [BODY_MAX] */
    size_t n;
    int used; /* a completion has come on it */
};

static int stopping(struct web_server *w)
{
    int yes;

    pthread_mutex_lock(&w->lock);
    yes = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* --- bytes */

static int send_all(struct connection *c, const char *p, size_t n)
{
    while (n) {
        ssize_t put = send(c->fd, p, n, MSG_NOSIGNAL);

        if (put <= 0)
            return 0;
        p += put;
        n -= (size_t)put;
    }
    return 1;
}

/* One chunk, in pieces if the script says so. */
static int send_chunk(struct connection *c, const char *p, size_t n)
{
    size_t piece = c->w->s.split_bytes ? (size_t)c->w->s.split_bytes : n;
    char head[32];

    for (; n; p += piece, n -= piece) {
        piece = piece < n ? piece : n;
        snprintf(head, sizeof(head), "%zx\r\n", piece);
        if (!send_all(c, head, strlen(head)) || !send_all(c, p, piece) ||
            !send_all(c, "\r\n", 2))
            return 0;
    }
    return 1;
}

static int answer(struct connection *c, const char *status, const char *more,
                  const char *body)
{
    char head[512];

    snprintf(head, sizeof(head),
             "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: "
             "%zu\r\n\r\n",
             status, more, strlen(body));
    return send_all(c, head, strlen(head)) && send_all(c, body, strlen(body));
}

/* Sleep, but not beyond the server's end. */
static void wait_until(struct web_server *w, uint64_t t)
{
    while (clock_ns() < t && !stopping(w)) {
        uint64_t now = clock_ns(), step = 20000000;

        if (now < t)
            clock_sleep_until_ns(now + step < t ? now + step : t, 0);
    }
}

/* Until the client closes, or the server ends. */
static void wait_closed(struct connection *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN | POLLRDHUP};

    while (!stopping(c->w) && poll(&p, 1, 20) == 0)
        ;
}

/* --- one completion */

static void take_slot(struct web_server *w, struct web_seen *s)
{
    pthread_mutex_lock(&w->lock);
    while (w->s.slots && w->n_served >= w->s.slots && !w->stopping)
        pthread_cond_wait(&w->changed, &w->lock);
    w->n_served++;
    s->began_ns = clock_ns();
    pthread_mutex_unlock(&w->lock);
}

static void leave_slot(struct web_server *w, struct web_seen *s)
{
    pthread_mutex_lock(&w->lock);
    s->ended_ns = clock_ns();
    w->n_served--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static struct web_seen *new_seen(struct connection *c, const char *body, int *i)
{
    struct web_server *w = c->w;
    struct web_seen *s;
    const char *max = strstr(body, "\"max_tokens\":");

    pthread_mutex_lock(&w->lock);
    *i = w->n_seen++;
    w->n_used += !c->used;
    c->used = 1;
    assert_true(*i < WEB_MAX_REQUESTS);
    s = &w->seen[*i];
    s->received_ns = clock_ns();
    s->n_asked = max ? atoi(max + strlen("\"max_tokens\":")) : 0;
    snprintf(s->body, sizeof(s->body), "%s", body);
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* A prompt's tokens as this server counts: ids, or words. */
static int count_prompt(const char *body)
{
    const char *p = strstr(body, "\"prompt\":");
    int n = 0, ids;

    if (!p)
        p = strstr(body, "\"content\":");
    if (!p)
        return 0;
    p = strchr(p, ':') + 1;
    ids = *p == '[';
    for (; *p && *p != (ids ? ']' : '}'); p++)
        n += *p == (ids ? ',' : ' ');
    return n + ids;
}

/* Event k of the stream, of n_new tokens. A plain server cuts a character in two. */
static size_t make_event(char *out, size_t n, const struct web_server *w, int k,
                         int n_new, int n_prompt)
{
    const char *text = w->s.dialect != WEB_PLAIN ? "\xe6\xbc\xa2\\u0000"
                       : k % 2                   ? "\xa2"
                                                 : "\xe6\xbc";
    char more[256] = "", choice[128] = "";

    if (w->s.dialect == WEB_VLLM) {
        snprintf(choice, sizeof(choice), ",\"token_ids\":[%d]", 100 + k);
        snprintf(more, sizeof(more),
                 ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}", n_prompt,
                 k + n_new);
    } else if (w->s.dialect == WEB_LLAMA) {
        snprintf(more, sizeof(more), ",\"timings\":{\"predicted_n\":%d}", k + n_new);
    }
    if (w->s.dialect == WEB_CHAT)
        return (size_t)snprintf(
            out, n,
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
            "\"content\":\"\"}}]}\n\n"
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"%s\":\" x\"}}]}\n\n",
            k < 2 ? "reasoning_content" : "content");
    return (size_t)snprintf(
        out, n,
        "data: {\"choices\":[{\"index\":0,\"text\":\" %s\"%s,\"finish_reason\":null}]%s}"
        "\r\n\r\n",
        text, choice, more);
}

static void mark_sent(struct web_server *w, struct web_seen *s, int n_new)
{
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < n_new && s->n_tok < WEB_MAX_TOK; i++)
        s->sent_ns[s->n_tok++] = clock_ns();
    pthread_mutex_unlock(&w->lock);
}

/* What stands in place of an event; 0 ends the connection. */
static int send_fault(struct connection *c, enum web_fault fault, const char *event,
                      size_t n)
{
    static const char garbage[] = "data: {\"choices\": [{oops\n\n";
    static const char error[] =
        "data: {\"error\":{\"message\":\"out of blocks\",\"code\":500}}\n\n";
    static const char count[] = "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":"
                                "{\"completion_tokens\":4000000000000000000}}\n\n";
    char line[4096];

    memset(line, 'x', sizeof(line));
    if (fault == WEB_CLOSED)
        send_chunk(c, event, n / 2);
    if (fault == WEB_GARBAGE)
        return send_chunk(c, garbage, strlen(garbage));
    if (fault == WEB_ERROR_EVENT)
        return send_chunk(c, error, strlen(error));
    if (fault == WEB_BIG_COUNT)
        return send_chunk(c, count, strlen(count));
    if (fault == WEB_TRICKLE)
        while (!stopping(c->w) && send_chunk(c, ":", 1))
            wait_until(c->w, clock_ns() + 5000000);
    if (fault == WEB_ENDLESS_EVENT)
        while (!stopping(c->w) && send_chunk(c, line, sizeof(line)))
            ;
    return 0;
}

static int in_stream(enum web_fault f)
{
    return f == WEB_CLOSED || f == WEB_GARBAGE || f == WEB_ERROR_EVENT ||
           f == WEB_BIG_COUNT || f == WEB_TRICKLE || f == WEB_ENDLESS_EVENT;
}

static int send_tokens(struct connection *c, struct web_seen *s, int index,
                       enum web_fault fault, int n_prompt)
{
    const struct web_script *q = &c->w->s;
    const int n = s->n_asked + (fault == WEB_LONG) - (fault == WEB_SHORT);
    const int n_shown = n - (q->dialect == WEB_HELD);
    static const char nothing[] =
        ": ping\n\ndata: {}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"
        "data: {\"error\": null, \"choices\": null}\n\n"
        "data: {\"error\": \"\", \"choices\": []}\n\n"
        "data: {\"error\": false, \"choices\": [{\"text\": \"\"}]}\n\n"
        "data: {\"error\": {}, \"choices\": [{\"text\": null}]}\n\n";
    uint64_t start = clock_ns();
    double wait = q->ttft_ms;
    char event[512];

    if (q->slow_every && index && index % q->slow_every == 0)
        wait += q->slow_ms;
    if (q->stall_request && index == q->stall_request)
        wait += q->stall_ms;
    for (int k = 0, n_new; k < n_shown; k += n_new) {
        size_t len;

        n_new = q->dialect == WEB_LLAMA && k % 3 == 1 && k + 2 <= n_shown ? 2 : 1;
        wait_until(c->w, start + (uint64_t)((wait + (k + n_new - 1) * q->itl_ms) * 1e6));
        len = make_event(event, sizeof(event), c->w, k, n_new, n_prompt);
        if (in_stream(fault) && k >= 1)
            return send_fault(c, fault, event, len);
        if (q->chatty && !send_chunk(c, nothing, strlen(nothing)))
            return 0;
        mark_sent(c->w, s, n_new);
        if (!send_chunk(c, event, len))
            return 0;
    }
    if (n_shown < n)
        mark_sent(c->w, s, n - n_shown);
    return 1;
}

static int send_tail(struct connection *c, const struct web_seen *s, enum web_fault fault,
                     int n_prompt)
{
    const int n = s->n_asked + (fault == WEB_LONG) - (fault == WEB_SHORT);
    char tail[512];

    snprintf(tail, sizeof(tail),
             "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"%s\"}]}\n\n"
             "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,"
             "\"completion_tokens\":%d}}\n\n%s",
             fault == WEB_SHORT ? "stop" : "length", n_prompt, n,
             fault == WEB_NO_DONE ? "" : "data: [DONE]\n\n");
    return send_chunk(c, tail, strlen(tail)) && send_all(c, "0\r\n\r\n", 5);
}

/* Faults before the first token; -1: none, else as of complete(). */
static int refuse(struct connection *c, enum web_fault fault)
{
    char line[1024];

    memset(line, 'h', sizeof(line));
    memcpy(line, "X-H: ", 5);
    memcpy(line + sizeof(line) - 2, "\r\n", 2);
    if (fault == WEB_500)
        return answer(c, "500 Internal Server Error", "",
                      "{\"error\":{\"message\":\"kv cache is full\"}}");
    if (fault == WEB_401)
        return answer(c, "401 Unauthorized", "", "{\"error\":\"no such key\"}");
    if (fault == WEB_429)
        return answer(c, "429 Too Many Requests", "Retry-After: 7\r\n",
                      "{\"error\":{\"message\":\"slow down\"}}");
    if (fault == WEB_WRONG_TYPE)
        return answer(c, "200 OK", "", "{\"choices\":[{\"text\":\"all at once\"}]}");
    if (fault == WEB_HANG)
        return wait_closed(c), 0;
    if (fault == WEB_HEADERS) {
        send_all(c, "HTTP/1.1 200 OK\r\n", 17);
        while (!stopping(c->w) && send_all(c, line, sizeof(line)))
            ;
        return 0;
    }
    if (fault == WEB_LONG_ERROR) {
        send_all(c, "HTTP/1.1 500 Oh\r\n\r\n", 19);
        while (!stopping(c->w) && send_all(c, line, sizeof(line)))
            ;
        return 0;
    }
    return -1;
}

/* The client closes when it has read the answer to its end. */
static void see_closed(struct connection *c, struct web_seen *s)
{
    shutdown(c->fd, SHUT_WR);
    wait_closed(c);
    pthread_mutex_lock(&c->w->lock);
    s->closed_ns = clock_ns();
    pthread_mutex_unlock(&c->w->lock);
}

/* Nonzero: the connection goes on. */
static int complete(struct connection *c, const char *body)
{
    const struct web_script *q = &c->w->s;
    const char *type = q->chatty ? "Text/Event-Stream" : "text/event-stream";
    char head[128];
    const char *const end = q->closes ? "Connection: close\r\n\r\n" : "\r\n";
    int index, go, n_prompt = count_prompt(body) + q->prompt_excess;
    struct web_seen *s = new_seen(c, body, &index);
    enum web_fault fault = index >= q->fault_from ? q->fault : WEB_OK;
    char why[128];

    if (q->refuses && strstr(body, q->refuses)) {
        snprintf(why, sizeof(why), "{\"error\":{\"message\":\"unknown field: %s\"}}",
                 q->refuses[0] == '"' ? "prompt must be a string" : q->refuses);
        return answer(c, "400 Bad Request", "", why);
    }
    go = refuse(c, fault);
    if (go >= 0)
        return go;
    take_slot(c->w, s);
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Type: %s; charset=utf-8\r\n"
             "Transfer-Encoding: chunked\r\n",
             type);
    go = send_all(c, head, strlen(head)) && send_all(c, end, strlen(end));
    if (fault == WEB_NO_EVENTS)
        go = go && send_chunk(c, "hello\nworld\n\n", 13) && send_all(c, "0\r\n\r\n", 5);
    else
        go = go && send_tokens(c, s, index, fault, n_prompt) &&
             send_tail(c, s, fault, n_prompt);
    pthread_mutex_lock(&c->w->lock);
    s->closed_by_client = !go && !in_stream(fault);
    pthread_mutex_unlock(&c->w->lock);
    leave_slot(c->w, s);
    if (go && q->closes)
        see_closed(c, s);
    return go && !q->closes;
}

/* --- connections */

static int dispatch(struct connection *c, const char *head, const char *body)
{
    const struct web_script *q = &c->w->s;
    char key[128];

    snprintf(key, sizeof(key), "Bearer %s", q->key ? q->key : "");
    if (strstr(head, "/health"))
        return answer(c, "200 OK", "", "{}");
    if (q->key && !strstr(head, key))
        return answer(c, "401 Unauthorized", "", "{\"error\":\"no such key\"}");
    if (strstr(head, "GET /v1/models") && !q->no_models)
        return answer(c, "200 OK", "",
                      "{\"object\":\"list\",\"data\":[{\"id\":\"scripted-model\","
                      "\"owned_by\":\"scripted\",\"max_model_len\":4096,"
                      "\"meta\":{\"n_vocab\":32000}}]}");
    if (strstr(head, "GET /version"))
        return answer(c, "200 OK", "", "{\"version\":\"1.2.3\"}");
    if (strstr(head, "POST /tokenize"))
        return answer(c, "200 OK", "", "{\"tokens\":[5,6,7]}");
    if (strstr(head, q->dialect == WEB_CHAT ? "POST /v1/chat/completions"
                                            : "POST /v1/completions"))
        return complete(c, body);
    return answer(c, "404 Not Found", "", "no such page");
}

/* One request of the connection: 0 ends it. */
static int serve_one(struct connection *c)
{
    char *end = NULL, *length, *body;
    size_t n_head, n_body;

    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        ssize_t got;

        c->buffer[c->n] = '\0';
        end = strstr(c->buffer, "\r\n\r\n");
        if (end) {
            n_head = (size_t)(end - c->buffer) + 4;
            length = strcasestr(c->buffer, "content-length:");
            n_body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
            if (c->n >= n_head + n_body)
                break;
        }
        if (stopping(c->w))
            return 0;
        if (poll(&p, 1, 20) == 0)
            continue;
        got = recv(c->fd, c->buffer + c->n, BODY_MAX - 1 - c->n, 0);
        if (got <= 0)
            return 0;
        c->n += (size_t)got;
    }
    body = strndup(c->buffer + n_head, n_body);
    end[2] = '\0';
    length = strdup(c->buffer);
    memmove(c->buffer, c->buffer + n_head + n_body, c->n - n_head - n_body);
    c->n -= n_head + n_body;
    n_head = (size_t)dispatch(c, length, body);
    free(length);
    free(body);
    return (int)n_head;
}

static void *serve_connection(void *arg)
{
    struct connection *c = arg;
    struct web_server *w = c->w;

    while (serve_one(c))
        ;
    close(c->fd);
    free(c->buffer);
    free(c);
    pthread_mutex_lock(&w->lock);
    w->n_connections--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int is_one_too_many(struct web_server *w)
{
    int yes;

    pthread_mutex_lock(&w->lock);
    yes = w->s.max_connections && w->n_connections >= w->s.max_connections;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static void *accept_all(void *arg)
{
    struct web_server *w = arg;

    while (!stopping(w)) {
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        struct connection *c;
        pthread_t t;
        int fd, one = 1;

        if (poll(&p, 1, 20) <= 0 || (fd = accept(w->fd, NULL, NULL)) < 0)
            continue;
        if (is_one_too_many(w)) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        c = calloc(1, sizeof(*c));
        *c = (struct connection){.w = w, .fd = fd, .buffer = malloc(BODY_MAX)};
        pthread_mutex_lock(&w->lock);
        w->n_connections++;
        pthread_mutex_unlock(&w->lock);
        assert_int_equal(pthread_create(&t, NULL, serve_connection, c), 0);
        pthread_detach(t);
    }
    return NULL;
}

/* --- the server */

static struct web_server *open_at(const struct web_script *s, int port)
{
    struct web_server *w = calloc(1, sizeof(*w));
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int one = 1;

    w->s = *s;
    w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(w->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(bind(w->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(w->fd, 256), 0);
    assert_int_equal(getsockname(w->fd, (struct sockaddr *)&a, &n), 0);
    snprintf(w->url, sizeof(w->url), "http://127.0.0.1:%d", ntohs(a.sin_port));
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    return w;
}

struct web_server *web_start(const struct web_script *s)
{
    struct web_server *w = open_at(s, 0);

    assert_int_equal(pthread_create(&w->thread, NULL, accept_all, w), 0);
    return w;
}

void web_serve(const struct web_script *s, int port)
{
    accept_all(open_at(s, port));
}

void web_stop(struct web_server *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_lock(&w->lock);
    while (w->n_connections)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    close(w->fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

const char *web_url(const struct web_server *w)
{
    return w->url;
}

int web_n_seen(struct web_server *w)
{
    int n;

    pthread_mutex_lock(&w->lock);
    n = w->n_seen;
    pthread_mutex_unlock(&w->lock);
    return n;
}

int web_n_used(struct web_server *w)
{
    int n;

    pthread_mutex_lock(&w->lock);
    n = w->n_used;
    pthread_mutex_unlock(&w->lock);
    return n;
}

struct web_seen web_seen_at(struct web_server *w, int i)
{
    struct web_seen s;

    pthread_mutex_lock(&w->lock);
    s = w->seen[i];
    pthread_mutex_unlock(&w->lock);
    return s;
}
