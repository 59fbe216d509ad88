/* The end that has computed prompts. Two threads: one reads offers, one puts pieces, in order of
 * transfers and then of layers. Only the second ends a transfer. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/wire.h"
#include "kv/slot_runs.h"

#define LAYOUT_BYTES_MAX (1 << 20) /* 256 k blocks */

struct outgoing {
    bool used, computed, dropped;
    bool offering; /* on_offer() has not returned */
    uint64_t transfer;
    int64_t n_tok;
    void *layout;               /* `to` points into it */
    struct kv_slot to;          /* in the borrowed pool */
    const struct kv_slot *from; /* NULL: nothing is stored yet */
    int32_t first_id;
    int64_t *stored, *sent; /* [n_layers] tokens */
    uint64_t *ready_ns;     /* [n_layers] when the latest of them were stored */
};

struct cluster_sender {
    struct cluster_sender_opts o;
    void *pool; /* borrowed; NULL: none */
    size_t pool_bytes;
    pthread_t reader, writer;
    bool reading, writing;
    struct cluster_line line;
    pthread_mutex_t wire; /* of who writes to fd */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing, failed;
    int rc; /* why it failed */
    char why[256];
    struct outgoing *out; /* [max_transfers] */
    int64_t *tokens;      /* what their arrays point into */
    uint64_t *times;
    struct cluster_sender_stat stat;
};

/* ---- under the lock ---- */

static struct outgoing *find(struct cluster_sender *s, uint64_t transfer)
{
    for (int i = 0; i < s->o.max_transfers; i++)
        if (s->out[i].used && s->out[i].transfer == transfer)
            return &s->out[i];
    return NULL;
}

static void fail(struct cluster_sender *s, int rc)
{
    if (s->failed || s->closing)
        return;
    s->failed = true;
    s->rc = rc;
    snprintf(s->why, sizeof(s->why), "%s", err_msg());
    shutdown(s->o.fd, SHUT_RDWR); /* nobody waits in it any more */
    pthread_cond_broadcast(&s->changed);
}

static bool may_send(const struct cluster_sender *s, const struct outgoing *o)
{
    if (o->computed || s->o.mode == CLUSTER_LAYER_WISE)
        return true;
    return s->o.mode == CLUSTER_AUTO && o->n_tok >= s->o.serial_below_tok;
}

/* Whether the transfer has something to do: a piece to put, or, with hi 0, its end. */
static bool has_work(const struct cluster_sender *s, const struct outgoing *o,
                     struct cluster_piece *p)
{
    bool all = o->computed;

    *p = (struct cluster_piece){.hi = 0};
    if (o->dropped)
        return true;
    for (int l = 0; l < s->o.shape.n_layers; l++) {
        if (o->sent[l] < o->stored[l] && may_send(s, o)) {
            *p = (struct cluster_piece){.layer = l, .lo = o->sent[l], .hi = o->stored[l]};
            return true;
        }
        all = all && o->sent[l] == o->n_tok;
    }
    return all;
}

/* The oldest transfer with something to do; NULL: none. */
static struct outgoing *next_work(const struct cluster_sender *s, struct cluster_piece *p)
{
    struct outgoing *best = NULL;
    struct cluster_piece piece;

    for (int i = 0; i < s->o.max_transfers; i++) {
        struct outgoing *o = &s->out[i];

        if (!o->used || o->offering || (best && best->transfer < o->transfer) ||
            !has_work(s, o, &piece))
            continue;
        best = o;
        *p = piece;
    }
    return best;
}

/* Wait until the emulated link has delivered, or the end is closed. */
static void wait_until(struct cluster_sender *s, uint64_t due_ns)
{
    const struct timespec t = {.tv_sec = (time_t)(due_ns / 1000000000),
                               .tv_nsec = (long)(due_ns % 1000000000)};

    while (!s->closing && !s->failed && clock_ns() < due_ns)
        (void)pthread_cond_timedwait(&s->changed, &s->lock, &t);
}

/* ---- the thread that puts pieces ---- */

static size_t piece_bytes(const struct cluster_sender *s, const struct cluster_piece *p)
{
    return (size_t)(p->hi - p->lo) * 2 * (size_t)s->o.shape.n_kv_heads *
           s->o.shape.vec_bytes;
}

