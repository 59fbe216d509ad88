/* The public API: what goes in comes out whole, in order, the same in any company; and every
 * way a request can end. The model is a small random llama2c file, made here. */
#include <pthread.h>

#include "model/cost.h"
#include "tests/serve/tiny.h"
#include "tests/support/fake_root.h"
#include "tests/support/faults.h"

/* Whether in one step or in pieces, with 1 thread or 2, the ids are the same. */
TEST(test_pieces)
{
    struct tiny_got whole, again, pieces, two;
    struct serve *s = tiny_open_default();
    struct serve_opts o = tiny_opts();

    tiny_generate(s, 30, 20, 7, &whole);
    tiny_generate(s, 30, 20, 7, &again); /* in used memory */
    serve_close(&s);
    tiny_assert_same(&whole, &again);
    o.max_step_tok = 7;
    s = tiny_open(&o);
    tiny_generate(s, 30, 20, 7, &pieces);
    serve_close(&s);
    tiny_assert_same(&whole, &pieces);
    o = tiny_opts();
    o.threads = 1;
    s = tiny_open(&o);
    tiny_generate(s, 30, 20, 7, &two);
    serve_close(&s);
    tiny_assert_same(&whole, &two);
}

TEST(test_queue)
{
    struct tiny_got alone[5], queued[5];
    struct serve *s = tiny_open_default();
    int32_t ids[SEQ] = {0};

    for (int i = 0; i < 5; i++)
        tiny_generate(s, 1 + 9 * i, 3 + i, (uint64_t)i, &alone[i]);
    for (int i = 0; i < 5; i++) {
        struct serve_request r = tiny_request(ids, 1 + 9 * i, 3 + i, &queued[i]);
        int64_t id;

        tiny_prompt(ids, 1 + 9 * i, (uint64_t)i);
        assert_ok(serve_submit(s, &r, &id));
    }
    tiny_run(s);
    for (int i = 0; i < 5; i++)
        tiny_assert_same(&alone[i], &queued[i]);
    serve_close(&s);
}

struct paced {
    int64_t n_prompt_tok, n_decode, n_steps;
};

static int64_t pace_step(void *ctx, const struct model_chunk *chunks, int n)
{
    struct paced *p = ctx;

    p->n_steps++;
    for (int i = 0; i < n; i++)
        *(chunks[i].pos0 > 0 ? &p->n_decode : &p->n_prompt_tok) += chunks[i].n_tok;
    return 3000000;
}

/* The pace is asked about all that is computed, and no step is faster. */
TEST(test_pace)
{
    struct paced p = {0};
    const struct serve_pace pace = {&p, pace_step};
    struct serve_opts o = tiny_opts();
    const struct serve_totals *t;
    struct tiny_got free_run, got;
    struct serve *s = tiny_open_default();

    tiny_generate(s, 30, 5, 7, &free_run);
    serve_close(&s);
    assert_ok(serve_open_with(&s, &o, &(struct serve_how){.pace = &pace}));
    tiny_free_opts(&o);
    tiny_generate(s, 30, 5, 7, &got);
    tiny_assert_same(&free_run, &got);
    assert_int_equal(p.n_prompt_tok, 30);
    assert_int_equal(p.n_decode, 4);
    assert_int_equal(p.n_steps, 5);
    for (int k = 0; k < SERVE_N_PHASES; k++) {
        t = serve_totals_of(s, k);
        assert_true(t->n_steps > 0);
        assert_true(t->forward_ns >= 3000000 * t->n_steps);
    }
    serve_close(&s);
}

TEST(test_eos)
{
    struct serve *s = tiny_open_default();
    struct tiny_got free_run, stopped;
    int32_t ids[4] = {0};
    int first = -1;
    int64_t id;

    assert_true(serve_is_stop(s, 2) && !serve_is_stop(s, 1));
    tiny_prompt(ids, 4, 1);
    /* A hot sampler meets the id 2 of 50 sooner or later; the seed is searched for it. */
    for (int seed = 0; first < 0 && seed < 50; seed++) {
        struct serve_request r = tiny_request(ids, 4, 50, &free_run);

        r.sampling = (struct serve_sampling){.temperature = 5, .top_p = 1, .seed = seed};
        assert_ok(serve_submit(s, &r, &id));
        tiny_run(s);
        assert_int_equal(free_run.n, 50);
        for (int i = 0; i < 49 && first < 0; i++)
            if (free_run.ids[i] == 2)
                first = i;
        r.ctx = &stopped, r.ignore_eos = false;
        memset(&stopped, 0, sizeof(stopped));
        assert_ok(serve_submit(s, &r, &id));
        tiny_run(s);
        assert_int_equal(stopped.finish, first < 0 ? SERVE_LENGTH : SERVE_EOS);
        assert_int_equal(stopped.n, first < 0 ? 50 : first + 1);
    }
    assert_true(first >= 0);
    serve_close(&s);
}

