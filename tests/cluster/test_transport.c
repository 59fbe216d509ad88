/* Transports of keys and values between two ends: the same bytes in any two layouts, layers in
 * order or all at the end, nothing else written; memory that is dropped is told to be free once. */
#include <math.h>

#include "cluster/transfer.h"
#include "tests/cluster/ends.h"
#include "tests/support/faults.h"
#include "tests/support/kv.h"

static bool nothing_failed(struct both *b)
{
    bool ok;

    pthread_mutex_lock(&b->lock);
    ok = b->n_failed_sends == 0 && b->n_failed_receives == 0;
    pthread_mutex_unlock(&b->lock);
    return ok;
}

static struct kv_pool *any_pool(struct rng *r)
{
    return open_pool(test_kv_alloc(rng_u64(r)), 16 << rng_below(r, 3));
}

static void open_both(struct both *b, struct rng *r, const char *transport,
                      const struct cluster_sender_opts *like)
{
    struct cluster_receiver_opts ro;
    struct cluster_sender_opts so;
    pthread_t t;
    int fd[2];

    begin(b);
    b->from = any_pool(r);
    b->to = any_pool(r);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    ro = receiver_opts(b, transport, fd[1]);
    assert_int_equal(pthread_create(&t, NULL, open_receiver, &ro), 0);
    so = sender_opts(b, transport, fd[0]);
    so.mode = like->mode;
    so.serial_below_tok = like->serial_below_tok;
    so.limiter = like->limiter;
    so.no_checksums = like->no_checksums;
    assert_ok(cluster_sender_open(&b->sender, &so));
    pthread_join(t, NULL);
}

static void fill_pool(struct kv_pool *p, struct rng *r)
{
    size_t bytes;
    void *base;

    kv_pool_memory(p, &base, &bytes);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)base)[i] = (unsigned char)rng_u64(r);
}

/* The prompt in pieces of any size, layers as they are stored. */
static void compute(struct both *b, struct one *o, struct rng *r)
{
    for (int64_t at = 0; at < o->n_tok;) {
        at += 1 + (int64_t)rng_below(r, (uint64_t)(o->n_tok - at));
        for (int l = 0; l < shape.n_layers; l++)
            cluster_sender_stored(b->sender, o->transfer, &o->from, l, at);
    }
    cluster_sender_computed(b->sender, o->transfer, (int32_t)o->n_tok + 1000);
}

/* What the receiver's pool must be in the end. */
static char *expected(const struct both *b)
{
    size_t bytes;
    char *copy;
    void *base;

    kv_pool_memory(b->to, &base, &bytes);
    copy = mem_new(MEM_TEST, 1, bytes);
    assert_non_null(copy);
    memcpy(copy, base, bytes);
    for (int i = 0; i < N_TRANSFERS; i++) {
        const struct one *o = &b->all[i];

        for (int k = 0; k < shape.n_layers * shape.n_kv_heads * 2; k++)
            for (int64_t t = 0; t < o->n_tok; t++) {
                int l = k / 2 / shape.n_kv_heads, h = k / 2 % shape.n_kv_heads;
                const char *at = kv_token_at(&o->to, l, h, k % 2, t, shape.vec_bytes);

                memcpy(copy + (at - (char *)base),
                       kv_token_at(&o->from, l, h, k % 2, t, shape.vec_bytes),
                       shape.vec_bytes);
            }
    }
    return copy;
}

static void send_all(const char *transport, const struct cluster_sender_opts *like,
                     struct rng *r)
{
    struct cluster_sender_stat st;
    struct both b;
    size_t bytes;
    int64_t sum = 0;
    char *want;
    void *base;

