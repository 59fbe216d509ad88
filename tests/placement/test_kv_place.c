/* Keys and values come from the nodes of those that read their heads. */
#include <errno.h>
#include <stdio.h>

#include "placement/placement.h"
#include "tests/support/invented_nodes.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

#define TEAM 8
/* Of the trait with 4 KV heads of 64 floats: keys and values of a head fill large pages.
 */
#define TRAIT   4
#define MAX_TOK 8192
#define HEAD    ((int64_t)2 * MAX_TOK * 64 * 4)
#define POOL    (2 * 2 * 4 * HEAD) /* two sequences, two layers, four heads */

struct place {
    struct step_model x;
    struct kv_pool *pool;
    char *base;
};

static const struct kv_pool_opts longest = {.max_tok = MAX_TOK};

/* Opened and bound; not touched. */
static void open_place(struct place *p, const struct model_numa_owners *owners,
                       const struct kv_pool_opts *kv)
{
    struct model_opts o = step_model_opts();
    struct kv_shape shape;
    size_t bytes;
    void *base;

    o.owners = *owners;
    step_model_open(&p->x, &step_traits[TRAIT], &o, TEAM);
    model_kv_shape(p->x.model, &shape);
    assert_int_equal(shape.n_kv_heads, 4);
    assert_int_equal(kv_token_bytes(&shape) * MAX_TOK * 2, POOL);
    test_kv_open(&p->pool, &shape, *kv, 2);
    kv_pool_memory(p->pool, &base, &bytes);
    p->base = base;
    invented_nodes.base = NULL; /* what was bound so far were weights */
    invented_nodes.n_binds = 0;
    memset(invented_nodes.node_of, -1, sizeof(invented_nodes.node_of));
    assert_ok(model_kv_bind(p->x.model, p->pool));
}

static void close_place(struct place *p)
{
    kv_pool_close(&p->pool);
    step_model_close(&p->x);
    invented_nodes_end();
}

/* Two ranks of two threads on nodes 2 and 9: heads 0, 1 and heads 2, 3, of every layer of
 * every sequence. */
TEST(test_heads_of_ranks)
{
    static const int nodes[TEAM] = {2, 2, 9, 9, 2, 2, 2, 2};
    const struct model_numa_owners o = {2, 2, NULL, nodes};
    struct model_numa_row row;
    struct place p;

    invented_nodes_begin(0, SIZE_MAX);
    open_place(&p, &o, &longest);
    assert_ptr_equal(invented_nodes.base, p.base);
    for (int64_t at = 0; at < POOL; at += (int64_t)MODEL_LARGE_PAGE)
        assert_int_equal(invented_nodes.node_of[at / (int64_t)MODEL_LARGE_PAGE],
                         at / HEAD % 4 < 2 ? 2 : 9);
    assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
    assert_string_equal(row.name, "kv");
    assert_int_equal(row.local_bytes, POOL);
    assert_int_equal(row.elsewhere_bytes + row.absent_bytes + row.mixed_bytes, 0);
    invented_nodes.stray = 9;
    assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
    assert_int_equal(row.local_bytes, POOL / 2);
    assert_int_equal(row.elsewhere_bytes, POOL / 2);
    close_place(&p);
}

/* One rank whose threads are on four nodes: each has whole groups of its own. */
TEST(test_heads_of_threads)
{
    static const int nodes[TEAM] = {0, 1, 2, 3, 0, 0, 0, 0};
    const struct model_numa_owners o = {1, 4, NULL, nodes};
    struct place p;

    invented_nodes_begin(0, SIZE_MAX);
    open_place(&p, &o, &longest);
    for (int64_t at = 0; at < POOL; at += (int64_t)MODEL_LARGE_PAGE)
        assert_int_equal(invented_nodes.node_of[at / (int64_t)MODEL_LARGE_PAGE],
                         at / HEAD % 4);
    close_place(&p);
}

/* A head that several nodes read is nobody's: three threads take heads in turn; eight
 * ranks share four heads. */
TEST(test_heads_of_several)
{
    static const int nodes[TEAM] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const struct model_numa_owners o[] = {{1, 3, NULL, nodes},
                                                 {8, 1, NULL, nodes}};

    for (int i = 0; i < 2; i++) {
        struct model_numa_row row;
        struct place p;

        invented_nodes_begin(0, SIZE_MAX);
        open_place(&p, &o[i], &longest);
        assert_int_equal(invented_nodes.n_binds, 0);
        invented_nodes.stray = 0;
        assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
        assert_int_equal(row.shared_bytes, POOL);
        close_place(&p);
    }
}

