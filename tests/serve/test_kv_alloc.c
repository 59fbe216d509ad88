/* Every allocator of keys and values under the engine, with every way of telling how much a
 * request needs: each request gets the tokens that it gets alone, whoever waits, moves or is
 * preempted, and all memory comes back. */
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/learn.h"
#include "serve/engine.h"
#include "tests/serve/twelve.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

#define TOKEN_BYTES (2 * LAYERS * KV_HEADS * DIM / HEADS * 4)

/* How the engine learns what a request needs. */
struct how {
    const char *name, *predictor;
    int admit;
    int64_t tok;
    double sigma;
};
static const struct how hows[] = {
    {"max", NULL, SERVE_ADMIT_MAX, 1, 0},
    {"now", NULL, SERVE_ADMIT_NOW, 1, 0},
    {"oracle", "oracle", SERVE_ADMIT_NOW, 1, 0},
    {"noisy", "noisy", SERVE_ADMIT_NOW, 1, 1},
    {"always 1", "constant", SERVE_ADMIT_NOW, 1, 0},
    {"always the longest", "constant", SERVE_ADMIT_NOW, SEQ, 0},
};
#define N_HOWS     ((int)(sizeof(hows) / sizeof(hows[0])))
#define ALWAYS_ONE 4

static void set(struct serve_opts *o, const char *name, const char *value)
{
    assert_ok(opt_set(serve_opt_table, o, name, value, "test"));
}

/* Memory for three sequences of the longest, and twelve requests of which six may run. */
static struct serve_opts opts(const char *alloc, const struct how *how)
{
    struct serve_opts o = twelve_opts("continuous", 0);

    set(&o, "kv_alloc", alloc);
    if (how->predictor)
        set(&o, "kv_predict", how->predictor);
    o.kv_admit = how->admit;
    o.kv_predict_tok = how->tok;
    o.kv_predict_sigma = how->sigma;
    o.kv_budget = 3 * SEQ * TOKEN_BYTES;
    o.kv_relearn = 3;
    return o;
}

static struct serve_seq *live(struct serve *s, int i)
{
    return (struct serve_seq *)serve_engine_of(s)->loop.live[i];
}

/* What holds after each step. */
static void check_memory(struct serve *s)
{
    int64_t used = 0, reserved = 0;
    struct serve_kv_stat kv;

    serve_kv_stat(s, &kv);
    for (int i = 0; i < serve_engine_of(s)->loop.n_live; i++) {
        const struct serve_seq *q = live(s, i);

        assert_true((q->r.state == SCHED_WAITING) == !q->kv.base);
        assert_true(q->r.n_ctx <= q->kv.n_tok && q->kv.n_tok <= q->kv.cap_tok);
        used += q->r.n_ctx * TOKEN_BYTES;
        reserved += q->kv.cap_tok * TOKEN_BYTES;
    }
    assert_int_equal(kv.used_bytes, used);
    assert_int_equal(kv.reserved_bytes, reserved);
    assert_true(used <= reserved && reserved <= kv.pool_bytes);
}

/* Run to the end. Some request gets a token in every few steps, so all get theirs. */
static void run_checked(struct serve *s)
{
    bool busy = true;

    for (int steps = 0; busy; steps++) {
        assert_ok(serve_step(s, &busy));
        check_memory(s);
        assert_true(steps < 5000);
    }
}

static void check_end(struct serve *s, const struct serve_kv_stat *kv)
{
    json_t *d, *j;

    assert_true(kv->used_bytes == 0 && kv->reserved_bytes == 0 && kv->reserved_tok == 0);
    assert_ok(serve_describe(s, &d));
    j = json_object_get(json_object_get(d, "work"), "kv");
    assert_int_equal(json_integer_value(json_object_get(j, "kv_overflow_total")),
                     kv->n_overflow);
    assert_int_equal(json_integer_value(json_object_get(j, "kv_preempt_total")),
                     kv->n_preempted);
    assert_int_equal(json_integer_value(json_object_get(j, "kv_migrated_bytes")),
                     kv->migrated_bytes);
    for (int i = 0; i < 2; i++) {
        double x = json_real_value(
            json_object_get(j, i ? "utilization_outer" : "utilization_inner"));

        assert_true(x > 0 && x <= 1);
    }
    json_decref(d);
}

