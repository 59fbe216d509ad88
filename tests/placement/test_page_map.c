/* Which node a page goes to, and in which runs. */
#include "placement/placement.h"
#include "tests/support/test.h"

#define LARGE MODEL_LARGE_PAGE

TEST(test_page_runs)
{
    struct model_page_map m;
    struct model_page_run *runs;
    size_t n;

    assert_ok(model_page_map_init(&m, NULL, 9 * LARGE - 5, 3));
    assert_int_equal(m.n_pages, 9);
    model_page_map_add(&m, 0, 2 * LARGE + 10, 0);          /* pages 0, 1, a bit of 2 */
    model_page_map_add(&m, 2 * LARGE + 10, LARGE - 10, 2); /* most of page 2 */
    model_page_map_add(&m, 3 * LARGE + 1, 1, 2);
    model_page_map_add(&m, 5 * LARGE, LARGE / 2, 1); /* page 5 is equal: to 1, it got */
    model_page_map_add(&m, 5 * LARGE + LARGE / 2, LARGE / 2, 2); /* nothing yet */
    model_page_map_add(&m, 8 * LARGE, LARGE - 5, 1);
    assert_true(!model_page_mixed(&m, 0) && model_page_mixed(&m, 2));
    assert_true(!model_page_mixed(&m, 4) && model_page_mixed(&m, 5));
    assert_ok(model_page_runs(&m, &runs, &n));
    assert_int_equal(n, 4);
    assert_int_equal(runs[0].offset, 0);
    assert_int_equal(runs[0].bytes, 2 * LARGE);
    assert_int_equal(runs[0].node, 0);
    assert_int_equal(runs[1].offset, 2 * LARGE);
    assert_int_equal(runs[1].bytes, 2 * LARGE);
    assert_int_equal(runs[1].node, 2);
    assert_int_equal(runs[2].offset, 5 * LARGE);
    assert_int_equal(runs[2].bytes, LARGE);
    assert_int_equal(runs[2].node, 1);
    assert_int_equal(runs[3].offset, 8 * LARGE);
    assert_int_equal(runs[3].node, 1);
    mem_free(runs);
    model_page_map_fini(&m);
}

/* Pages that two nodes want alike go to them in turn: neither is crowded. */
TEST(test_equal_pages_alternate)
{
    struct model_page_map m;
    struct model_page_run *runs;
    size_t n, got[2] = {0};

    assert_ok(model_page_map_init(&m, NULL, 100 * LARGE, 2));
    for (size_t i = 0; i < 200; i++)
        model_page_map_add(&m, i * LARGE / 2, LARGE / 2, (int)(i & 1));
    assert_ok(model_page_runs(&m, &runs, &n));
    for (size_t i = 0; i < n; i++)
        got[runs[i].node] += runs[i].bytes;
    assert_int_equal(got[0], 50 * LARGE);
    assert_int_equal(got[1], 50 * LARGE);
    mem_free(runs);
    model_page_map_fini(&m);
}
