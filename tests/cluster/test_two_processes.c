/* A prompt engine and a token engine in two processes, over each transport: the ids and the bits
 * of every logit of one engine; and when the token process is killed, the prompt engine is told,
 * gets all of its memory back and can compute the requests itself. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "cluster/transport.h"
#include "tests/serve/handoff.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

#define N_REQUESTS 10
#define MAX_SEQS   4

/* What both processes see. */
struct world {
    struct pair_answer answers[N_REQUESTS];
    atomic_int n_done;
};
static struct world *world;

struct setup {
    const char *transport, *kv_type, *prompt_alloc, *token_alloc;
    int64_t prompt_step_tok;
    enum cluster_transfer_mode mode;
    int kill_at; /* layers that are stored by then; 0: never */
};

static void open_engine(struct serve **s, const struct setup *u, const char *alloc,
                        int64_t max_step_tok)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)tiny_model(KERN_F32);
    o.pin = false;
    o.deterministic = true;
    o.max_tok = 64;
    o.threads = 1;
    o.max_seqs = MAX_SEQS;
    o.max_step_tok = max_step_tok;
    o.kv_block = 16;
    assert_ok(opt_set(serve_opt_table, &o, "policy", "mixed", "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_type", u->kv_type, "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", alloc, "test"));
    assert_ok(serve_open_with(s, &o, &(struct serve_how){.kv_mapped = true}));
    o.model = NULL;
    opt_free(serve_opt_table, &o);
}

/* ---- the token process ---- */

struct token_request {
    int i;
    int64_t id;
    uint64_t transfer;
};
static struct token_request token_requests[N_REQUESTS];
/* Of their transfers: one thread asks for them, another is told of them. */
static pthread_mutex_t transfers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct serve *token_engine;
static struct cluster_receiver *receiver;

/* No assertion of the test's can fail in this process. */
static void must(int rc)
{
    if (rc != OK) {
        fprintf(stderr, "token process: %s\n", err_msg());
        _exit(1);
    }
}

static void token_on_memory(void *ctx, int64_t request, const struct kv_slot *slot)
{
    struct token_request *q = ctx;
    int32_t ids[PAIR_PROMPT_MAX];

    (void)request;
    pthread_mutex_lock(&transfers_lock);
    must(cluster_receiver_expect(
        receiver, &q->transfer, slot,
        pair_request(q->i, serve_vocab(token_engine), ids).n_prompt, q->i));
    pthread_mutex_unlock(&transfers_lock);
}

static void token_on_arrived(void *ctx, uint64_t transfer, int32_t first_id)
{
    int found = -1;

    (void)ctx;
    pthread_mutex_lock(&transfers_lock);
    for (int i = 0; i < N_REQUESTS; i++)
        if (token_requests[i].transfer == transfer)
            found = i;
    pthread_mutex_unlock(&transfers_lock);
    if (found >= 0)
        must(serve_arrived(token_engine, token_requests[found].id, first_id));
}

static void token_on_dropped(void *ctx, uint64_t transfer, int rc)
{
    (void)ctx, (void)transfer;
    must(rc);
}

static void token_on_fail(void *ctx)
{
    (void)ctx;
    must(ERR_IO);
}

static void token_on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                           enum serve_finish finish)
{
    const struct token_request *q = ctx;

    (void)request;
    answer_add(&world->answers[q->i], id, logits, serve_vocab(token_engine), finish);
    if (finish != SERVE_RUNNING)
        atomic_fetch_add(&world->n_done, 1);
}

static void token_process(const struct setup *u, int fd)
{
    struct cluster_receiver_opts o = {.fd = fd,
                                      .max_transfers = MAX_SEQS,
                                      .on_arrived = token_on_arrived,
                                      .on_dropped = token_on_dropped,
                                      .on_fail = token_on_fail};
    bool busy;

    open_engine(&token_engine, u, u->token_alloc, 256);
    serve_kv_shape(token_engine, &o.shape);
    o.pool = serve_pool(token_engine);
    must(cluster_transport_find(u->transport, &o.transport));
    must(cluster_receiver_open(&receiver, &o));
    for (int i = 0; i < N_REQUESTS; i++) {
        struct token_request *q = &token_requests[i];
        const struct serve_handoff h = {
            .side = SERVE_TOKEN_SIDE, .on_memory = token_on_memory, .ctx = q};
        int32_t ids[PAIR_PROMPT_MAX];
        struct serve_request r = pair_request(i, serve_vocab(token_engine), ids);

        q->i = i;
        r.on_token = token_on_token;
        r.ctx = q;
        r.handoff = &h;
        must(serve_submit(token_engine, &r, &q->id));
    }
    while (atomic_load(&world->n_done) < N_REQUESTS) {
        must(serve_step(token_engine, &busy));
        if (!busy)
            serve_wait(token_engine, 10000000);
    }
    if (reserved_bytes(token_engine) != 0)
        must(err_set(ERR_STATE, "memory is lost"));
    cluster_receiver_close(&receiver);
    serve_close(&token_engine);
    _exit(0);
}

