#include "experiments/study/support/kv_fault_world.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define N_SLOTS 4
#define HANG_NS UINT64_C(30000000000)

const struct kv_shape study_fault_shape = {
    .n_layers = 3, .n_kv_heads = 2, .vec_bytes = 24};

/* ---- what the ends say ---- */

void study_fault_say(struct study_fault_world *w, int *n, bool is_fault)
{
    pthread_mutex_lock(&w->lock);
    ++*n;
    if (is_fault && !w->named_ns) {
        w->named_ns = clock_ns();
        snprintf(w->says, sizeof(w->says), "%s", err_msg());
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct study_fault_world *w = ctx;

    (void)transfer, (void)n_tok, (void)tag;
    study_fault_say(w, &w->n_offers, false);
}

static void on_sent(void *ctx, uint64_t transfer, int rc)
{
    (void)ctx, (void)transfer, (void)rc;
}

static void on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    struct study_fault_world *w = ctx;

    (void)transfer, (void)first_id;
    study_fault_say(w, &w->n_arrived, false);
}

static void on_dropped(void *ctx, uint64_t transfer, int rc)
{
    struct study_fault_world *w = ctx;

    (void)transfer, (void)rc;
    study_fault_say(w, &w->n_dropped, true);
}

static void on_fail(void *ctx)
{
    struct study_fault_world *w = ctx;

    study_fault_say(w, &w->n_failed, true);
}

bool study_fault_wait(struct study_fault_world *w, const int *n, bool or_named)
{
    uint64_t end = clock_ns() + HANG_NS;
    struct timespec t = {.tv_sec = (time_t)(end / 1000000000),
                         .tv_nsec = (long)(end % 1000000000)};
    bool came;
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    while (*n == 0 && !(or_named && w->named_ns) && rc == 0)
        rc = pthread_cond_timedwait(&w->changed, &w->lock, &t);
    came = *n > 0 || (or_named && w->named_ns);
    pthread_mutex_unlock(&w->lock);
    return came;
}

/* ---- a sender that may stall in the middle of a piece ---- */

#define FDS_MAX 4096
static _Atomic(struct study_fault_world *) by_fd[FDS_MAX]; /* whose sender it is */

static int stalling_put(int fd, const struct kv_shape *s, const struct kv_slot *to,
                        const struct kv_slot *from, const struct cluster_piece *p)
{
    struct study_fault_world *w = by_fd[fd];
    struct cluster_piece first = *p, rest = *p;

    if (!w->transport->get) { /* half of it, where there is no order of bytes */
        first.hi = rest.lo = (p->lo + p->hi) / 2;
        TRY(w->transport->put(fd, s, to, from, &first));
    }
    pthread_mutex_lock(&w->lock);
    w->is_stalled = w->stalls;
    while (w->stalls)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->transport->put(fd, s, to, from, &rest);
}

