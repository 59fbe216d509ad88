/* Whatever is wrong on the wire of a transport is found and named, by either end. */
#include "base/hash_stream.h"
#include "tests/cluster/ends.h"

/* A receiver whose sender is the test. */
static int open_raw_sender(struct both *b)
{
    struct cluster_receiver_opts ro;
    pthread_t t;
    int fd[2];

    begin(b);
    b->to = open_pool("paged", 16);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    ro = receiver_opts(b, "socket", fd[1]);
    assert_int_equal(pthread_create(&t, NULL, open_receiver, &ro), 0);
    assert_ok(cluster_hello(fd[0], "socket", &shape));
    pthread_join(t, NULL);
    expect_one(b, &b->all[0], 20);
    return fd[0];
}

/* Tokens [lo, hi) of a layer, all of whose bytes are 7. */
static void write_piece(int fd, uint64_t transfer, int layer, int64_t lo, int64_t hi,
                        uint64_t wrong)
{
    struct cluster_message m = {.type = CLUSTER_PIECE,
                                .transfer = transfer,
                                .layer = layer,
                                .lo = lo,
                                .hi = hi,
                                .has_hash = true};
    size_t n = (size_t)(hi > lo ? hi - lo : 0) * 2 * 2 * shape.vec_bytes;
    char bytes[2 * 2 * 24 * MAX_TOK];
    struct hash_stream h;

    memset(bytes, 7, sizeof(bytes));
    hash_stream_init(&h);
    hash_stream_add(&h, bytes, n);
    m.hash = hash_stream_end(&h) ^ wrong;
    (void)!cluster_message_write(fd, &m, NULL);
    (void)!cluster_wire_write(fd, bytes, n);
}

static void write_end(int fd, uint64_t transfer)
{
    struct cluster_message m = {.type = CLUSTER_END, .transfer = transfer, .first_id = 3};

    (void)!cluster_message_write(fd, &m, NULL);
}

enum wrong {
    UNKNOWN_ID,
    STALE_ID,
    WRONG_LAYER,
    NO_SUCH_TOKENS,
    GAP,
    DUPLICATE,
    EMPTY,
    WRONG_BYTES,
    PARTIAL_LAYER,
    MISSING_LAYER,
    UNKNOWN_END,
    GARBAGE,
    TRUNCATED,
    WRONG_MESSAGE,
    N_WRONG
};
static const struct {
    bool drops; /* this transfer only, or the connection fails */
    const char *says;
} wrongs[N_WRONG] = {
    [UNKNOWN_ID] = {false, "transfer 99, which is not expected"},
    [STALE_ID] = {false, "transfer 1, which is not expected"},
    [WRONG_LAYER] = {false, "a piece of layer 3: expected 0 to 2"},
    [NO_SUCH_TOKENS] = {false, "tokens 0 to 21: expected one that begins at 0, of 20"},
    [GAP] = {false, "tokens 5 to 20: expected one that begins at 0"},
    [DUPLICATE] = {false, "tokens 0 to 20: expected one that begins at 20"},
    [EMPTY] = {false, "tokens 0 to 0: expected"},
    [WRONG_BYTES] = {true, "layer 1, tokens 0 to 20: checksum"},
    [PARTIAL_LAYER] = {true, "layer 2: 19 of 20 tokens came"},
    [MISSING_LAYER] = {true, "layer 2: 0 of 20 tokens came"},
    [UNKNOWN_END] = {false, "the end of transfer 99, which is not expected"},
    [GARBAGE] = {false, "something else than a message"},
    [TRUNCATED] = {false, "closed the connection"},
    [WRONG_MESSAGE] = {false, "a message of type 2"},
};

