/* Opening and closing the server, stepping its engine, and watching its connections. */
#include "http/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "http/frame.h"

#define BACKLOG     256
#define OTHER_FILES 32 /* open ones that are no connections: some 20 while it serves */
/* Bytes that the system holds for a client that does not read. */
#define SEND_BYTES     (256 << 10)
#define IDLE_NS        100000000 /* between two checks of *stop while there is nothing to do */
#define LAST_WRITES_NS UINT64_C(2000000000) /* to write the end of what was cancelled */
#define TICK_NS        50000000

/* ---- the watcher ----
 *
 * It ends connections that miss their deadline or whose client has gone: it shuts the socket down,
 * and wakes the request if that waits for the engine. libmicrohttpd then finds the end of the
 * connection and closes it. */

static double limit_s(const struct http *h, const struct http_conn *k)
{
    switch (k->phase) {
    case HTTP_HEAD:
        return k->used ? h->o->idle_timeout_s : h->o->header_timeout_s;
    case HTTP_BODY:
        return h->o->body_timeout_s;
    case HTTP_WRITE:
        return h->o->write_timeout_s;
    case HTTP_COMPUTE:
        break;
    }
    return 1e9;
}

/* The client will send nothing more. One that only shut down its side of the connection and
 * still reads counts as gone, as with other servers: the two look the same. */
static bool has_gone(const struct http_conn *k)
{
    struct pollfd p = {.fd = k->fd, .events = POLLRDHUP};

    return (k->phase == HTTP_COMPUTE || k->phase == HTTP_WRITE) && poll(&p, 1, 0) > 0 &&
           p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static void end_connection(struct http *h, struct http_conn *k, enum http_closed why)
{
    k->closing = true;
    http_metrics_closed(&h->metrics, why);
    shutdown(k->fd, SHUT_RDWR);
    if (k->g)
        http_gen_hang_up(k->g);
}

static void check_connection(struct http *h, struct http_conn *k, uint64_t now)
{
    static const enum http_closed why[] = {[HTTP_HEAD] = HTTP_SLOW_HEAD,
                                           [HTTP_BODY] = HTTP_SLOW_BODY,
                                           [HTTP_WRITE] = HTTP_SLOW_READER};

    if (k->closing)
        return;
    if (has_gone(k))
        end_connection(h, k, HTTP_GONE);
    else if (now > k->since_ns && (double)(now - k->since_ns) * 1e-9 > limit_s(h, k))
        end_connection(h, k, why[k->phase]);
}

static void *watch(void *arg)
{
    struct http *h = arg;
    struct timespec t;
    uint64_t next;

    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        uint64_t now = clock_ns();

        for (struct http_conn *k = h->conns; k; k = k->next)
            check_connection(h, k, now);
        next = now + TICK_NS;
        t = (struct timespec){(time_t)(next / 1000000000), (long)(next % 1000000000)};
        pthread_cond_timedwait(&h->stopped, &h->lock, &t);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- the address ---- */

static int bind_one(struct http *h, const struct addrinfo *a)
{
    const int on = 1, send_bytes = SEND_BYTES;

    h->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                   a->ai_protocol);
    if (h->fd < 0)
        return err_set(ERR_IO, "%s: cannot open a socket: %m", h->o->host);
    setsockopt(h->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(h->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
    if (bind(h->fd, a->ai_addr, a->ai_addrlen) != 0)
        return err_set(ERR_IO, "%s, port %lld: cannot listen there: %m", h->o->host,
                       (long long)h->o->port);
    return OK;
}

static int read_port(struct http *h)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);

    if (getsockname(h->fd, (struct sockaddr *)&a, &n) != 0)
        return err_set(ERR_IO, "%s: %m", h->o->host);
    h->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                            : ((struct sockaddr_in *)&a)->sin_port);
    return OK;
}