TEST(test_cancel)
{
    struct serve *s = tiny_open_default();
    struct tiny_got g[4];
    int32_t ids[8] = {0};
    int64_t id[4];
    bool busy;

    tiny_prompt(ids, 8, 3);
    for (int i = 0; i < 4; i++) {
        struct serve_request r = tiny_request(ids, 8, 10, &g[i]);

        assert_ok(serve_submit(s, &r, &id[i]));
    }
    serve_cancel(s, id[1]); /* in the queue */
    serve_cancel(s, 12345); /* unknown: nothing happens */
    g[0].cancel_after_first = s;
    assert_ok(serve_step(s, &busy));
    assert_true(busy);
    assert_int_equal(g[0].n, 1);
    assert_int_equal(g[1].finish, SERVE_CANCELED);
    assert_ok(serve_step(s, &busy));
    assert_int_equal(g[0].finish, SERVE_CANCELED);
    assert_int_equal(g[0].n, 1);
    while (g[2].n < 3)
        assert_ok(serve_step(s, &busy));
    serve_close(&s); /* one in the middle, one not begun */
    assert_int_equal(g[2].finish, SERVE_CANCELED);
    assert_int_equal(g[3].finish, SERVE_CANCELED);
    assert_int_equal(g[3].n, 0);
}

TEST(test_refusals)
{
    struct serve *s = tiny_open_default();
    int32_t ids[SEQ + 1] = {0};
    struct serve_request r;
    struct tiny_got g;
    size_t n_ids;
    int32_t *enc;
    int64_t id;

    r = tiny_request(ids, 0, 1, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "0 prompt tokens");
    r = tiny_request(ids, 1, 0, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "0 new");
    r = tiny_request(ids, 1, SEQ, &g);
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "at most 64 together; --max-tok");
    r = tiny_request(ids, 1, 1, &g);
    r.max_new = INT64_MAX;
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "max_tok");
    ids[1] = VOCAB;
    r = tiny_request(ids, 2, 1, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "prompt token 1: id 50");
    r = tiny_request(ids, 1, 1, &g);
    r.sampling.temperature = -1;
    assert_int_not_equal(serve_submit(s, &r, &id), OK);
    assert_err(serve_encode(s, "x", 1, 0, &enc, &n_ids), ERR_STATE, "no tokenizer");
    serve_close(&s);
}

