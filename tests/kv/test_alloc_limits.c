/* Limits of allocators: what is checked before any memory is taken, and tables beyond a page. */
#include "kv/alloc.h"
#include "kv/buckets.h"
#include "tests/support/test.h"

#define ARENA                                                                            \
    .n_tok = 2048 + 37, .max_tok = 256, .align_tok = 16, .block_tok = 16,                \
    .max_seqs = 64, .n_fixed = 5

extern const struct kv_alloc kv_alloc_static, kv_alloc_paged, kv_alloc_s3, kv_alloc_odma;

TEST(limits_are_named)
{
    const struct kv_arena good = {ARENA};
    struct kv_arena a = good;
    void *regions;

    a.max_tok = 250;
    assert_err(kv_alloc_open(&kv_alloc_odma, &regions, &a), ERR_ARG, "250");
    a = good, a.n_tok = 255;
    assert_err(kv_alloc_open(&kv_alloc_static, &regions, &a), ERR_NOMEM,
               "no sequence of 256");
    a = good, a.n_fixed = 0;
    assert_err(kv_alloc_open(&kv_alloc_s3, &regions, &a), ERR_ARG, "0 fixed buckets");
    a = good, a.block_tok = 8;
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG, "from 16 to 512");
    a = good, a.block_tok = 96;
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG, "a power of two");
    a = good, a.max_seqs = 0;
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG, "0 sequences");
    a = good, a.max_tok = 0;
    assert_err(kv_alloc_open(&kv_alloc_static, &regions, &a), ERR_ARG, "sequence of 0");
    a = good, a.align_tok = 0;
    assert_err(kv_alloc_open(&kv_alloc_static, &regions, &a), ERR_ARG, "alignment, 0");
    a = good, a.n_fixed = KV_BUCKETS_MAX + 1;
    assert_err(kv_alloc_open(&kv_alloc_s3, &regions, &a), ERR_ARG, "17 fixed buckets");
    a = good, a.max_seqs = INT32_MAX / 16 + 1; /* tables of 16 blocks */
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG,
               "134217728 sequences: expected 1 to 134217727");
    a = good, a.n_tok = 16 * (INT64_C(1) << 31);
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG,
               "2147483648 blocks: expected at most 2147483647");
    a = good, a.block_tok = 128, a.max_tok = 144, a.n_tok = 255; /* one block */
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_NOMEM,
               "1 blocks of 128 tokens hold no sequence of 144");
    a = good, a.keep_frac = -0.01;
    assert_err(kv_alloc_open(&kv_alloc_paged, &regions, &a), ERR_ARG, "share of -0.01");
    a = good, a.align_tok = 1, a.n_tok = a.max_tok = 1 << 24;
    assert_err(kv_alloc_open(&kv_alloc_odma, &regions, &a), ERR_ARG,
               "at most 2147483647 and 16777215");
    a = good, a.align_tok = 1, a.n_tok = INT64_C(1) << 31;
    assert_err(kv_alloc_open(&kv_alloc_odma, &regions, &a), ERR_ARG, "2147483648 x 1");
    assert_null(regions);
}

TEST(checks_of_numbers)
{
    static const struct {
        int64_t prompt, gen;
        int rc;
    } needs[] = {{1, 0, OK},         {8, 0, OK},        {7, 1, OK},
                 {7, 100, OK},       {0, 1, ERR_ARG},   {1, -1, ERR_ARG},
                 {9, 0, ERR_LIMIT},  {8, 1, ERR_LIMIT}, {-1, -1, ERR_ARG},
                 {8, 100, ERR_LIMIT}};

    for (int64_t n = -1; n < 1100; n++) {
        bool power = n == 16 || n == 32 || n == 64 || n == 128 || n == 256 || n == 512;

        assert_int_equal(kv_block_tok_check(n), power ? OK : ERR_ARG);
    }
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        struct kv_need need = {.prompt_tok = needs[i].prompt, .gen_tok = needs[i].gen};

        assert_int_equal(kv_need_check(&need, 8), needs[i].rc);
    }
    assert_int_equal(kv_want_check(8, 8), OK);
    assert_int_equal(kv_want_check(9, 8), ERR_LIMIT);
    err_clear();
    assert_true(kv_alloc_odma.several_sizes && kv_alloc_s3.several_sizes &&
                !kv_alloc_static.several_sizes && kv_alloc_paged.paged);
    assert_true(kv_alloc_odma.learns && !kv_alloc_s3.learns);
}

/* More tables than a page of memory holds, and every block in one of them. */
TEST(many_tables)
{
    enum { N_SEQS = 600, N_BLOCKS = 16 };
    static bool seen[N_SEQS * N_BLOCKS];
    struct kv_arena a = {ARENA};
    struct kv_alloc_stat st = {0};
    struct kv_extent e;
    struct kv_move m;
    void *tables;

    a.max_seqs = N_SEQS;
    a.n_tok = N_SEQS * a.max_tok;
    assert_ok(kv_alloc_open(&kv_alloc_paged, &tables, &a));
    for (int i = 0; i < N_SEQS; i++) {
        assert_ok(kv_alloc_paged.reserve(tables, &(struct kv_need){.prompt_tok = 1}, &e));
        assert_true(e.id == i && e.first_tok == -1 && e.cap_tok == 16);
        assert_ok(kv_alloc_paged.grow(tables, &e, 1, a.max_tok, &m));
        for (int k = 0; k < N_BLOCKS; k++) {
            assert_in_range(e.blocks[k], 0, N_SEQS * N_BLOCKS - 1);
            assert_false(seen[e.blocks[k]]);
            seen[e.blocks[k]] = true;
        }
    }
    kv_alloc_paged.stat(tables, &st);
    assert_true(st.n_live == N_SEQS && st.reserved_tok == a.n_tok &&
                st.arena_tok == a.n_tok && st.n_visited == N_SEQS * N_BLOCKS);
    kv_alloc_paged.close(tables);
}