/* ---- the prompt process, which is the test ---- */

struct prompt_request {
    int64_t id;
    uint64_t transfer;
    struct kv_slot slot; /* in place: the offered memory */
};
static struct prompt_request prompt_requests[N_REQUESTS];
static struct serve *prompt_engine;
static struct cluster_sender *sender;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pair_answer firsts[N_REQUESTS];
static const struct setup *setup_now;
static pid_t victim;
static atomic_int n_layers_stored, n_fails;

static void prompt_on_layer(void *ctx, int64_t request, const struct kv_slot *slot,
                            int layer, int64_t lo, int64_t hi)
{
    const struct prompt_request *q = ctx;

    (void)request, (void)lo;
    cluster_sender_stored(sender, q->transfer, slot, layer, hi);
    if (atomic_fetch_add(&n_layers_stored, 1) + 1 == setup_now->kill_at)
        kill(victim, SIGKILL);
}

static void prompt_on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                            enum serve_finish finish)
{
    const struct prompt_request *q = ctx;

    (void)request;
    if (finish == SERVE_CANCELED)
        return;
    answer_add(&firsts[q - prompt_requests], id, logits, serve_vocab(prompt_engine),
               SERVE_RUNNING);
    cluster_sender_computed(sender, q->transfer, id);
}

static bool is_in_place(void)
{
    const struct cluster_transport *t;

    if (cluster_transport_find(setup_now->transport, &t) != OK)
        abort();
    return t->in_place;
}

/* Nobody drops. */
static void prompt_on_forget(void *ctx, uint64_t transfer)
{
    (void)ctx, (void)transfer;
    abort();
}

static void prompt_on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag)
{
    struct prompt_request *q = &prompt_requests[tag];
    bool in_place = is_in_place();
    const struct serve_handoff h = {.side = SERVE_PROMPT_SIDE,
                                    .on_layer = prompt_on_layer,
                                    .slot = in_place ? &q->slot : NULL,
                                    .ctx = q};
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request((int)tag, serve_vocab(prompt_engine), ids);

    (void)ctx;
    if (r.n_prompt != n_tok)
        abort();
    r.max_new = 1;
    r.on_token = prompt_on_token;
    r.ctx = q;
    r.handoff = &h;
    pthread_mutex_lock(&lock);
    q->transfer = transfer;
    if (in_place && cluster_sender_slot(sender, transfer, &q->slot) != OK)
        abort();
    if (serve_submit(prompt_engine, &r, &q->id) != OK)
        abort();
    pthread_mutex_unlock(&lock);
}

static void prompt_on_end(void *ctx, uint64_t transfer, int rc)
{
    (void)ctx;
    pthread_mutex_lock(&lock); /* it may be submitted at this moment */
    for (int i = 0; i < N_REQUESTS; i++) {
        struct prompt_request *q = &prompt_requests[i];

        if (q->transfer != transfer)
            continue;
        if (rc != OK)
            serve_cancel(prompt_engine, q->id);
        if (serve_release(prompt_engine, q->id) != OK)
            abort();
    }
    pthread_mutex_unlock(&lock);
}

static void prompt_on_fail(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&n_fails, 1);
    serve_wake(prompt_engine);
}

static void open_prompt_process(const struct setup *u, int fd)
{
    struct cluster_sender_opts o = {.fd = fd,
                                    .max_transfers = MAX_SEQS,
                                    .mode = u->mode,
                                    .serial_below_tok = 20,
                                    .on_offer = prompt_on_offer,
                                    .on_end = prompt_on_end,
                                    .on_forget = prompt_on_forget,
                                    .on_fail = prompt_on_fail};

    memset(prompt_requests, 0, sizeof(prompt_requests));
    memset(firsts, 0, sizeof(firsts));
    setup_now = u;
    n_layers_stored = n_fails = 0;
    open_engine(&prompt_engine, u, u->prompt_alloc, u->prompt_step_tok);
    serve_kv_shape(prompt_engine, &o.shape);
    assert_ok(cluster_transport_find(u->transport, &o.transport));
    assert_ok(cluster_sender_open(&sender, &o));
}