void study_fault_stall(struct study_fault_world *w, bool stalls)
{
    pthread_mutex_lock(&w->lock);
    w->stalls = stalls;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- connecting ---- */

struct opening {
    struct study_fault_world *w;
    int fd, rc;
};

static void *open_receiver(void *arg)
{
    struct opening *o = arg;
    struct study_fault_world *w = o->w;
    const struct cluster_receiver_opts opts = {.transport = w->transport,
                                               .fd = o->fd,
                                               .shape = study_fault_shape,
                                               .pool = w->to,
                                               .max_transfers = 2,
                                               .silence_ms = STUDY_FAULT_SILENCE_MS,
                                               .lease_ms = STUDY_FAULT_LEASE_MS,
                                               .on_arrived = on_arrived,
                                               .on_dropped = on_dropped,
                                               .on_fail = on_fail,
                                               .ctx = w};

    o->rc = cluster_receiver_open(&w->receiver, &opts);
    if (o->rc != OK)
        study_fault_say(w, &w->n_failed, true);
    return NULL;
}

int study_fault_open_sender(struct study_fault_world *w, int fd)
{
    struct cluster_transport t = *w->transport;
    struct cluster_sender_opts o = {.fd = fd,
                                    .shape = study_fault_shape,
                                    .max_transfers = 2,
                                    .mode = CLUSTER_LAYER_WISE,
                                    .silence_ms = STUDY_FAULT_SILENCE_MS,
                                    .no_checksums = w->no_checksums,
                                    .on_offer = on_offer,
                                    .on_end = on_sent,
                                    .on_fail = on_fail,
                                    .ctx = w};

    t.put = stalling_put;
    w->stalling = t;
    o.transport = &w->stalling;
    if (fd >= FDS_MAX)
        return err_set(ERR_LIMIT, "descriptor %d: expected fewer than %d", fd, FDS_MAX);
    by_fd[fd] = w;
    return cluster_sender_open(&w->sender, &o);
}

int study_fault_connect(struct study_fault_world *w, bool scripted,
                        const struct kv_shape *shown)
{
    struct opening o = {.w = w};
    pthread_t t;
    int fd[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
        return err_set(ERR_IO, "cannot make a socket: %m");
    o.fd = fd[1];
    rc = thread_start(&t, 0, open_receiver, &o, "faults");
    if (rc != OK) {
        close(fd[0]);
        close(fd[1]);
        return rc;
    }
    if (scripted) {
        w->fd = fd[0];
        rc = cluster_hello(fd[0], w->transport->name, shown);
        if (rc == OK && w->transport->borrow)
            rc = w->transport->borrow(&w->pool, &w->pool_bytes, fd[0]);
    } else {
        rc = study_fault_open_sender(w, fd[0]);
        if (rc != OK)
            close(fd[0]);
    }
    pthread_join(t, NULL);
    if (o.rc != OK)
        close(fd[1]);
    return rc == OK ? o.rc : rc;
}

void study_fault_disconnect(struct study_fault_world *w)
{
    study_fault_stall(w, false);
    cluster_sender_close(&w->sender);
    if (w->pool)
        w->transport->give_back(w->pool, w->pool_bytes);
    w->pool = NULL;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    cluster_receiver_close(&w->receiver);
    mem_free(w->layout);
    w->layout = NULL;
}

void study_fault_forget(struct study_fault_world *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_offers = w->n_arrived = w->n_dropped = w->n_failed = 0;
    w->named_ns = 0;
    w->says[0] = 0;
    w->is_stalled = false;
    pthread_mutex_unlock(&w->lock);
}

/* ---- the world ---- */

static int open_pool(struct kv_pool **out, const char *alloc)
{
    struct kv_pool_opts o = {.alloc = alloc,
                             .max_tok = STUDY_FAULT_MAX_TOK,
                             .block_tok = 16,
                             .max_seqs = N_SLOTS,
                             .shared = true};

    TRY(kv_pool_bytes(&o.budget_bytes, &study_fault_shape, &o, N_SLOTS));
    return kv_pool_open(out, &study_fault_shape, &o);
}

static void fill(struct kv_pool *p, const char *name_of)
{
    struct rng r;
    size_t bytes;
    void *base;

    rng_init(&r, 1, name_of);
    kv_pool_memory(p, &base, &bytes);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)base)[i] = (unsigned char)rng_u64(&r);
}

int study_fault_open(struct study_fault_world **out)
{
    const struct kv_need need = {.prompt_tok = STUDY_FAULT_MAX_TOK};
    struct study_fault_world *w = mem_new(MEM_KV, 1, sizeof(*w));
    int rc;

    *out = w;
    if (!w)
        return ERR_NOMEM;
    *w = (struct study_fault_world){.fd = -1};
    rc = thread_mutex_init(&w->lock);
    if (rc == OK)
        rc = thread_cond_init(&w->changed);
    if (rc == OK)
        rc = open_pool(&w->from, "static");
    if (rc == OK)
        rc = open_pool(&w->to, "paged");
    if (rc == OK)
        rc = kv_reserve(w->from, &need, &w->source);
    if (rc == OK)
        rc = kv_reserve(w->to, &need, &w->slot);
    if (rc == OK)
        rc = kv_reserve(w->to, &need, &w->other);
    if (rc == OK) {
        fill(w->from, "from");
        fill(w->to, "to");
    }
    return rc;
}

void study_fault_close(struct study_fault_world **wp)
{
    struct study_fault_world *w = *wp;

    if (!w)
        return;
    study_fault_disconnect(w);
    if (w->from)
        kv_release(w->from, &w->source);
    if (w->to) {
        kv_release(w->to, &w->slot);
        kv_release(w->to, &w->other);
    }
    kv_pool_close(&w->from);
    kv_pool_close(&w->to);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    *wp = NULL;
}
