/* The door: what goes in comes out whole, in order, the same in any company; and every
 * way a request can end. The model is a small random llama2c file, made here. */
#include <math.h>
#include <pthread.h>

#include "cpu/cpu.h"
#include "plan/plan.h"
#include "serve/serve.h"
#include "tests/support/test.h"

enum { DIM = 32, HIDDEN = 40, LAYERS = 2, HEADS = 4, KV_HEADS = 2, VOCAB = 50, SEQ = 64 };

static char path[600];

static int make_model(void **state)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, SEQ};
    int kv = DIM / HEADS * KV_HEADS;
    int n = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * DIM * kv) +
            3 * LAYERS * DIM * HIDDEN + DIM + SEQ * DIM / HEADS;
    char *buf = mem_new(MEM_TEST, 1, sizeof(header) + (size_t)n * 4);
    struct rng rng;

    (void)state;
    assert_non_null(buf);
    rng_init(&rng, test_seed(), "weights");
    memcpy(buf, header, sizeof(header));
    for (int i = 0; i < n; i++) {
        float x = (float)(rng_normal(&rng) * 0.5);

        memcpy(buf + sizeof(header) + 4 * (size_t)i, &x, 4);
    }
    snprintf(path, sizeof(path), "%s/model.bin", test_dir());
    test_write(path, buf, sizeof(header) + (size_t)n * 4);
    mem_free(buf);
    return 0;
}

static struct serve_opts opts(void)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = path;
    o.pin = false; /* the tests may run beside others */
    return o;
}

static void free_opts(struct serve_opts *o)
{
    o->model = NULL;
    opt_free(serve_opt_table, o);
}

static struct serve *open_with(struct serve_opts *o)
{
    struct serve *s;

    assert_ok(serve_open(&s, o));
    free_opts(o);
    return s;
}

static struct serve *open_default(void)
{
    struct serve_opts o = opts();

    return open_with(&o);
}

/* What one request got. */
struct got {
    int32_t ids[SEQ];
    int n;
    enum serve_finish finish;
    int64_t request;
    struct serve *cancel_after_first; /* cancel from inside the call */
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct got *g = ctx;

    assert_int_equal(g->finish, SERVE_RUNNING); /* nothing comes after the end */
    g->request = request;
    g->finish = finish;
    if (id < 0) {
        assert_null(logits);
        assert_int_not_equal(finish, SERVE_RUNNING);
        return;
    }
    assert_true(isfinite(logits[0]) && isfinite(logits[VOCAB - 1]));
    assert_in_range(id, 0, VOCAB - 1);
    assert_true(g->n < SEQ);
    g->ids[g->n++] = id;
    if (g->cancel_after_first)
        serve_cancel(g->cancel_after_first, request);
}

static void prompt_of(int32_t *ids, int n, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, "prompt");
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, VOCAB);
}

static struct serve_request request(const int32_t *ids, int n, int max_new, struct got *g)
{
    memset(g, 0, sizeof(*g));
    return (struct serve_request){.prompt = ids,
                                  .n_prompt = n,
                                  .max_new = max_new,
                                  .ignore_eos = true,
                                  .sampling = {.top_p = 1},
                                  .on_token = on_token,
                                  .ctx = g};
}

static void run(struct serve *s)
{
    bool busy = true;

    for (int steps = 0; busy; steps++) {
        assert_ok(serve_step(s, &busy));
        assert_true(steps < 10000);
    }
}

/* One request alone. */
static void generate(struct serve *s, int n_prompt, int max_new, uint64_t seed,
                     struct got *g)
{
    int32_t ids[SEQ] = {0};
    struct serve_request r = request(ids, n_prompt, max_new, g);
    int64_t id;

    prompt_of(ids, n_prompt, seed);
    assert_ok(serve_submit(s, &r, &id));
    memset(ids, 0xff, sizeof(ids)); /* it was copied */
    run(s);
    assert_int_equal(g->request, id);
    assert_int_equal(g->finish, SERVE_LENGTH);
    assert_int_equal(g->n, max_new);
}

