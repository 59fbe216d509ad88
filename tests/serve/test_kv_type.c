/* Keys and values of 8 bits under the engine: whoever is moved, preempted or computed by ranks
 * that are processes gets the tokens that it gets alone, and memory is counted by what a token
 * takes in the type. */
#include "cpu/cpu.h"
#include "kernels/kv_type.h"
#include "kv/alloc.h"
#include "tests/serve/twelve.h"
#include "tests/support/leftovers.h"

#define TOKEN_BYTES                                                                      \
    (2 * LAYERS * KV_HEADS * (int64_t)kern_kv_bytes(KERN_KV_Q8, DIM / HEADS))

/* Room for two sequences of the longest, and six requests at a time that ask for as little as
 * they can. */
static struct serve_kv_stat run(const char *alloc, int rank_mode, int64_t ranks,
                                const struct tiny_got *alone)
{
    struct serve_opts o = twelve_opts("continuous", 0);
    struct tiny_got got[N_REQUESTS];
    struct serve_kv_stat kv;
    bool busy = true;
    struct serve *s;
    int64_t id;

    assert_ok(opt_set(serve_opt_table, &o, "kv_type", "q8", "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", alloc, "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_predict", "constant", "test"));
    o.kv_predict_tok = 1;
    o.kv_budget = 2 * SEQ * TOKEN_BYTES;
    o.threads = o.ranks = ranks;
    o.rank_mode = rank_mode;
    s = tiny_open(&o);
    serve_kv_stat(s, &kv);
    assert_int_equal(kv.pool_bytes, 2 * SEQ * TOKEN_BYTES);
    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    while (busy) {
        assert_ok(serve_step(s, &busy));
        serve_kv_stat(s, &kv);
        assert_true(kv.used_bytes % TOKEN_BYTES == 0 &&
                    kv.used_bytes <= kv.reserved_bytes);
    }
    for (int i = 0; i < N_REQUESTS; i++)
        tiny_assert_same(&got[i], &alone[i]);
    serve_kv_stat(s, &kv);
    serve_close(&s);
    return kv;
}

TEST(same_tokens)
{
    struct tiny_got alone[N_REQUESTS], f32[N_REQUESTS];
    int64_t n_preempted = 0, migrated_bytes = 0;
    struct cpu_budget b;
    int n_other = 0;

    twelve_alone(f32);
    twelve_alone_in(alone, "q8");
    for (int i = 0; i < N_REQUESTS; i++)
        n_other += memcmp(f32[i].ids, alone[i].ids, sizeof(f32[i].ids)) != 0;
    assert_true(n_other > 0); /* the option does something */
    assert_ok(cpu_budget_get(&b));
    for (int a = 0; kv_allocs[a]; a++) {
        struct serve_kv_stat kv = run(kv_allocs[a]->name, SERVE_RANKS_THREADS, 1, alone);

        n_preempted += kv.n_preempted;
        migrated_bytes += kv.migrated_bytes;
        if (b.n < 2)
            continue;
        (void)run(kv_allocs[a]->name, SERVE_RANKS_PROCESSES, 2, alone);
        left_no_child();
    }
    assert_true(n_preempted > 0 && migrated_bytes > 0);
}

/* 64 tokens take what the type says. */
TEST(bytes_by_type)
{
    static const struct {
        const char *type;
        int64_t vec_bytes; /* head_dim 8 */
    } rows[] = {{"f32", 32}, {"f16", 16}, {"bf16", 16}, {"q8", 12}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct serve_opts o = tiny_opts();
        struct serve_kv_stat kv;
        struct serve *s;

        assert_ok(opt_set(serve_opt_table, &o, "kv_type", rows[i].type, "test"));
        s = tiny_open(&o);
        serve_kv_stat(s, &kv);
        assert_int_equal(kv.pool_bytes, SEQ * 2 * LAYERS * KV_HEADS * rows[i].vec_bytes);
        serve_close(&s);
    }
}

TEST(other_types_are_refused)
{
    struct serve_opts o = tiny_opts();

    assert_err(opt_set(serve_opt_table, &o, "kv_type", "q4", "test"), ERR_ARG,
               "expected one of f32|f16|bf16|q8, found \"q4\"");
    tiny_free_opts(&o);
}

TEST_GROUP(tiny_make, NULL);
