/* Eviction: which of two idle sequences goes first, by each policy; what is left of a pause,
 * against draws; memory that is given back from the end of a table of blocks. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kv/alloc.h"
#include "kv/evict.h"
#include "tests/support/test.h"

static double worth(const char *policy, struct kv_idle k)
{
    const struct kv_evict *e;

    assert_ok(kv_evict_find(policy, &e));
    assert_true(e->help[0] != 0);
    return e->worth(&k);
}

/* Pauses of 5 s, in median. */
#define IDLE                                                                             \
    .idle_s = 2, .pause_log_mean = 1.609, .pause_log_std = 1, .token_s = 1e-3, .next_s = 3

/* By each policy `a` is worth less than `b`. */
#define GOES_FIRST(policy, ...)                                                          \
    do {                                                                                 \
        const struct kv_idle two[] = {__VA_ARGS__};                                      \
                                                                                         \
        assert_true(worth(policy, two[0]) < worth(policy, two[1]));                      \
    } while (0)

#pragma GCC diagnostic ignored "-Woverride-init"

TEST(every_policy_has_an_order)
{
    for (int i = 0; kv_evicts[i]; i++) {
        const struct kv_idle k = {IDLE},
                             ended = {IDLE, .ended = true, .next_s = INFINITY};

        assert_false(isnan(worth(kv_evicts[i]->name, k)));
        if (strcmp(kv_evicts[i]->name, "lru") != 0)
            assert_true(worth(kv_evicts[i]->name, ended) < worth(kv_evicts[i]->name, k));
    }
}

TEST(lru_sees_the_time_of_use_alone)
{
    GOES_FIRST("lru", {IDLE, .idle_s = 9}, {IDLE, .ended = true, .token_s = 0});
    GOES_FIRST("lru_ended", {IDLE, .ended = true}, {IDLE, .idle_s = 1e6});
    GOES_FIRST("lru_ended", {IDLE, .idle_s = 9}, {IDLE});
    GOES_FIRST("lru_ended", {IDLE, .idle_s = 9, .ended = true}, {IDLE, .ended = true});
}

TEST(expected_return_weighs_time_and_cost)
{
    GOES_FIRST("expected_return", {IDLE, .pause_log_mean = 4}, {IDLE});
    GOES_FIRST("expected_return", {IDLE}, {IDLE, .token_s = 2e-3});
    GOES_FIRST("expected_return", {IDLE}, {IDLE, .queued = true});
    GOES_FIRST("expected_return", {IDLE, .ended = true}, {IDLE, .pause_log_mean = 12});
    /* Slow tools and much to compute again against fast ones and little. */
    GOES_FIRST("expected_return", {IDLE, .token_s = 1e-5},
               {IDLE, .pause_log_mean = 4, .token_s = 1e-2});
    /* In the tail a session that is late is taken to be later still. */
    GOES_FIRST("expected_return", {IDLE, .idle_s = 500}, {IDLE, .idle_s = 50});
}

TEST(oracle_sees_the_truth_alone)
{
    GOES_FIRST("oracle", {IDLE, .next_s = 9},
               {IDLE, .pause_log_mean = 12, .idle_s = 1e5});
    GOES_FIRST("oracle", {IDLE, .next_s = INFINITY}, {IDLE, .next_s = 1e9});
}

TEST(unknown_policies)
{
    const struct kv_evict *e;

    assert_err(kv_evict_find("lru_endd", &e), ERR_NOTFOUND, "lru_ended");
}

/* The mean of what is left of those draws that are longer, and the formula. */
TEST(what_is_left_of_a_pause)
{
    enum { N = 200000 };

    for (int s = 0; s < 2; s++) {
        double mean = 1.6, std = s ? 1.18 : 0.4;
        struct rng r;
        static double x[N];

        rng_init(&r, test_seed(), "pauses");
        for (int i = 0; i < N; i++)
            x[i] = exp(mean + std * rng_normal(&r));
        for (double idle = 1; idle <= 8; idle *= 2) {
            double sum = 0, n = 0;

            for (int i = 0; i < N; i++)
                if (x[i] > idle)
                    sum += x[i] - idle, n++;
            if (fabs(kv_pause_left_s(mean, std, idle) / (sum / n) - 1) > 0.05)
                fail_msg("std %g, idle %g: %g, drawn %g (TEST_SEED=%llu)", std, idle,
                         kv_pause_left_s(mean, std, idle), sum / n,
                         (unsigned long long)test_seed());
        }
    }
    /* Far in the tail, where the formula changes: no step, and no number that is not one. */
    for (double z = 29; z < 31; z += 0.01) {
        double here = kv_pause_left_s(1, 1, exp(1 + z)),
               next = kv_pause_left_s(1, 1, exp(1.01 + z));

        assert_true(here > 0 && next > 0.95 * here && next < 1.1 * here);
    }
    assert_true(kv_pause_left_s(0, 0.1, 1e9) > 0 && kv_pause_left_s(0, 0.1, 0) > 0.9);
}