static void assert_same(const struct got *a, const struct got *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof(a->ids[0]));
}

/* Whether in one step or in pieces, with 1 thread or 2, the ids are the same. */
static void test_pieces(void **state)
{
    struct got whole, again, pieces, two;
    struct serve *s = open_default();
    struct serve_opts o = opts();

    (void)state;
    generate(s, 30, 20, 7, &whole);
    generate(s, 30, 20, 7, &again); /* in used memory */
    serve_close(&s);
    assert_same(&whole, &again);
    o.max_step_tok = 7;
    s = open_with(&o);
    generate(s, 30, 20, 7, &pieces);
    serve_close(&s);
    assert_same(&whole, &pieces);
    o = opts();
    o.threads = 1;
    s = open_with(&o);
    generate(s, 30, 20, 7, &two);
    serve_close(&s);
    assert_same(&whole, &two);
}

static void test_queue(void **state)
{
    struct got alone[5], queued[5];
    struct serve *s = open_default();
    int32_t ids[SEQ] = {0};

    (void)state;
    for (int i = 0; i < 5; i++)
        generate(s, 1 + 9 * i, 3 + i, (uint64_t)i, &alone[i]);
    for (int i = 0; i < 5; i++) {
        struct serve_request r = request(ids, 1 + 9 * i, 3 + i, &queued[i]);
        int64_t id;

        prompt_of(ids, 1 + 9 * i, (uint64_t)i);
        assert_ok(serve_submit(s, &r, &id));
    }
    run(s);
    for (int i = 0; i < 5; i++)
        assert_same(&alone[i], &queued[i]);
    serve_close(&s);
}

static void test_eos(void **state)
{
    struct serve *s = open_default();
    struct got free_run, stopped;
    int32_t ids[4] = {0};
    int first = -1;
    int64_t id;

    (void)state;
    assert_int_equal(serve_eos(s), 2);
    prompt_of(ids, 4, 1);
    /* A hot sampler meets the id 2 of 50 sooner or later; the seed is searched for it. */
    for (int seed = 0; first < 0 && seed < 50; seed++) {
        struct serve_request r = request(ids, 4, 50, &free_run);

        r.sampling = (struct serve_sampling){.temperature = 5, .top_p = 1, .seed = seed};
        assert_ok(serve_submit(s, &r, &id));
        run(s);
        assert_int_equal(free_run.n, 50);
        for (int i = 0; i < 49 && first < 0; i++)
            if (free_run.ids[i] == 2)
                first = i;
        r.ctx = &stopped, r.ignore_eos = false;
        memset(&stopped, 0, sizeof(stopped));
        assert_ok(serve_submit(s, &r, &id));
        run(s);
        assert_int_equal(stopped.finish, first < 0 ? SERVE_LENGTH : SERVE_EOS);
        assert_int_equal(stopped.n, first < 0 ? 50 : first + 1);
    }
    assert_true(first >= 0);
    serve_close(&s);
}

static void test_cancel(void **state)
{
    struct serve *s = open_default();
    struct got g[4];
    int32_t ids[8] = {0};
    int64_t id[4];
    bool busy;

    (void)state;
    prompt_of(ids, 8, 3);
    for (int i = 0; i < 4; i++) {
        struct serve_request r = request(ids, 8, 10, &g[i]);

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

static void test_refusals(void **state)
{
    struct serve *s = open_default();
    int32_t ids[SEQ + 1] = {0};
    struct serve_request r;
    struct got g;
    size_t n_ids;
    int32_t *enc;
    int64_t id;

    (void)state;
    r = request(ids, 0, 1, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "0 prompt tokens");
    r = request(ids, 1, 0, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "0 new");
    r = request(ids, 1, SEQ, &g);
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "longest sequence is 64");
    r = request(ids, 1, 1, &g);
    r.max_new = INT64_MAX;
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "max_tok");
    ids[1] = VOCAB;
    r = request(ids, 2, 1, &g);
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "prompt token 1: id 50");
    r = request(ids, 1, 1, &g);
    r.sampling.temperature = -1;
    assert_int_not_equal(serve_submit(s, &r, &id), OK);
    assert_err(serve_encode(s, "x", 1, false, &enc, &n_ids), ERR_STATE, "no tokenizer");
    serve_close(&s);
}