static int put(struct cluster_sender *s, struct outgoing *o,
               const struct cluster_piece *p)
{
    const struct cluster_transport *t = s->o.transport;
    struct cluster_message m = {.type = CLUSTER_PIECE,
                                .transfer = o->transfer,
                                .layer = p->layer,
                                .lo = p->lo,
                                .hi = p->hi,
                                .has_hash = !s->o.no_checksums};
    uint64_t t0 = clock_ns(), t1, due_ns;
    int rc = OK;

    if (m.has_hash)
        m.hash = kv_slot_hash(o->from, &s->o.shape, p->layer, p->lo, p->hi);
    t1 = clock_ns();
    if (!t->get)
        rc = t->put(s->o.fd, &s->o.shape, s->pool ? &o->to : NULL, o->from, p);
    pthread_mutex_lock(&s->lock);
    due_ns =
        cluster_limiter_due_ns(&s->o.limiter, o->ready_ns[p->layer], piece_bytes(s, p));
    wait_until(s, due_ns);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->wire);
    if (rc == OK)
        rc = cluster_message_write(s->o.fd, &m, NULL);
    if (rc == OK && t->get)
        rc = t->put(s->o.fd, &s->o.shape, s->pool ? &o->to : NULL, o->from, p);
    pthread_mutex_unlock(&s->wire);
    pthread_mutex_lock(&s->lock);
    s->stat.hash_ns += (int64_t)(t1 - t0);
    s->stat.put_ns += (int64_t)(clock_ns() - t1);
    s->stat.bytes += (int64_t)piece_bytes(s, p);
    s->stat.n_pieces++;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Its entry is free before the other end knows, which may then offer another. */
static struct outgoing take(struct cluster_sender *s, struct outgoing *o)
{
    struct outgoing copy;

    pthread_mutex_lock(&s->lock);
    copy = *o;
    o->used = false;
    pthread_mutex_unlock(&s->lock);
    mem_free(copy.layout);
    return copy;
}

static int end(struct cluster_sender *s, struct outgoing *entry)
{
    const struct outgoing o = take(s, entry);
    struct cluster_message m = {.type = o.dropped ? CLUSTER_DROPPED : CLUSTER_END,
                                .transfer = o.transfer,
                                .first_id = o.dropped ? -1 : o.first_id};
    int rc;

    pthread_mutex_lock(&s->wire);
    rc = cluster_message_write(s->o.fd, &m, NULL);
    pthread_mutex_unlock(&s->wire);
    if (rc == OK && !o.dropped) {
        pthread_mutex_lock(&s->lock);
        s->stat.n_transfers++;
        pthread_mutex_unlock(&s->lock);
    } else if (rc == OK) {
        s->o.on_end(s->o.ctx, o.transfer,
                    err_set(ERR_STATE, "transfer %llu was dropped",
                            (unsigned long long)o.transfer));
        return OK;
    }
    s->o.on_end(s->o.ctx, o.transfer, rc);
    return rc;
}

/* Known once a call of on_offer() has returned. */
static bool is_used(struct cluster_sender *s, const struct outgoing *o)
{
    bool used;

    pthread_mutex_lock(&s->lock);
    while (o->used && o->offering)
        pthread_cond_wait(&s->changed, &s->lock);
    used = o->used;
    pthread_mutex_unlock(&s->lock);
    return used;
}

static void end_all(struct cluster_sender *s)
{
    if (s->failed) {
        err_set(s->rc, "%s", s->why);
        s->o.on_fail(s->o.ctx);
    }
    for (int i = 0; i < s->o.max_transfers; i++)
        if (is_used(s, &s->out[i])) {
            uint64_t transfer = take(s, &s->out[i]).transfer;

            s->o.on_end(s->o.ctx, transfer,
                        s->failed ? err_set(s->rc, "%s", s->why)
                                  : err_set(ERR_STATE, "the transport is closed"));
        }
}

static void *write_all(void *arg)
{
    struct cluster_sender *s = arg;
    struct cluster_piece p;
    struct outgoing *o, now;

    pthread_mutex_lock(&s->lock);
    while (!s->closing && !s->failed) {
        int rc;

        o = next_work(s, &p);
        if (!o) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        now = *o;
        pthread_mutex_unlock(&s->lock);
        rc = p.hi > 0 ? put(s, &now, &p) : end(s, o);
        pthread_mutex_lock(&s->lock);
        if (rc != OK)
            fail(s, rc);
        else if (p.hi > 0)
            o->sent[p.layer] = p.hi;
    }
    pthread_mutex_unlock(&s->lock);
    end_all(s);
    return NULL;
}

