/* The watcher ends connections that miss their deadline or whose client has gone. It only
 * shuts the socket down, and wakes the request if it waits for the engine: libmicrohttpd then
 * finds the end of the connection and closes it. */
#include "http/impl.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

#define TICK_NS 50000000

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

static void end(struct http *h, struct http_conn *k, enum http_closed why)
{
    k->closing = true;
    http_metrics_closed(&h->metrics, why);
    shutdown(k->fd, SHUT_RDWR);
    if (k->g)
        http_gen_hang_up(k->g);
}

static void check(struct http *h, struct http_conn *k, uint64_t now)
{
    static const enum http_closed why[] = {[HTTP_HEAD] = HTTP_SLOW_HEAD,
                                           [HTTP_BODY] = HTTP_SLOW_BODY,
                                           [HTTP_WRITE] = HTTP_SLOW_READER};

    if (k->closing)
        return;
    if (has_gone(k))
        end(h, k, HTTP_GONE);
    else if (now > k->since_ns && (double)(now - k->since_ns) * 1e-9 > limit_s(h, k))
        end(h, k, why[k->phase]);
}

void *http_watch(void *arg)
{
    struct http *h = arg;
    struct timespec t;
    uint64_t next;

    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        uint64_t now = clock_ns();

        for (struct http_conn *k = h->conns; k; k = k->next)
            check(h, k, now);
        next = now + TICK_NS;
        t = (struct timespec){(time_t)(next / 1000000000), (long)(next % 1000000000)};
        pthread_cond_timedwait(&h->stopped, &h->lock, &t);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}
