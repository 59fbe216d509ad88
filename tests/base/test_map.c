#include "tests/support/test.h"

#include "base/map.h"

/* Against a plain list, with keys that collide in their low bits. */
TEST(finds_what_was_put)
{
    enum { N = 3000 };
    static uint64_t keys[N];
    static int64_t values[N];
    struct map m = {0};
    struct rng rng;
    int64_t found;
    rng_init(&rng, test_seed(), "map");
    assert_false(map_find(&m, 7, &found));
    for (int i = 0; i < N; i++) {
        keys[i] = i % 2 ? rng_u64(&rng) | 1 : (uint64_t)(i + 2) << 32;
        values[i] = (int64_t)i - 5;
        assert_ok(map_put(&m, keys[i], values[i]));
    }
    assert_int_equal(m.n, N);
    for (int i = 0; i < N; i += 3) {
        values[i] = -values[i];
        assert_ok(map_put(&m, keys[i], values[i]));
    }
    assert_int_equal(m.n, N);
    for (int i = 0; i < N; i++) {
        assert_true(map_find(&m, keys[i], &found));
        assert_int_equal(found, values[i]);
    }
    assert_false(map_find(&m, 3, &found));
    map_fini(&m);
    map_fini(&m);
}

/* Keys whose low bits are equal are spread all the same. */
TEST(no_long_runs_of_slots)
{
    struct map m = {0};
    size_t run = 0, longest = 0;
    for (uint64_t i = 1; i <= 2000; i++)
        assert_ok(map_put(&m, i << 32, 0));
    for (size_t i = 0; i < 2 * m.size; i++) { /* twice round: a run may cross the end */
        run = m.keys[i % m.size] ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    assert_in_range(longest, 1, 300);
    map_fini(&m);
}

TEST(key_zero_is_a_key)
{
    struct map m = {0};
    int64_t found;
    assert_ok(map_put(&m, 0, 9));
    assert_true(map_find(&m, 0, &found));
    assert_int_equal(found, 9);
    map_fini(&m);
}

TEST(memory_runs_out)
{
    struct map m = {0};
    int64_t found;
    mem_fail_after(1, 1);
    assert_int_equal(map_put(&m, 5, 1), ERR_NOMEM);
    mem_fail_after(-1, 1);
    assert_int_equal(m.n, 0);
    assert_ok(map_put(&m, 5, 1));
    for (uint64_t i = 0; i < 511; i++)
        assert_ok(map_put(&m, 1000 + i, 2));
    mem_fail_after(0, 1);
    assert_int_equal(map_put(&m, 6, 1), ERR_NOMEM);
    mem_fail_after(-1, 1);
    assert_true(map_find(&m, 5, &found)); /* as it was */
    assert_false(map_find(&m, 6, &found));
    map_fini(&m);
}