TEST(test_open_refusals)
{
    static const struct {
        const char *key, *value, *part;
    } rows[] = {
        {"isa", "atuo", "\"auto\""},          {"policy", "fcsf", "fcfs"},
        {"weight_type", "bf17", "bf16"},      {"weight_type", "bf16", "losing precision"},
        {"max_tok", "65", "max_tok"},         {"tokenizer", "/none", "/none"},
        {"plan", "/none.json", "/none.json"}, {"threads", "1000", "1000 asked"},
        {"ranks", "63", "divide by 63"},      {"model", "/none.gguf", "/none.gguf"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct serve_opts o = tiny_opts();
        struct serve *s;
        int rc;

        if (strcmp(rows[i].key, "model") == 0)
            o.model = NULL;
        assert_ok(opt_set(serve_opt_table, &o, rows[i].key, rows[i].value, "test"));
        rc = serve_open(&s, &o);
        if (rc == OK || !strstr(err_msg(), rows[i].part))
            fail_msg("%s=%s: %s \"%s\", wanted \"%s\"", rows[i].key, rows[i].value,
                     err_name(rc), err_msg(), rows[i].part);
        assert_null(s);
        if (o.model != tiny_path)
            mem_free(o.model);
        tiny_free_opts(&o);
    }
}

/* Refused before a weight is packed, wherever the limit is and whatever needs the memory. */
TEST(test_memory_limit)
{
    struct fake_file files[] = {
        {"/proc/meminfo", "MemAvailable:    1000000 kB\n"},
        {"/proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"/proc/self/cgroup", "0::/job\n"},
        {"/sys/fs/cgroup/job/memory.max", "16000000\n"},
        {0},
    };
    struct serve_opts o = tiny_opts();
    struct serve *s;

    cpu_memory_set_root(fake_root(files));
    assert_ok(serve_open(&s, &o));
    serve_close(&s);
    o.max_seqs = 1000; /* 64 tokens of 256 bytes each */
    assert_err(serve_open(&s, &o), ERR_NOMEM, "keys, values and logits 0.017");
    assert_non_null(strstr(err_msg(),
                           "0.016 GB are available (0.016 GB by "
                           "/sys/fs/cgroup/job/memory.max, of which 0.000 GB are used)"));
    assert_null(s);
    o.max_seqs = 1;
    files[3].text = "1000000\n";
    cpu_memory_set_root(fake_root(files));
    assert_err(serve_open(&s, &o), ERR_NOMEM, "0.001 GB are available (0.001 GB by ");
    files[0].text = "MemAvailable:    100 kB\n";
    cpu_memory_set_root(fake_root(files));
    assert_err(serve_open(&s, &o), ERR_NOMEM, "(MemAvailable in /proc/meminfo)");
    cpu_memory_set_root(NULL);
    tiny_free_opts(&o);
}

/* Another thread submits and cancels while this one steps. */
struct client {
    struct serve *s;
    struct tiny_got g[20];
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    int32_t ids[8] = {0};
    int64_t id;

    tiny_prompt(ids, 8, 9);
    for (int i = 0; i < 20; i++) {
        struct serve_request r = tiny_request(ids, 8, 4, &c->g[i]);

        if (serve_submit(c->s, &r, &id) != OK)
            break;
        if (i % 4 == 3)
            serve_cancel(c->s, id);
    }
    return NULL;
}

TEST(test_threads)
{
    struct client c = {.s = tiny_open_default()};
    pthread_t t;
    bool busy;

    assert_int_equal(pthread_create(&t, NULL, client_main, &c), 0);
    do { /* until the client is gone, then until nothing is left */
        serve_wait(c.s, 1000000);
        assert_ok(serve_step(c.s, &busy));
    } while (pthread_tryjoin_np(t, NULL) != 0);
    tiny_run(c.s);
    for (int i = 0; i < 20; i++) {
        if (c.g[i].finish == SERVE_CANCELED)
            continue;
        assert_int_equal(c.g[i].finish, SERVE_LENGTH);
        tiny_assert_same(&c.g[i], &c.g[0]);
    }
    serve_close(&c.s);
}

TEST(test_steps_take_no_memory)
{
    struct serve *s = tiny_open_default();
    int32_t ids[10] = {0};
    struct tiny_got g;
    struct serve_request r = tiny_request(ids, 10, 30, &g);
    int64_t id;
    long before;

    tiny_prompt(ids, 10, 4);
    assert_ok(serve_submit(s, &r, &id));
    before = mem_n_allocs();
    tiny_run(s);
    assert_int_equal(mem_n_allocs(), before);
    assert_int_equal(g.n, 30);
    serve_close(&s);
}

TEST(test_alloc_fail)
{
    struct serve_opts o = tiny_opts();
    int32_t ids[3] = {1, 5, 7};
    long n = 0, n_failed = 0;
    bool done = false;

    for (; !done; n++) {
        struct serve *s = NULL;
        struct tiny_got g;
        struct serve_request r = tiny_request(ids, 3, 2, &g);
        int64_t id;
        int rc;

        mem_fail_after(n, 1);
        rc = serve_open(&s, &o);
        if (rc == OK)
            rc = serve_submit(s, &r, &id);
        mem_fail_after(-1, 0);
        if (rc == OK)
            tiny_run(s);
        else
            assert_int_equal(rc, ERR_NOMEM);
        done = rc == OK;
        n_failed += !done;
        serve_close(&s);
    }
    assert_true(n_failed > 15);
    assert_int_equal(mem_used_bytes(MEM_WEIGHTS), 0);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
    assert_int_equal(mem_used_bytes(MEM_ACTIVATIONS), 0);
    tiny_free_opts(&o);
}

TEST(test_describe)
{
    enum {
        qkv = DIM * DIM + 2 * DIM * KV_HEADS * (DIM / HEADS),
        rest = DIM * DIM + 3 * DIM * HIDDEN
    };
    struct serve *s = tiny_open_default();
    struct tiny_got g;
    json_t *j;

    tiny_generate(s, 10, 5, 1, &g);
    assert_ok(serve_describe(s, &j));
    assert_string_equal(
        json_string_value(json_object_get(
            json_object_get(json_object_get(j, "kernels"), "chosen"), "gemm_f32"))
            ? "named"
            : "missing",
        "named");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(j, "work"), "n_tok")), 14);
    assert_true(json_string_length(
                    json_object_get(json_object_get(j, "cpu_budget"), "reason")) > 0);
    assert_true(json_array_size(
                    json_object_get(json_object_get(j, "placement"), "threads")) >= 1);
    json_decref(j);
    /* one layer's matrices by hand: Q, K, V, O, gate, up, down */
    assert_int_equal(serve_token_bytes(s, 1) - serve_token_bytes(s, 0),
                     2 * LAYERS * KV_HEADS * (DIM / HEADS) * 4);
    /* ... with norms and the head, of which the embedding's row is one */
    assert_int_equal(serve_token_bytes(s, 0),
                     4 * (LAYERS * (qkv + rest) + (2 * LAYERS + 1) * DIM + VOCAB * DIM));
    /* All layers' queries, keys and values for each token; of the last layer the rest, and
     * the head, for the last token alone; a token attends to itself and those before it. */
    for (int n = 10; n <= 20; n += 10)
        assert_true(serve_prefill_flop(s, n) ==
                    2 * (LAYERS * qkv * n + rest * ((LAYERS - 1) * n + 1) + VOCAB * DIM) +
                        4 * DIM * ((LAYERS - 1) * n * (n + 1) / 2 + n));
    serve_close(&s);
}

