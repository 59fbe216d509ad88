#include "tests/support/test.h"

#include "base/hash.h"

/* The key 0, 1 .. 15 and messages 0, 1 .. n - 1 of the paper and of its authors' code. */
static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

static void published_values(void **state)
{
    static const struct {
        size_t n;
        int c, d;
        uint64_t hash;
    } rows[] = {
        {0, 2, 4, 0x726fdb47dd0e0e31u},  {1, 2, 4, 0x74f839c593dc67fdu},
        {7, 2, 4, 0xab0200f58b01d137u},  {8, 2, 4, 0x93f5f5799a932462u},
        {15, 2, 4, 0xa129ca6149be45e5u}, {16, 2, 4, 0x3f2acc7f57c29bdbu},
        {63, 2, 4, 0x958a324ceb064572u}, {0, 1, 3, 0xabac0158050fc4dcu},
        {1, 1, 3, 0xc9f49bf37d57ca93u},  {7, 1, 3, 0xd3927d989bb11140u},
    };
    unsigned char message[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        message[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (hash_siphash(message, rows[i].n, key, rows[i].c, rows[i].d) != rows[i].hash)
            fail_msg("SipHash-%d-%d of %zu bytes", rows[i].c, rows[i].d, rows[i].n);
}

static void a_number_is_its_bytes(void **state)
{
    static const unsigned char bytes[8] = {0xef, 0xcd, 0xab, 0x89,
                                           0x67, 0x45, 0x23, 0x01};

    (void)state;
    assert_true(hash_u64(0x0123456789abcdefu) == hash_bytes(bytes, 8));
    assert_true(hash_bytes(bytes, 8) == hash_bytes(bytes, 8));
}

/* What this program prints when it is started again, twice, differs. */
static void each_process_draws_its_key(void **state)
{
    char line[2][32] = {"", ""};

    (void)state;
    for (int i = 0; i < 2; i++) {
        FILE *f = popen("/proc/$PPID/exe print", "r");

        assert_non_null(f);
        assert_non_null(fgets(line[i], sizeof(line[i]), f));
        assert_int_equal(pclose(f), 0);
    }
    assert_int_equal(strlen(line[0]), 17);
    assert_string_not_equal(line[0], line[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(a_number_is_its_bytes),
        cmocka_unit_test(each_process_draws_its_key),
    };

    (void)argv;
    if (argc > 1)
        return printf("%016llx\n", (unsigned long long)hash_u64(1)) != 17;
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