/* In place, what is computed there until the request is canceled is the sender's mapping. */
static void prompt_ends(void)
{
    bool busy = true;

    while (busy && is_in_place())
        assert_ok(serve_step(prompt_engine, &busy));
    cluster_sender_close(&sender);
    for (int i = 0; i < N_REQUESTS; i++)
        mem_free((void *)prompt_requests[i].slot.blocks);
}

/* Both processes until the token process has ended; its status. */
static int run(const struct setup *u)
{
    int fd[2], status;
    bool busy;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    memset(world, 0, sizeof(*world));
    (void)tiny_model(KERN_F32); /* of both */
    victim = fork();
    assert_true(victim >= 0);
    if (victim == 0) {
        close(fd[0]);
        token_process(u, fd[1]);
    }
    close(fd[1]);
    open_prompt_process(u, fd[0]);
    while (atomic_load(&n_fails) == 0) { /* it closes when it has all */
        assert_ok(serve_step(prompt_engine, &busy));
        if (!busy)
            serve_wait(prompt_engine, 10000000);
    }
    assert_int_equal(waitpid(victim, &status, 0), victim);
    prompt_ends();
    do {
        assert_ok(serve_step(prompt_engine, &busy));
    } while (busy);
    assert_int_equal(reserved_bytes(prompt_engine), 0);
    return status;
}

static void same_bits(const struct setup *u)
{
    struct pair_answer want[N_REQUESTS];
    struct serve *s;

    open_engine(&s, u, "static", 256);
    for (int i = 0; i < N_REQUESTS; i++)
        want[i] = pair_alone(s, i);
    serve_close(&s);
    assert_int_equal(run(u), 0);
    for (int i = 0; i < N_REQUESTS; i++) {
        struct pair_answer *a = &firsts[i];
        const struct pair_answer *rest = &world->answers[i];

        assert_int_equal(a->n, 1);
        memcpy(a->ids + 1, rest->ids, (size_t)rest->n * sizeof(a->ids[0]));
        memcpy(a->logits + 1, rest->logits, (size_t)rest->n * sizeof(a->logits[0]));
        a->n += rest->n;
        a->finish = rest->finish;
        assert_same_answer(a, &want[i]);
    }
    serve_close(&prompt_engine);
    left_no_child();
}

static int map_world(void **state)
{
    (void)state;
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    return world == MAP_FAILED;
}

static int unmap_world(void **state)
{
    (void)state;
    return munmap(world, sizeof(*world));
}

TEST(same_bits_by_every_transport)
{
    static const char *const allocs[] = {"static", "paged", "odma"};
    static const char *const kv_types[] = {"f32", "bf16", "q8"};

    for (int t = 0; cluster_transports[t]; t++)
        for (int i = 0; i < 9 && !cluster_transports[t]->mpi; i++) {
            const struct setup u = {.transport = cluster_transports[t]->name,
                                    .kv_type = kv_types[(i + t) % 3],
                                    .prompt_alloc = allocs[i / 3],
                                    .token_alloc = allocs[i % 3],
                                    .prompt_step_tok = i % 2 ? 7 : 256,
                                    .mode = (enum cluster_transfer_mode)(i % 3)};

            same_bits(&u);
        }
}

/* At any layer of any prompt. The prompt engine answers the requests itself then. */
TEST(the_token_process_is_killed)
{
    struct pair_answer want, again;
    struct serve *s;
    struct rng r;

    rng_init(&r, test_seed(), "kill");
    for (int round = 0; round < 15; round++) {
        static const char *const names[] = {"shm", "socket", "map"};
        const struct setup u = {.transport = names[round % 3],
                                .kv_type = "f32",
                                .prompt_alloc = round % 4 < 2 ? "static" : "paged",
                                .token_alloc = "paged",
                                .prompt_step_tok = 9,
                                .mode = (enum cluster_transfer_mode)(round % 2),
                                .kill_at = 1 + (int)rng_below(&r, 60)};
        int status, i = (int)rng_below(&r, N_REQUESTS);

        open_engine(&s, &u, "static", 256);
        want = pair_alone(s, i);
        serve_close(&s);
        status = run(&u);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        again = pair_alone(prompt_engine, i);
        assert_same_answer(&again, &want);
        serve_close(&prompt_engine);
        left_no_child();
    }
}

TEST_GROUP(map_world, unmap_world);
