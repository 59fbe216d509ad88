#include "experiments/study/support/kv_fault_world.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kv/slot_runs.h"

const char *const study_fault_names[] = {"unknown id",
                                         "out of range",
                                         "reused slot",
                                         "stale after reuse",
                                         "lease over",
                                         "partial layer",
                                         "late",
                                         "duplicate",
                                         "wrong layout",
                                         "wrong rank split",
                                         "target full",
                                         "peer killed",
                                         "peer stopped",
                                         "slow",
                                         "idle",
                                         "corrupted",
                                         NULL};
const char *const study_phase_names[] = {"prefill", "transfer", "decode", "idle", NULL};

/* ---- what is not there ---- */

const char *study_fault_excluded(const struct study_fault_case *c)
{
    bool in_flight = c->phase == STUDY_IN_PREFILL || c->phase == STUDY_IN_TRANSFER;

    switch (c->fault) {
    case STUDY_OUT_OF_RANGE:
    case STUDY_PARTIAL_LAYER:
    case STUDY_LEASE_OVER:
    case STUDY_TARGET_FULL:
    case STUDY_SLOW:
        return in_flight ? NULL : "no memory is lent then";
    case STUDY_STALE_AFTER_REUSE:
    case STUDY_CORRUPTED:
        return c->phase == STUDY_IN_TRANSFER ? NULL : "no keys and values come then";
    case STUDY_REUSED_SLOT:
        return in_flight ? NULL : "nobody has reused the memory then";
    case STUDY_LATE:
    case STUDY_DUPLICATE:
        return c->phase == STUDY_IN_PREFILL ? "nothing has come before" : NULL;
    case STUDY_WRONG_LAYOUT:
        return c->phase == STUDY_IN_PREFILL ? NULL : "a layout comes with an offer only";
    case STUDY_WRONG_RANK_SPLIT:
        return c->phase == STUDY_WHEN_IDLE ? NULL
                                           : "ends say their shape when they connect";
    default:
        return NULL;
    }
}

/* ---- what is sent ---- */

static int offer(struct study_fault_world *w)
{
    return cluster_receiver_expect(w->receiver, &w->transfer, &w->slot, w->n_tok, 1);
}

/* A scripted sender reads the offer. */
static int read_offer(struct study_fault_world *w)
{
    struct cluster_message m;

    do {
        TRY(cluster_message_read(w->fd, &m));
    } while (m.type == CLUSTER_ALIVE);
    if (m.type != CLUSTER_OFFER)
        return err_set(ERR_FORMAT, "no offer came, but a message of type %u", m.type);
    mem_free(w->layout);
    w->layout = mem_new(MEM_KV, 1, m.n_more);
    if (!w->layout)
        return ERR_NOMEM;
    TRY(cluster_wire_read(w->fd, w->layout, m.n_more));
    return cluster_layout_unpack(&w->to_slot, w->layout, m.n_more, m.hi,
                                 &study_fault_shape, w->pool, w->pool_bytes);
}

/* A scripted sender's piece of a whole layer; flip: with a wrong byte. */
static int write_piece(struct study_fault_world *w, uint64_t transfer, int layer,
                       int64_t hi, bool flip)
{
    const struct cluster_piece p = {.layer = layer, .lo = 0, .hi = hi};
    struct cluster_message m = {.type = CLUSTER_PIECE,
                                .transfer = transfer,
                                .layer = layer,
                                .hi = hi,
                                .has_hash = !w->no_checksums};
    bool there = layer < study_fault_shape.n_layers && hi <= w->n_tok;
    char *byte;

    if (there) {
        m.hash = kv_slot_hash(&w->source, &study_fault_shape, layer, 0, hi);
        byte = kv_token_at(&w->source, layer, 0, 0, 0, study_fault_shape.vec_bytes);
        *byte = (char)(*byte ^ flip);
        if (!w->transport->get && w->layout)
            TRY(w->transport->put(w->fd, &study_fault_shape, &w->to_slot, &w->source,
                                  &p));
    }
    TRY(cluster_message_write(w->fd, &m, NULL));
    if (there && w->transport->get)
        TRY(w->transport->put(w->fd, &study_fault_shape, NULL, &w->source, &p));
    if (there)
        *byte = (char)(*byte ^ flip);
    return OK;
}

static int write_end(struct study_fault_world *w, uint64_t transfer)
{
    struct cluster_message m = {.type = CLUSTER_END, .transfer = transfer, .first_id = 3};

    return cluster_message_write(w->fd, &m, NULL);
}

