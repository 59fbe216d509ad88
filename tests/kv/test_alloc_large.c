/* Blocks of three sizes, and the reserve of large ones: who gets which, and where. Histories are in
 * test_alloc.c. */
#include <math.h>

#include "kv/alloc.h"
#include "kv/buckets.h"
#include "kv/kv.h"
#include "tests/support/test.h"

#define ARENA .n_tok = 2048 + 37, .max_tok = 256, .align_tok = 16

extern const struct kv_alloc kv_alloc_odma, kv_alloc_odma_paper;

/* Places are given by first fit of the smallest block that is free: a quarter or a half next to
 * one in use, then a whole superblock. Of six superblocks two are the reserve. */
TEST(blocks_of_three_sizes)
{
    struct kv_bounds bounds = {
        .n = 3, .of_total = true, .align_tok = 16, .tok = {48, 112, 256}};
    /* Prompt, predicted output, and where the block begins and ends. */
    static const struct {
        int64_t prompt_tok, gen_tok, first_tok, end_tok;
    } all[] = {
        {40, 4, 0, 64},    {40, 8, 64, 128},   {100, 4, 128, 256}, {100, 12, 256, 384},
        {30, 1, 384, 448}, {60, 60, 512, 768}, {100, 1, 768, 896}, {1, 1, 448, 512},
        {250, 6, -1, -1},  {1, 1, 896, 960},   {50, 60, -1, -1},   {1, 47, 960, 1024},
        {1, 1, -1, -1},
    };
    struct kv_arena a = {ARENA};
    struct kv_extent e[13];
    void *blocks;

    a.n_tok = 6 * 256;
    a.large_frac = 0.3;
    a.bounds = &bounds;
    assert_ok(kv_alloc_open(&kv_alloc_odma_paper, &blocks, &a));
    for (int i = 0; i < 13; i++) {
        const struct kv_need need = {.prompt_tok = all[i].prompt_tok,
                                     .gen_tok = all[i].gen_tok};
        int rc = kv_alloc_odma_paper.reserve(blocks, &need, &e[i]);

        assert_int_equal(rc, all[i].first_tok < 0 ? ERR_NOMEM : OK);
        if (rc != OK)
            continue;
        assert_int_equal(e[i].first_tok, all[i].first_tok);
        assert_int_equal(e[i].first_tok + e[i].cap_tok, all[i].end_tok);
    }
    kv_alloc_odma_paper.close(blocks);
}

/* The reserve is for sequences that are uncertain or have outgrown their memory, which find more
 * in the rest only where a superblock is empty. */
TEST(large_blocks_are_kept_in_reserve)
{
    static const struct kv_alloc *const both[] = {&kv_alloc_odma, &kv_alloc_odma_paper};
    struct kv_bounds bounds = {.n = 1, .of_total = true, .align_tok = 16, .tok = {64}};
    const struct kv_need sure = {.prompt_tok = 40, .gen_tok = 4},
                         unsure = {.prompt_tok = 40, .gen_tok = 4, .large = true},
                         long_one = {.prompt_tok = 40, .gen_tok = 25};
    struct kv_arena a = {ARENA};

    a.n_tok = 4 * 256;
    a.bounds = &bounds;
    a.to_large = true;
    for (int i = 0; i < 2; i++) {
        struct kv_move m = {.old_id = -1};
        struct kv_alloc_stat st = {0};
        struct kv_extent e[8], x[3];
        void *arena;

        a.large_frac = 0.5;
        assert_ok(kv_alloc_open(both[i], &arena, &a));
        for (int k = 0; k < 8; k++)
            assert_ok(both[i]->reserve(arena, &sure, &e[k]));
        assert_err(both[i]->reserve(arena, &sure, &x[0]), ERR_NOMEM, "no free");
        assert_ok(both[i]->reserve(arena, &unsure, &x[0]));
        assert_true(x[0].first_tok == 512 && x[0].cap_tok == 256);
        assert_ok(both[i]->grow(arena, &e[1], 64, 65, &m));
        assert_true(m.from_tok == 64 && m.to_tok == 768 && m.n_tok == 64);
        assert_true(e[1].cap_tok == 256);
        kv_alloc_moved(both[i], arena, &m);
        assert_err(both[i]->reserve(arena, &long_one, &x[1]), ERR_NOMEM, "256 tokens");
        for (int k = 4; k < 8; k++)
            both[i]->release(arena, e[k].id);
        assert_ok(both[i]->reserve(arena, &long_one, &x[1]));
        assert_true(x[1].first_tok == 256 && x[1].cap_tok == 256);
        both[i]->release(arena, x[0].id);
        both[i]->release(arena, x[1].id);
        assert_ok(both[i]->grow(arena, &e[2], 64, 65, &m)); /* although 256 is free */
        assert_true(m.to_tok == 512 && e[2].cap_tok == 256);
        kv_alloc_moved(both[i], arena, &m);
        both[i]->stat(arena, &st);
        assert_true(st.arena_tok == 1024 && st.n_live == 4);
        assert_int_equal(st.reserved_tok, 2 * 64 + 2 * 256);
        both[i]->close(arena);
    }
}

