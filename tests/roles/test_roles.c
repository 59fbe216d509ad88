/* Prompt and token machines behind the engine's API: the ids of one engine, for any numbers of
 * machines, routers and transports; requests that are canceled at any time; machines that die or
 * stop are named within a second, and nothing is left of them. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/router.h"
#include "cluster/transport.h"
#include "kernels/kv_type.h"
#include "roles/roles.h"
#include "tests/serve/handoff.h"
#include "tests/support/faults.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

#define N_REQUESTS 12

static int64_t budget_tok; /* 0: no limit */
static int kv_type;

static struct serve_opts engine_opts(void)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)tiny_model(KERN_F32);
    o.pin = false;
    o.deterministic = true;
    o.max_tok = 64;
    o.max_seqs = 4;
    o.max_step_tok = 20;
    o.kv_type = kv_type;
    o.kv_budget_tok = budget_tok;
    assert_ok(opt_set(serve_opt_table, &o, "policy", "mixed", "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", "paged", "test"));
    return o;
}

static void free_opts(struct serve_opts *o)
{
    o->model = NULL;
    opt_free(serve_opt_table, o);
}

static struct roles_opts roles_opts(const char *roles)
{
    struct roles_opts o;

    assert_ok(opt_init(roles_opt_table, &o));
    assert_ok(opt_set(roles_opt_table, &o, "roles", roles, "test"));
    return o;
}

static struct serve *open_roles(struct roles_opts *o)
{
    struct serve_opts so = engine_opts();
    struct serve *s;

    assert_ok(roles_open(&s, &so, o));
    opt_free(roles_opt_table, o);
    free_opts(&so);
    return s;
}

static void alone(struct pair_answer *want)
{
    struct serve_opts so = engine_opts();
    struct serve *s;

    assert_ok(serve_open(&s, &so));
    free_opts(&so);
    for (int i = 0; i < N_REQUESTS; i++)
        want[i] = pair_alone(s, i);
    serve_close(&s);
}

struct got {
    int32_t ids[PAIR_NEW_MAX];
    int n;
    enum serve_finish finish;
    int64_t id;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct got *g = ctx;

    (void)request;
    assert_null(logits);
    assert_int_equal(g->finish, SERVE_RUNNING);
    g->finish = finish;
    if (id >= 0)
        g->ids[g->n++] = id;
}

static uint64_t began_ns; /* the present wait */

/* The i-th request, or its first token only. */
static void submit(struct serve *s, int i, struct got *g, bool one)
{
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(i, serve_vocab(s), ids);

    *g = (struct got){.n = 0};
    began_ns = clock_ns();
    r.max_new = one ? 1 : r.max_new;
    r.on_token = on_token;
    r.ctx = g;
    assert_ok(serve_submit(s, &r, &g->id));
}

/* How many are. A test that hangs says so. */
static int n_running(const struct got *g)
{
    int n = 0;

    if (clock_ns() - began_ns > UINT64_C(30000000000))
        fail_msg("requests do not end");

    for (int i = 0; i < N_REQUESTS; i++)
        n += g[i].finish == SERVE_RUNNING;
    return n;
}

static void go_on(struct serve *s)
{
    bool busy;

    assert_ok(serve_step(s, &busy));
    if (!busy)
        serve_wait(s, 50000000);
}

/* What needs logits, or another request's answer, is not offered. */
static void check_refusals(struct serve *s)
{
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(0, serve_vocab(s), ids);
    int64_t id;
    json_t *d;

    r.on_token = on_token;
    r.n_scored = 2;
    assert_err(serve_submit(s, &r, &id), ERR_UNSUPPORTED, "2 prompt tokens scored");
    r.n_scored = 0;
    r.max_new = 1000;
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "expected at most 64");
    assert_err(serve_describe(s, &d), ERR_UNSUPPORTED, "not described");
    assert_null(d);
}

/* No machine crashes on the way, or outlives it. */
static void close_soundly(struct serve **s)
{
    serve_close(s);
    assert_false(test_warned("machine_failed_at_close"));
    left_no_child();
}