/* Of the ids that it would get, the request's own stop ends it, but not before min_new others; a
 * bias decides. */
TEST(own_ends_and_biases)
{
    const struct sampler_bias bias = {7, 1000};
    const int32_t end = 7;
    struct serve *s = tiny_open_default();
    struct tiny_got got;
    int32_t ids[3] = {1, 2, 3};
    struct serve_request r = tiny_request(ids, 3, 9, &got);
    int64_t id;

    r.bias = &bias;
    r.n_bias = 1;
    assert_ok(serve_submit(s, &r, &id));
    tiny_run(s);
    assert_true(got.n == 9 && got.finish == SERVE_LENGTH && got.ids[0] == 7);
    for (int min_new = 0; min_new < 5; min_new++) {
        memset(&got, 0, sizeof(got));
        r.stop_ids = &end;
        r.n_stop_ids = 1;
        r.min_new = min_new;
        assert_ok(serve_submit(s, &r, &id));
        tiny_run(s);
        assert_int_equal(got.finish, SERVE_EOS);
        assert_int_equal(got.n, min_new + 1);
        for (int i = 0; i <= min_new; i++)
            assert_int_equal(got.ids[i] == 7, i == min_new);
    }
    r.min_new = 10;
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "0 to 9");
    r.min_new = 0;
    r.n_stop_ids = SERVE_STOP_IDS_MAX + 1;
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "at most 16");
    serve_close(&s);
}

TEST_GROUP(tiny_make, NULL);

/* Three locks of the engine, and of each thread of its team two calls. */
TEST(test_threads_and_locks_cannot_be_had)
{
    struct serve_opts o = tiny_opts();
    struct serve *s = NULL;

    assert_true(test_thread_faults(serve_open(&s, &o), !s) >= 4);
    serve_close(&s);
    o.rank_mode = SERVE_RANKS_PROCESSES;
    assert_true(test_thread_faults(serve_open(&s, &o), !s) >= 4);
    serve_close(&s);
    left_no_child();
    tiny_free_opts(&o);
}
