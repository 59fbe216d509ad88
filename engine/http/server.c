/* Opening and closing the server. */
#include "http/impl.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "http/frame.h"

#define BACKLOG 256
/* What the system holds for a client that does not read. */
#define SEND_BYTES (256 << 10)

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

static int start_daemon(struct http *h)
{
    const struct http_opts *o = h->o;

    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ITC |
            MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
        0, NULL, NULL, http_on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)o->max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)o->max_connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        http_on_connection, h, MHD_OPTION_URI_LOG_CALLBACK, http_frame_target, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return h->daemon ? OK
                     : err_set(ERR_IO, "%s, port %d: the server cannot be started",
                               o->host, h->port);
}

/* Chat templates may nest deep, whatever the user's limit of the stack is. */
#define PREPARER_STACK_BYTES ((size_t)8 << 20)

static int start_own_threads(struct http *h)
{
    TRY(thread_start(&h->watcher, 0, http_watch, h, "server"));
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