/* No machine has memory any more, as far as it said, and what was computed is known. */
static void wait_for_memory(struct serve *s)
{
    struct serve_kv_stat kv;

    began_ns = clock_ns();
    for (;;) {
        go_on(s);
        serve_kv_stat(s, &kv);
        if (kv.pool_bytes > 0 && kv.reserved_bytes == 0 &&
            serve_totals_of(s, SERVE_PREFILL)->n_tok > 0 &&
            serve_totals_of(s, SERVE_DECODE)->n_tok > 0)
            return;
        if (clock_ns() - began_ns > UINT64_C(30000000000))
            fail_msg("%lld bytes stay reserved", (long long)kv.reserved_bytes);
    }
}

static void same_ids(struct roles_opts *o, const struct pair_answer *want)
{
    struct serve *s = open_roles(o);
    struct got g[N_REQUESTS];

    assert_false(serve_has_logits(s));
    check_refusals(s);
    for (int i = 0; i < N_REQUESTS; i++)
        submit(s, i, &g[i], i == 5);
    while (n_running(g) > 0)
        go_on(s);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(g[i].n, i == 5 ? 1 : want[i].n);
        assert_int_equal(g[i].finish, SERVE_LENGTH);
        assert_memory_equal(g[i].ids, want[i].ids, (size_t)g[i].n * sizeof(g[i].ids[0]));
    }
    wait_for_memory(s);
    close_soundly(&s);
}

TEST(same_ids_as_one_engine)
{
    static const char *const all[] = {"prompt=1,token=1", "token=2,prompt=1",
                                      "prompt=2,token=1", "prompt=2,token=2"};
    struct pair_answer want[N_REQUESTS];

    alone(want);
    for (int t = 0; cluster_transports[t]; t++)
        for (int i = 0; i < 4 && !cluster_transports[t]->mpi; i++) {
            struct roles_opts o = roles_opts(all[i]);

            assert_ok(opt_set(roles_opt_table, &o, "transport",
                              cluster_transports[t]->name, "test"));
            o.transfer = (t + i) % 3;
            o.serial_below_tok = 20;
            same_ids(&o, want);
        }
}

TEST(every_router)
{
    struct pair_answer want[N_REQUESTS];

    alone(want);
    for (int i = 0; cluster_routers[i]; i++) {
        struct roles_opts o = roles_opts("prompt=2,token=2");

        assert_ok(
            opt_set(roles_opt_table, &o, "router", cluster_routers[i]->name, "test"));
        same_ids(&o, want);
    }
}

/* Each kind with options of its own, and machines that move: prompts and tokens go where there is
 * room, or, with no memory to spare, where no circle of machines waits. */
TEST(kinds_of_their_own)
{
    static const struct {
        const char *roles;
        int prompt_threshold_tok, token_threshold_seqs, kv_budget_tok;
    } all[] = {
        {"prompt=1:threads=1:kv_alloc=static,token=1:threads=2", 0, 0, 0},
        {"prompt=1:ranks=2:threads=2,token=1:threads=1:kv_block=32", 0, 0, 0},
        {"prompt=1:threads=2,token=1:ranks=2:threads=2:rank_mode=processes", 0, 0, 0},
        {"prompt=1:policy=fcfs:max_step_tok=7,token=2:kv_alloc=s3:max_seqs=2", 0, 0, 0},
        {"prompt=1:kv_alloc=odma,token=1:kv_admit=now", 0, 0, 128},
        {"mixed=1", 0, 0, 0},
        {"mixed=3", 0, 0, 0},
        {"prompt=2,mixed=2:max_seqs=2", 0, 0, 0},
        {"prompt=1,token=1", 20, 1, 0},
        {"prompt=2,token=2:kv_alloc=s3", 20, 1, 0},
        {"prompt=1,token=1,mixed=1:policy=chunked", 30, 2, 0},
        {"prompt=2:max_seqs=1,token=2:max_seqs=1", 20, 1, 0},
        {"prompt=1,token=2", 30, 0, 64},
        {"token=1,mixed=1:kv_admit=now", 1, 0, 64},
    };
    struct pair_answer want[N_REQUESTS];

    alone(want);
    for (int t = 0; cluster_transports[t]; t++)
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            struct roles_opts o;

            if (cluster_transports[t]->mpi ||
                (cluster_transports[t]->in_place && strstr(all[i].roles, "processes")))
                continue;
            o = roles_opts(all[i].roles);

            print_message("# %s, %s\n", all[i].roles, cluster_transports[t]->name);
            assert_ok(opt_set(roles_opt_table, &o, "transport",
                              cluster_transports[t]->name, "test"));
            o.prompt_threshold_tok = all[i].prompt_threshold_tok;
            o.token_threshold_seqs = all[i].token_threshold_seqs;
            budget_tok = all[i].kv_budget_tok;
            same_ids(&o, want);
            budget_tok = 0;
        }
}

