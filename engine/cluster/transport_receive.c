/* The end that goes on with requests. One thread reads what comes; it alone ends transfers. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/wire.h"
#include "kv/slot_runs.h"

struct incoming {
    bool used, dropped;
    uint64_t transfer;
    const struct kv_slot *slot;
    int64_t n_tok;
    int64_t *filled;                 /* [n_layers] tokens; of the reading thread */
    int rc;                          /* why it is not taken; of the reading thread */
    char bad[160];                   /* the same in words */
    uint64_t heard_ns, reclaimed_ns; /* something came; it is asked for, 0: it is not */
};

struct cluster_receiver {
    struct cluster_receiver_opts o;
    pthread_t reader;
    bool reading;
    struct cluster_line line;

    pthread_mutex_t lock; /* also of writing to fd */
    bool closing, failed;
    uint64_t n_transfers; /* so far: their numbers, from 1 */
    struct incoming *in;  /* [max_transfers] */
    int64_t *tokens;      /* what their arrays point into */
};

/* Lent: only the reading thread ends transfers. */
static struct incoming *find(struct cluster_receiver *r, uint64_t transfer)
{
    struct incoming *found = NULL;

    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->o.max_transfers; i++)
        if (r->in[i].used && r->in[i].transfer == transfer)
            found = &r->in[i];
    pthread_mutex_unlock(&r->lock);
    return found;
}

/* ---- the thread that reads ---- */

static int check_piece(const struct cluster_receiver *r, const struct incoming *in,
                       const struct cluster_message *m)
{
    unsigned long long transfer = (unsigned long long)m->transfer;

    if (!in)
        return err_set(ERR_FORMAT, "a piece of transfer %llu, which is not expected",
                       transfer);
    if (m->layer < 0 || m->layer >= r->o.shape.n_layers)
        return err_set(ERR_FORMAT, "transfer %llu: a piece of layer %d: expected 0 to %d",
                       transfer, m->layer, r->o.shape.n_layers - 1);
    if (m->lo != in->filled[m->layer] || m->hi <= m->lo || m->hi > in->n_tok)
        return err_set(
            ERR_FORMAT,
            "transfer %llu, layer %d: a piece of tokens %lld to %lld: expected "
            "one that begins at %lld, of %lld tokens",
            transfer, m->layer, (long long)m->lo, (long long)m->hi,
            (long long)in->filled[m->layer], (long long)in->n_tok);
    return OK;
}

