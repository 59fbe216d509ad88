#include "cluster/transport_bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/mpi/mpi.h"
#include "cluster/tcp.h"
#include "cluster/wire.h"
#include "kv/slot_runs.h"

#define WAIT_S 120 /* nothing happens for so long: it hangs */

/* The sending or the receiving end. */
struct end {
    const struct cluster_bench_opts *o;
    int fd[CLUSTER_BENCH_N_SOCKETS];
    struct kv_pool *pool;
    struct kv_slot *slots;   /* [in_flight] */
    uint64_t *transfers;     /* [in_flight] receiver: in which slot; 0: none */
    struct kv_slot in_place; /* sender: what is offered now, until it has closed */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock, has_cond;
    uint64_t *queue; /* [n_transfers] that happened to this end, in their order */
    int n_queued, n_read, n_ended;
    int rc; /* of the connection or a transfer */
    char why[256];
};

/* The last message of the receiver. */
struct last_word {
    double cpu_s;
    uint64_t hash;
};

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t hash_all(const struct end *e, const struct kv_slot *slot)
{
    uint64_t h = 0;

    for (int l = 0; l < e->o->shape.n_layers; l++)
        h = 31 * h + kv_slot_hash(slot, &e->o->shape, l, 0, e->o->n_tok);
    return h;
}

/* ---- what happens to an end ---- */

static void happened(struct end *e, uint64_t transfer, int rc)
{
    pthread_mutex_lock(&e->lock);
    if (rc == OK && e->n_queued < e->o->n_transfers)
        e->queue[e->n_queued++] = transfer;
    if (rc != OK && e->rc == OK) {
        e->rc = rc;
        snprintf(e->why, sizeof(e->why), "%s", err_msg());
    }
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Until *n is more than `n_before`. */
static int wait_for_more(struct end *e, const int *n, int n_before)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&e->lock);
    while (*n <= n_before && e->rc == OK && rc == 0)
        rc = pthread_cond_timedwait(&e->changed, &e->lock, &until);
    rc = *n > n_before ? OK
         : e->rc != OK ? err_set(e->rc, "%s", e->why)
                       : err_set(ERR_STATE, "nothing came for %d s", WAIT_S);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static int open_end(struct end *e, const struct cluster_bench_opts *o, const char *alloc,
                    int n_slots, bool shared)
{
    struct kv_pool_opts po = {.alloc = alloc,
                              .max_tok = o->n_tok,
                              .block_tok = 64,
                              .max_seqs = n_slots,
                              .shared = shared};
    const struct kv_need need = {.prompt_tok = o->n_tok};
    size_t bytes;
    void *base;

    e->o = o;
    TRY(thread_mutex_init(&e->lock));
    e->has_lock = true;
    TRY(thread_cond_init(&e->changed));
    e->has_cond = true;
    e->queue = mem_new(MEM_KV, (size_t)o->n_transfers, sizeof(*e->queue));
    e->slots = mem_new(MEM_KV, (size_t)o->in_flight, sizeof(*e->slots));
    e->transfers = mem_new(MEM_KV, (size_t)o->in_flight, sizeof(*e->transfers));
    if (!e->queue || !e->slots || !e->transfers)
        return ERR_NOMEM;
    TRY(kv_pool_bytes(&po.budget_bytes, &o->shape, &po, n_slots));
    TRY(kv_pool_open(&e->pool, &o->shape, &po));
    kv_pool_memory(e->pool, &base, &bytes);
    for (size_t i = 0; i + 8 <= bytes; i += 8) { /* pages, and bytes that differ */
        uint64_t v = (i + !shared) * UINT64_C(0x9e3779b97f4a7c15);

        memcpy((char *)base + i, &v, 8);
    }
    for (int i = 0; i < n_slots; i++)
        TRY(kv_reserve(e->pool, &need, &e->slots[i]));
    return OK;
}

static void close_end(struct end *e)
{
    if (e->fd[CLUSTER_BENCH_LINK] >= 0)
        close(e->fd[CLUSTER_BENCH_LINK]);
    if (e->fd[CLUSTER_BENCH_CONTROL] >= 0)
        close(e->fd[CLUSTER_BENCH_CONTROL]);
    for (int i = 0; e->slots && i < e->o->in_flight; i++)
        if (e->slots[i].base)
            kv_release(e->pool, &e->slots[i]);
    kv_pool_close(&e->pool);
    mem_free((void *)e->in_place.blocks);
    mem_free(e->queue);
    mem_free(e->slots);
    mem_free(e->transfers);
    if (e->has_cond)
        pthread_cond_destroy(&e->changed);
    if (e->has_lock)
        pthread_mutex_destroy(&e->lock);
}