/* As far as the phase; *n_layers: that have come. */
static int reach(struct study_fault_world *w, enum study_phase phase, int *n_layers)
{
    *n_layers = 0;
    if (phase == STUDY_WHEN_IDLE && rng_below(w->rng, 2))
        return OK;
    TRY(offer(w));
    TRY(read_offer(w));
    if (phase == STUDY_IN_PREFILL)
        return OK;
    *n_layers = phase == STUDY_IN_TRANSFER
                    ? 1 + (int)rng_below(w->rng, (uint64_t)study_fault_shape.n_layers - 1)
                    : study_fault_shape.n_layers;
    for (int l = 0; l < *n_layers; l++)
        TRY(write_piece(w, w->transfer, l, w->n_tok, false));
    if (phase == STUDY_IN_TRANSFER)
        return OK;
    TRY(write_end(w, w->transfer));
    return study_fault_wait(w, &w->n_arrived, false) ? OK
                                                     : err_set(ERR_STATE, "nothing came");
}

/* The memory is another prompt's by then. */
static int reuse(struct study_fault_world *w, enum study_phase phase, uint64_t *old)
{
    int n;

    TRY(reach(w, STUDY_IN_DECODE, &n));
    *old = w->transfer;
    pthread_mutex_lock(&w->lock);
    w->n_arrived = 0;
    pthread_mutex_unlock(&w->lock);
    return reach(w, phase, &n);
}

/* ---- faults of a scripted sender: what it writes ---- */

static int write_fault(struct study_fault_world *w, const struct study_fault_case *c,
                       int n_layers)
{
    int last = n_layers > 0 ? n_layers - 1 : 0;
    uint64_t ended = w->transfer ? w->transfer : 77;

    switch (c->fault) {
    case STUDY_UNKNOWN_ID:
        return rng_below(w->rng, 2) ? write_piece(w, 99, 0, w->n_tok, false)
                                    : write_end(w, 99);
    case STUDY_OUT_OF_RANGE:
        return rng_below(w->rng, 2)
                   ? write_piece(w, w->transfer, study_fault_shape.n_layers + last,
                                 w->n_tok, false)
                   : write_piece(w, w->transfer, n_layers, w->n_tok + 1, false);
    case STUDY_PARTIAL_LAYER:
        if (n_layers < study_fault_shape.n_layers && w->n_tok > 1 && rng_below(w->rng, 2))
            TRY(write_piece(w, w->transfer, n_layers, w->n_tok - 1, false));
        return write_end(w, w->transfer);
    case STUDY_CORRUPTED: /* and it goes on as if all were well */
        for (int l = n_layers; l < study_fault_shape.n_layers; l++)
            TRY(write_piece(w, w->transfer, l, w->n_tok, l == n_layers));
        return write_end(w, w->transfer);
    case STUDY_LATE:
        if (c->phase == STUDY_IN_TRANSFER) { /* it is given back, and then comes more */
            struct cluster_message m = {.type = CLUSTER_DROPPED, .transfer = w->transfer};

            TRY(cluster_message_write(w->fd, &m, NULL));
        }
        return write_piece(w, ended, last, w->n_tok, false);
    case STUDY_DUPLICATE:
        if (c->phase != STUDY_IN_TRANSFER)
            return write_end(w, ended);
        return write_piece(w, w->transfer, last, w->n_tok, false);
    case STUDY_PEER_KILLED:
        shutdown(w->fd, SHUT_RDWR);
        return OK;
    default: /* it is silent */
        return OK;
    }
}

static int scripted(struct study_fault_world *w, const struct study_fault_case *c,
                    uint64_t *began_ns)
{
    uint64_t old = 0;
    int n_layers = 0;

    TRY(study_fault_connect(w, true, &study_fault_shape));
    if (c->fault == STUDY_REUSED_SLOT)
        TRY(reuse(w, c->phase, &old));
    else
        TRY(reach(w, c->phase, &n_layers));
    *began_ns = clock_ns();
    if (c->fault == STUDY_REUSED_SLOT)
        return write_piece(w, old, (int)rng_below(w->rng, 3), w->n_tok, false);
    return write_fault(w, c, n_layers);
}

/* ---- faults of the engine's sender, and of a scripted receiver ---- */

static void store(struct study_fault_world *w, int lo, int hi)
{
    for (int l = lo; l < hi; l++)
        cluster_sender_stored(w->sender, w->transfer, &w->source, l, w->n_tok);
    if (hi == study_fault_shape.n_layers)
        cluster_sender_computed(w->sender, w->transfer, 3);
}

static void sleep_ms(int ms)
{
    const struct timespec t = {.tv_nsec = (long)ms * 1000000};

    nanosleep(&t, NULL);
}