static void do_wrong(int fd, enum wrong w, uint64_t id)
{
    struct cluster_message m = {.type = CLUSTER_OFFER, .transfer = id};
    static const char garbage[sizeof(m)] = "HTTP/1.1 400 Bad Request";

    for (int l = 0; l < 3; l++) {
        bool last = l == 2;

        if (w == WRONG_LAYER && last)
            write_piece(fd, id, 3, 0, 20, 0);
        else if (w == NO_SUCH_TOKENS && last)
            write_piece(fd, id, l, 0, 21, 0);
        else if (w == GAP && last)
            write_piece(fd, id, l, 5, 20, 0);
        else if (w == EMPTY && last)
            write_piece(fd, id, l, 0, 0, 0);
        else if (w == PARTIAL_LAYER && last)
            write_piece(fd, id, l, 0, 19, 0);
        else if (!(w == MISSING_LAYER && last))
            write_piece(fd, id, l, 0, 20, w == WRONG_BYTES && l == 1);
        if (w == UNKNOWN_ID && l == 1)
            write_piece(fd, 99, 2, 0, 20, 0);
        if (w == DUPLICATE && l == 1)
            write_piece(fd, id, 1, 0, 20, 0);
        if (w == TRUNCATED && l == 1)
            shutdown(fd, SHUT_WR);
    }
    if (w == GARBAGE)
        (void)!cluster_wire_write(fd, garbage, sizeof(garbage));
    if (w == WRONG_MESSAGE)
        (void)!cluster_message_write(fd, &m, NULL);
    write_end(fd, w == UNKNOWN_END ? 99 : id);
    if (w == STALE_ID)
        write_piece(fd, id, 0, 0, 20, 0);
}

TEST(what_is_wrong_is_named)
{
    for (int w = 0; w < N_WRONG; w++) {
        struct both b;
        struct one *o = &b.all[0];
        int fd = open_raw_sender(&b);

        do_wrong(fd, (enum wrong)w, o->transfer);
        if (wrongs[w].drops)
            wait_for(&b, &o->got);
        else
            wait_for_count(&b, &b.n_failed_receives);
        if (!strstr(b.why_receive, wrongs[w].says))
            fail_msg("fault %d: \"%s\", wanted \"%s\"", w, b.why_receive, wrongs[w].says);
        assert_int_equal(b.n_failed_receives, !wrongs[w].drops);
        assert_int_equal(o->got, wrongs[w].drops ? DROPPED
                                 : w == STALE_ID ? ARRIVED
                                                 : NOTHING);
        if (!wrongs[w].drops) {
            uint64_t id;

            assert_err(cluster_receiver_expect(b.receiver, &id, &o->to, 20, 0), ERR_STATE,
                       "has failed");
        }
        close(fd);
        close_both(&b);
    }
}

/* And without a fault it arrives. */
/* No field of a message, nor a byte that follows it, can change on its way. */
TEST(a_changed_byte_is_found)
{
    struct cluster_message m = {.type = CLUSTER_END, .transfer = 1, .first_id = 3}, sent;
    char more[5] = "text", got[5];
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    m.n_more = sizeof(more);
    for (size_t i = 0; i < sizeof(m) + sizeof(more); i++) {
        assert_ok(cluster_message_write(fd[0], &m, more));
        assert_ok(cluster_wire_read(fd[1], &sent, sizeof(sent)));
        assert_ok(cluster_wire_read(fd[1], got, sizeof(got)));
        if (i < sizeof(m))
            ((char *)&sent)[i] ^= 1;
        else
            got[i - sizeof(m)] ^= 1;
        assert_ok(cluster_wire_write(fd[0], &sent, sizeof(sent)));
        assert_ok(cluster_wire_write(fd[0], got, sizeof(got)));
        if (i < sizeof(m)) {
            assert_err(cluster_message_read(fd[1], &sent), ERR_FORMAT, "");
            assert_ok(cluster_wire_read(fd[1], got, sizeof(got)));
        } else {
            assert_ok(cluster_message_read(fd[1], &sent));
            assert_err(cluster_message_read_more(fd[1], &sent, got), ERR_FORMAT,
                       "a wrong checksum");
        }
    }
    close(fd[0]);
    close(fd[1]);
}

TEST(nothing_wrong)
{
    struct both b;
    int fd = open_raw_sender(&b);

    do_wrong(fd, N_WRONG, b.all[0].transfer);
    wait_for(&b, &b.all[0].got);
    assert_int_equal(b.all[0].got, ARRIVED);
    assert_int_equal(b.all[0].first_id, 3);
    close(fd);
    close_both(&b);
}

/* The receiver does not want it any more, and the sender does not know that yet. */
TEST(dropped_and_all_comes)
{
    struct both b;
    struct one *o = &b.all[0];
    int fd = open_raw_sender(&b);

    cluster_receiver_drop(b.receiver, o->transfer);
    do_wrong(fd, N_WRONG, o->transfer);
    wait_for(&b, &o->got);
    assert_int_equal(o->got, DROPPED);
    assert_int_equal(b.n_failed_receives, 0);
    close(fd);
    close_both(&b);
}

/* The hello of an end that is the test, and the pool that it lends (NULL: none), on a thread. */
struct hello {
    int fd;
    const char *transport;
    const struct kv_pool *pool;
};