    open_both(&b, r, transport, like);
    fill_pool(b.from, r);
    fill_pool(b.to, r);
    for (int i = 0; i < N_TRANSFERS; i++) {
        expect_one(&b, &b.all[i], 1 + (int64_t)rng_below(r, MAX_TOK));
        sum += b.all[i].n_tok;
    }
    want = expected(&b);
    for (int i = 0; i < N_TRANSFERS; i++) {
        wait_for_offer(&b, &b.all[i]);
        compute(&b, &b.all[i], r);
    }
    for (int i = 0; i < N_TRANSFERS; i++) {
        wait_for(&b, &b.all[i].got);
        wait_for(&b, &b.all[i].sent);
        assert_int_equal(b.all[i].got, ARRIVED);
        assert_int_equal(b.all[i].sent_rc, OK);
        assert_int_equal(b.all[i].first_id, b.all[i].n_tok + 1000);
    }
    kv_pool_memory(b.to, &base, &bytes);
    assert_memory_equal(base, want, bytes);
    cluster_sender_stat(b.sender, &st);
    assert_int_equal(st.n_transfers, N_TRANSFERS);
    assert_int_equal(st.bytes, sum * (int64_t)kv_token_bytes(&shape));
    if (like->mode == CLUSTER_SERIAL)
        assert_int_equal(st.n_pieces, N_TRANSFERS * shape.n_layers);
    assert_true(nothing_failed(&b));
    close_both(&b);
    mem_free(want);
}

TEST(same_bytes)
{
    struct rng r;

    rng_init(&r, test_seed(), "transport");
    for (int t = 0; t < 2; t++)
        for (int round = 0; round < 30; round++) {
            struct cluster_sender_opts like = {
                .mode = (enum cluster_transfer_mode)(round % 3),
                .serial_below_tok = 50,
                .no_checksums = round % 5 == 4};

            if (round % 7 == 6)
                like.limiter =
                    (struct cluster_limiter){.bytes_per_s = 1e8, .latency_ns = 100000};
            send_all(copying[t], &like, &r);
        }
}

/* Serial: nothing of a transfer is put before its prompt is computed, or the one that comes after
 * it would not be the first to arrive. Auto: by its length. */
TEST(modes)
{
    struct rng r;

    rng_init(&r, test_seed(), "modes");
    for (int i = 0; i < 4; i++) {
        const struct cluster_sender_opts like = {
            .mode = i < 2 ? CLUSTER_SERIAL : CLUSTER_AUTO, .serial_below_tok = 50};
        bool early = i == 3;
        struct cluster_sender_stat st;
        struct both b;
        struct one *o = &b.all[0], *next = &b.all[1];

        open_both(&b, &r, "shm", &like);
        expect_one(&b, o, early ? 50 : 49);
        expect_one(&b, next, 10);
        wait_for_offer(&b, o);
        wait_for_offer(&b, next);
        for (int l = 0; l < shape.n_layers; l++)
            cluster_sender_stored(b.sender, o->transfer, &o->from, l, o->n_tok);
        for (int l = 0; l < shape.n_layers; l++)
            cluster_sender_stored(b.sender, next->transfer, &next->from, l, 10);
        cluster_sender_computed(b.sender, next->transfer, 5);
        wait_for(&b, &next->got);
        cluster_sender_stat(b.sender, &st);
        assert_int_equal(st.n_pieces, shape.n_layers * (early ? 2 : 1));
        cluster_sender_computed(b.sender, o->transfer, 5);
        wait_for(&b, &o->got);
        assert_int_equal(o->got, ARRIVED);
        close_both(&b);
    }
}

/* ---- dropped ---- */