/* It stalls in a piece, its layers come slowly or not at all, or nothing is sent for long. */
static int delayed(struct study_fault_world *w, const struct study_fault_case *c,
                   uint64_t *began_ns)
{
    int n_layers = c->phase == STUDY_IN_TRANSFER ? 1 + (int)rng_below(w->rng, 2) : 0;

    TRY(study_fault_connect(w, false, &study_fault_shape));
    *began_ns = clock_ns();
    if (c->fault == STUDY_IDLE && c->phase == STUDY_WHEN_IDLE)
        sleep_ms(2 * STUDY_FAULT_SILENCE_MS);
    TRY(offer(w));
    if (!study_fault_wait(w, &w->n_offers, false))
        return err_set(ERR_STATE, "no offer came");
    study_fault_stall(w, c->fault == STUDY_STALE_AFTER_REUSE);
    store(w, 0, n_layers);
    if (c->fault == STUDY_LEASE_OVER || c->fault == STUDY_STALE_AFTER_REUSE)
        return OK;
    if (c->phase != STUDY_WHEN_IDLE && c->phase != STUDY_IN_DECODE)
        sleep_ms(STUDY_FAULT_LEASE_MS / 4);
    store(w, n_layers, study_fault_shape.n_layers);
    if (c->fault != STUDY_IDLE || c->phase != STUDY_IN_DECODE)
        return OK;
    if (!study_fault_wait(w, &w->n_arrived, true))
        return err_set(ERR_STATE, "nothing came");
    sleep_ms(2 * STUDY_FAULT_SILENCE_MS);
    return OK;
}

static int too_many(struct study_fault_world *w, const struct study_fault_case *c,
                    uint64_t *began_ns)
{
    uint64_t transfer;
    int n_layers, rc = OK;

    TRY(study_fault_connect(w, true, &study_fault_shape));
    TRY(reach(w, c->phase, &n_layers));
    *began_ns = clock_ns();
    for (int i = 0; i < 2 && rc == OK; i++)
        rc = cluster_receiver_expect(w->receiver, &transfer, &w->other, w->n_tok, 2);
    if (rc != ERR_LIMIT)
        return rc == OK ? OK : rc;
    study_fault_say(w, &w->n_dropped, true);
    return OK;
}

/* For the thread of a scripted receiver. */
struct opening {
    struct study_fault_world *w;
    int fd, rc;
};

/* A receiver that offers what it does not have: its hello and offer are scripted. */
static void *offer_wrongly(void *arg)
{
    struct opening *o = arg;
    struct study_fault_world *w = o->w;
    struct cluster_message m = {.type = CLUSTER_OFFER, .transfer = 1, .hi = w->n_tok};
    struct cluster_layout *l = NULL;
    size_t bytes;

    o->rc = cluster_hello(o->fd, w->transport->name, &study_fault_shape);
    if (o->rc == OK && w->transport->lend)
        o->rc = w->transport->lend(o->fd, w->to);
    if (o->rc == OK)
        o->rc = cluster_layout_pack((void **)&l, &bytes, &w->slot, w->n_tok, w->to);
    if (o->rc == OK) {
        if (w->transport->lend && rng_below(w->rng, 2))
            l->base_at += (uint64_t)1 << (32 + rng_below(w->rng, 16));
        else
            l->cap_tok = (int64_t)rng_below(w->rng, (uint64_t)w->n_tok);
        m.n_more = (uint32_t)bytes;
        o->rc = cluster_message_write(o->fd, &m, l);
    }
    mem_free(l);
    return NULL;
}

