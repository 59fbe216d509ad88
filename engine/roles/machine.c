/* A machine's process: its engine, which its first thread steps, the ends of its transports, and a
 * thread that reads what the front wants. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/wire.h"
#include "roles/machine.h"

#define IDLE_NS       UINT64_C(200000000)
#define STAT_NS       UINT64_C(100000000)
#define PROMPT_MAX    ((int64_t)1 << 24)
#define NO_TRANSFER   0
#define MESSAGE_BYTES 512

/* ---- entries; with the lock held ---- */

static struct entry *find(struct machine *m, int64_t id)
{
    struct entry *e = m->entries;

    while (e && e->id != id)
        e = e->next;
    return e;
}

static struct entry *find_transfer(struct link *l, enum serve_side side,
                                   uint64_t transfer)
{
    struct entry *e = l->m->entries;

    while (e && (e->transfer != transfer || e->r.peer != l->peer ||
                 e->r.side != (int32_t)side))
        e = e->next;
    return e;
}

static struct entry *find_or_add(struct machine *m, int64_t id)
{
    struct entry *e = find(m, id);

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

static void tell(struct machine *m, struct roles_message *head, const void *more)
{
    if (cluster_wire_write(m->fd, head, sizeof(*head)) != OK ||
        cluster_wire_write(m->fd, more, head->n_more) != OK)
        err_clear(); /* the reader says that the front has gone */
}

static void tell_token(struct entry *e, int32_t token, enum serve_finish finish)
{
    struct roles_message head = {
        .type = ROLES_TOKEN, .id = e->id, .token = token, .finish = (int32_t)finish};
    char why[MESSAGE_BYTES];

    if (e->reported)
        return;
    e->reported = finish != SERVE_RUNNING;
    if (finish == SERVE_ERROR)
        head.n_more = (uint32_t)snprintf(why, sizeof(why), "%.500s", err_msg());
    tell(e->m, &head, why);
}

/* ---- the engine of a token machine, or of a request that one machine has alone ---- */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct entry *e = ctx;
    struct machine *m = e->m;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
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
    rc = cluster_receiver_expect(m->links[e->r.peer].receiver, &e->transfer, slot,
                                 e->r.n_prompt, e->id);
    if (rc != OK) {
        e->transfer = NO_TRANSFER;
        tell_token(e, -1, SERVE_ERROR);
        rc = serve_release(m->s, request);
    }
    pthread_mutex_unlock(&m->lock);
    if (rc != OK)
        err_clear();
}

/* ---- the receiving end ---- */

static void on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    struct link *l = ctx;
    struct entry *e;

    pthread_mutex_lock(&l->m->lock);
    e = find_transfer(l, SERVE_TOKEN_SIDE, transfer);
    if (e) {
        e->transfer = NO_TRANSFER;
        if (serve_arrived(l->m->s, e->engine_id, first_id) != OK)
            tell_token(e, -1, SERVE_ERROR);
        drop_if_over(e);
    }
    pthread_mutex_unlock(&l->m->lock);
}

static void on_dropped(void *ctx, uint64_t transfer, int rc)
{
    struct link *l = ctx;
    struct entry *e;

    pthread_mutex_lock(&l->m->lock);
    e = find_transfer(l, SERVE_TOKEN_SIDE, transfer);
    if (e) {
        e->transfer = NO_TRANSFER;
        if (rc != ERR_STATE) /* that was wanted */
            tell_token(e, -1, SERVE_ERROR);
        if (serve_release(l->m->s, e->engine_id) != OK)
            err_clear(); /* it has ended */
        drop_if_over(e);
    }
    pthread_mutex_unlock(&l->m->lock);
}

/* The front names the machine that has gone; this one waits to be ended. */
static void on_fail(void *ctx)
{
    (void)ctx;
}

/* ---- the engine of a prompt machine ---- */

static void on_layer(void *ctx, int64_t request, const struct kv_slot *slot, int layer,
                     int64_t lo, int64_t hi)
{
    const struct entry *e = ctx;

    (void)request, (void)lo;
    cluster_sender_stored(e->m->links[e->r.peer].sender, e->offer, slot, layer, hi);
}

