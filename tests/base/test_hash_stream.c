#include "tests/support/test.h"

#include "base/hash_stream.h"

static uint64_t whole(const void *p, size_t n)
{
    struct hash_stream s;

    hash_stream_init(&s);
    hash_stream_add(&s, p, n);
    return hash_stream_end(&s);
}

TEST(pieces_do_not_matter)
{
    unsigned char bytes[100];
    struct rng r;

    rng_init(&r, test_seed(), "bytes");
    for (int round = 0; round < 2000; round++) {
        size_t n = rng_below(&r, sizeof(bytes) + 1), at = 0;
        struct hash_stream s;

        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)rng_u64(&r);
        hash_stream_init(&s);
        while (at < n) {
            size_t m = rng_below(&r, (n - at < 20 ? n - at : 20) + 1);

            hash_stream_add(&s, bytes + at, m);
            at += m;
        }
        assert_true(hash_stream_end(&s) == whole(bytes, n));
    }
}

/* The same in every process: it may be sent and written. */
TEST(known_values)
{
    unsigned char bytes[50];

    for (int i = 0; i < 50; i++)
        bytes[i] = (unsigned char)i;
    assert_true(whole(bytes, 0) == UINT64_C(0x6f4cc783d18d8513));
    assert_true(whole(bytes, 20) == UINT64_C(0xf655058224e72674));
    assert_true(whole(bytes, 50) == UINT64_C(0x5b396a577348fc46));
}

/* A bit, two bits wherever they are, a byte more, two words exchanged. */
TEST(changes_are_found)
{
    unsigned char bytes[64] = {0}, other[65] = {0};
    struct rng r;
    uint64_t h;

    rng_init(&r, test_seed(), "bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)rng_u64(&r);
    h = whole(bytes, 64);
    for (int a = 0; a < 512; a++)
        for (int b = a; b < 512; b++) {
            memcpy(other, bytes, 64);
            other[a / 8] ^= (unsigned char)(1 << a % 8);
            if (b != a)
                other[b / 8] ^= (unsigned char)(1 << b % 8);
            assert_true(whole(other, 64) != h);
        }
    memcpy(other, bytes, 64);
    assert_true(whole(other, 65) != h && whole(other, 63) != h);
    memcpy(other, bytes + 8, 8);
    memcpy(other + 8, bytes, 8);
    assert_true(whole(other, 64) != h);
}
