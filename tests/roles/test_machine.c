/* A machine whose front, or whose prompt machine, is the test: whatever goes wrong with a request,
 * its memory is free again and the next one goes on; and a front that breaks the protocol ends the
 * machine, with a line. */
#include "roles/join.h"
#include "tests/roles/fake_machine.h"

#define N_PROMPT 5
#define N_NEW    4
#define ROUNDS   10 /* more than a machine has sequences */

struct bench {
    struct roles_setup front;
    struct fake_machine prompt; /* that does nothing but join */
    pthread_t machine;
    int machine_rc;
    char machine_why[300];
    struct cluster_sender *sender;
    struct kv_slot slot; /* what is sent */
    struct kv_shape shape;
    int64_t n_requests;
    int32_t first; /* that is sent after keys and values; -1: the transfer is dropped */
};
static struct bench b;

static void *machine_main(void *arg)
{
    struct serve_opts so = engine_opts();
    struct roles_opts o = roles_opts("prompt=1,token=1");

    (void)arg;
    o.role = ROLES_AS_TOKEN;
    assert_ok(opt_set(roles_opt_table, &o, "front", b.front.o.machines, "test"));
    assert_ok(opt_set(roles_opt_table, &o, "transport", "socket", "test"));
    b.machine_rc = roles_machine_serve(&so, &o);
    snprintf(b.machine_why, sizeof(b.machine_why), "%.299s",
             b.machine_rc == OK ? "" : err_msg());
    opt_free(roles_opt_table, &o);
    free_opts(&so);
    return NULL;
}

static void *prompt_main(void *arg)
{
    struct fake_machine *m = arg;

    m->u = (struct roles_setup){.is_joined = true,
                                .mpi_index = -1,
                                .model_id = b.front.model_id,
                                .o.front = b.front.o.machines};
    memset(m->u.control, -1, sizeof(m->u.control));
    memset(m->u.link, -1, sizeof(m->u.link));
    m->rc = roles_join(&m->u, true, &m->index);
    return NULL;
}

/* The next message of the machine but statistics; its text or what else follows. */
static struct roles_message hear(char more[ROLES_MORE_MAX], struct roles_stat *st)
{
    struct pollfd p = {.fd = b.front.control[1][0], .events = POLLIN};
    struct roles_message head;

    for (;;) {
        if (poll(&p, 1, 20000) != 1)
            fail_msg("the machine says nothing");
        assert_ok(cluster_wire_read(p.fd, &head, sizeof(head)));
        assert_ok(roles_message_check(&head, ROLES_MORE_MAX));
        assert_ok(cluster_wire_read(p.fd, more, head.n_more));
        if (head.type == ROLES_STAT && st)
            memcpy(st, more, sizeof(*st));
        if (head.type != ROLES_STAT || st)
            return head;
    }
}

static void say(struct roles_message head, const void *more)
{
    roles_message_seal(&head, more);
    assert_ok(cluster_wire_write(b.front.control[1][0], &head, sizeof(head)));
    assert_ok(cluster_wire_write(b.front.control[1][0], more, head.n_more));
}

static void on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    (void)ctx, (void)tag;
    if (b.first == -1)
        cluster_sender_drop(b.sender, transfer);
    for (int l = 0; l < b.shape.n_layers && b.first != -1; l++)
        cluster_sender_stored(b.sender, transfer, &b.slot, l, n_tok);
    if (b.first != -1)
        cluster_sender_computed(b.sender, transfer, b.first);
}

static void on_end(void *ctx, uint64_t transfer, int rc)
{
    (void)ctx, (void)transfer, (void)rc;
}

static void on_broken(void *ctx)
{
    (void)ctx;
}