static int forget(struct cluster_receiver *r, uint64_t transfer)
{
    struct cluster_message m = {.type = CLUSTER_FORGET, .transfer = transfer};
    int rc;

    pthread_mutex_lock(&r->lock);
    rc = cluster_message_write(r->o.fd, &m, NULL);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static int on_piece(struct cluster_receiver *r, const struct cluster_message *m)
{
    struct incoming *in = find(r, m->transfer);
    const struct cluster_piece p = {.layer = m->layer, .lo = m->lo, .hi = m->hi};
    uint64_t hash;

    TRY(check_piece(r, in, m));
    if (r->o.transport->get)
        TRY(r->o.transport->get(r->o.fd, &r->o.shape, in->slot, &p));
    in->filled[p.layer] = p.hi;
    in->heard_ns = clock_ns();
    if (!m->has_hash || in->bad[0])
        return OK;
    hash = kv_slot_hash(in->slot, &r->o.shape, p.layer, p.lo, p.hi);
    if (hash == m->hash)
        return OK;
    in->rc = ERR_FORMAT;
    snprintf(in->bad, sizeof(in->bad),
             "layer %d, tokens %lld to %lld: checksum %016llx, expected %016llx", p.layer,
             (long long)p.lo, (long long)p.hi, (unsigned long long)hash,
             (unsigned long long)m->hash);
    return forget(r, m->transfer);
}

/* Set an error if not all of it is there. */
static void check_complete(const struct cluster_receiver *r, struct incoming *in)
{
    for (int l = 0; l < r->o.shape.n_layers && !in->bad[0]; l++)
        if (in->filled[l] != in->n_tok) {
            in->rc = ERR_FORMAT;
            snprintf(in->bad, sizeof(in->bad), "layer %d: %lld of %lld tokens came", l,
                     (long long)in->filled[l], (long long)in->n_tok);
        }
}

static int on_end(struct cluster_receiver *r, const struct cluster_message *m)
{
    struct incoming *in = find(r, m->transfer);
    unsigned long long transfer = (unsigned long long)m->transfer;
    struct incoming ended;

    if (!in)
        return err_set(ERR_FORMAT, "the end of transfer %llu, which is not expected",
                       transfer);
    if (m->type == CLUSTER_END)
        check_complete(r, in);
    pthread_mutex_lock(&r->lock);
    ended = *in;
    in->used = false; /* another thread may offer with it now */
    pthread_mutex_unlock(&r->lock);
    if (m->type == CLUSTER_END && !ended.dropped && !ended.bad[0]) {
        r->o.on_arrived(r->o.ctx, m->transfer, m->first_id);
        return OK;
    }
    r->o.on_dropped(r->o.ctx, m->transfer,
                    ended.bad[0]
                        ? err_set(ended.rc, "transfer %llu: %s", transfer, ended.bad)
                        : err_set(ERR_STATE, "transfer %llu was dropped", transfer));
    return OK;
}

/* One whose lease is over and that is not asked for yet, or that is not given back; under the
 * lock. */
static struct incoming *find_expired(struct cluster_receiver *r, uint64_t now)
{
    uint64_t lease_ns = (uint64_t)r->o.lease_ms * 1000000;

    for (int i = 0; i < r->o.max_transfers; i++) {
        struct incoming *in = &r->in[i];
        uint64_t since = in->reclaimed_ns ? in->reclaimed_ns : in->heard_ns;

        if (in->used && now > since && now - since >= lease_ns)
            return in;
    }
    return NULL;
}

static int end_leases(struct cluster_receiver *r)
{
    uint64_t now = clock_ns();

    while (r->o.lease_ms > 0) {
        struct incoming *in;
        unsigned long long transfer = 0;
        bool again = false;

        pthread_mutex_lock(&r->lock);
        in = find_expired(r, now);
        if (in) {
            again = in->reclaimed_ns != 0;
            in->reclaimed_ns = now;
            transfer = (unsigned long long)in->transfer;
        }
        pthread_mutex_unlock(&r->lock);
        if (!in)
            break;
        if (again)
            return err_set(ERR_LIMIT, "transfer %llu: its memory is not given back",
                           transfer);
        if (!in->bad[0]) {
            in->rc = ERR_LIMIT;
            snprintf(in->bad, sizeof(in->bad),
                     "nothing came for %d ms: its lease is over", r->o.lease_ms);
        }
        TRY(forget(r, transfer));
    }
    return OK;
}

static int read_one(struct cluster_receiver *r)
{
    struct cluster_message m;
    bool none;

    TRY(cluster_line_read(&r->line, &m, &none));
    TRY(end_leases(r));
    if (none)
        return OK;
    if (m.type == CLUSTER_PIECE)
        return on_piece(r, &m);
    if (m.type == CLUSTER_END || m.type == CLUSTER_DROPPED)
        return on_end(r, &m);
    return err_set(ERR_FORMAT, "the end that sends wrote a message of type %u", m.type);
}

static void *read_all(void *arg)
{
    struct cluster_receiver *r = arg;
    bool closing;
    int rc = OK;

    while (rc == OK)
        rc = read_one(r);
    pthread_mutex_lock(&r->lock);
    r->failed = true;
    closing = r->closing;
    pthread_mutex_unlock(&r->lock);
    shutdown(r->o.fd, SHUT_RDWR);
    if (!closing)
        r->o.on_fail(r->o.ctx);
    return NULL;
}

/* ---- the functions ---- */

static struct incoming *free_entry(struct cluster_receiver *r)
{
    for (int i = 0; i < r->o.max_transfers; i++)
        if (!r->in[i].used)
            return &r->in[i];
    return NULL;
}

/* Under the lock. */
static int offer(struct cluster_receiver *r, const struct kv_slot *slot,
                 struct cluster_message m, const void *layout)
{
    struct incoming *in = free_entry(r);

    if (r->failed)
        return err_set(ERR_STATE, "the connection has failed");
    if (!in)
        return err_set(ERR_LIMIT, "more than %d transfers at once", r->o.max_transfers);
    in->used = true;
    in->dropped = false;
    in->transfer = m.transfer = ++r->n_transfers;
    in->slot = slot;
    in->n_tok = m.hi;
    in->bad[0] = 0;
    in->heard_ns = clock_ns();
    in->reclaimed_ns = 0;
    for (int l = 0; l < r->o.shape.n_layers; l++)
        in->filled[l] = 0;
    return cluster_message_write(r->o.fd, &m, layout);
}

int cluster_receiver_expect(struct cluster_receiver *r, uint64_t *transfer,
                            const struct kv_slot *slot, int64_t n_tok, int64_t tag)
{
    struct cluster_message m = {.type = CLUSTER_OFFER, .hi = n_tok, .tag = tag};
    void *layout;
    size_t bytes;
    int rc;

    TRY(cluster_layout_pack(&layout, &bytes, slot, n_tok, r->o.pool));
    pthread_mutex_lock(&r->lock);
    *transfer = r->n_transfers + 1;
    m.n_more = (uint32_t)bytes;
    rc = offer(r, slot, m, layout);
    pthread_mutex_unlock(&r->lock);
    mem_free(layout);
    return rc;
}

void cluster_receiver_drop(struct cluster_receiver *r, uint64_t transfer)
{
    struct incoming *in = find(r, transfer);

    if (!in)
        return;
    pthread_mutex_lock(&r->lock);
    in->dropped = in->transfer == transfer;
    pthread_mutex_unlock(&r->lock);
    if (forget(r, transfer) != OK)
        err_clear(); /* the reading thread says so */
}

static int start(struct cluster_receiver *r)
{
    TRY(thread_start(&r->reader, 0, read_all, r, "transport"));
    r->reading = true;
    return OK;
}

static int take_arrays(struct cluster_receiver *r)
{
    size_t n = (size_t)r->o.max_transfers, layers = (size_t)r->o.shape.n_layers;

    r->in = mem_new(MEM_KV, n, sizeof(*r->in));
    r->tokens = mem_new(MEM_KV, n * layers, sizeof(*r->tokens));
    if (!r->in || !r->tokens)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        r->in[i].filled = r->tokens + i * layers;
    return OK;
}

int cluster_receiver_open(struct cluster_receiver **out,
                          const struct cluster_receiver_opts *o)
{
    struct cluster_receiver *r = mem_new(MEM_KV, 1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return ERR_NOMEM;
    r->o = *o;
    cluster_line_init(&r->line, o->fd, o->silence_ms, &r->lock);
    rc = thread_mutex_init(&r->lock);
    if (rc == OK)
        rc = take_arrays(r);
    if (rc == OK)
        rc = cluster_hello(o->fd, o->transport->name, &o->shape);
    if (rc == OK && o->transport->lend)
        rc = o->transport->lend(o->fd, o->pool);
    if (rc == OK)
        rc = start(r);
    if (rc == OK)
        *out = r, r = NULL; /* the caller's now */
    cluster_receiver_close(&r);
    return rc;
}

void cluster_receiver_close(struct cluster_receiver **rp)
{
    struct cluster_receiver *r = *rp;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_mutex_unlock(&r->lock);
    if (r->reading) {
        shutdown(r->o.fd, SHUT_RDWR);
        pthread_join(r->reader, NULL);
        close(r->o.fd);
    }
    pthread_mutex_destroy(&r->lock);
    mem_free(r->in);
    mem_free(r->tokens);
    mem_free(r);
    *rp = NULL;
}