/* By either end at any time: each is told once that its memory is free, in whatever order. */
TEST(dropped_at_any_time)
{
    int n_arrived = 0, n_dropped = 0;
    struct rng r;

    rng_init(&r, test_seed(), "drop");
    for (int round = 0; round < 200; round++) {
        const struct cluster_sender_opts like = {
            .mode = (enum cluster_transfer_mode)(round % 2)};
        int whens[N_TRANSFERS];
        struct both b;

        open_both(&b, &r, copying[round % 2], &like);
        for (int i = 0; i < N_TRANSFERS; i++) {
            struct one *o = &b.all[i];
            int when = whens[i] = (int)rng_below(&r, 6);

            expect_one(&b, o, 1 + (int64_t)rng_below(&r, MAX_TOK));
            if (when == 0)
                cluster_receiver_drop(b.receiver, o->transfer);
            wait_for_offer(&b, o);
            if (when == 1)
                cluster_sender_drop(b.sender, o->transfer);
            compute(&b, o, &r);
            if (when == 2)
                cluster_receiver_drop(b.receiver, o->transfer);
            if (when == 3)
                cluster_sender_drop(b.sender, o->transfer);
        }
        for (int i = 0; i < N_TRANSFERS; i++) {
            bool arrived;

            wait_for(&b, &b.all[i].got);
            wait_for(&b, &b.all[i].sent);
            arrived = b.all[i].got == ARRIVED;
            assert_true(arrived || whens[i] < 4);
            assert_false(arrived && whens[i] < 2);
            if (whens[i] % 2 == 1 ||
                whens[i] == 4) /* others may be dropped when all is sent */
                assert_int_equal(arrived, b.all[i].sent_rc == OK);
            n_arrived += arrived;
            n_dropped += !arrived;
        }
        assert_true(nothing_failed(&b));
        close_both(&b);
    }
    assert_true(n_arrived > 100 && n_dropped > 100);
}

/* Also when all layers are there. */
TEST(dropped_at_the_end)
{
    const struct cluster_sender_opts like = {.mode = CLUSTER_LAYER_WISE};
    struct cluster_sender_stat st;
    struct rng r;
    struct both b;

    rng_init(&r, test_seed(), "end");
    open_both(&b, &r, "shm", &like);
    expect_one(&b, &b.all[0], 30);
    wait_for_offer(&b, &b.all[0]);
    for (int l = 0; l < shape.n_layers; l++)
        cluster_sender_stored(b.sender, b.all[0].transfer, &b.all[0].from, l, 30);
    do {
        cluster_sender_stat(b.sender, &st);
    } while (st.n_pieces < shape.n_layers);
    cluster_sender_drop(b.sender, b.all[0].transfer);
    wait_for(&b, &b.all[0].got);
    wait_for(&b, &b.all[0].sent);
    assert_int_equal(b.all[0].got, DROPPED);
    assert_int_equal(b.all[0].sent_rc, ERR_STATE);
    close_both(&b);
}

/* A layer that lacks a token when the prompt is computed would never be whole. */
TEST(computed_before_all_is_stored)
{
    for (int mode = 0; mode < 2; mode++) {
        const struct cluster_sender_opts like = {.mode =
                                                     (enum cluster_transfer_mode)mode};
        struct one *o;
        struct rng r;
        struct both b;

        rng_init(&r, test_seed(), "short");
        open_both(&b, &r, copying[mode], &like);
        o = &b.all[0];
        expect_one(&b, o, 30);
        wait_for_offer(&b, o);
        for (int l = 0; l < shape.n_layers; l++)
            cluster_sender_stored(b.sender, o->transfer, &o->from, l, l == 1 ? 29 : 30);
        cluster_sender_computed(b.sender, o->transfer, 5);
        wait_for(&b, &o->got);
        wait_for(&b, &o->sent);
        assert_int_equal(o->got, DROPPED);
        assert_int_equal(o->sent_rc, ERR_STATE);
        close_both(&b);
    }
}