static struct serve_kv_stat run_opts(struct serve_opts *o, const struct tiny_got *alone)
{
    struct tiny_got got[N_REQUESTS];
    struct serve_kv_stat kv;
    struct serve *s = tiny_open(o);
    int64_t id;
    long before;

    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    before = mem_n_allocs();
    run_checked(s);
    assert_int_equal(mem_n_allocs(), before);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(got[i].finish, SERVE_LENGTH);
        tiny_assert_same(&got[i], &alone[i]);
    }
    serve_kv_stat(s, &kv);
    check_end(s, &kv);
    serve_close(&s);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
    return kv;
}

TEST(test_same_tokens)
{
    struct tiny_got alone[N_REQUESTS];

    twelve_alone(alone);
    for (int a = 0; kv_allocs[a]; a++)
        for (int h = 0; h < N_HOWS; h++) {
            const struct kv_alloc *alloc = kv_allocs[a];
            struct serve_opts o = opts(alloc->name, &hows[h]);
            struct serve_kv_stat kv = run_opts(&o, alone);

            assert_int_equal(kv.n_predicted, hows[h].predictor ? N_REQUESTS : 0);
            assert_true(alloc->several_sizes || kv.n_overflow == 0);
            assert_true(alloc->several_sizes || kv.migrated_bytes == 0);
            if (h == ALWAYS_ONE && alloc->several_sizes)
                assert_true(kv.n_overflow > 0 && kv.migrated_bytes > 0);
            if (strcmp(hows[h].name, "max") == 0)
                assert_true(kv.n_preempted == 0 && kv.n_overflow == 0);
        }
}

/* A block of the longest is kept for those that outgrow theirs. */
TEST(test_same_tokens_with_a_reserve)
{
    static const char *const allocs[] = {"odma", "odma_paper"};
    struct tiny_got alone[N_REQUESTS];

    twelve_alone(alone);
    for (int a = 0; a < 2; a++)
        for (int h = 2; h < N_HOWS; h++) {
            struct serve_opts o = opts(allocs[a], &hows[h]);
            struct serve_kv_stat kv;

            set(&o, "kv_large_frac", "0.3");
            kv = run_opts(&o, alone);
            assert_true(h != ALWAYS_ONE || kv.migrated_bytes > 0);
        }
}

TEST(test_policies_and_blocks)
{
    static const int64_t blocks[] = {16, 64, 512};
    struct tiny_got alone[N_REQUESTS];

    twelve_alone(alone);
    for (int p = 0; sched_policies[p]; p++)
        for (int a = 0; kv_allocs[a]; a++) {
            struct serve_opts o = opts(kv_allocs[a]->name, &hows[ALWAYS_ONE]);

            set(&o, "policy", sched_policies[p]->name);
            o.max_step_tok = 5 + 20 * p;
            o.kv_patience = 4 * p;
            (void)run_opts(&o, alone);
        }
    for (int b = 0; b < 3; b++) {
        struct serve_opts o = opts("paged", &hows[1]);

        o.kv_block = blocks[b];
        o.kv_budget = 0;
        o.kv_budget_tok = 40; /* a limit besides */
        assert_true(run_opts(&o, alone).n_preempted > 0);
    }
}

/* As many CPUs as a test asks for, where the process may run on fewer: nothing is pinned. */
static int n_cpus_given;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    long rc;

    memset(set, 0, bytes);
    rc = syscall(SYS_sched_getaffinity, pid, bytes, set);
    for (int i = 0; i < n_cpus_given; i++)
        CPU_SET_S((size_t)i, bytes, set);
    return rc < 0 ? -1 : 0;
}

/* One, two and four ranks, as threads and as processes, with and without moves: tables of blocks
 * are read by all. */