static int n_joins, n_returns;

static void on_log(void *ctx, enum log_level level, const char *line)
{
    (void)ctx, (void)level;
    n_joins += strstr(line, "now in the mixed pool") != NULL;
    n_returns += strstr(line, "now in the prompt pool") != NULL ||
                 strstr(line, "now in the token pool") != NULL;
}

/* Machines above their threshold are helped by others, which are their old selves at the end. */
TEST(machines_return)
{
    struct roles_opts o = roles_opts("prompt=1,token=1");
    struct pair_answer want[N_REQUESTS];

    alone(want);
    o.prompt_threshold_tok = 20;
    o.token_threshold_seqs = 1;
    n_joins = n_returns = 0;
    log_set_level(LOG_DEBUG);
    log_set_sink(on_log, NULL);
    same_ids(&o, want);
    log_set_sink(NULL, NULL);
    log_set_level(LOG_INFO);
    assert_true(n_joins > 0);
    assert_int_equal(n_joins, n_returns);
}

/* Every type of keys and values: the ids of one engine with it. */
TEST(types_of_keys_and_values)
{
    for (kv_type = 0; kv_type < KERN_N_KV_TYPES; kv_type++) {
        struct roles_opts o =
            roles_opts(kv_type % 2 ? "prompt=1:threads=2:ranks=2,token=1:kv_alloc=static"
                                   : "prompt=1:kv_alloc=s3,token=2:threads=1");
        struct pair_answer want[N_REQUESTS];

        alone(want);
        same_ids(&o, want);
    }
    kv_type = 0;
}

TEST(canceled_at_any_time)
{
    struct pair_answer want[N_REQUESTS];
    int n_canceled = 0, n_ended = 0;
    struct rng r;

    alone(want);
    rng_init(&r, test_seed(), "cancel");
    for (int round = 0; round < 6; round++) {
        struct roles_opts o =
            roles_opts(round % 2 ? "prompt=1,token=1" : "prompt=2,token=2");
        static const char *const names[] = {"shm", "socket", "map"};
        struct got g[N_REQUESTS];
        struct serve *s;

        o.prompt_threshold_tok = round % 3 == 2 ? 20 : 0;
        o.token_threshold_seqs = round % 3 == 2 ? 1 : 0;
        assert_ok(opt_set(roles_opt_table, &o, "transport", names[round % 3], "test"));
        s = open_roles(&o);
        for (int again = 0; again < 5; again++) {
            for (int i = 0; i < N_REQUESTS; i++) {
                submit(s, i, &g[i], false);
                if (rng_below(&r, 6) == 0)
                    serve_cancel(s, g[i].id);
            }
            while (n_running(g) > 0) {
                int i = (int)rng_below(&r, N_REQUESTS);

                go_on(s);
                if (rng_below(&r, 6) == 0 && g[i].finish == SERVE_RUNNING)
                    serve_cancel(s, g[i].id);
            }
            for (int i = 0; i < N_REQUESTS; i++) {
                assert_true(g[i].finish == SERVE_LENGTH || g[i].finish == SERVE_CANCELED);
                assert_memory_equal(g[i].ids, want[i].ids,
                                    (size_t)g[i].n * sizeof(g[i].ids[0]));
                assert_true(g[i].finish == SERVE_CANCELED || g[i].n == want[i].n);
                n_canceled += g[i].finish == SERVE_CANCELED;
                n_ended += g[i].finish == SERVE_LENGTH;
            }
        }
        wait_for_memory(s);
        close_soundly(&s);
    }
    assert_true(n_canceled > 40 && n_ended > 40);
}

/* ---- machines that go ---- */

/* The processes of the machines: children of this one, in the order of their numbers. */
static int children(pid_t pids[4])
{
    char path[64];
    int n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "r");
    assert_non_null(f);
    while (n < 4 && fscanf(f, "%d", &pids[n]) == 1)
        n++;
    fclose(f);
    return n;
}