static void test_open_refusals(void **state)
{
    static const struct {
        const char *key, *value, *part;
    } rows[] = {
        {"isa", "avx513", "avx512"},
        {"policy", "fcsf", "fcfs"},
        {"weight_type", "bf17", "bf16"},
        {"weight_type", "bf16", "losing precision"},
        {"kv_type", "f16", "kv_type"},
        {"max_tok", "65", "max_tok"},
        {"tokenizer", "/none", "/none"},
        {"plan", "/none.json", "/none.json"},
        {"threads", "1000", "1000 asked"},
        {"ranks", "63", "divide by 63"},
        {"model", "/none.gguf", "/none.gguf"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct serve_opts o = opts();
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
        if (o.model != path)
            mem_free(o.model);
        free_opts(&o);
    }
}

/* Another thread submits and cancels while this one steps. */
struct client {
    struct serve *s;
    struct got g[20];
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    int32_t ids[8] = {0};
    int64_t id;

    prompt_of(ids, 8, 9);
    for (int i = 0; i < 20; i++) {
        struct serve_request r = request(ids, 8, 4, &c->g[i]);

        if (serve_submit(c->s, &r, &id) != OK)
            break;
        if (i % 4 == 3)
            serve_cancel(c->s, id);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct client c = {.s = open_default()};
    pthread_t t;
    bool busy;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, client_main, &c), 0);
    do { /* until the client is gone, then until nothing is left */
        serve_wait(c.s, 1000000);
        assert_ok(serve_step(c.s, &busy));
    } while (pthread_tryjoin_np(t, NULL) != 0);
    run(c.s);
    for (int i = 0; i < 20; i++) {
        if (c.g[i].finish == SERVE_CANCELED)
            continue;
        assert_int_equal(c.g[i].finish, SERVE_LENGTH);
        assert_same(&c.g[i], &c.g[0]);
    }
    serve_close(&c.s);
}

static void test_steps_take_no_memory(void **state)
{
    struct serve *s = open_default();
    int32_t ids[10] = {0};
    struct got g;
    struct serve_request r = request(ids, 10, 30, &g);
    int64_t id;
    long before;

    (void)state;
    prompt_of(ids, 10, 4);
    assert_ok(serve_submit(s, &r, &id));
    before = mem_n_allocs();
    run(s);
    assert_int_equal(mem_n_allocs(), before);
    assert_int_equal(g.n, 30);
    serve_close(&s);
}