TEST(test_ranks)
{
    static const struct {
        const char *alloc;
        int64_t block_tok;
        int how;
    } all[] = {{"static", 16, 0},          {"paged", 16, ALWAYS_ONE},
               {"paged", 256, ALWAYS_ONE}, {"s3", 16, ALWAYS_ONE},
               {"odma", 16, ALWAYS_ONE},   {"odma", 16, 0}};
    struct tiny_got alone[N_REQUESTS];
    struct cpu_budget b;

    twelve_alone(alone);
    n_cpus_given = 4;
    assert_ok(cpu_budget_get(&b));
    for (int ranks = 1; ranks <= 4 && ranks <= b.n; ranks *= 2)
        for (int i = 0; i < 2 * 6; i++) {
            struct serve_opts o = opts(all[i / 2].alloc, &hows[all[i / 2].how]);
            struct serve_kv_stat kv;

            o.threads = o.ranks = ranks;
            o.rank_mode = i % 2 ? SERVE_RANKS_PROCESSES : SERVE_RANKS_THREADS;
            o.kv_block = all[i / 2].block_tok;
            if (o.kv_block > SEQ) /* one block each */
                o.kv_budget = 3 * o.kv_block * TOKEN_BYTES;
            kv = run_opts(&o, alone);
            if (all[i / 2].how == ALWAYS_ONE && strcmp(all[i / 2].alloc, "paged") != 0)
                assert_true(kv.migrated_bytes > 0);
            left_no_child();
        }
    n_cpus_given = 0;
    if (b.n < 4)
        test_skip("%d CPUs only", b.n);
}

/* Where all wait for memory the youngest loses its own; a request that outgrew the only memory
 * there is starts again with all of it. */
TEST(test_one_sequence_of_memory)
{
    struct tiny_got alone[N_REQUESTS];

    twelve_alone(alone);
    for (int a = 0; kv_allocs[a]; a++) {
        struct serve_opts o = opts(kv_allocs[a]->name, &hows[ALWAYS_ONE]);
        struct serve_kv_stat kv;

        o.kv_budget = SEQ * TOKEN_BYTES;
        kv = run_opts(&o, alone);
        assert_true((kv.n_preempted > 0) ==
                    (kv_allocs[a]->paged || kv_allocs[a]->several_sizes));
        assert_true((kv.n_recomputed_tok > 0) == (kv.n_preempted > 0));
    }
}

/* Bounds are learned from requests that ended by themselves, between steps. */
TEST(test_bounds)
{
    for (int64_t every = 0; every <= 4; every += 4) {
        struct serve_opts o = opts("odma", &hows[2]);
        struct tiny_got got[N_REQUESTS];
        const struct kv_bounds *b;
        struct serve *s;
        int64_t id;

        o.kv_relearn = every;
        s = tiny_open(&o);
        for (int i = 0; i < N_REQUESTS; i++)
            twelve_submit(s, i, &got[i], &id);
        serve_cancel(s, id);
        tiny_run(s);
        b = kv_buckets_bounds(serve_engine_of(s)->lengths.buckets);
        assert_int_equal(b->epoch, every ? (N_REQUESTS - 1) / every : 0);
        assert_true(every ? b->tok[b->n - 1] <= 48 : b->tok[b->n - 1] == SEQ);
        serve_close(&s);
    }
}

/* While short requests of one bucket keep coming, a long one that they leave no memory for is
 * passed by them for 256 steps, and not much longer. */
TEST(test_the_oldest_is_not_starved)
{
    enum { N_SHORT = 5, LONGEST_STEPS = 256 + 60 };
    struct serve_opts o = opts("odma", &hows[2]);
    struct tiny_got long_one, short_ones[N_SHORT];
    int32_t ids[SEQ] = {0};
    struct serve_request r;
    int steps = 0, n_passed = 0;
    struct serve *s;
    int64_t id;

    o.kv_budget = 2 * SEQ * TOKEN_BYTES;
    s = tiny_open(&o);
    for (int i = 0; i < N_SHORT; i++)
        twelve_submit(s, 0, &short_ones[i], &id);
    r = tiny_request(ids, 20, 40, &long_one);
    for (; long_one.n == 0 && steps < 10 * LONGEST_STEPS; steps++) {
        bool busy;

        assert_ok(serve_step(s, &busy));
        if (steps == 0)
            assert_ok(serve_submit(s, &r, &id));
        for (int i = 0; i < N_SHORT; i++)
            if (short_ones[i].finish != SERVE_RUNNING) {
                twelve_submit(s, 0, &short_ones[i], &id);
                n_passed++;
            }
    }
    assert_true(n_passed > 50); /* they could have gone on for ever */
    assert_true(steps > 256 && steps < LONGEST_STEPS);
    tiny_run(s);
    assert_int_equal(long_one.n, 40);
    serve_close(&s);
}

