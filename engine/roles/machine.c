/* A machine's process: its engine, which its first thread steps, the ends of its transports, and a
 * thread that reads what the front wants.
 * Memory that was offered may be written to by the peer until that has closed its end: either its
 * process has ended, as the front says, or it says hello on the connection's successor. Only then
 * is it given back. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/transport.h"
#include "cluster/wire.h"
#include "roles/control.h"
#include "serve/handoff.h"

#define IDLE_NS UINT64_C(200000000)
#define STAT_NS UINT64_C(100000000)
/* A connection fails where the other machine is silent for so long. */
#define SILENCE_MS 5000
/* Memory for which no keys and values came for so long is taken back, and the request is computed
 * again. It is longer than prompts wait for their turn. */
#define LEASE_MS    300000
#define PROMPT_MAX  ((int64_t)1 << 24)
#define NO_TRANSFER 0

struct machine;

/* One end of a transport to or from another machine. There is a successor where it fails, and it
 * stays until the machine ends: requests point to it. */
struct end {
    struct machine *m;
    int peer;
    bool sends;
    int64_t number;   /* of the connection */
    bool told_broken; /* the front knows that it has failed */
    /* NULL: it is closed. Changed under both locks of the machine, so that either is enough. */
    struct cluster_sender *sender;
    struct cluster_receiver *receiver;
    struct end *next;
};

/* A request, as long as the engine or a transport has it, or the front is still to send it. */
struct entry {
    struct machine *m;
    int64_t id, engine_id;
    struct end *end;   /* of its transfer; NULL: it never had one */
    uint64_t transfer; /* NO_TRANSFER: not yet, or no more */
    uint64_t offer;    /* of a prompt machine: its number, once there is one */
    struct roles_request r;
    int32_t *ids;
    struct kv_slot slot;              /* with a transport in place: the offered memory */
    bool requested, submitted, ended; /* by the front, to the engine, by the engine */
    bool canceled;                    /* by the front */
    bool reported;                    /* the front knows of its end */
    int64_t n_told;                   /* tokens that the front has of it */
    char why[160];                    /* its transfer failed */
    struct entry *next;
};

struct machine {
    const struct roles_setup *u;
    int index;
    int fd;
    struct serve *s;
    /* From each peer; NULL: there is none now. */
    struct end *from[ROLES_MACHINES_ALL];
    struct end *ends; /* all */
    pthread_t reader;
    bool reading;
    atomic_bool closing;
    int rc; /* of the reader: ERR_IO: the front has gone */
    char why[ROLES_TEXT_BYTES];
    pthread_mutex_t lock;      /* of entries and ends, and of writing to fd */
    pthread_rwlock_t end_lock; /* of senders and receivers, for the threads of a step */
    struct entry *entries;
    int64_t last_id;        /* of the requests that came: they ascend */
    struct roles_stat stat; /* as the front knows it */
    uint64_t stat_ns;
};

/* ---- messages to the front; with the lock held ---- */

static void tell(struct machine *m, struct roles_message *head, const void *more)
{
    roles_message_seal(head, more);
    if (cluster_wire_write(m->fd, head, sizeof(*head)) != OK ||
        cluster_wire_write(m->fd, more, head->n_more) != OK)
        err_clear(); /* the reader says that the front has gone */
}

/* Send a message with a text. */
static void tell_why(struct machine *m, struct roles_message *head, const char *why)
{
    char text[ROLES_TEXT_BYTES];

    head->n_more = (uint32_t)snprintf(text, sizeof(text), "%.500s", why);
    tell(m, head, text);
}

/* It has failed, err_msg() says why: the front opens another one, or names the machine that has
 * gone. With the lock held. */
static void tell_broken(struct end *x)
{
    struct roles_message head = {
        .type = ROLES_BROKEN, .id = x->number, .peer = x->peer, .sends = x->sends};

    if (!x->told_broken)
        tell_why(x->m, &head, err_msg());
    x->told_broken = true;
}

static void on_fail(void *ctx)
{
    struct end *x = ctx;

    pthread_mutex_lock(&x->m->lock);
    tell_broken(x);
    pthread_mutex_unlock(&x->m->lock);
}

/* ---- entries; with the lock held ---- */

static struct entry *find_entry(struct machine *m, int64_t id)
{
    struct entry *e = m->entries;

    while (e && e->id != id)
        e = e->next;
    return e;
}