static int bind_socket(struct http *h)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC,
                                  .ai_socktype = SOCK_STREAM,
                                  .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    char port[16];
    int rc;

    snprintf(port, sizeof(port), "%lld", (long long)h->o->port);
    rc = getaddrinfo(h->o->host, port, &want, &found);
    if (rc != 0)
        return err_set(ERR_ARG, "host \"%.80s\": %s", h->o->host, gai_strerror(rc));
    rc = bind_one(h, found);
    freeaddrinfo(found);
    return rc == OK ? read_port(h) : rc;
}

static int make_locks(struct http *h)
{
    TRY(http_metrics_init(&h->metrics));
    TRY(thread_mutex_init(&h->lock));
    TRY(thread_cond_init(&h->stopped));
    return thread_cond_init(&h->added);
}

int http_bind(struct http **out, const struct http_opts *o)
{
    struct http *h = mem_new(MEM_OTHER, 1, sizeof(*h));
    int rc;

    *out = NULL;
    if (!h)
        return ERR_NOMEM;
    h->o = o;
    h->fd = -1;
    h->last_to_prepare = &h->to_prepare;
    rc = make_locks(h);
    if (rc == OK)
        rc = http_access_open(&h->access, o);
    if (rc == OK)
        rc = bind_socket(h);
    if (rc == OK &&
        pthread_getaffinity_np(pthread_self(), sizeof(h->cpus), &h->cpus) != 0)
        rc = err_set(ERR_IO, "cannot read the CPUs of this thread");
    if (rc == OK)
        *out = h, h = NULL;
    http_close(&h);
    return rc;
}

int http_port(const struct http *h)
{
    return h->port;
}

bool http_wants_key(const struct http *h)
{
    return h->access.key != NULL;
}

/* ---- what is served ---- */

/* "llama-160m" of ".../llama-160m.gguf" and of ".../llama-160m/". */
static int name_model(struct http *h, const char *path)
{
    char base[200];
    size_t n = strlen(path), at;
    json_t *name;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (at = n; at > 0 && path[at - 1] != '/';)
        at--;
    if (n - at > 5 && strncmp(path + n - 5, ".gguf", 5) == 0)
        n -= 5;
    else if (n - at > 4 && strncmp(path + n - 4, ".bin", 4) == 0)
        n -= 4;
    snprintf(base, sizeof(base), "%.*s", (int)(n - at), path + at);
    name = json_string_lossy(h->o->model_name ? h->o->model_name : base);
    if (!name)
        return err_set(ERR_NOMEM, "no memory for the model's name");
    snprintf(h->model, sizeof(h->model), "%s", json_string_value(name));
    json_decref(name);
    return OK;
}

/* Noon of a date as seconds since 1970; -1: no date is given. */
static int read_date(const char *date, int64_t *out)
{
    struct tm tm = {.tm_hour = 12, .tm_isdst = -1}, same;
    const char *end;

    *out = -1;
    if (!date)
        return OK;
    end = strptime(date, "%Y-%m-%d", &tm);
    same = tm;
    if (end && *end == '\0' && strlen(date) == 10)
        *out = (int64_t)mktime(&same);
    if (*out == -1 || same.tm_mday != tm.tm_mday)
        return err_set(ERR_ARG,
                       "--chat-date: expected a date like 2025-07-20, found \"%.40s\"",
                       date);
    return OK;
}

/* A template that was asked for must fit. The model's own may be missing or not supported: then
 * only chats are refused, with the reason. */
