/* The thread that steps the engine, until the server is told to stop. */
#include "http/impl.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define IDLE_NS        100000000 /* between two looks at *stop while there is nothing to do */
#define LAST_WRITES_NS UINT64_C(2000000000) /* to write the end of what was cancelled */

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