static struct entry *find_transfer(const struct end *x, uint64_t transfer)
{
    struct entry *e = x->m->entries;

    while (e && (e->transfer != transfer || e->end != x))
        e = e->next;
    return e;
}

static struct entry *find_or_add(struct machine *m, int64_t id)
{
    struct entry *e = find_entry(m, id);

    if (e)
        return e;
    e = mem_new(MEM_OTHER, 1, sizeof(*e));
    if (!e)
        return NULL;
    *e = (struct entry){.m = m, .id = id, .next = m->entries};
    m->entries = e;
    return e;
}

static void free_entry(struct entry *e)
{
    mem_free((void *)e->slot.blocks);
    mem_free(e->ids);
    mem_free(e);
}

/* When nobody has it any more. */
static void drop_if_over(struct entry *e)
{
    struct entry **at = &e->m->entries;

    if (e->transfer != NO_TRANSFER || (e->submitted && !e->ended) || !e->requested)
        return;
    if (!e->submitted && !e->reported)
        return; /* it waits for an offer */
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    free_entry(e);
}

/* This machine cannot go on with it; the front tries it again. */
static void tell_retry(struct entry *e, const char *why)
{
    struct roles_message head = {.type = ROLES_RETRY, .id = e->id};

    if (!e->reported)
        tell_why(e->m, &head, why);
    e->reported = true;
}

static void tell_token(struct entry *e, int32_t token, enum serve_finish finish)
{
    struct roles_message head = {
        .type = ROLES_TOKEN, .id = e->id, .token = token, .finish = (int32_t)finish};

    if (e->reported)
        return;
    head.at = e->r.n_drawn + (e->r.side == SERVE_TOKEN_SIDE) + e->n_told++;
    e->reported = finish != SERVE_RUNNING;
    tell_why(e->m, &head, finish == SERVE_ERROR ? err_msg() : "");
}

/* ---- the engine of a token machine, or of a request that one machine has alone ---- */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct entry *e = ctx;
    struct machine *m = e->m;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
    if (finish == SERVE_CANCELED && !e->canceled)
        tell_retry(e, e->why);
    else
        tell_token(e, id, finish);
    if (finish != SERVE_RUNNING) {
        e->ended = true;
        drop_if_over(e);
    }
    pthread_mutex_unlock(&m->lock);
}

static void on_memory(void *ctx, int64_t request, const struct kv_slot *slot)
{
    struct entry *e = ctx;
    struct machine *m = e->m;
    int rc;

    pthread_mutex_lock(&m->lock);
    e->end = m->from[e->r.peer];
    rc = e->end && e->end->receiver
             ? cluster_receiver_expect(e->end->receiver, &e->transfer, slot,
                                       e->r.n_prompt, e->id)
             : err_set(ERR_STATE, "there is no connection with its prompt machine");
    if (rc != OK) {
        if (e->end && (rc == ERR_STATE || rc == ERR_IO))
            tell_broken(e->end); /* else the request would come over it again */
        e->transfer = NO_TRANSFER;
        tell_retry(e, err_msg());
        rc = serve_release(m->s, request);
    }
    pthread_mutex_unlock(&m->lock);
    if (rc != OK)
        err_clear();
}

/* ---- the receiving end ---- */

static void release(struct entry *e, const char *why)
{
    e->transfer = NO_TRANSFER;
    snprintf(e->why, sizeof(e->why), "%s", why);
    if (serve_release(e->m->s, e->engine_id) != OK)
        err_clear(); /* it has ended */
    drop_if_over(e);
}

static void on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    struct roles_message head = {.type = ROLES_ARRIVED, .token = first_id};
    struct end *x = ctx;
    struct entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e) {
        head.id = e->id;
        if (!e->reported)
            tell(x->m, &head, NULL);
        if (serve_arrived(x->m->s, e->engine_id, first_id) != OK) {
            release(e, err_msg());
        } else {
            e->transfer = NO_TRANSFER;
            drop_if_over(e);
        }
    }
    pthread_mutex_unlock(&x->m->lock);
}

static void on_dropped(void *ctx, uint64_t transfer, int rc)
{
    struct end *x = ctx;
    struct entry *e;

    (void)rc;
    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e)
        release(e, err_msg());
    pthread_mutex_unlock(&x->m->lock);
}