static int wrong_layout(struct study_fault_world *w, uint64_t *began_ns)
{
    struct opening o = {.w = w};
    pthread_t t;
    int fd[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
        return err_set(ERR_IO, "cannot make a socket: %m");
    o.fd = w->fd = fd[1];
    *began_ns = clock_ns();
    rc = thread_start(&t, 0, offer_wrongly, &o, "faults");
    if (rc != OK) {
        close(fd[0]);
        return rc;
    }
    rc = study_fault_open_sender(w, fd[0]);
    if (rc != OK)
        close(fd[0]);
    pthread_join(t, NULL);
    return rc;
}

static int wrong_split(struct study_fault_world *w, uint64_t *began_ns)
{
    struct kv_shape half = study_fault_shape;

    half.n_kv_heads = 1;
    *began_ns = clock_ns();
    /* Both ends refuse it, or the scripted one would. */
    return study_fault_connect(w, true, &half) == OK ? OK : (err_clear(), OK);
}

static int inject(struct study_fault_world *w, const struct study_fault_case *c,
                  uint64_t *began_ns)
{
    switch (c->fault) {
    case STUDY_STALE_AFTER_REUSE:
    case STUDY_LEASE_OVER:
    case STUDY_SLOW:
    case STUDY_IDLE:
        return delayed(w, c, began_ns);
    case STUDY_TARGET_FULL:
        return too_many(w, c, began_ns);
    case STUDY_WRONG_LAYOUT:
        return wrong_layout(w, began_ns);
    case STUDY_WRONG_RANK_SPLIT:
        return wrong_split(w, began_ns);
    default:
        return scripted(w, c, began_ns);
    }
}

/* ---- what came of it ---- */

static bool same_bytes(const struct study_fault_world *w)
{
    for (int l = 0; l < study_fault_shape.n_layers; l++)
        if (kv_slot_hash(&w->slot, &study_fault_shape, l, 0, w->n_tok) !=
            kv_slot_hash(&w->source, &study_fault_shape, l, 0, w->n_tok))
            return false;
    return true;
}

static uint64_t hash_other(const struct study_fault_world *w)
{
    uint64_t h = 0;

    for (int l = 0; l < study_fault_shape.n_layers; l++)
        h = 31 * h +
            kv_slot_hash(&w->other, &study_fault_shape, l, 0, STUDY_FAULT_MAX_TOK);
    return h;
}

/* The prompt once more, into the same memory, over another connection. */
static bool arrives_again(struct study_fault_world *w)
{
    const uint64_t end_ns = clock_ns() + 20 * UINT64_C(1000000000);
    bool arrived = false;

    while (!arrived && clock_ns() < end_ns) { /* a busy host may be silent, too */
        study_fault_forget(w);
        if (study_fault_connect(w, false, &study_fault_shape) == OK && offer(w) == OK &&
            study_fault_wait(w, &w->n_offers, true) && w->n_offers > 0) {
            store(w, 0, study_fault_shape.n_layers);
            (void)study_fault_wait(w, &w->n_arrived, true);
            arrived = w->n_arrived > 0;
        }
        study_fault_disconnect(w);
    }
    return arrived && same_bytes(w);
}

static void clear_slot(struct study_fault_world *w)
{
    for (int l = 0; l < study_fault_shape.n_layers; l++)
        for (int i = 0; i < 2 * study_fault_shape.n_kv_heads * (int)w->n_tok; i++)
            memset(kv_token_at(&w->slot, l, i / 2 % study_fault_shape.n_kv_heads, i % 2,
                               i / 2 / study_fault_shape.n_kv_heads,
                               study_fault_shape.vec_bytes),
                   0, study_fault_shape.vec_bytes);
}

/* A memory that is lent still is while the other end may write to it. */
static bool is_kept(struct study_fault_world *w, const struct study_fault_case *c)
{
    bool kept;

    if (c->fault != STUDY_STALE_AFTER_REUSE)
        return true;
    pthread_mutex_lock(&w->lock);
    kept = !w->is_stalled || (w->n_dropped == 0 && w->n_arrived == 0);
    pthread_mutex_unlock(&w->lock);
    return kept;
}

int study_fault_run(struct study_fault_world *w, const struct study_fault_case *c,
                    struct rng *rng, struct study_fault_result *out)
{
    bool harmless = c->fault == STUDY_SLOW || c->fault == STUDY_IDLE;
    bool may_arrive = harmless || c->fault == STUDY_CORRUPTED;
    uint64_t began_ns = 0, before = hash_other(w);
    int rc;

    w->transport = c->transport;
    w->no_checksums = c->no_checksums;
    w->rng = rng;
    w->n_tok = 2 + (int64_t)rng_below(rng, STUDY_FAULT_MAX_TOK - 1);
    w->transfer = 0;
    study_fault_forget(w);
    clear_slot(w);
    *out = (struct study_fault_result){.named = false};
    rc = inject(w, c, &began_ns);
    /* A write fails where the other end has failed, which says so a little later. */
    if (rc != OK && !study_fault_wait(w, &w->n_failed, true)) {
        study_fault_disconnect(w);
        return rc;
    }
    if (!study_fault_wait(w, may_arrive ? &w->n_arrived : &w->n_failed, true))
        out->silent = true;
    out->silent |= !is_kept(w, c);
    out->named = w->named_ns != 0;
    if (out->named && began_ns > 0 && w->named_ns > began_ns)
        out->named_ms = (double)(w->named_ns - began_ns) * 1e-6;
    memcpy(out->says, w->says, sizeof(out->says));
    if (harmless && !out->named)
        out->silent |= !same_bytes(w);
    else if (!out->named)
        out->silent = true;
    study_fault_disconnect(w);
    out->lost = !arrives_again(w);
    if (out->lost) /* of the last try */
        snprintf(out->says, sizeof(out->says), "afterwards %.140s",
                 w->n_arrived > 0 ? "other bytes came"
                 : w->says[0]     ? w->says
                                  : "nothing came");
    out->silent |= hash_other(w) != before;
    return OK;
}