TEST(pauses_are_learned)
{
    struct kv_pauses all = {0}, own = {0}, none = {0};
    double mean, std, wide;
    struct rng r;

    kv_pauses_expect(&all, &own, &mean, &std);
    assert_true(mean == 0 && std == 1); /* nothing is known */
    rng_init(&r, test_seed(), "pauses");
    for (int i = 0; i < 20000; i++)
        kv_pauses_add(&all, exp(2 + 0.8 * rng_normal(&r)));
    kv_pauses_expect(&all, &none, &mean, &wide);
    assert_true(fabs(mean - 2) < 0.05 && fabs(wide - 0.8) < 0.05);
    for (int i = 0; i < 9; i++)
        kv_pauses_add(&own, exp(4));
    kv_pauses_expect(&all, &own, &mean, &std);
    assert_true(fabs(mean - (2 + 9 * 4) / 10.0) < 0.05 && std < wide);
    kv_pauses_add(&own, 0); /* at once: the shortest that has a logarithm */
    kv_pauses_expect(&all, &own, &mean, &std);
    assert_true(isfinite(mean) && mean < 3.8);
}

/* A table gives back its last blocks, which others get; the first stay as they were. */
TEST(memory_is_given_back_from_the_end)
{
    enum { ROUNDS = 2000, N = 6 };
    const struct kv_arena a = {
        .n_tok = 4096, .max_tok = 1024, .align_tok = 16, .block_tok = 16, .max_seqs = N};
    const struct kv_alloc *alloc;
    struct kv_extent e[N] = {0};
    struct kv_alloc_stat st;
    struct rng r;
    void *pages;

    assert_ok(kv_alloc_find("paged", &alloc));
    assert_ok(kv_alloc_open(alloc, &pages, &a));
    rng_init(&r, test_seed(), "trim");
    for (int round = 0; round < ROUNDS; round++) {
        struct kv_extent *one = &e[rng_below(&r, N)];
        int64_t n_tok = 1 + (int64_t)rng_below(&r, 1000), kept, sum = 0;
        const struct kv_need need = {.prompt_tok = n_tok};
        struct kv_move m;
        int32_t first = one->cap_tok ? one->blocks[0] : -1;
        bool seen[4096 / 16] = {0};

        if (one->cap_tok == 0)
            (void)alloc->reserve(pages, &need, one);
        else if (n_tok > one->cap_tok)
            (void)alloc->grow(pages, one, 0, n_tok, &m);
        else
            alloc->trim(pages, one, n_tok);
        err_clear();
        kept = first >= 0 && n_tok <= one->cap_tok ? (n_tok + 15) / 16 * 16 : -1;
        if (first >= 0)
            assert_int_equal(one->blocks[0], first);
        if (kept > 0 && one->cap_tok < kept)
            fail_msg("%lld tokens, %lld kept (TEST_SEED=%llu)", (long long)n_tok,
                     (long long)one->cap_tok, (unsigned long long)test_seed());
        for (int i = 0; i < N; i++)
            for (int64_t b = 0; b < e[i].cap_tok / 16; b++) {
                assert_false(seen[e[i].blocks[b]]);
                seen[e[i].blocks[b]] = true;
                sum += 16;
            }
        alloc->stat(pages, &st);
        assert_int_equal(st.reserved_tok, sum);
    }
    for (int i = 0; i < N; i++)
        if (e[i].cap_tok > 0) {
            alloc->trim(pages, &e[i], 1);
            assert_int_equal(e[i].cap_tok, 16);
            alloc->release(pages, e[i].id);
        }
    alloc->stat(pages, &st);
    assert_true(st.reserved_tok == 0 && st.n_live == 0);
    alloc->close(pages);
}
TEST_GROUP(NULL, NULL);