static void refused(struct serve_opts *o, int rc, const char *why)
{
    struct serve *s;

    assert_err(serve_open(&s, o), rc, why);
    assert_null(s);
    tiny_free_opts(o);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

TEST(test_errors)
{
    const struct how *oracle = &hows[2];
    struct serve_opts o = opts("pagd", oracle);
    struct serve_request r;
    int32_t ids[4] = {0};
    struct tiny_got g;
    struct serve *s;
    int64_t id;

    refused(&o, ERR_NOTFOUND, "paged");
    o = opts("paged", oracle);
    o.kv_block = 48;
    refused(&o, ERR_ARG, "48 tokens: expected a power of two from 16 to 512");
    o = opts("static", oracle);
    o.kv_budget = SEQ * TOKEN_BYTES - 1;
    refused(&o, ERR_NOMEM, "kv_budget 16383: kv pool of 16383 bytes holds no sequence");
    o = opts("odma", oracle);
    set(&o, "kv_predict", "oracel");
    refused(&o, ERR_NOTFOUND, "oracle");
    o = opts("odma", oracle);
    set(&o, "kv_predict", "learned");
    refused(&o, ERR_ARG, "kv_predict: learned: nothing has been learned");
    o = opts("odma", oracle);
    set(&o, "kv_predict", "learned");
    set(&o, "kv_predict_file", "/nowhere/predictor.json");
    refused(&o, ERR_NOTFOUND, "/nowhere/predictor.json");
    o = opts("odma", &hows[ALWAYS_ONE]);
    o.kv_predict_tok = SEQ + 1;
    refused(&o, ERR_ARG, "kv_predict: constant: a length of 65 tokens");
    o = opts("odma", oracle);
    s = tiny_open(&o);
    r = tiny_request(ids, 4, 4, &g);
    r.ignore_eos = false;
    assert_err(serve_submit(s, &r, &id), ERR_ARG, "oracle: the length of the request");
    r.ignore_eos = true;
    assert_ok(serve_submit(s, &r, &id));
    tiny_run(s);
    assert_int_equal(g.n, 4);
    serve_close(&s);
}

static void on_any_token(void *ctx, int64_t request, int32_t id, const float *logits,
                         enum serve_finish finish)
{
    (void)request, (void)id, (void)logits;
    *(enum serve_finish *)ctx = finish;
}

/* What was learned is read from a file and asked with the text of a prompt, which is ids: without a
 * tokenizer there is none. */
TEST(test_learned)
{
    const struct kv_learned_from from = {
        .format = "test", .tokens = "test", .n_examples = 200, .folds = 2};
    char path[600], text[200][24];
    struct kv_example e[200];
    struct kv_learned *l;

    for (int i = 0; i < 200; i++) {
        snprintf(text[i], sizeof(text[i]), "%s %d", i % 2 ? "long" : "short", i);
        e[i] = (struct kv_example){.text = text[i],
                                   .text_bytes = strlen(text[i]),
                                   .prompt_tok = 4,
                                   .output_tok = i % 2 ? 40 : 2};
    }
    assert_ok(kv_learn(&l, e, 200));
    snprintf(path, sizeof(path), "%s/predictor.json", test_dir());
    assert_ok(kv_learned_save(l, &from, path));
    kv_learned_close(&l);
    for (int tok = 0; tok < 2; tok++) {
        struct serve_opts o = opts("odma", &hows[2]);
        enum serve_finish finish = SERVE_RUNNING;
        const int32_t ids[3] = {5, 6, 7};
        struct serve_request r = {.prompt = ids,
                                  .n_prompt = 3,
                                  .max_new = 4,
                                  .ignore_eos = true,
                                  .sampling = {.top_p = 1},
                                  .on_token = on_any_token,
                                  .ctx = &finish};
        struct serve_kv_stat kv;
        struct serve *s;
        int64_t id;

        set(&o, "kv_predict", "learned");
        set(&o, "kv_predict_file", path);
        o.model = tok ? (char *)tiny_model(KERN_F32) : tiny_path;
        o.kv_budget = 0;
        o.max_tok = SEQ;
        s = tiny_open(&o);
        if (tok)
            assert_ok(serve_submit(s, &r, &id));
        else
            assert_err(serve_submit(s, &r, &id), ERR_ARG,
                       "learned: the request has no text");
        tiny_run(s);
        assert_int_equal(finish, tok ? SERVE_LENGTH : SERVE_RUNNING);
        serve_kv_stat(s, &kv);
        assert_int_equal(kv.n_predicted, 1);
        serve_close(&s);
    }
}

/* A limit of the output that is not its length bounds what a request is given. */
TEST(test_limit_of_output)
{
    struct serve_opts o = opts("odma", &hows[N_HOWS - 1]); /* always the longest */
    struct serve *s = tiny_open(&o);
    struct serve_request r;
    int32_t ids[4] = {0};
    struct tiny_got g;
    int64_t id;
    bool busy;

    r = tiny_request(ids, 4, 8, &g);
    for (int limit = 0; limit < 2; limit++) {
        memset(&g, 0, sizeof(g));
        r.ignore_eos = !limit;
        assert_ok(serve_submit(s, &r, &id));
        assert_ok(serve_step(s, &busy));
        if (busy) /* its first token may have been the last */
            assert_int_equal(live(s, 0)->kv.cap_tok, limit ? 16 : SEQ);
        tiny_run(s);
    }
    serve_close(&s);
}

/* Short of memory anywhere while the engine opens or a request comes: an error, and nothing is
 * lost. */
TEST(test_out_of_memory)
{
    for (int a = 0; kv_allocs[a]; a++) {
        struct serve_opts o = opts(kv_allocs[a]->name, &hows[ALWAYS_ONE]);
        struct serve *s = NULL;
        struct serve_request r;
        int32_t ids[4] = {0};
        struct tiny_got g;
        bool failed = true; /* an allocation did */
        int64_t id;
        int rc;

        for (long n = 0; failed; n += 1 + n / 8) {
            long before = mem_n_allocs();

            serve_close(&s);
            assert_int_equal(mem_used_bytes(MEM_KV), 0);
            mem_fail_after(n, 1);
            rc = serve_open(&s, &o);
            mem_fail_after(-1, 0);
            assert_true((rc == OK) == (s != NULL));
            failed = rc != OK || mem_n_allocs() - before > n; /* in a child, too */
        }
        assert_non_null(s);
        tiny_free_opts(&o);
        r = tiny_request(ids, 4, 30, &g);
        rc = ERR_NOMEM;
        for (long n = 0; rc != OK; n++) {
            mem_fail_after(n, 1);
            rc = serve_submit(s, &r, &id);
            mem_fail_after(-1, 0);
            assert_true(rc == OK || rc == ERR_NOMEM);
        }
        tiny_run(s);
        check_memory(s);
        assert_int_equal(g.n, 30);
        serve_close(&s);
        assert_int_equal(mem_used_bytes(MEM_KV), 0);
    }
}

/* Clients that leave at any step, whatever their request is about to do: waiting, growing,
 * preempted. All memory comes back, and the others get their tokens. */
TEST(test_canceled_anywhere)
{
    struct tiny_got alone[N_REQUESTS];
    struct rng rng;

    twelve_alone(alone);
    rng_init(&rng, test_seed(), "leave");
    for (int a = 0; kv_allocs[a]; a++)
        for (int round = 0; round < 8; round++) {
            struct serve_opts o = opts(kv_allocs[a]->name, &hows[ALWAYS_ONE]);
            struct tiny_got got[N_REQUESTS];
            int64_t id[N_REQUESTS];
            struct serve_kv_stat kv;
            struct serve *s;
            bool busy = true;

            o.kv_budget = (1 + round % 3) * SEQ * TOKEN_BYTES;
            s = tiny_open(&o);
            for (int i = 0; i < N_REQUESTS; i++)
                twelve_submit(s, i, &got[i], &id[i]);
            while (busy) {
                if (rng_below(&rng, 4) == 0)
                    serve_cancel(s, id[rng_below(&rng, N_REQUESTS)]);
                assert_ok(serve_step(s, &busy));
                check_memory(s);
            }
            serve_kv_stat(s, &kv);
            assert_true(kv.used_bytes == 0 && kv.reserved_bytes == 0 &&
                        kv.reserved_tok == 0);
            for (int i = 0; i < N_REQUESTS; i++) {
                assert_true(got[i].finish == SERVE_LENGTH ||
                            got[i].finish == SERVE_CANCELED);
                assert_true(got[i].n <= alone[i].n);
                assert_memory_equal(got[i].ids, alone[i].ids,
                                    (size_t)got[i].n * sizeof(got[i].ids[0]));
            }
            serve_close(&s);
            assert_int_equal(mem_used_bytes(MEM_KV), 0);
        }
}

TEST_GROUP(tiny_make, NULL);