/* Open the sending end, of the machine's own shape. */
static void open_prompt_end(void)
{
    struct cluster_sender_opts o = {.fd = b.prompt.u.link[0][1][0],
                                    .max_transfers = 4,
                                    .on_offer = on_offer,
                                    .on_end = on_end,
                                    .on_fail = on_broken};
    struct serve_opts so = engine_opts();
    struct serve *s;

    assert_ok(serve_open(&s, &so));
    serve_kv_shape(s, &b.shape);
    serve_close(&s);
    free_opts(&so);
    o.shape = b.shape;
    assert_ok(cluster_transport_find("socket", &o.transport));
    b.slot = (struct kv_slot){.cap_tok = 16, .run_bytes = 16 * b.shape.vec_bytes};
    b.slot.head_stride = 2 * b.slot.run_bytes;
    b.slot.layer_stride = (size_t)b.shape.n_kv_heads * b.slot.head_stride;
    b.slot.base = mem_new(MEM_TEST, (size_t)b.shape.n_layers, b.slot.layer_stride);
    assert_ok(cluster_sender_open(&b.sender, &o));
}

/* The front and the prompt machine are the test's; the token machine is a real one. */
static void open_bench(void)
{
    struct serve_opts so = engine_opts();
    char at[32], more[ROLES_MORE_MAX];
    pthread_t prompt;

    snprintf(at, sizeof(at), "127.0.0.1:%d", fake_port());
    memset(&b, 0, sizeof(b));
    b.front = (struct roles_setup){.is_joined = true,
                                   .mpi_index = -1,
                                   .model_id = fake_identity(&so),
                                   .o.machines = mem_strdup(MEM_TEST, at)};
    free_opts(&so);
    b.front.spec.n[CLUSTER_PROMPT] = b.front.spec.n[CLUSTER_TOKEN] = 1;
    roles_setup_number(&b.front);
    memset(b.front.control, -1, sizeof(b.front.control));
    memset(b.front.link, -1, sizeof(b.front.link));
    assert_int_equal(pthread_create(&prompt, NULL, prompt_main, &b.prompt), 0);
    assert_int_equal(pthread_create(&b.machine, NULL, machine_main, NULL), 0);
    assert_ok(roles_join_wait(&b.front));
    pthread_join(prompt, NULL);
    assert_ok(b.prompt.rc);
    assert_int_equal(hear(more, NULL).type, ROLES_READY);
}

/* The front goes. */
static void close_bench(void)
{
    char *at = b.front.o.machines;

    shutdown(b.front.control[1][0], SHUT_WR); /* after all that was written */
    pthread_join(b.machine, NULL);
    cluster_sender_close(&b.sender);
    for (int i = 0; i < 2; i++)
        close(b.front.control[i][0]);
    close(b.prompt.u.control[0][1]);
    mem_free(b.slot.base);
    mem_free(at);
}

static void connect_both(void)
{
    char more[ROLES_MORE_MAX];

    say((struct roles_message){.type = ROLES_CONNECT, .id = 1}, NULL);
    open_prompt_end();
    assert_int_equal(hear(more, NULL).type, ROLES_CONNECTED);
}

/* What can go wrong with a request of a token machine, from its admission to its end. */
enum wrong {
    NOTHING_WRONG,
    FIRST_TOKEN, /* outside of the vocabulary */
    DROPPED,     /* by the prompt machine */
    CANCELED,    /* before it has keys and values */
    REFUSED,     /* by the engine: its sampling */
    TOO_LONG,
    NO_PEER, /* there is no connection with its prompt machine */
    N_WRONG
};