static void on_first(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct entry *e = ctx;
    struct machine *m = e->m;
    struct cluster_sender *sender = m->links[e->r.peer].sender;

    (void)request, (void)logits;
    pthread_mutex_lock(&m->lock);
    e->ended = true;
    tell_token(e, id, finish == SERVE_LENGTH ? SERVE_RUNNING : finish);
    e->reported = true; /* the token machine says the rest */
    if (finish == SERVE_LENGTH)
        cluster_sender_computed(sender, e->offer, id);
    else if (sender) /* else the process ends */
        cluster_sender_drop(sender, e->offer);
    drop_if_over(e);
    pthread_mutex_unlock(&m->lock);
}

static int submit(struct entry *e)
{
    struct machine *m = e->m;
    bool is_prompt = e->r.side == SERVE_PROMPT_SIDE;
    const struct serve_handoff h = {.side = e->r.side,
                                    .on_layer = is_prompt ? on_layer : NULL,
                                    .on_memory = on_memory,
                                    .slot = e->slot.base ? &e->slot : NULL,
                                    .ctx = e};
    struct serve_request r = {.prompt = e->ids,
                              .n_prompt = e->r.n_prompt,
                              .max_new = is_prompt ? 1 : e->r.max_new,
                              .ignore_eos = e->r.ignore_eos,
                              .sampling = e->r.sampling,
                              .on_token = is_prompt ? on_first : on_token,
                              .ctx = e,
                              .handoff = e->r.side ? &h : NULL};
    int rc;

    e->submitted = true;
    rc = serve_submit(m->s, &r, &e->engine_id);
    if (rc == OK)
        return OK;
    e->ended = true;
    tell_token(e, -1, SERVE_ERROR);
    if (is_prompt && e->transfer != NO_TRANSFER)
        cluster_sender_drop(m->links[e->r.peer].sender, e->transfer);
    return rc;
}

/* ---- the sending end ---- */

/* The receiver's: what is computed there is dropped when the engine has left it. */
static void on_forget(void *ctx, uint64_t transfer)
{
    struct link *l = ctx;
    const struct entry *e;

    pthread_mutex_lock(&l->m->lock);
    e = find_transfer(l, SERVE_PROMPT_SIDE, transfer);
    if (e && e->submitted)
        serve_cancel(l->m->s, e->engine_id);
    if (!e || !e->submitted || e->ended)
        cluster_sender_drop(l->sender, transfer);
    pthread_mutex_unlock(&l->m->lock);
}

static int find_slot(struct link *l, struct entry *e, uint64_t transfer)
{
    mem_free((void *)e->slot.blocks);
    e->slot = (struct kv_slot){0};
    return l->m->u->transport->in_place
               ? cluster_sender_slot(l->sender, transfer, &e->slot)
               : OK;
}

static void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct link *l = ctx;
    struct entry *e;

    (void)n_tok;
    pthread_mutex_lock(&l->m->lock);
    /* A request that came before and is not there was canceled. */
    e = tag > l->m->last_id ? find_or_add(l->m, tag) : find(l->m, tag);
    if (!e || find_slot(l, e, transfer) != OK) {
        cluster_sender_drop(l->sender, transfer);
    } else {
        e->transfer = e->offer = transfer;
        e->r.peer = l->peer;
        e->r.side = SERVE_PROMPT_SIDE;
        if (e->requested && submit(e) != OK)
            drop_if_over(e);
    }
    pthread_mutex_unlock(&l->m->lock);
}

static void on_sent(void *ctx, uint64_t transfer, int rc)
{
    struct link *l = ctx;
    struct entry *e;

    pthread_mutex_lock(&l->m->lock);
    e = find_transfer(l, SERVE_PROMPT_SIDE, transfer);
    if (e) {
        e->transfer = NO_TRANSFER;
        if (rc != OK && e->submitted)
            serve_cancel(l->m->s, e->engine_id);
        if (e->submitted && serve_release(l->m->s, e->engine_id) != OK)
            err_clear(); /* it never had memory */
        e->reported |= !e->submitted;
        drop_if_over(e);
    }
    pthread_mutex_unlock(&l->m->lock);
}

/* ---- what the front wants ---- */