/* Its transfers will not go on, and nobody writes to their memory any more. */
static void release_all(struct end *x)
{
    pthread_mutex_lock(&x->m->lock);
    for (struct entry *e = x->m->entries, *next; e; e = next) {
        next = e->next;
        if (e->end == x && e->transfer != NO_TRANSFER)
            release(e, "the connection with its prompt machine failed");
    }
    pthread_mutex_unlock(&x->m->lock);
}

/* ---- the engine of a prompt machine ---- */

static void on_layer(void *ctx, int64_t request, const struct kv_slot *slot, int layer,
                     int64_t lo, int64_t hi)
{
    const struct entry *e = ctx;

    (void)request, (void)lo;
    pthread_rwlock_rdlock(&e->m->end_lock);
    if (e->end->sender)
        cluster_sender_stored(e->end->sender, e->offer, slot, layer, hi);
    pthread_rwlock_unlock(&e->m->end_lock);
}

static void on_first(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct entry *e = ctx;
    struct machine *m = e->m;
    struct cluster_sender *sender;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
    e->ended = true;
    sender = e->end->sender; /* NULL: it is closed, or the process ends */
    /* Where its transfer failed, the token machine reports it, or the connection has failed. */
    if (finish != SERVE_CANCELED || e->canceled)
        tell_token(e, id, finish == SERVE_LENGTH ? SERVE_RUNNING : finish);
    e->reported = true; /* the token machine says the rest */
    if (sender && finish == SERVE_LENGTH)
        cluster_sender_computed(sender, e->offer, id);
    else if (sender)
        cluster_sender_drop(sender, e->offer);
    drop_if_over(e);
    pthread_mutex_unlock(&m->lock);
}

/* Submit the request to the engine. An error is reported to the front. */
static void submit(struct entry *e)
{
    bool is_prompt = e->r.side == SERVE_PROMPT_SIDE;
    const struct serve_handoff h = {.side = e->r.side,
                                    .on_layer = is_prompt ? on_layer : NULL,
                                    .on_memory = on_memory,
                                    .slot = e->slot.base ? &e->slot : NULL,
                                    .ctx = e};
    struct serve_request r = {.prompt = e->ids,
                              .n_prompt = e->r.n_prompt,
                              .max_new = is_prompt ? 1 : e->r.max_new,
                              .n_drawn = e->r.n_drawn,
                              .ignore_eos = e->r.ignore_eos,
                              .sampling = e->r.sampling,
                              .on_token = is_prompt ? on_first : on_token,
                              .ctx = e,
                              .handoff = e->r.side ? &h : NULL};

    e->submitted = true;
    if (serve_submit(e->m->s, &r, &e->engine_id) == OK)
        return;
    e->ended = true;
    tell_token(e, -1, SERVE_ERROR);
    if (is_prompt && e->transfer != NO_TRANSFER && e->end->sender)
        cluster_sender_drop(e->end->sender, e->transfer);
}

/* ---- the sending end ---- */

/* The receiver's: what is computed there is dropped when the engine has left it. */
static void on_forget(void *ctx, uint64_t transfer)
{
    struct end *x = ctx;
    const struct entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e && e->submitted)
        serve_cancel(x->m->s, e->engine_id);
    if ((!e || !e->submitted || e->ended) && x->sender)
        cluster_sender_drop(x->sender, transfer);
    pthread_mutex_unlock(&x->m->lock);
}

static int find_slot(struct end *x, struct entry *e, uint64_t transfer)
{
    mem_free((void *)e->slot.blocks);
    e->slot = (struct kv_slot){0};
    if (!x->m->u->transport->in_place)
        return OK;
    return x->sender ? cluster_sender_slot(x->sender, transfer, &e->slot) : ERR_STATE;
}

static void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct end *x = ctx;
    struct entry *e;

    (void)n_tok;
    pthread_mutex_lock(&x->m->lock);
    /* A request that came before and is not there was canceled. */
    e = tag > x->m->last_id ? find_or_add(x->m, tag) : find_entry(x->m, tag);
    if (e && find_slot(x, e, transfer) == OK) {
        e->transfer = e->offer = transfer;
        e->end = x;
        e->r.side = SERVE_PROMPT_SIDE;
        if (e->requested)
            submit(e);
        drop_if_over(e);
    } else if (x->sender) { /* else it is being closed, and ends all */
        cluster_sender_drop(x->sender, transfer);
    }
    pthread_mutex_unlock(&x->m->lock);
}