/* Returns the type of the machine's last message of it. */
static uint32_t ask_for(enum wrong w)
{
    struct {
        struct roles_request r;
        int32_t ids[N_PROMPT];
    } x = {.r = {.n_prompt = N_PROMPT,
                 .max_new = w == TOO_LONG ? 1000 : N_NEW,
                 .sampling = {.top_p = w == REFUSED ? -1 : 1},
                 .ignore_eos = 1,
                 .side = SERVE_TOKEN_SIDE,
                 .peer = w == NO_PEER}};
    size_t n = offsetof(struct roles_request, peer) + sizeof(x.r.peer);
    char bytes[sizeof(x.r) + sizeof(x.ids)] = {0}, more[ROLES_MORE_MAX];
    int64_t id = b.n_requests++;
    struct roles_message m;

    memcpy(bytes, &x.r, n);
    for (int i = 0; i < N_PROMPT; i++)
        memcpy(bytes + sizeof(x.r) + 4 * i, &(int32_t){3 + i}, 4);
    b.first = w == FIRST_TOKEN ? 1 << 20 : w == DROPPED || w == CANCELED ? -1 : 7;
    say((struct roles_message){.type = ROLES_REQUEST, .id = id, .n_more = sizeof(bytes)},
        bytes);
    if (w == CANCELED)
        say((struct roles_message){.type = ROLES_CANCEL, .id = id}, NULL);
    do {
        m = hear(more, NULL);
        assert_int_equal(m.id, id);
    } while (m.type == ROLES_ARRIVED ||
             (m.type == ROLES_TOKEN && m.finish == SERVE_RUNNING));
    assert_true(w != NOTHING_WRONG || m.finish == SERVE_LENGTH);
    return m.type;
}

TEST(whatever_goes_wrong_the_next_request_goes_on)
{
    static const uint32_t ends[N_WRONG] = {
        [FIRST_TOKEN] = ROLES_RETRY, [DROPPED] = ROLES_RETRY,  [CANCELED] = 0,
        [REFUSED] = ROLES_TOKEN,     [TOO_LONG] = ROLES_TOKEN, [NO_PEER] = ROLES_RETRY};
    char more[ROLES_MORE_MAX];
    struct roles_stat st = {.n_open = 1};

    open_bench();
    connect_both();
    for (int w = FIRST_TOKEN; w < N_WRONG; w++) {
        for (int i = 0; i < ROUNDS; i++) {
            uint32_t type = ask_for((enum wrong)w);

            if (ends[w] && type != ends[w])
                fail_msg("fault %d ends with a message of type %u", w, type);
        }
        for (int i = 0; i < ROUNDS; i++)
            assert_int_equal(ask_for(NOTHING_WRONG), ROLES_TOKEN);
    }
    while (st.n_open > 0 || st.kv.reserved_bytes > 0 || st.end_id < b.n_requests)
        (void)hear(more, &st);
    close_bench();
    if (b.machine_rc != OK)
        fail_msg("%s", b.machine_why);
}

/* A front that sends what none would: the machine ends, and says why. */
TEST(a_front_that_breaks_the_protocol_is_named)
{
    static const struct {
        struct roles_message m;
        int wrong_hash;
        const char *says;
    } all[] = {
        {{.type = 99}, 0, "a message of type 99"},
        {{.type = ROLES_TOKEN}, 0, "a message of type 8"},
        {{.type = ROLES_CANCEL}, 1, "a wrong checksum"},
        {{.type = ROLES_CANCEL, .peer = -1}, 0, "machine -1"},
        {{.type = ROLES_CANCEL, .n_more = 8}, 0, "and 8 bytes"},
        {{.type = ROLES_REQUEST, .n_more = 8}, 0, "and 8 bytes"},
        {{.type = ROLES_REQUEST, .n_more = sizeof(struct roles_request)},
         0,
         "request 0 of 0 tokens"},
        {{.type = ROLES_CONNECT, .id = 1, .peer = 1}, 0, "a connection with machine 1"},
        {{.type = ROLES_CONNECT, .id = 1, .sends = 1}, 0, "a connection with machine 0"},
        {{.type = ROLES_LINK}, 0, "and 0 bytes"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char more[sizeof(struct roles_request)] = {0};
        struct roles_message m = all[i].m;

        open_bench();
        roles_message_seal(&m, more);
        m.hash ^= (uint64_t)all[i].wrong_hash;
        assert_ok(cluster_wire_write(b.front.control[1][0], &m, sizeof(m)));
        (void)!cluster_wire_write(b.front.control[1][0], more, m.n_more);
        close_bench();
        assert_int_equal(b.machine_rc, ERR_FORMAT);
        if (!strstr(b.machine_why, "the front broke the protocol") ||
            !strstr(b.machine_why, all[i].says))
            fail_msg("fault %zu: \"%s\", wanted \"%s\"", i, b.machine_why, all[i].says);
    }
}