static int choose_template(struct http *h, const struct serve_opts *so)
{
    const char *asked = h->o->chat_template;
    int rc;

    if (!h->tok) {
        snprintf(h->no_chat, sizeof(h->no_chat), "messages: the model has no tokenizer");
        return asked ? err_set(ERR_ARG, "--chat-template: the model has no tokenizer")
                     : OK;
    }
    rc = chat_open(&h->chat, &(struct chat_opts){.model = so->model,
                                                 .tokenizer = so->tokenizer,
                                                 .template = asked,
                                                 .tok = h->tok});
    if (rc == OK)
        log_debug("chats: %s", chat_origin(h->chat));
    if (rc == OK || asked || rc == ERR_NOMEM)
        return rc;
    if (rc == ERR_NOTFOUND) {
        (void)err_set(rc, "the model has no chat template; start the server with "
                          "--chat-template FILE, or one of " CHAT_KNOWN_NAMES);
        log_info("no chats: %s", err_msg());
    } else {
        log_warn("chats are refused: %s", err_msg());
    }
    snprintf(h->no_chat, sizeof(h->no_chat), "messages: %s", err_msg());
    return OK;
}

/* ---- the threads ---- */

static void on_log(void *ctx, const char *fmt, va_list args)
{
    char line[512];
    size_t n;

    (void)ctx;
    vsnprintf(line, sizeof(line), fmt, args);
    n = strlen(line);
    if (n > 0 && line[n - 1] == '\n')
        line[n - 1] = '\0';
    log_debug("libmicrohttpd: %s", line);
}

/* What the system's limit of open files leaves room for. */
static unsigned connection_limit(int64_t wanted)
{
    struct rlimit r;
    int64_t room;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= (rlim_t)wanted + OTHER_FILES)
        return (unsigned)wanted;
    room = r.rlim_cur > OTHER_FILES ? (int64_t)r.rlim_cur - OTHER_FILES : 1;
    log_warning("open_files", (double)r.rlim_cur, (double)(wanted + OTHER_FILES),
                "--max-connections %lld: this process may have %lld files open (ulimit "
                "-n), so %lld connections",
                (long long)wanted, (long long)r.rlim_cur, (long long)room);
    return (unsigned)room;
}

static int start_daemon(struct http *h)
{
    const struct http_opts *o = h->o;

    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ITC |
            MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
        0, NULL, NULL, http_on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT,
        connection_limit(o->max_connections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)o->max_connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        http_on_connection, h, MHD_OPTION_URI_LOG_CALLBACK, http_frame_target, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, (int)HTTP_FRAME_STRICT, MHD_OPTION_END);
    return h->daemon ? OK
                     : err_set(ERR_IO, "%s, port %d: the server cannot be started",
                               o->host, h->port);
}

/* Chat templates may nest deep, whatever the user's limit of the stack is. */
#define PREPARER_STACK_BYTES ((size_t)8 << 20)

static int start_own_threads(struct http *h)
{
    TRY(thread_start(&h->watcher, 0, watch, h, "server"));
    h->watching = true;
    TRY(thread_start(&h->preparer, PREPARER_STACK_BYTES, http_prepare, h, "server"));
    h->preparing = true;
    return start_daemon(h);
}

static int start_threads(struct http *h)
{
    cpu_set_t own;
    int rc;

    if (listen(h->fd, BACKLOG) != 0)
        return err_set(ERR_IO, "%s, port %d: cannot listen there: %m", h->o->host,
                       h->port);
    if (pthread_getaffinity_np(pthread_self(), sizeof(own), &own) != 0 ||
        pthread_setaffinity_np(pthread_self(), sizeof(h->cpus), &h->cpus) != 0)
        return err_set(ERR_IO, "cannot set the CPUs of a thread");
    rc = start_own_threads(h);
    if (pthread_setaffinity_np(pthread_self(), sizeof(own), &own) != 0 && rc == OK)
        rc = err_set(ERR_IO, "cannot set the CPUs of a thread");
    return rc;
}

int http_start(struct http *h, struct serve *s, const struct serve_opts *so)
{
    h->s = s;
    h->tok = s->tok;
    h->max_seqs = so->max_seqs;
    h->started_s = (int64_t)time(NULL);
    snprintf(h->server, sizeof(h->server), "sandwich/%s", build_info.version);
    TRY(name_model(h, so->model));
    TRY(read_date(h->o->chat_date, &h->chat_time_s));
    TRY(choose_template(h, so));
    return start_threads(h);
}