/* As many blocks as the share says, rounded up, and never all of the arena. */
TEST(the_size_of_the_reserve)
{
    static const struct {
        double frac;
        int64_t n_tok, n_large;
    } all[] = {{0, 2048, 0},     {0.001, 2048, 1}, {0.125, 2048, 1}, {0.126, 2048, 2},
               {0.999, 2048, 7}, {0.5, 256, 0},    {0.5, 500, 0},    {0.5, 512, 1}};
    struct kv_bounds bounds = {.n = 1, .of_total = true, .align_tok = 16, .tok = {256}};
    const struct kv_need longest = {.prompt_tok = 200, .gen_tok = 56};
    struct kv_arena a = {ARENA};
    void *arena;

    a.bounds = &bounds;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int64_t n = 0;
        struct kv_extent e;

        a.large_frac = all[i].frac;
        a.n_tok = all[i].n_tok;
        assert_ok(kv_alloc_open(&kv_alloc_odma_paper, &arena, &a));
        while (kv_alloc_odma_paper.reserve(arena, &longest, &e) == OK)
            n++;
        err_clear();
        assert_int_equal(n, all[i].n_tok / 256 - all[i].n_large);
        kv_alloc_odma_paper.close(arena);
    }
    for (int i = 0; i < 3; i++) {
        a.large_frac = i == 0 ? 1 : i == 1 ? -0.1 : NAN;
        assert_err(kv_alloc_open(&kv_alloc_odma, &arena, &a), ERR_ARG,
                   "for large blocks: expected 0 or more, below 1");
        assert_err(kv_alloc_open(&kv_alloc_odma_paper, &arena, &a), ERR_ARG,
                   "for large blocks");
    }
}

/* The same of a pool: half of the memory of four sequences is for the large bucket alone. */
TEST(slots_are_kept_in_reserve)
{
    static const char *const allocs[] = {"odma", "odma_paper"};
    const struct kv_shape shape = {.n_layers = 2, .n_kv_heads = 2, .vec_bytes = 16};
    const struct kv_bounds bounds = {
        .n = 1, .of_total = true, .align_tok = KV_ALIGN_TOK, .tok = {256}};
    struct kv_need need = {.prompt_tok = 256};
    struct kv_slot r;

    for (int i = 0; i < 2; i++) {
        struct kv_pool_opts o = {
            .alloc = allocs[i], .max_tok = 256, .bounds = &bounds, .large_frac = 0.5};
        struct kv_pool *p;

        assert_ok(kv_pool_bytes(&o.budget_bytes, &shape, &o, 4));
        assert_ok(kv_pool_open(&p, &shape, &o));
        for (int k = 0; k < 6; k++) {
            need.large = k > 2;
            if (k == 2 || k == 5)
                assert_err(kv_reserve(p, &need, &r), ERR_NOMEM, "no free");
            else
                assert_ok(kv_reserve(p, &need, &r));
        }
        kv_pool_close(&p);
    }
}