/* ---- the end that receives ---- */

static void on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    (void)first_id;
    happened(ctx, transfer, OK);
}

static void on_dropped(void *ctx, uint64_t transfer, int rc)
{
    (void)transfer;
    happened(ctx, 0, rc);
}

static void on_receive_fail(void *ctx)
{
    happened(ctx, 0, ERR_IO);
}

static int expect(struct end *e, struct cluster_receiver *r, int slot)
{
    /* The number is known before on_arrived() asks for it: this thread does. */
    return cluster_receiver_expect(r, &e->transfers[slot], &e->slots[slot], e->o->n_tok,
                                   0);
}

static int receive_all(struct end *e, struct cluster_receiver *r, int *last)
{
    int n_expected = 0;

    for (; n_expected < e->o->in_flight && n_expected < e->o->n_transfers; n_expected++)
        TRY(expect(e, r, n_expected));
    for (int i = 0; i < e->o->n_transfers; i++) {
        TRY(wait_for_more(e, &e->n_queued, i));
        for (int s = 0; s < e->o->in_flight; s++)
            if (e->transfers[s] == e->queue[i])
                *last = s;
        if (n_expected < e->o->n_transfers) {
            TRY(expect(e, r, *last));
            n_expected++;
        }
    }
    return OK;
}

static int receive(struct end *e, const struct cluster_bench_opts *o)
{
    struct cluster_receiver_opts ro = {.transport = o->transport,
                                       .shape = o->shape,
                                       .max_transfers = o->in_flight,
                                       .on_arrived = on_arrived,
                                       .on_dropped = on_dropped,
                                       .on_fail = on_receive_fail,
                                       .ctx = e};
    struct cluster_receiver *r = NULL;
    struct last_word w = {.cpu_s = 0};
    int last = 0, rc;
    char end;

    TRY(open_end(e, o, o->alloc, o->in_flight, true));
    ro.fd = e->fd[CLUSTER_BENCH_LINK];
    ro.pool = e->pool;
    TRY(cluster_receiver_open(&r, &ro));
    e->fd[CLUSTER_BENCH_LINK] = -1;
    w.cpu_s = -cpu_seconds();
    rc = receive_all(e, r, &last);
    w.cpu_s += cpu_seconds();
    if (rc == OK)
        w.hash = hash_all(e, &e->slots[last]);
    if (rc == OK)
        rc = cluster_wire_write(e->fd[CLUSTER_BENCH_CONTROL], &w, sizeof(w));
    if (rc == OK)
        rc = cluster_wire_read(e->fd[CLUSTER_BENCH_CONTROL], &end,
                               1); /* both close at once */
    cluster_receiver_close(&r);
    return rc;
}

/* ---- the end that sends ---- */

static void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    (void)n_tok, (void)tag;
    happened(ctx, transfer, OK);
}

