#include "tests/support/test.h"

#include "base/hash.h"

/* What hash.h says, one bit and one byte at a time. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;

    for (; b; b >>= 1, a = 2 * a % HASH_PRIME)
        sum = b & 1 ? (sum + a) % HASH_PRIME : sum;
    return sum;
}

static uint64_t by_definition(const unsigned char *p, size_t n)
{
    uint64_t h = n % HASH_PRIME;

    for (size_t i = 0; i < n || i == 0; i += 7) {
        uint64_t next = 0;

        for (size_t k = 0; k < 7 && i + k < n; k++)
            next |= (uint64_t)p[i + k] << 8 * k;
        h = (times(h, hash_keys.point) + next) % HASH_PRIME;
    }
    return hash_u64(h);
}

TEST(texts_by_definition)
{
    unsigned char text[64];
    struct rng r;

    assert_true(hash_keys.point < HASH_PRIME && hash_keys.factor && hash_keys.term);
    rng_init(&r, test_seed(), "hash");
    for (int round = 0; round < 200; round++)
        for (size_t n = 0; n <= sizeof(text) - 1; n++) {
            size_t at = rng_below(&r, sizeof(text) - n);

            for (size_t i = 0; i < sizeof(text); i++)
                text[i] = round == 0 ? 0 : round == 1 ? 0xff : (unsigned char)rng_u64(&r);
            if (hash_bytes(text + at, n) != by_definition(text + at, n))
                fail_msg("seed %llu: %zu bytes", (unsigned long long)test_seed(), n);
        }
}

/* Of pairs that differ in one place, as many have equal low bits as random ones would. */
TEST(differences_are_spread)
{
    int n_numbers = 0, n_texts = 0;
    unsigned char a[24] = {0}, b[24];

    for (uint64_t i = 0; i < 4096; i++)
        for (int bit = 0; bit < 64; bit++) {
            uint64_t x = i << 20, y = x ^ UINT64_C(1) << bit;

            memcpy(a + 8, &x, 8);
            memcpy(b, a, sizeof(b));
            memcpy(b + 8, &y, 8);
            n_numbers += ((hash_u64(x) ^ hash_u64(y)) & 255) == 0;
            n_texts += ((hash_bytes(a, 24) ^ hash_bytes(b, 24)) & 255) == 0;
        }
    assert_in_range(n_numbers, 4096 * 64 / 256 / 2, 4096 * 64 / 256 * 2);
    assert_in_range(n_texts, 4096 * 64 / 256 / 2, 4096 * 64 / 256 * 2);
}

/* What this program prints when it is started again, twice, differs. */
TEST(each_process_draws_its_keys)
{
    char line[2][40] = {"", ""};

    for (int i = 0; i < 2; i++) {
        FILE *f = popen("/proc/$PPID/exe print", "r");

        assert_non_null(f);
        assert_non_null(fgets(line[i], sizeof(line[i]), f));
        assert_int_equal(pclose(f), 0);
    }
    assert_int_equal(strlen(line[0]), 33);
    assert_memory_not_equal(line[0], line[1], 16);
    assert_memory_not_equal(line[0] + 16, line[1] + 16, 16);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return printf("%016llx%016llx\n", (unsigned long long)hash_u64(1),
                      (unsigned long long)hash_bytes("a", 1)) != 33;
    return test_main();
}