static void on_sent(void *ctx, uint64_t transfer, int rc)
{
    struct end *x = ctx;
    struct entry *e;

    pthread_mutex_lock(&x->m->lock);
    e = find_transfer(x, transfer);
    if (e) {
        e->transfer = NO_TRANSFER;
        if (rc != OK && e->submitted)
            serve_cancel(x->m->s, e->engine_id);
        if (e->submitted && serve_release(x->m->s, e->engine_id) != OK)
            err_clear(); /* it never had memory */
        e->reported |= !e->submitted;
        drop_if_over(e);
    }
    pthread_mutex_unlock(&x->m->lock);
}

/* ---- the ends of transports; on the thread that reads ---- */

/* Both ends have as many transfers as the one that offers may have. */
static int most_transfers(const struct roles_setup *u, int receiver)
{
    return (int)u->spec.engine[u->home[receiver]].max_seqs;
}

static int open_sender(struct end *x, int fd)
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
        .silence_ms = SILENCE_MS,
        .on_offer = on_offer,
        .on_end = on_sent,
        .on_forget = on_forget,
        .on_fail = on_fail,
        .ctx = x};

    serve_kv_shape(x->m->s, &o.shape);
    return cluster_sender_open(&x->sender, &o);
}

static int open_receiver(struct end *x, int fd)
{
    const struct roles_setup *u = x->m->u;
    struct cluster_receiver_opts o = {.transport = u->transport,
                                      .fd = fd,
                                      .pool = serve_pool(x->m->s),
                                      .max_transfers = most_transfers(u, x->m->index),
                                      .silence_ms = SILENCE_MS,
                                      .lease_ms = LEASE_MS,
                                      .on_arrived = on_arrived,
                                      .on_dropped = on_dropped,
                                      .on_fail = on_fail,
                                      .ctx = x};

    serve_kv_shape(x->m->s, &o.shape);
    return cluster_receiver_open(&x->receiver, &o);
}

/* With a transport in place the engine computes in memory that is not mapped any more when the
 * sender is closed: it leaves all requests of this end first. */