static void *say_hello(void *arg)
{
    const struct hello *h = arg;
    const struct cluster_transport *t;

    if (cluster_transport_find(h->transport, &t) != OK ||
        cluster_hello(h->fd, h->transport, &shape) != OK)
        return NULL;
    if (h->pool && t->lend(h->fd, h->pool) != OK)
        abort();
    return NULL;
}

/* Offers that a sender must not follow. */
TEST(wrong_offers)
{
    static const char *const says[] = {"outside of the pool", "offered twice",
                                       "a layout of",         "99 tokens in a slot",
                                       "of type 4",           "outside of the pool"};
    struct kv_pool *pool = open_pool("paged", 16);

    for (int w = 0; w < 6; w++) {
        struct cluster_message m = {
            .type = CLUSTER_OFFER, .transfer = 1, .hi = 20, .tag = 1020};
        struct cluster_sender_opts so;
        struct cluster_layout *l;
        struct kv_slot slot;
        struct hello hello = {.transport = "shm", .pool = pool};
        struct both b;
        pthread_t t;
        size_t bytes;
        int fd[2];

        begin(&b);
        b.all[0] = (struct one){.transfer = 1, .n_tok = 20};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_ok(kv_reserve(pool, &(struct kv_need){.prompt_tok = 20}, &slot));
        so = sender_opts(&b, "shm", fd[0]);
        assert_ok(cluster_layout_pack((void **)&l, &bytes, &slot, 20, pool));
        hello.fd = fd[1];
        assert_int_equal(pthread_create(&t, NULL, say_hello, &hello), 0);
        assert_ok(cluster_sender_open(&b.sender, &so));
        pthread_join(t, NULL);
        if (w == 0)
            l->base_at = (uint64_t)1 << 40;
        if (w == 5)
            ((int32_t *)(l + 1))[1] = -1;
        m.n_more = (uint32_t)(w == 2 ? bytes - 4 : bytes);
        m.type = w == 4 ? CLUSTER_PIECE : CLUSTER_OFFER;
        m.hi = w == 3 ? 99 : 20;
        (void)!cluster_message_write(fd[1], &m, l); /* it may be refused before its end */
        if (w == 1)
            (void)!cluster_message_write(fd[1], &m, l);
        wait_for_count(&b, &b.n_failed_sends);
        if (!strstr(b.why_send, says[w]))
            fail_msg("offer %d: \"%s\", wanted \"%s\"", w, b.why_send, says[w]);
        cluster_sender_close(&b.sender);
        close(fd[1]);
        mem_free(l);
        kv_release(pool, &slot);
        pthread_cond_destroy(&b.changed);
        pthread_mutex_destroy(&b.lock);
    }
    kv_pool_close(&pool);
}

TEST(ends_that_differ)
{
    struct kv_shape other = shape;
    struct hello hello = {.transport = "socket"};
    struct cluster_sender_opts so;
    struct both b;
    pthread_t t;
    int fd[2];

    begin(&b);
    other.vec_bytes = 48;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    so = sender_opts(&b, "socket", fd[0]);
    so.shape = other;
    hello.fd = fd[1];
    assert_int_equal(pthread_create(&t, NULL, say_hello, &hello), 0);
    assert_err(cluster_sender_open(&b.sender, &so), ERR_STATE,
               "48 bytes a key, transport socket here; 4, 3, 2, 24, socket there");
    pthread_join(t, NULL);
    assert_null(b.sender);
    close(fd[0]);
    close(fd[1]);
    assert_err(cluster_transport_find("smh", &so.transport), ERR_NOTFOUND, "shm");
    pthread_cond_destroy(&b.changed);
    pthread_mutex_destroy(&b.lock);
}

/* ---- any field of any message has any value, under a right checksum ---- */

#define N_MUTANTS 1000

static uint64_t any_value(struct rng *r, uint64_t old)
{
    static const uint64_t extremes[] = {
        0, 1, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, INT32_MAX, UINT32_MAX, 1 << 20};

    switch (rng_below(r, 4)) {
    case 0:
        return extremes[rng_below(r, sizeof(extremes) / sizeof(extremes[0]))];
    case 1:
        return old + (rng_below(r, 2) ? 1 : UINT64_MAX);
    case 2:
        return old ^ (UINT64_C(1) << rng_below(r, 64));
    default:
        return rng_u64(r);
    }
}