static void test_alloc_fail(void **state)
{
    struct serve_opts o = opts();
    int32_t ids[3] = {1, 5, 7};
    long n = 0, n_failed = 0;
    bool done = false;

    (void)state;
    for (; !done; n++) {
        struct serve *s = NULL;
        struct got g;
        struct serve_request r = request(ids, 3, 2, &g);
        int64_t id;
        int rc;

        mem_fail_after(n, 1);
        rc = serve_open(&s, &o);
        if (rc == OK)
            rc = serve_submit(s, &r, &id);
        mem_fail_after(-1, 0);
        if (rc == OK)
            run(s);
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
    free_opts(&o);
}

static void test_describe(void **state)
{
    struct serve *s = open_default();
    struct got g;
    json_t *j;

    (void)state;
    generate(s, 10, 5, 1, &g);
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
    assert_true(json_object_size(json_object_get(json_object_get(j, "placement"),
                                                 "weight_pages")) >= 1);
    json_decref(j);
    /* one layer's matrices by hand: Q, K, V, O, gate, up, down */
    assert_int_equal(serve_token_bytes(s, 1) - serve_token_bytes(s, 0),
                     2 * LAYERS * KV_HEADS * (DIM / HEADS) * 4);
    assert_true(serve_token_bytes(s, 0) >=
                4 * (LAYERS * (3 * DIM * DIM + 3 * DIM * HIDDEN) + VOCAB * DIM));
    assert_true(serve_prefill_flop(s, 20) > 1.5 * serve_prefill_flop(s, 10));
    serve_close(&s);
}

/* ---- ranks ---- */

static int64_t fact(struct serve *s, const char *group, const char *key)
{
    json_t *j, *of;
    int64_t n;

    assert_ok(serve_describe(s, &j));
    of = group ? json_object_get(j, group) : j;
    assert_true(json_is_integer(json_object_get(of, key)));
    n = json_integer_value(json_object_get(of, key));
    json_decref(j);
    return n;
}

/* Ranks x threads of prefill and of decode, on two CPUs; which is decode's first. */
static const struct shape {
    int prefill[2], decode[2], first;
} shapes[] = {
    {{2, 1}, {1, 1}, 0}, {{2, 1}, {1, 1}, 1}, {{1, 2}, {2, 1}, 0}, {{2, 1}, {1, 2}, 1},
    {{1, 2}, {1, 1}, 0}, {{2, 1}, {2, 1}, 1}, {{1, 1}, {1, 1}, 0},
};
#define N_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

static void set_phase(struct plan_phase *f, const int shape[2], const int *cpus)
{
    f->n_ranks = shape[0];
    f->n_threads = shape[1];
    f->expected_s = NAN;
    for (int i = 0; i < 2; i++) {
        f->cpus[i] = cpus[i];
        f->nodes[i] = -1;
    }
}

static struct serve *open_shape(const struct shape *x, const struct cpu_budget *b)
{
    const int turned[2] = {b->cpus[x->first], b->cpus[1 - x->first]};
    struct serve_opts o = opts();
    struct plan p = {.machine = "host"};
    char file[600];

    set_phase(&p.prefill, x->prefill, b->cpus);
    set_phase(&p.decode, x->decode, turned);
    snprintf(file, sizeof(file), "%s/plan.json", test_dir());
    assert_ok(plan_write(&p, file));
    o.plan = mem_strdup(MEM_TEST, file);
    assert_non_null(o.plan);
    return open_with(&o);
}

/* The same tokens, by one rank and by two, and by plans that change ranks, threads and
 * order between the phases; what a switch would have to copy is counted, and is nothing. */
static void test_ranks(void **state)
{
    struct serve *s = open_default();
    struct serve_opts o;
    struct cpu_budget b;
    struct got one, g;

    (void)state;
    generate(s, 21, 30, 7, &one);
    serve_close(&s);
    assert_ok(cpu_budget_get(&b));
    if (b.n < 2)
        test_skip("two ranks need two CPUs, this process has one");
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *x = &shapes[i];
        bool same = memcmp(x->prefill, x->decode, sizeof(x->decode)) == 0 && !x->first;

        s = open_shape(x, &b);
        generate(s, 21, 30, 7, &g);
        assert_same(&g, &one);
        assert_int_equal(fact(s, "work", "n_switches"), !same);
        assert_int_equal(fact(s, "work", "switch_copied_bytes"), 0);
        assert_int_equal(fact(s, NULL, "decode_threads"), x->decode[0] * x->decode[1]);
        serve_close(&s);
    }
    for (int i = 0; i < 2; i++) { /* deterministic, too */
        o = opts();
        o.deterministic = true;
        o.ranks = o.threads = 1 + i;
        s = open_with(&o);
        generate(s, 21, 30, 7, &g);
        assert_same(&g, &one);
        serve_close(&s);
    }
    o = opts();
    o.ranks = o.threads = 2;
    s = open_with(&o);
    generate(s, 21, 30, 7, &g);
    assert_same(&g, &one);
    assert_int_equal(fact(s, "work", "n_switches"), 0);
    serve_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_queue),
        cmocka_unit_test(test_eos),        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_open_refusals),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_steps_take_no_memory),
        cmocka_unit_test(test_alloc_fail), cmocka_unit_test(test_describe),
        cmocka_unit_test(test_ranks),
    };

    return cmocka_run_group_tests_name("serve", tests, make_model, NULL);
}