/* ---- the thread that reads offers ---- */

static int add(struct cluster_sender *s, const struct cluster_message *m, void *layout,
               const struct kv_slot *to, struct outgoing **out)
{
    struct outgoing *o = NULL;

    if (s->closing || s->failed) /* nobody would end it */
        return err_set(ERR_STATE, "the transport has ended");
    for (int i = 0; i < s->o.max_transfers; i++)
        o = s->out[i].used ? o : &s->out[i];
    if (!o || find(s, m->transfer))
        return err_set(ERR_FORMAT, "transfer %llu: offered twice, or one of more than %d",
                       (unsigned long long)m->transfer, s->o.max_transfers);
    o->used = o->offering = true;
    o->computed = o->dropped = false;
    o->transfer = m->transfer;
    o->n_tok = m->hi;
    o->layout = layout;
    o->to = *to;
    o->from = NULL;
    for (int l = 0; l < s->o.shape.n_layers; l++)
        o->stored[l] = o->sent[l] = 0;
    *out = o;
    return OK;
}

static int on_offer(struct cluster_sender *s, const struct cluster_message *m)
{
    void *layout = m->n_more <= LAYOUT_BYTES_MAX ? mem_new(MEM_KV, 1, m->n_more) : NULL;
    struct outgoing *o = NULL;
    struct kv_slot to;
    int rc;

    if (!layout)
        return err_set(ERR_FORMAT, "an offer with a layout of %u bytes", m->n_more);
    rc = cluster_message_read_more(s->o.fd, m, layout);
    if (rc == OK)
        rc = cluster_layout_unpack(&to, layout, m->n_more, m->hi, &s->o.shape, s->pool,
                                   s->pool_bytes);
    if (rc == OK) {
        pthread_mutex_lock(&s->lock);
        rc = add(s, m, layout, &to, &o);
        pthread_mutex_unlock(&s->lock);
    }
    if (rc != OK) {
        mem_free(layout);
        return rc;
    }
    s->o.on_offer(s->o.ctx, m->transfer, m->hi, m->tag);
    pthread_mutex_lock(&s->lock);
    o->offering = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return OK;
}

static int read_one(struct cluster_sender *s)
{
    struct cluster_message m;
    bool none;

    TRY(cluster_line_read(&s->line, &m, &none));
    if (none)
        return OK;
    if (m.type == CLUSTER_OFFER)
        return on_offer(s, &m);
    if (m.type != CLUSTER_FORGET)
        return err_set(ERR_FORMAT, "the end that receives sent a message of type %u",
                       m.type);
    if (s->o.transport->in_place)
        s->o.on_forget(s->o.ctx, m.transfer);
    else
        cluster_sender_drop(s, m.transfer);
    return OK;
}

