/* The ends of a machine's transports to and from others.
 * Memory that was offered may be written to by the peer until that has closed its end: either its
 * process has ended, as the front says, or it says hello on the connection's successor. Only then
 * is it given back. */
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "cluster/transport.h"
#include "roles/machine.h"

void roles_end_tell_broken(struct roles_end *x)
{
    struct roles_message head = {
        .type = ROLES_BROKEN, .id = x->number, .peer = x->peer, .sends = x->sends};

    if (!x->told_broken)
        roles_tell_why(x->m, &head, err_msg());
    x->told_broken = true;
}

static void on_fail(void *ctx)
{
    struct roles_end *x = ctx;

    pthread_mutex_lock(&x->m->lock);
    roles_end_tell_broken(x);
    pthread_mutex_unlock(&x->m->lock);
}

/* On both ends as many as the one that offers may have. */
static int most_transfers(const struct roles_setup *u, int receiver)
{
    return (int)u->spec.engine[u->home[receiver]].max_seqs;
}

static int open_sender(struct roles_end *x, int fd)
{
    const struct roles_setup *u = x->m->u;
    struct cluster_sender_opts o = {
        .transport = u->transport,
        .fd = fd,
        .max_transfers = most_transfers(u, x->peer),
        .mode = (enum cluster_transfer_mode)u->o.transfer,
        .serial_below_tok = u->o.serial_below_tok,
        .no_checksums = !u->o.checksums,
        .limiter = {.bytes_per_s = u->o.link_gbps * 1e9 / 8,
                    .latency_ns = (int64_t)(u->o.link_latency_ms * 1e6)},
        .silence_ms = (int)u->o.silence_ms,
        .on_offer = roles_on_offer,
        .on_end = roles_on_sent,
        .on_forget = roles_on_forget,
        .on_fail = on_fail,
        .ctx = x};

    serve_kv_shape(x->m->s, &o.shape);
    return cluster_sender_open(&x->sender, &o);
}

static int open_receiver(struct roles_end *x, int fd)
{
    const struct roles_setup *u = x->m->u;
    struct cluster_receiver_opts o = {.transport = u->transport,
                                      .fd = fd,
                                      .pool = serve_pool(x->m->s),
                                      .max_transfers = most_transfers(u, x->m->index),
                                      .silence_ms = (int)u->o.silence_ms,
                                      .lease_ms = (int)u->o.lease_ms,
                                      .on_arrived = roles_on_arrived,
                                      .on_dropped = roles_on_dropped,
                                      .on_fail = on_fail,
                                      .ctx = x};

    serve_kv_shape(x->m->s, &o.shape);
    return cluster_receiver_open(&x->receiver, &o);
}

void roles_end_set_link(struct roles_machine *m, const struct roles_link *l)
{
    const struct cluster_limiter limiter = {.bytes_per_s = l->gbps * 1e9 / 8,
                                            .latency_ns = (int64_t)(l->latency_ms * 1e6)};

    pthread_mutex_lock(&m->lock);
    for (struct roles_end *x = m->ends; x; x = x->next)
        if (x->sender)
            cluster_sender_link(x->sender, l->serial_below_tok, &limiter);
    pthread_mutex_unlock(&m->lock);
}

/* With a transport in place the engine computes in memory that is not mapped any more when the
 * sender is closed: it leaves all requests of this end first. */
static void leave_memory(struct roles_end *x)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    bool any = x->m->u->transport->in_place && x->sends;

    while (any && !atomic_load(&x->m->closing)) {
        any = false;
        pthread_mutex_lock(&x->m->lock);
        for (struct roles_entry *e = x->m->entries; e; e = e->next)
            if (e->end == x && e->submitted && !e->ended) {
                serve_cancel(x->m->s, e->engine_id);
                any = true;
            }
        pthread_mutex_unlock(&x->m->lock);
        serve_wake(x->m->s);
        if (any)
            nanosleep(&pause, NULL);
    }
}

static void close_end(struct roles_end *x)
{
    struct roles_machine *m = x->m;
    struct cluster_sender *sender;
    struct cluster_receiver *receiver;

    leave_memory(x);
    pthread_mutex_lock(&m->lock);
    pthread_rwlock_wrlock(&m->end_lock);
    sender = x->sender;
    receiver = x->receiver;
    x->sender = NULL;
    x->receiver = NULL;
    if (m->from[x->peer] == x)
        m->from[x->peer] = NULL;
    pthread_rwlock_unlock(&m->end_lock);
    pthread_mutex_unlock(&m->lock);
    cluster_sender_close(&sender); /* says that all transfers have ended */
    if (!receiver)
        return;
    cluster_receiver_close(&receiver);
    roles_entry_release_all(x);
}

void roles_end_close_all(struct roles_machine *m, int peer)
{
    for (struct roles_end *x = m->ends; x; x = x->next)
        if (x->peer == peer)
            close_end(x);
}

/* Those before `x`. */
static void close_older(struct roles_end *x)
{
    for (struct roles_end *old = x->next; old; old = old->next)
        if (old->peer == x->peer && old->sends == x->sends)
            close_end(old);
}

void roles_end_open(struct roles_machine *m, int peer, bool sends, int64_t number, int fd)
{
    struct roles_message head = {
        .type = ROLES_BROKEN, .id = number, .peer = peer, .sends = sends};
    struct roles_end *x = mem_new(MEM_OTHER, 1, sizeof(*x));
    int rc = ERR_NOMEM;

    if (x) {
        *x = (struct roles_end){
            .m = m, .peer = peer, .sends = sends, .number = number, .next = m->ends};
        m->ends = x;
        if (sends)
            close_older(x); /* the peer waits for that, in hello */
        rc = sends ? open_sender(x, fd) : open_receiver(x, fd);
    }
    if (rc != OK)
        close(fd);
    pthread_mutex_lock(&m->lock);
    if (rc == OK) {
        head.type = ROLES_CONNECTED;
        if (!sends)
            m->from[peer] = x;
    }
    roles_tell_why(m, &head, rc == OK ? "" : err_msg());
    pthread_mutex_unlock(&m->lock);
    if (rc == OK && !sends)
        close_older(x);
}