static void leave_memory(struct end *x)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    bool any = x->m->u->transport->in_place && x->sends;

    while (any && !atomic_load(&x->m->closing)) {
        any = false;
        pthread_mutex_lock(&x->m->lock);
        for (struct entry *e = x->m->entries; e; e = e->next)
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

static void close_end(struct end *x)
{
    struct machine *m = x->m;
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
    release_all(x);
}

/* The process of the peer has ended. */
static void close_ends(struct machine *m, int peer)
{
    for (struct end *x = m->ends; x; x = x->next)
        if (x->peer == peer)
            close_end(x);
}

/* Close the ends that `x` replaces. */
static void close_older(struct end *x)
{
    for (struct end *old = x->next; old; old = old->next)
        if (old->peer == x->peer && old->sends == x->sends)
            close_end(old);
}

/* Open this end of connection `number` over `fd`, which the function takes over, in place of an
 * older one. The front learns whether that succeeded. */
static void open_end(struct machine *m, int peer, bool sends, int64_t number, int fd)
{
    struct roles_message head = {
        .type = ROLES_BROKEN, .id = number, .peer = peer, .sends = sends};
    struct end *x = mem_new(MEM_OTHER, 1, sizeof(*x));
    int rc = ERR_NOMEM;

    if (x) {
        *x = (struct end){
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
    tell_why(m, &head, rc == OK ? "" : err_msg());
    pthread_mutex_unlock(&m->lock);
    if (rc == OK && !sends)
        close_older(x);
}

/* ---- what the front wants ---- */

static int read_request(const struct machine *m, const struct roles_message *head,
                        const void *more, struct roles_request *r, int32_t **ids)
{
    size_t n = head->n_more - sizeof(*r);

    memcpy(r, more, sizeof(*r));
    if (r->n_prompt < 1 || r->n_prompt > PROMPT_MAX ||
        n != (size_t)r->n_prompt * sizeof(**ids) || r->max_new < 1 || r->n_drawn < 0 ||
        r->n_drawn > r->n_prompt || r->side < 0 || r->side > SERVE_TOKEN_SIDE ||
        r->peer >= m->u->n || (r->side && r->peer < 0) || head->id <= m->last_id)
        return err_set(ERR_FORMAT, "request %lld of %lld tokens in %u bytes",
                       (long long)head->id, (long long)r->n_prompt, head->n_more);
    *ids = mem_new(MEM_OTHER, (size_t)r->n_prompt, sizeof(**ids));
    if (!*ids)
        return ERR_NOMEM;
    memcpy(*ids, (const char *)more + sizeof(*r), n);
    return OK;
}

static int on_request(struct machine *m, const struct roles_message *head,
                      const void *more)
{
    struct roles_request r;
    struct entry *e;
    int32_t *ids = NULL;

    TRY(read_request(m, head, more, &r, &ids));
    pthread_mutex_lock(&m->lock);
    e = find_or_add(m, head->id);
    if (e) {
        e->r = r;
        e->ids = ids;
        e->requested = true;
        m->last_id = head->id;
        if (r.side != SERVE_PROMPT_SIDE || e->transfer != NO_TRANSFER)
            submit(e);
        drop_if_over(e);
    } else {
        mem_free(ids);
    }
    pthread_mutex_unlock(&m->lock);
    return e ? OK : ERR_NOMEM;
}

static void on_cancel(struct machine *m, int64_t id)
{
    struct entry *e;

    pthread_mutex_lock(&m->lock);
    e = find_entry(m, id);
    if (e)
        e->canceled = true;
    if (e && e->submitted) {
        serve_cancel(m->s, e->engine_id);
        if (e->transfer != NO_TRANSFER && e->end->receiver)
            cluster_receiver_drop(e->end->receiver, e->transfer);
    } else if (e) {
        e->reported = true; /* no offer will come, or the token machine drops it */
        drop_if_over(e);
    }
    pthread_mutex_unlock(&m->lock);
}

static int on_connect(struct machine *m, const struct roles_message *head)
{
    const struct roles_setup *u = m->u;
    int from = head->sends ? m->index : head->peer;
    int to = head->sends ? head->peer : m->index;
    int fd = -1;

    if (!roles_is_linked(u, from, to))
        return err_set(ERR_FORMAT, "a connection with machine %d", head->peer);
    for (const struct end *x = m->ends; x && u->is_joined; x = x->next)
        if (x->peer == head->peer) /* it has one socket for each peer */
            return err_set(ERR_FORMAT, "two connections with machine %d", head->peer);
    if (u->is_joined && head->sends)
        fd = u->link[m->index][head->peer][0];
    else if (u->is_joined)
        fd = u->link[head->peer][m->index][1];
    else
        TRY(cluster_wire_read_fd(m->fd, &fd));
    open_end(m, head->peer, head->sends, head->id, fd);
    return OK;
}

/* All ends that send, from now on. */
static int on_link(struct machine *m, const void *more)
{
    struct cluster_limiter limiter;
    struct roles_link l;

    memcpy(&l, more, sizeof(l));
    if (!(l.gbps >= 0 && l.gbps <= 1e6 && l.latency_ms >= 0 && l.latency_ms <= 1e6))
        return err_set(ERR_FORMAT, "a link of %g Gb/s and %g ms", l.gbps, l.latency_ms);
    limiter = (struct cluster_limiter){.bytes_per_s = l.gbps * 1e9 / 8,
                                       .latency_ns = (int64_t)(l.latency_ms * 1e6)};
    pthread_mutex_lock(&m->lock);
    for (struct end *x = m->ends; x; x = x->next)
        if (x->sender)
            cluster_sender_link(x->sender, l.serial_below_tok, &limiter);
    pthread_mutex_unlock(&m->lock);
    return OK;
}

static int take(struct machine *m, const struct roles_message *head, const void *more)
{
    size_t n_more = head->type == ROLES_LINK ? sizeof(struct roles_link) : 0;

    TRY(roles_message_check_more(head, more));
    if (head->peer < 0 || head->peer >= m->u->n || head->sends < 0 || head->sends > 1 ||
        (head->type == ROLES_REQUEST ? head->n_more < sizeof(struct roles_request)
                                     : head->n_more != n_more))
        return err_set(ERR_FORMAT, "a message of type %u, machine %d and %u bytes",
                       head->type, head->peer, head->n_more);
    switch (head->type) {
    case ROLES_REQUEST:
        return on_request(m, head, more);
    case ROLES_CANCEL:
        on_cancel(m, head->id);
        return OK;
    case ROLES_CONNECT:
        return on_connect(m, head);
    case ROLES_LINK:
        return on_link(m, more);
    case ROLES_DISCONNECT:
        close_ends(m, head->peer);
        return OK;
    default:
        return err_set(ERR_FORMAT, "a message of type %u", head->type);
    }
}

static int read_one(struct machine *m)
{
    struct roles_message head;
    void *more = NULL;
    int rc = OK;

    TRY(cluster_wire_read(m->fd, &head, sizeof(head)));
    TRY(roles_message_check(&head, sizeof(struct roles_request) + PROMPT_MAX * 4));
    if (head.n_more > 0)
        more = mem_new(MEM_OTHER, 1, head.n_more);
    if (head.n_more > 0 && !more)
        return ERR_NOMEM;
    if (head.n_more > 0)
        rc = cluster_wire_read(m->fd, more, head.n_more);
    if (rc == OK)
        rc = take(m, &head, more);
    mem_free(more);
    return rc;
}

static void *read_all(void *arg)
{
    struct machine *m = arg;

    while ((m->rc = read_one(m)) == OK)
        ;
    snprintf(m->why, sizeof(m->why), "the front broke the protocol: %.400s", err_msg());
    atomic_store(&m->closing, true);
    serve_wake(m->s);
    return NULL;
}

/* ---- the process ---- */

/* Files and sockets of the process that started this one do not belong to it. */
static void close_others(int fd)
{
    if (fd > 3)
        close_range(3, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
}

/* Report what has been computed, ten times a second and when there is nothing to do. */
static void tell_stat(struct machine *m, bool busy)
{
    struct roles_message head = {.type = ROLES_STAT, .n_more = sizeof(m->stat)};
    uint64_t now = clock_ns();
    struct roles_stat st;

    if (busy && now - m->stat_ns < STAT_NS)
        return;
    memset(&st, 0, sizeof(st));
    serve_kv_stat(m->s, &st.kv);
    for (int i = 0; i < SERVE_N_PHASES; i++)
        st.totals[i] = *serve_totals_of(m->s, i);
    m->stat_ns = now;
    pthread_mutex_lock(&m->lock);
    st.end_id = m->last_id + 1;
    for (const struct entry *e = m->entries; e; e = e->next)
        st.n_open += e->requested && !e->reported;
    if (memcmp(&st, &m->stat, sizeof(st)) != 0) {
        m->stat = st;
        tell(m, &head, &st);
    }
    pthread_mutex_unlock(&m->lock);
}

static int work(struct machine *m)
{
    struct roles_message ready = {.type = ROLES_READY, .id = m->s->max_tok};
    bool busy;

    tell(m, &ready, NULL);
    TRY(thread_start(&m->reader, 0, read_all, m, "machine"));
    m->reading = true;
    while (!atomic_load(&m->closing)) {
        TRY(serve_step(m->s, &busy));
        tell_stat(m, busy);
        if (!busy)
            serve_wait(m->s, IDLE_NS);
    }
    return m->rc == OK || m->rc == ERR_IO ? OK : err_set(m->rc, "%s", m->why);
}

static void close_machine(struct machine *m)
{
    if (m->reading) {
        shutdown(m->fd, SHUT_RDWR);
        pthread_join(m->reader, NULL);
    }
    for (int i = 0; i < m->u->n; i++)
        close_ends(m, i);
    serve_close(&m->s);
    while (m->entries) {
        struct entry *e = m->entries;

        m->entries = e->next;
        free_entry(e);
    }
    while (m->ends) {
        struct end *x = m->ends;

        m->ends = x->next;
        mem_free(x);
    }
    pthread_rwlock_destroy(&m->end_lock);
    pthread_mutex_destroy(&m->lock);
}

int roles_machine(const struct roles_setup *u, int machine, int fd)
{
    struct machine m = {.u = u, .index = machine, .fd = fd, .last_id = -1};
    char why[ROLES_TEXT_BYTES] = "";
    int rc;

    if (!u->is_joined)
        close_others(fd);
    pthread_rwlock_init(&m.end_lock, NULL);
    rc = thread_mutex_init(&m.lock);
    if (rc == OK)
        rc = serve_open_with(&m.s, &u->spec.engine[u->home[machine]],
                             &(struct serve_how){.kv_mapped = true, .pace = u->pace});
    if (rc == OK)
        rc = work(&m);
    if (rc != OK)
        snprintf(why, sizeof(why), "%s", err_msg());
    close_machine(&m);
    return rc == OK ? OK : err_set(rc, "%s", why);
}
