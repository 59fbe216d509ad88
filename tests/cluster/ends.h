/* tests/cluster/ends.h - both ends of a transport in one process, and what they were told. */
#ifndef TESTS_CLUSTER_ENDS_H
#define TESTS_CLUSTER_ENDS_H

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cluster/wire.h"
#include "kv/buckets.h"
#include "tests/support/test.h"

#define MAX_TOK     100
#define N_TRANSFERS 6

static const struct kv_shape shape = {.n_layers = 3, .n_kv_heads = 2, .vec_bytes = 24};
/* Transports between two pools. test_two_processes.c has the others. */
__attribute__((unused)) static const char *const copying[] = {"shm", "socket"};
static const struct kv_bounds bounds = {
    .n = 1, .of_total = true, .align_tok = 16, .tok = {48}};

/* ---- both ends in one process ---- */

enum state { NOTHING, OFFERED, ENDED, ARRIVED, DROPPED };

struct one {
    struct both *b;
    uint64_t transfer;
    int64_t n_tok;
    struct kv_slot from, to;
    int32_t first_id;     /* that arrived */
    enum state sent, got; /* under the lock */
    int sent_rc;
};

struct both {
    struct kv_pool *from, *to;
    struct cluster_sender *sender;
    struct cluster_receiver *receiver;
    struct one all[N_TRANSFERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_failed_sends, n_failed_receives;
    char why_send[256], why_receive[256];
};

static inline struct one *one_of(struct both *b, uint64_t transfer)
{
    for (int i = 0; i < N_TRANSFERS; i++)
        if (b->all[i].transfer == transfer)
            return &b->all[i];
    abort(); /* on a thread of an end: no assertion of the test's */
}

static inline void set_state(struct both *b, enum state *at, enum state from,
                             enum state to)
{
    if (*at != from)
        abort();
    *at = to;
    pthread_cond_broadcast(&b->changed);
}

static inline void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct both *b = ctx;
    struct one *o;

    pthread_mutex_lock(&b->lock);
    o = one_of(b, transfer);
    if (o->n_tok != n_tok || tag != 1000 + n_tok)
        abort();
    set_state(b, &o->sent, NOTHING, OFFERED);
    pthread_mutex_unlock(&b->lock);
}

static inline void on_sent(void *ctx, uint64_t transfer, int rc)
{
    struct both *b = ctx;
    struct one *o;

    pthread_mutex_lock(&b->lock);
    o = one_of(b, transfer);
    o->sent_rc = rc;
    set_state(b, &o->sent, OFFERED, ENDED);
    pthread_mutex_unlock(&b->lock);
}

static inline void on_send_fail(void *ctx)
{
    struct both *b = ctx;

    pthread_mutex_lock(&b->lock);
    b->n_failed_sends++;
    snprintf(b->why_send, sizeof(b->why_send), "%s", err_msg());
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static inline void on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    struct both *b = ctx;
    struct one *o;

    pthread_mutex_lock(&b->lock);
    o = one_of(b, transfer);
    o->first_id = first_id;
    set_state(b, &o->got, NOTHING, ARRIVED);
    pthread_mutex_unlock(&b->lock);
}

static inline void on_dropped(void *ctx, uint64_t transfer, int rc)
{
    struct both *b = ctx;

    if (rc != (strstr(err_msg(), "was dropped") ? ERR_STATE : ERR_FORMAT))
        abort();
    pthread_mutex_lock(&b->lock);
    set_state(b, &one_of(b, transfer)->got, NOTHING, DROPPED);
    snprintf(b->why_receive, sizeof(b->why_receive), "%s", err_msg());
    pthread_mutex_unlock(&b->lock);
}