static int on_request(struct machine *m, const struct roles_message *head)
{
    struct roles_request r;
    struct entry *e;
    int32_t *ids;
    int rc;

    TRY(cluster_wire_read(m->fd, &r, sizeof(r)));
    if (r.n_prompt < 1 || r.n_prompt > PROMPT_MAX ||
        head->n_more != sizeof(r) + (size_t)r.n_prompt * sizeof(*ids))
        return err_set(ERR_FORMAT, "a request of %lld tokens in %u bytes",
                       (long long)r.n_prompt, head->n_more);
    ids = mem_new(MEM_OTHER, (size_t)r.n_prompt, sizeof(*ids));
    if (!ids)
        return ERR_NOMEM;
    rc = cluster_wire_read(m->fd, ids, (size_t)r.n_prompt * sizeof(*ids));
    pthread_mutex_lock(&m->lock);
    e = rc == OK ? find_or_add(m, head->id) : NULL;
    if (e) {
        e->r = r;
        e->ids = ids;
        e->requested = true;
        m->last_id = head->id;
        if (r.side != SERVE_PROMPT_SIDE || e->transfer != NO_TRANSFER)
            (void)!submit(e);
        drop_if_over(e);
    } else {
        mem_free(ids);
        rc = rc == OK ? ERR_NOMEM : rc;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void on_cancel(struct machine *m, int64_t id)
{
    struct entry *e;

    pthread_mutex_lock(&m->lock);
    e = find(m, id);
    if (e && e->submitted) {
        serve_cancel(m->s, e->engine_id);
        if (e->r.side == SERVE_TOKEN_SIDE && e->transfer != NO_TRANSFER)
            cluster_receiver_drop(m->links[e->r.peer].receiver, e->transfer);
    } else if (e) {
        e->reported = true; /* no offer will come, or the token machine drops it */
        drop_if_over(e);
    }
    pthread_mutex_unlock(&m->lock);
}

static int on_link(struct machine *m, const struct roles_message *head)
{
    struct roles_link l;
    struct cluster_limiter limiter;

    if (head->n_more != sizeof(l))
        return err_set(ERR_FORMAT, "a link of %u bytes", head->n_more);
    TRY(cluster_wire_read(m->fd, &l, sizeof(l)));
    limiter = (struct cluster_limiter){.bytes_per_s = l.gbps * 1e9 / 8,
                                       .latency_ns = (int64_t)(l.latency_ms * 1e6)};
    for (int i = 0; i < m->u->n; i++)
        if (m->links[i].sender)
            cluster_sender_link(m->links[i].sender, l.serial_below_tok, &limiter);
    return OK;
}

static int read_one(struct machine *m)
{
    struct roles_message head;

    TRY(cluster_wire_read(m->fd, &head, sizeof(head)));
    if (head.type == ROLES_REQUEST)
        return on_request(m, &head);
    if (head.type == ROLES_LINK)
        return on_link(m, &head);
    if (head.type != ROLES_CANCEL)
        return err_set(ERR_FORMAT, "the front sent a message of type %u", head.type);
    on_cancel(m, head.id);
    return OK;
}

static void *read_all(void *arg)
{
    struct machine *m = arg;

    while (read_one(m) == OK)
        ;
    atomic_store(&m->closing, true);
    serve_wake(m->s);
    return NULL;
}

/* ---- the process ---- */

static int open_sender(struct machine *m, struct link *l)
{
    const struct roles_setup *u = m->u;
    struct cluster_sender_opts o = {
        .transport = u->transport,
        .fd = u->link[m->index][l->peer][0],
        .max_transfers = (int)u->spec.engine[u->home[l->peer]].max_seqs,
        .mode = (enum cluster_transfer_mode)u->o.transfer,
        .serial_below_tok = u->o.serial_below_tok,
        .no_checksums = !u->o.checksums,
        .limiter = {.bytes_per_s = u->o.link_gbps * 1e9 / 8,
                    .latency_ns = (int64_t)(u->o.link_latency_ms * 1e6)},
        .on_offer = on_offer,
        .on_end = on_sent,
        .on_forget = on_forget,
        .on_fail = on_fail,
        .ctx = l};

    serve_kv_shape(m->s, &o.shape);
    return cluster_sender_open(&l->sender, &o);
}

static int open_receiver(struct machine *m, struct link *l)
{
    const struct roles_setup *u = m->u;
    struct cluster_receiver_opts o = {.transport = u->transport,
                                      .fd = u->link[l->peer][m->index][1],
                                      .pool = serve_pool(m->s),
                                      .max_transfers =
                                          (int)u->spec.engine[u->home[m->index]].max_seqs,
                                      .on_arrived = on_arrived,
                                      .on_dropped = on_dropped,
                                      .on_fail = on_fail,
                                      .ctx = l};

    serve_kv_shape(m->s, &o.shape);
    return cluster_receiver_open(&l->receiver, &o);
}

/* In the same order on all machines, so that none wait for each other in a circle. */
static int open_links(struct machine *m)
{
    int rc = OK;

    for (int i = 0; i < m->u->n; i++)
        m->links[i] = (struct link){.m = m, .peer = i};
    for (int a = 0; a < m->u->n; a++)
        for (int b = 0; b < m->u->n && rc == OK; b++) {
            if (!roles_is_linked(m->u, a, b))
                continue;
            if (a == m->index)
                rc = open_sender(m, &m->links[b]);
            else if (b == m->index)
                rc = open_receiver(m, &m->links[a]);
        }
    return rc;
}

/* Files and sockets of the front and of other machines do not belong to this process. */
static void close_others(const struct roles_setup *u, int machine)
{
    int keep[2 * ROLES_MACHINES_ALL + 1] = {u->control[machine][1]}, n = 1;
    unsigned from = 3;

    for (int i = 0; i < u->n; i++) {
        if (roles_is_linked(u, machine, i))
            keep[n++] = u->link[machine][i][0];
        if (roles_is_linked(u, i, machine))
            keep[n++] = u->link[i][machine][1];
    }
    for (;;) {
        unsigned next = ~0u;

        for (int i = 0; i < n; i++)
            if ((unsigned)keep[i] >= from && (unsigned)keep[i] < next)
                next = (unsigned)keep[i];
        if (next > from)
            close_range(from, next == ~0u ? next : next - 1, 0);
        if (next == ~0u)
            return;
        from = next + 1;
    }
}

/* What was computed since, ten times a second, and when there is nothing to do. */
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
    if (memcmp(&st, &m->stat, sizeof(st)) == 0)
        return;
    m->stat = st;
    pthread_mutex_lock(&m->lock);
    tell(m, &head, &st);
    pthread_mutex_unlock(&m->lock);
}

static int work(struct machine *m)
{
    struct roles_message ready = {.type = ROLES_READY, .id = serve_max_tok(m->s)};
    bool busy;

    TRY(open_links(m));
    TRY(cluster_wire_write(m->fd, &ready, sizeof(ready)));
    TRY(thread_start(&m->reader, 0, read_all, m, "machine"));
    m->reading = true;
    while (!atomic_load(&m->closing)) {
        TRY(serve_step(m->s, &busy));
        tell_stat(m, busy);
        if (!busy)
            serve_wait(m->s, IDLE_NS);
    }
    return OK;
}

int roles_machine(const struct roles_setup *u, int machine)
{
    struct machine m = {
        .u = u, .index = machine, .fd = u->control[machine][1], .last_id = -1};
    int rc;

    if (!u->is_joined)
        close_others(u, machine);
    rc = thread_mutex_init(&m.lock);
    if (rc == OK)
        rc = serve_open_mapped(&m.s, &u->spec.engine[u->home[machine]], NULL, NULL);
    if (rc == OK)
        rc = work(&m);
    if (m.reading) {
        shutdown(m.fd, SHUT_RDWR);
        pthread_join(m.reader, NULL);
    }
    for (int i = 0; i < u->n; i++) {
        cluster_sender_close(&m.links[i].sender);
        cluster_receiver_close(&m.links[i].receiver);
    }
    serve_close(&m.s);
    while (m.entries) {
        struct entry *e = m.entries;

        m.entries = e->next;
        free_entry(e);
    }
    pthread_mutex_destroy(&m.lock);
    return rc;
}