TEST(a_machine_that_goes_is_named)
{
    static const struct {
        int sig, machine;
        const char *says;
    } all[] = {{SIGKILL, 0, "prompt machine 1 of 1 (process %d) was killed by SIGKILL"},
               {SIGKILL, 1, "token machine 1 of 1 (process %d) was killed by SIGKILL"},
               {SIGSTOP, 0, "prompt machine 1 of 1 (process %d) was stopped by SIGSTOP"},
               {SIGSTOP, 1, "token machine 1 of 1 (process %d) was stopped by SIGSTOP"}};

    for (int k = 0; k < 8; k++) {
        struct roles_opts o = roles_opts("prompt=1,token=1");
        struct got g[N_REQUESTS];
        struct serve *s;
        bool busy, idle = k >= 4;
        char says[120];
        pid_t pids[4];
        uint64_t t0;
        int rc = OK;

        s = open_roles(&o);
        assert_int_equal(children(pids), 2);
        snprintf(says, sizeof(says), all[k % 4].says, (int)pids[all[k % 4].machine]);
        for (int i = 0; i < N_REQUESTS; i++)
            if (!idle)
                submit(s, i, &g[i], false);
        for (int i = 0; i < 3; i++)
            go_on(s);
        kill(pids[all[k % 4].machine], all[k % 4].sig);
        t0 = clock_ns();
        while (rc == OK && clock_ns() - t0 < UINT64_C(20000000000)) {
            rc = serve_step(s, &busy);
            if (rc == OK && !busy)
                serve_wait(s, 50000000);
        }
        assert_err(rc, ERR_STATE, says);
        for (int i = 0; i < N_REQUESTS && !idle; i++)
            if (g[i].finish == SERVE_RUNNING)
                serve_cancel(s, g[i].id);
        assert_err(serve_step(s, &busy), ERR_STATE, says);
        for (int i = 0; i < N_REQUESTS && !idle; i++)
            assert_true(g[i].finish != SERVE_RUNNING);
        serve_close(&s);
        left_no_child();
    }
}

static void refused(const char *roles, const char *transport, int rc, const char *why)
{
    struct serve_opts so = engine_opts();
    struct roles_opts o = roles_opts(roles);
    struct serve *s;

    assert_ok(opt_set(roles_opt_table, &o, "transport", transport, "test"));
    assert_err(roles_open(&s, &so, &o), rc, why);
    assert_null(s);
    opt_free(roles_opt_table, &o);
    free_opts(&so);
    left_no_child();
}

TEST(refusals)
{
    struct serve_opts so = engine_opts();
    struct roles_opts o = roles_opts("prompt=1,token=1");
    struct serve *s;

    refused("prompt=1", "shm", ERR_ARG, "expected prompt=N,token=N, or mixed=N");
    refused("token=1,mixed=1", "shm", ERR_ARG, "the token machines would get nothing");
    refused("prompt=1,token=1,mixed=1", "shm", ERR_ARG, "the mixed machines would get");
    refused("prompt=1,token=1", "smh", ERR_NOTFOUND, "shm");
    so.kv_budget = 100;
    assert_err(roles_open(&s, &so, &o), ERR_STATE, "machine 1 of 1");
    assert_non_null(strstr(err_msg(), "kv_budget 100"));
    left_no_child();
    opt_free(roles_opt_table, &o);
    free_opts(&so);
}

TEST(closed_with_requests)
{
    for (int n_steps = 0; n_steps < 24; n_steps += 3) {
        struct roles_opts o = roles_opts("prompt=1,token=1");
        struct serve *s = open_roles(&o);
        struct got g[N_REQUESTS];

        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, i, &g[i], false);
        for (int i = 0; i < n_steps; i++)
            go_on(s);
        close_soundly(&s);
        for (int i = 0; i < N_REQUESTS; i++)
            assert_true(g[i].finish != SERVE_RUNNING);
    }
}

static bool nothing_is_left(const struct serve *s)
{
    left_no_child();
    left_no_shm();
    return !s;
}

/* Neither in this process, nor in a machine's. */
TEST(a_thread_or_lock_cannot_be_had)
{
    struct roles_opts o = roles_opts("prompt=1,token=1");
    struct serve_opts so = engine_opts();
    struct serve *s = NULL;

    assert_true(test_thread_faults(roles_open(&s, &so, &o), nothing_is_left(s)) > 10);
    serve_close(&s);
    assert_true(nothing_is_left(s));
    opt_free(roles_opt_table, &o);
    free_opts(&so);
}