static inline void on_receive_fail(void *ctx)
{
    struct both *b = ctx;

    pthread_mutex_lock(&b->lock);
    b->n_failed_receives++;
    snprintf(b->why_receive, sizeof(b->why_receive), "%s", err_msg());
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* Until *n, an int or an enum, is at least `least`: a test that hangs says so. */
static inline void wait_for_least(struct both *b, const void *n, int least)
{
    struct timespec until;
    int v, rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        memcpy(&v, n, sizeof(v));
        if (v >= least || rc != 0)
            break;
        rc = pthread_cond_timedwait(&b->changed, &b->lock, &until);
    }
    pthread_mutex_unlock(&b->lock);
    if (v < least)
        fail_msg("nothing came for 30 s");
}

static inline void wait_for(struct both *b, const enum state *at)
{
    wait_for_least(b, at, ENDED);
}

static inline void wait_for_count(struct both *b, const int *n)
{
    wait_for_least(b, n, 1);
}

static inline struct kv_pool *open_pool(const char *alloc, int64_t block_tok)
{
    struct kv_pool_opts o = {.alloc = alloc,
                             .max_tok = MAX_TOK,
                             .block_tok = block_tok,
                             .max_seqs = N_TRANSFERS + 1,
                             .bounds = &bounds,
                             .shared = true};
    struct kv_pool *p;

    assert_ok(kv_pool_bytes(&o.budget_bytes, &shape, &o, N_TRANSFERS + 1));
    assert_ok(kv_pool_open(&p, &shape, &o));
    return p;
}

static inline struct cluster_sender_opts sender_opts(struct both *b,
                                                     const char *transport, int fd)
{
    struct cluster_sender_opts o = {.fd = fd,
                                    .shape = shape,
                                    .max_transfers = N_TRANSFERS,
                                    .mode = CLUSTER_LAYER_WISE,
                                    .on_offer = on_offer,
                                    .on_end = on_sent,
                                    .on_fail = on_send_fail,
                                    .ctx = b};

    assert_ok(cluster_transport_find(transport, &o.transport));
    return o;
}

static inline struct cluster_receiver_opts receiver_opts(struct both *b,
                                                         const char *transport, int fd)
{
    struct cluster_receiver_opts o = {.fd = fd,
                                      .shape = shape,
                                      .pool = b->to,
                                      .max_transfers = N_TRANSFERS,
                                      .on_arrived = on_arrived,
                                      .on_dropped = on_dropped,
                                      .on_fail = on_receive_fail,
                                      .ctx = b};

    assert_ok(cluster_transport_find(transport, &o.transport));
    return o;
}

static inline void begin(struct both *b)
{
    memset(b, 0, sizeof(*b));
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
}

static inline void *open_receiver(void *arg)
{
    const struct cluster_receiver_opts *o = arg;
    struct both *b = o->ctx;

    if (cluster_receiver_open(&b->receiver, o) != OK)
        abort();
    return NULL;
}

static inline void close_both(struct both *b)
{
    cluster_receiver_close(&b->receiver);
    cluster_sender_close(&b->sender);
    for (int i = 0; i < N_TRANSFERS; i++) {
        if (b->from)
            kv_release(b->from, &b->all[i].from);
        kv_release(b->to, &b->all[i].to);
    }
    kv_pool_close(&b->from);
    kv_pool_close(&b->to);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

static inline void expect_one(struct both *b, struct one *o, int64_t n_tok)
{
    const struct kv_need need = {.prompt_tok = n_tok};

    o->b = b;
    o->n_tok = n_tok;
    if (b->from)
        assert_ok(kv_reserve(b->from, &need, &o->from));
    assert_ok(kv_reserve(b->to, &need, &o->to));
    pthread_mutex_lock(&b->lock); /* a callback may come first */
    assert_ok(
        cluster_receiver_expect(b->receiver, &o->transfer, &o->to, n_tok, 1000 + n_tok));
    pthread_mutex_unlock(&b->lock);
}

static inline void wait_for_offer(struct both *b, struct one *o)
{
    wait_for_least(b, &o->sent, OFFERED);
}

#endif