/* Short sequences: several heads in a page, which goes to one of their nodes. */
TEST(test_short_sequences)
{
    static const int nodes[TEAM] = {0, 1, 2, 3, 0, 0, 0, 0};
    const struct model_numa_owners o = {4, 1, NULL, nodes};
    struct model_numa_row row;
    struct place p;

    invented_nodes_begin(0, SIZE_MAX);
    open_place(&p, &o, &(struct kv_pool_opts){.max_tok = 1000});
    assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
    assert_int_equal(row.local_bytes + row.elsewhere_bytes, POOL / MAX_TOK * 1000);
    assert_true(row.mixed_bytes > 0 && row.elsewhere_bytes > 0);
    assert_true(row.elsewhere_bytes < row.mixed_bytes);
    close_place(&p);
}

/* Heads of a block are many in a page. The blocks that fit are all accounted for. */
TEST(test_blocks)
{
    static const int nodes[TEAM] = {0, 1, 2, 3, 0, 0, 0, 0};
    const struct model_numa_owners o = {4, 1, NULL, nodes};
    const struct kv_pool_opts kv = {
        .alloc = "paged", .max_tok = MAX_TOK, .block_tok = 512, .max_seqs = 2};
    struct model_numa_row row;
    struct place p;

    invented_nodes_begin(0, SIZE_MAX);
    open_place(&p, &o, &kv);
    assert_true(invented_nodes.n_binds > 0);
    assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
    assert_int_equal(row.local_bytes + row.elsewhere_bytes, POOL);
    assert_true(row.mixed_bytes > 0 && row.shared_bytes == 0);
    close_place(&p);
}

/* Slots of several sizes: each head has a quarter of the pool. */
TEST(test_several_sizes)
{
    static const int nodes[TEAM] = {2, 2, 9, 9, 2, 2, 2, 2};
    const struct model_numa_owners o = {2, 2, NULL, nodes};
    static const char *const names[] = {"s3", "odma"};

    for (int i = 0; i < 2; i++) {
        const struct kv_pool_opts kv = {.alloc = names[i], .max_tok = MAX_TOK};
        struct kv_slot first, second;
        struct model_numa_row row;
        struct place p;

        invented_nodes_begin(0, SIZE_MAX);
        open_place(&p, &o, &kv);
        for (int64_t at = 0; at < POOL; at += (int64_t)MODEL_LARGE_PAGE)
            assert_int_equal(invented_nodes.node_of[at / (int64_t)MODEL_LARGE_PAGE],
                             at < POOL / 2 ? 2 : 9);
        assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
        assert_int_equal(row.local_bytes, POOL);
        test_kv_reserve(p.pool, 1, &first);
        test_kv_reserve(p.pool, 500, &second);
        for (int h = 0; h < 4; h++) {
            const char *memory = kv_head_at(&second, 1, h);

            assert_true(memory >= p.base + POOL / 4 * h);
            assert_true(memory + 2 * second.run_bytes <= p.base + POOL / 4 * (h + 1));
        }
        kv_release(p.pool, &second);
        kv_release(p.pool, &first);
        invented_nodes.stray = 9;
        assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
        assert_int_equal(row.elsewhere_bytes, POOL / 2);
        close_place(&p);
    }
}

/* One node: nothing is bound, everything is looked at. */
TEST(test_one_node)
{
    static const int nodes[TEAM] = {0};
    const struct model_numa_owners o = {2, 1, NULL, nodes};
    struct model_numa_row row;
    struct place p;

    invented_nodes_begin(0, SIZE_MAX);
    open_place(&p, &o, &longest);
    assert_int_equal(invented_nodes.n_binds, 0);
    assert_ok(model_kv_numa_row(p.x.model, p.pool, &row));
    assert_int_equal(row.local_bytes, POOL);
    close_place(&p);
}

TEST(test_refusals)
{
    static const int nodes[TEAM] = {2, 2, 9, 9, 2, 2, 2, 2};
    const struct model_numa_owners o = {2, 2, NULL, nodes};
    struct model_numa_row row;
    struct kv_slot r;
    struct place p;

    invented_nodes_begin(EPERM, 0);
    open_place(&p, &o, &longest);
    assert_int_equal(invented_nodes_warnings("kv_not_bound"), 1);
    invented_nodes.mute = true;
    assert_err(model_kv_numa_row(p.x.model, p.pool, &row), ERR_UNSUPPORTED,
               "not permitted");
    assert_int_equal(row.shared_bytes, POOL);
    test_kv_reserve(p.pool, 1, &r);
    assert_err(model_kv_bind(p.x.model, p.pool), ERR_STATE, "1 sequences have memory");
    kv_release(p.pool, &r);
    for (long n = 0; n < 3; n++) {
        mem_fail_after(n, 1);
        assert_int_equal(model_kv_bind(p.x.model, p.pool), ERR_NOMEM);
        mem_fail_after(-1, 0);
    }
    close_place(&p);
}