void http_close(struct http **ph)
{
    struct http *h = *ph;

    *ph = NULL;
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->stopped);
    pthread_cond_signal(&h->added);
    pthread_mutex_unlock(&h->lock);
    if (h->watching)
        pthread_join(h->watcher, NULL);
    if (h->preparing)
        pthread_join(h->preparer, NULL);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    else if (h->fd >= 0)
        close(h->fd);
    pthread_cond_destroy(&h->stopped);
    pthread_cond_destroy(&h->added);
    pthread_mutex_destroy(&h->lock);
    http_metrics_fini(&h->metrics);
    chat_close(&h->chat);
    http_access_close(&h->access);
    mem_free(h);
}

/* ---- the thread that steps the engine, until the server is told to stop ---- */

/* why: of an engine that failed; NULL: the time is over. */
static void end_all(struct http *h, const char *why)
{
    pthread_mutex_lock(&h->lock);
    for (struct http_gen *g = h->gens; g; g = g->next)
        if (why)
            http_gen_fail(g, why);
        else
            http_gen_cancel(g);
    pthread_mutex_unlock(&h->lock);
}

static void drain(struct http *h)
{
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);

    if (fd != MHD_INVALID_SOCKET) {
        shutdown(fd, SHUT_RDWR); /* also where the processes of ranks have inherited it */
        close(fd);
    }
    h->fd = -1;
    pthread_mutex_lock(&h->lock);
    h->draining = true;
    pthread_mutex_unlock(&h->lock);
    log_info("shutting down: running requests end, further ones are refused");
}

static bool idle(struct http *h)
{
    bool none;

    pthread_mutex_lock(&h->lock);
    none = h->n_admitted == 0;
    pthread_mutex_unlock(&h->lock);
    return none;
}

/* No request waits for the engine any more: until all answers are written, or the time is
 * over. */
static void wait_for_writers(struct http *h, uint64_t until_ns)
{
    for (int64_t left = 1; left > 0 && clock_ns() < until_ns;) {
        pthread_mutex_lock(&h->lock);
        left = h->n_exchanges;
        pthread_mutex_unlock(&h->lock);
        if (left > 0)
            clock_sleep_until_ns(clock_ns() + 10000000, 0);
    }
}

static void count_steps(struct http *h)
{
    http_metrics_steps(&h->metrics,
                       (double)serve_totals_of(h->s, SERVE_PREFILL)->forward_ns * 1e-9,
                       (double)serve_totals_of(h->s, SERVE_DECODE)->forward_ns * 1e-9);
}

/* No step is possible any more: end all requests. */
static int fail(struct http *h, int rc)
{
    char why[512];
    bool busy = true;

    snprintf(why, sizeof(why), "%s", err_msg());
    drain(h);
    while (!idle(h)) {
        end_all(h, why);
        (void)!serve_step(h->s, &busy);
    }
    wait_for_writers(h, clock_ns() + LAST_WRITES_NS);
    return err_set(rc, "%s", why);
}

int http_run(struct http *h, const volatile sig_atomic_t *stop)
{
    uint64_t limit_ns = UINT64_MAX;
    bool busy;
    int rc;

    while (limit_ns == UINT64_MAX || !idle(h)) {
        if (*stop && limit_ns == UINT64_MAX) {
            limit_ns = clock_ns() + (uint64_t)(h->o->drain_timeout_s * 1e9);
            drain(h);
        }
        rc = serve_step(h->s, &busy);
        if (rc != OK)
            return fail(h, rc);
        count_steps(h);
        if (clock_ns() > limit_ns)
            end_all(h, NULL);
        if (!busy && !(*stop && idle(h)))
            serve_wait(h->s, IDLE_NS);
    }
    wait_for_writers(h, limit_ns + LAST_WRITES_NS);
    return OK;
}