/* One of n words of `bytes` bytes. */
static void mutate_word(struct rng *r, void *at, size_t n, size_t bytes)
{
    char *word = (char *)at + bytes * rng_below(r, n);
    uint64_t v = 0;

    memcpy(&v, word, bytes);
    v = any_value(r, v);
    memcpy(word, &v, bytes);
}

static void mutate_message(struct rng *r, struct cluster_message *m)
{
    /* type; from the transfer's number on all but the checksum */
    if (rng_below(r, 6) == 0)
        m->type = (uint32_t)any_value(r, m->type);
    else
        mutate_word(r, &m->transfer,
                    (offsetof(struct cluster_message, n_more) -
                     offsetof(struct cluster_message, transfer)) /
                        4,
                    4);
}

/* The receiver takes what is right, or drops it, or says what is wrong. */
TEST(mutants_of_pieces)
{
    int n_arrived = 0;

    for (int i = 0; i < N_MUTANTS; i++) {
        char bytes[2 * 2 * 24 * 20];
        int at = i % 4, fd;
        struct hash_stream h;
        struct both b;
        struct rng r;

        rng_init(&r, test_seed() + (uint64_t)i, "pieces");
        fd = open_raw_sender(&b);
        memset(bytes, 7, sizeof(bytes));
        hash_stream_init(&h);
        hash_stream_add(&h, bytes, sizeof(bytes));
        for (int k = 0; k < 4; k++) {
            struct cluster_message m = {.type = k < 3 ? CLUSTER_PIECE : CLUSTER_END,
                                        .transfer = b.all[0].transfer,
                                        .layer = k < 3 ? k : 0,
                                        .first_id = 3,
                                        .hi = k < 3 ? 20 : 0,
                                        .has_hash = k < 3,
                                        .hash = k < 3 ? hash_stream_end(&h) : 0};

            if (k == at)
                mutate_message(&r, &m);
            (void)!cluster_message_write(fd, &m, NULL);
            if (k < 3)
                (void)!cluster_wire_write(fd, bytes, sizeof(bytes));
        }
        shutdown(fd, SHUT_WR);
        wait_for_count(&b, &b.n_failed_receives);
        n_arrived += b.all[0].got == ARRIVED;
        close(fd);
        close_both(&b);
    }
    assert_true(n_arrived > 0 && n_arrived < N_MUTANTS / 2);
}

static void drop_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct both *b = ctx;

    (void)n_tok, (void)tag;
    cluster_sender_drop(b->sender, transfer);
}

static void on_any_end(void *ctx, uint64_t transfer, int rc)
{
    (void)ctx, (void)transfer, (void)rc;
}

/* Nor does the sender believe an offer. */
TEST(mutants_of_offers)
{
    struct kv_pool *pool = open_pool("paged", 16);
    struct kv_slot slot;

    assert_ok(kv_reserve(pool, &(struct kv_need){.prompt_tok = 20}, &slot));
    for (int i = 0; i < N_MUTANTS; i++) {
        struct cluster_message m = {
            .type = CLUSTER_OFFER, .transfer = 1, .hi = 20, .tag = 1020};
        struct hello hello = {.transport = "shm", .pool = pool};
        struct cluster_sender_opts so;
        struct cluster_layout *l;
        struct both b;
        struct rng r;
        pthread_t t;
        size_t bytes;
        int fd[2];

        rng_init(&r, test_seed() + (uint64_t)i, "offers");
        begin(&b);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        so = sender_opts(&b, "shm", fd[0]);
        so.on_offer = drop_offer;
        so.on_end = on_any_end;
        assert_ok(cluster_layout_pack((void **)&l, &bytes, &slot, 20, pool));
        hello.fd = fd[1];
        assert_int_equal(pthread_create(&t, NULL, say_hello, &hello), 0);
        assert_ok(cluster_sender_open(&b.sender, &so));
        pthread_join(t, NULL);
        m.n_more = (uint32_t)bytes;
        if (i % 2)
            mutate_message(&r, &m);
        else
            mutate_word(&r, l, bytes / 4, 4);
        (void)!cluster_message_write(fd[1], &m, l);
        shutdown(fd[1], SHUT_WR);
        wait_for_count(&b, &b.n_failed_sends);
        cluster_sender_close(&b.sender);
        close(fd[1]);
        mem_free(l);
        pthread_cond_destroy(&b.changed);
        pthread_mutex_destroy(&b.lock);
    }
    kv_release(pool, &slot);
    kv_pool_close(&pool);
}