static void on_end(void *ctx, uint64_t transfer, int rc)
{
    struct end *e = ctx;

    (void)transfer;
    if (rc != OK) {
        happened(e, 0, rc);
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->n_ended++;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void on_forget(void *ctx, uint64_t transfer)
{
    (void)transfer;
    happened(ctx, 0, err_set(ERR_STATE, "the receiver has dropped a prompt"));
}

static void on_send_fail(void *ctx)
{
    happened(ctx, 0, ERR_IO);
}

/* In place: what is offered is what would be computed in, and nothing is. */
static int send_one(struct end *e, struct cluster_sender *s, uint64_t transfer)
{
    const struct kv_slot *slot = &e->slots[0];
    bool is_in_place = e->o->transport->in_place;

    if (is_in_place) {
        TRY(cluster_sender_slot(s, transfer, &e->in_place));
        slot = &e->in_place;
    }
    for (int l = 0; l < e->o->shape.n_layers; l++)
        cluster_sender_stored(s, transfer, slot, l, e->o->n_tok);
    cluster_sender_computed(s, transfer, 1);
    if (!is_in_place)
        return OK;
    TRY(wait_for_more(e, &e->n_ended, e->n_read));
    mem_free((void *)e->in_place.blocks);
    e->in_place.blocks = NULL;
    return OK;
}

static int send_all(struct end *e, struct cluster_sender *s,
                    struct cluster_bench_result *out)
{
    uint64_t begin = 0;

    for (; e->n_read < e->o->n_transfers; e->n_read++) {
        TRY(wait_for_more(e, &e->n_queued, e->n_read));
        if (e->n_read == 0) {
            begin = clock_ns();
            out->sender_cpu_s = -cpu_seconds();
        }
        TRY(send_one(e, s, e->queue[e->n_read]));
    }
    TRY(wait_for_more(e, &e->n_ended, e->o->n_transfers - 1));
    out->begin_s = 1e-9 * (double)begin;
    out->end_s = 1e-9 * (double)clock_ns();
    out->seconds = out->end_s - out->begin_s;
    out->sender_cpu_s += cpu_seconds();
    return OK;
}

static int finish(struct end *e, struct cluster_sender *s,
                  struct cluster_bench_result *out)
{
    struct cluster_sender_stat st;
    struct last_word w;

    cluster_sender_stat(s, &st);
    out->bytes = st.bytes;
    out->n_pieces = st.n_pieces;
    out->put_s = 1e-9 * (double)st.put_ns;
    out->hash_s = 1e-9 * (double)st.hash_ns;
    TRY(cluster_wire_read(e->fd[CLUSTER_BENCH_CONTROL], &w, sizeof(w)));
    out->receiver_cpu_s = w.cpu_s;
    out->same = e->o->transport->in_place || w.hash == hash_all(e, &e->slots[0]);
    return cluster_wire_write(e->fd[CLUSTER_BENCH_CONTROL], "", 1);
}

static int send_to(struct end *e, const struct cluster_bench_opts *o,
                   struct cluster_bench_result *out)
{
    struct cluster_sender_opts so = {.transport = o->transport,
                                     .shape = o->shape,
                                     .max_transfers = o->in_flight,
                                     .mode = CLUSTER_LAYER_WISE,
                                     .no_checksums = o->no_checksums,
                                     .limiter = {.bytes_per_s = o->bytes_per_s},
                                     .on_offer = on_offer,
                                     .on_end = on_end,
                                     .on_forget = on_forget,
                                     .on_fail = on_send_fail,
                                     .ctx = e};
    struct cluster_sender *s = NULL;
    int rc;

    TRY(open_end(e, o, "static", 1, false));
    so.fd = e->fd[CLUSTER_BENCH_LINK];
    TRY(cluster_sender_open(&s, &so));
    e->fd[CLUSTER_BENCH_LINK] = -1;
    rc = send_all(e, s, out);
    if (rc == OK)
        rc = finish(e, s, out);
    cluster_sender_close(&s);
    return rc;
}

/* ---- in two processes ---- */

int cluster_bench_send(struct cluster_bench_result *out,
                       const int fd[CLUSTER_BENCH_N_SOCKETS],
                       const struct cluster_bench_opts *o)
{
    struct end e = {.fd = {fd[CLUSTER_BENCH_LINK], fd[CLUSTER_BENCH_CONTROL]}};
    int rc;

    *out = (struct cluster_bench_result){.seconds = 0};
    rc = send_to(&e, o, out);
    close_end(&e);
    return rc;
}

int cluster_bench_receive(const int fd[CLUSTER_BENCH_N_SOCKETS],
                          const struct cluster_bench_opts *o)
{
    struct end e = {.fd = {fd[CLUSTER_BENCH_LINK], fd[CLUSTER_BENCH_CONTROL]}};
    int rc = receive(&e, o);

    close_end(&e);
    return rc;
}

struct address {
    char host[CLUSTER_TCP_HOST_BYTES];
    int port;
};

/* Rank 1 connects to rank 0. */
static int connect_ranks(int rank, int fd[CLUSTER_BENCH_N_SOCKETS])
{
    struct address a = {.port = 0};
    char port[CLUSTER_TCP_PORT_BYTES];
    int listener = -1;

    if (rank == 0) {
        TRY(cluster_tcp_listen(NULL, "0", &listener));
        a.port = cluster_tcp_port(listener);
        if (gethostname(a.host, sizeof(a.host) - 1) != 0)
            return err_set(ERR_IO, "this host has no name: %m");
    }
    TRY(cluster_mpi_bcast(&a, sizeof(a)));
    snprintf(port, sizeof(port), "%d", a.port);
    for (int i = 0; i < CLUSTER_BENCH_N_SOCKETS; i++)
        TRY(rank == 0 ? cluster_tcp_accept(listener, &fd[i])
                      : cluster_tcp_connect(a.host, port, &fd[i]));
    if (listener >= 0)
        close(listener);
    return OK;
}

int cluster_bench_connect_ranks(int fd[CLUSTER_BENCH_N_SOCKETS], int *rank, char *library,
                                size_t n)
{
    int size;

    TRY(cluster_mpi_open(rank, &size, library, n));
    if (size != 2)
        return err_set(ERR_STATE, "mpirun has started %d processes: expected 2", size);
    return connect_ranks(*rank, fd);
}