static void *read_all(void *arg)
{
    struct cluster_sender *s = arg;
    int rc = OK;

    while (rc == OK)
        rc = read_one(s);
    pthread_mutex_lock(&s->lock);
    fail(s, rc);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the functions ---- */

int cluster_sender_slot(struct cluster_sender *s, uint64_t transfer, struct kv_slot *out)
{
    const struct outgoing *o;
    int32_t *blocks = NULL;
    size_t n = 0;
    int rc = OK;

    pthread_mutex_lock(&s->lock);
    o = find(s, transfer);
    if (o && o->to.blocks) {
        n = (size_t)((o->n_tok + o->to.block_tok - 1) / o->to.block_tok);
        blocks = mem_new(MEM_KV, n, sizeof(*blocks));
    }
    if (!o) {
        rc = err_set(ERR_NOTFOUND, "transfer %llu has ended",
                     (unsigned long long)transfer);
    } else if (n > 0 && !blocks) {
        rc = ERR_NOMEM;
    } else {
        *out = o->to;
        out->blocks = blocks;
        if (n > 0)
            memcpy(blocks, o->to.blocks, n * sizeof(*blocks));
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void cluster_sender_stored(struct cluster_sender *s, uint64_t transfer,
                           const struct kv_slot *slot, int layer, int64_t hi)
{
    struct outgoing *o;

    pthread_mutex_lock(&s->lock);
    o = find(s, transfer);
    if (o) {
        o->from = slot;
        o->stored[layer] = hi;
        o->ready_ns[layer] = clock_ns();
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Else it would never end. */
static bool is_stored(const struct cluster_sender *s, const struct outgoing *o)
{
    for (int l = 0; l < s->o.shape.n_layers; l++)
        if (o->stored[l] < o->n_tok) {
            log_error("layer %d: %lld of %lld tokens are stored, and the prompt is "
                      "computed: it is dropped",
                      l, (long long)o->stored[l], (long long)o->n_tok);
            return false;
        }
    return true;
}

void cluster_sender_computed(struct cluster_sender *s, uint64_t transfer,
                             int32_t first_id)
{
    struct outgoing *o;

    pthread_mutex_lock(&s->lock);
    o = find(s, transfer);
    if (o) {
        for (int l = 0; l < s->o.shape.n_layers && !may_send(s, o); l++)
            o->ready_ns[l] = clock_ns();
        o->computed = true;
        o->dropped |= !is_stored(s, o);
        o->first_id = first_id;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

void cluster_sender_drop(struct cluster_sender *s, uint64_t transfer)
{
    struct outgoing *o;

    pthread_mutex_lock(&s->lock);
    o = find(s, transfer);
    if (o) {
        o->dropped = true;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

void cluster_sender_link(struct cluster_sender *s, int64_t serial_below_tok,
                         const struct cluster_limiter *l)
{
    pthread_mutex_lock(&s->lock);
    s->o.mode = CLUSTER_AUTO;
    s->o.serial_below_tok = serial_below_tok;
    s->o.limiter.bytes_per_s = l->bytes_per_s;
    s->o.limiter.latency_ns = l->latency_ns;
    pthread_mutex_unlock(&s->lock);
}

void cluster_sender_stat(struct cluster_sender *s, struct cluster_sender_stat *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stat;
    pthread_mutex_unlock(&s->lock);
}

static int take_arrays(struct cluster_sender *s)
{
    size_t n = (size_t)s->o.max_transfers, layers = (size_t)s->o.shape.n_layers;

    s->out = mem_new(MEM_KV, n, sizeof(*s->out));
    s->tokens = mem_new(MEM_KV, 2 * n * layers, sizeof(*s->tokens));
    s->times = mem_new(MEM_KV, n * layers, sizeof(*s->times));
    if (!s->out || !s->tokens || !s->times)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        s->out[i].stored = s->tokens + 2 * i * layers;
        s->out[i].sent = s->out[i].stored + layers;
        s->out[i].ready_ns = s->times + i * layers;
    }
    return OK;
}

static int start(struct cluster_sender *s)
{
    TRY(thread_start(&s->reader, 0, read_all, s, "transport"));
    s->reading = true;
    TRY(thread_start(&s->writer, 0, write_all, s, "transport"));
    s->writing = true;
    return OK;
}

int cluster_sender_open(struct cluster_sender **out, const struct cluster_sender_opts *o)
{
    struct cluster_sender *s = mem_new(MEM_KV, 1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return ERR_NOMEM;
    s->o = *o;
    s->o.fd = -1; /* the caller's, should this fail */
    cluster_line_init(&s->line, o->fd, o->silence_ms, &s->wire);
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = thread_mutex_init(&s->wire);
    if (rc == OK)
        rc = thread_cond_init(&s->changed);
    if (rc == OK)
        rc = take_arrays(s);
    if (rc == OK)
        rc = cluster_hello(o->fd, o->transport->name, &o->shape);
    if (rc == OK && o->transport->borrow)
        rc = o->transport->borrow(&s->pool, &s->pool_bytes, o->fd);
    if (rc == OK) {
        s->o.fd = o->fd;
        *out = s; /* callbacks may come at once */
        rc = start(s);
    }
    if (rc == OK)
        return OK;
    *out = NULL;
    cluster_sender_close(&s);
    return rc;
}

void cluster_sender_close(struct cluster_sender **sp)
{
    struct cluster_sender *s = *sp;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->reading)
        shutdown(s->o.fd, SHUT_RDWR);
    if (s->writing)
        pthread_join(s->writer, NULL);
    if (s->reading)
        pthread_join(s->reader, NULL);
    if (s->writing)
        close(s->o.fd);
    if (s->pool)
        s->o.transport->give_back(s->pool, s->pool_bytes);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->wire);
    mem_free(s->out);
    mem_free(s->tokens);
    mem_free(s->times);
    mem_free(s);
    *sp = NULL;
}
