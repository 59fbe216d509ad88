/* Damaged plan files: refused with one line that names the file, or a sound plan, which
 * can be printed and comes back from a file the same. */
#include "tests/support/test.h"

#include "tests/fuzz/targets.h"

#define N_FLIPS 1500

static const char *const seeds[] = {"tests/fuzz/corpus/plan/good",
                                    "tests/fuzz/corpus/plan/tuned"};
#define N_SEEDS 2

static bool reads(const uint8_t *data, size_t n)
{
    static struct plan p;
    char path[64];
    int fd = fuzz_file(data, n, path);
    bool ok = plan_read(&p, path) == OK;

    plan_fini(&p);
    close(fd);
    return ok;
}

static void cut_everywhere(const char *seed)
{
    size_t n;
    uint8_t *good = test_read(seed, &n);

    assert_true(reads(good, n));
    while (good[n - 1] == '\n')
        n--;
    for (size_t k = 0; k < n; k++) {
        if (reads(good, k))
            fail_msg("cut to %zu of %zu bytes: read", k, n);
        assert_int_equal(fuzz_plan(good, k), 0);
    }
    mem_free(good);
}

static void change_bytes(const char *seed)
{
    static const char words[] = "0123456789-,[]{}\"\\:e. x";
    size_t n;
    uint8_t *good = test_read(seed, &n), *bad = mem_new(MEM_TEST, n, 1);
    int refused = 0;
    struct rng r;

    assert_non_null(bad);
    rng_init(&r, test_seed(), "mutate");
    for (int i = 0; i < N_FLIPS; i++) {
        memcpy(bad, good, n);
        for (uint64_t k = 1 + rng_below(&r, 2); k > 0; k--)
            bad[rng_below(&r, n)] =
                rng_below(&r, 8) == 0 ? (uint8_t)rng_u64(&r)
                                      : (uint8_t)words[rng_below(&r, sizeof(words) - 1)];
        refused += !reads(bad, n);
        assert_int_equal(fuzz_plan(bad, n), 0);
    }
    assert_true(refused > N_FLIPS / 4 && refused < N_FLIPS);
    mem_free(bad);
    mem_free(good);
}

TEST(every_cut_is_refused)
{
    for (int i = 0; i < N_SEEDS; i++)
        cut_everywhere(seeds[i]);
}

TEST(bytes_change)
{
    for (int i = 0; i < N_SEEDS; i++)
        change_bytes(seeds[i]);
}
