/* Prompt and token machines behind the engine's API: the ids of one engine, for any numbers of
 * machines, routers and transports; requests that are canceled at any time; and nothing is left of
 * machines. */
#include "tests/roles/machines.h"

static void same_ids(struct roles_opts *o, const struct pair_answer *want)
{
    struct serve *s = open_roles(o);
    struct got g[N_REQUESTS];

    assert_false(s->ops->has_logits);
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

/* Where the link is slow, the prompt machine has requests in its queue when it is closed: those
 * that are to be sent have its memory. */
TEST(closed_with_requests)
{
    for (int n_steps = 0; n_steps < 24; n_steps += 3) {
        static const struct roles_link slow_link = {.latency_ms = 1e6};
        const bool slow = n_steps % 2;
        struct roles_opts o = roles_opts("prompt=1,token=1");
        struct serve *s = open_roles(&o);
        struct got g[N_REQUESTS];

        if (slow)
            assert_ok(roles_link_set(s, &slow_link));
        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, i, &g[i], false);
        for (int i = 0;
             i < n_steps || (slow && serve_totals_of(s, SERVE_PREFILL)->n_tok == 0); i++)
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