/* The other end goes away: that is said once, and all memory of the sender is free. */
TEST(the_other_end_goes_away)
{
    struct rng r;

    rng_init(&r, test_seed(), "away");
    for (int round = 0; round < 40; round++) {
        const struct cluster_sender_opts like = {
            .mode = (enum cluster_transfer_mode)(round % 2)};
        struct both b;

        open_both(&b, &r, copying[round / 2 % 2], &like);
        for (int i = 0; i < N_TRANSFERS; i++) {
            expect_one(&b, &b.all[i], 1 + (int64_t)rng_below(&r, MAX_TOK));
            wait_for_offer(&b, &b.all[i]);
            if (rng_below(&r, 2))
                compute(&b, &b.all[i], &r);
        }
        if (round % 4 < 2) {
            cluster_sender_close(&b.sender);
            wait_for_count(&b, &b.n_failed_receives);
            assert_int_equal(b.n_failed_receives, 1);
            assert_non_null(strstr(b.why_receive, "closed the connection"));
        } else {
            cluster_receiver_close(&b.receiver);
            wait_for_count(&b, &b.n_failed_sends);
            assert_int_equal(b.n_failed_sends, 1);
            assert_true(strstr(b.why_send, "the other end") != NULL);
        }
        for (int i = 0; i < N_TRANSFERS; i++)
            wait_for(&b, &b.all[i].sent);
        close_both(&b);
    }
}

/* ---- the emulated link ---- */

/* By the closed form of Splitwise's layer-wise transfer. */
TEST(limiter_by_closed_form)
{
    struct rng r;

    rng_init(&r, test_seed(), "limiter");
    for (int round = 0; round < 1000; round++) {
        struct cluster_transfer t = {.n_layers = 1 + (int)rng_below(&r, 80),
                                     .compute_ns = (double)(1 + rng_below(&r, 1000000)),
                                     .alpha_ns = (double)rng_below(&r, 10000000),
                                     .layer_wise = round % 2};
        struct cluster_limiter l = {.bytes_per_s =
                                        1e6 * (double)(1 + rng_below(&r, 50000)),
                                    .latency_ns = (int64_t)t.alpha_ns};
        size_t bytes = 1 + rng_below(&r, 1 << 20);
        uint64_t due = 0;

        t.send_ns = (double)bytes / l.bytes_per_s * 1e9;
        for (int i = 0; i < t.n_layers; i++)
            due = cluster_limiter_due_ns(
                &l, (uint64_t)(t.compute_ns * (t.layer_wise ? i + 1 : t.n_layers)),
                bytes);
        assert_true(fabs((double)due - cluster_transfer_finish_ns(&t)) <
                    2.0 * t.n_layers + 2);
    }
    assert_int_equal(
        cluster_limiter_due_ns(&(struct cluster_limiter){.latency_ns = 7}, 5, 1 << 20),
        12);
}

struct receiver_end {
    struct cluster_receiver_opts o;
    struct cluster_receiver *r;
    int rc;
    char why[256];
};

static void *try_receiver(void *arg)
{
    struct receiver_end *e = arg;

    e->rc = cluster_receiver_open(&e->r, &e->o);
    snprintf(e->why, sizeof(e->why), "%s", err_msg());
    if (e->rc != OK)
        close(e->o.fd); /* so that the other end does not wait */
    return NULL;
}

static int open_and_close(const char *transport)
{
    struct receiver_end e = {0};
    struct cluster_sender_opts so;
    struct both b;
    pthread_t t;
    int fd[2], rc;

    begin(&b);
    b.to = open_pool("static", 16);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    e.o = receiver_opts(&b, transport, fd[1]);
    assert_int_equal(pthread_create(&t, NULL, try_receiver, &e), 0);
    so = sender_opts(&b, transport, fd[0]);
    rc = cluster_sender_open(&b.sender, &so);
    if (rc != OK)
        close(fd[0]);
    pthread_join(t, NULL);
    assert_true((rc == OK) == (b.sender != NULL) && (e.rc == OK) == (e.r != NULL));
    b.receiver = e.r;
    close_both(&b);
    return rc == ERR_NOMEM || e.rc == OK ? rc : err_set(e.rc, "%s", e.why);
}

/* At whichever end. */
TEST(a_thread_or_lock_cannot_be_had)
{
    for (int i = 0; cluster_transports[i]; i++)
        if (!cluster_transports[i]->mpi)
            assert_int_equal(
                test_thread_faults(open_and_close(cluster_transports[i]->name), true),
                11);
}
