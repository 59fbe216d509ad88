#include "base/hash.h"

#include <endian.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include "base/rng.h"

#define PIECE 7 /* bytes, so that a piece is below the prime */

struct hash_keys hash_keys;

/* Where the call is forbidden, the random bytes that the kernel hands each program. */
__attribute__((constructor)) static void draw_keys(void)
{
    const void *given = (const void *)getauxval(AT_RANDOM);
    uint64_t seed = 0;
    struct rng r;

    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed) && given)
        memcpy(&seed, given, sizeof(seed));
    rng_init(&r, seed, "hash");
    hash_keys.factor = (unsigned __int128)rng_u64(&r) << 64 | rng_u64(&r);
    hash_keys.term = (unsigned __int128)rng_u64(&r) << 64 | rng_u64(&r);
    hash_keys.point = rng_below(&r, HASH_PRIME);
}

static inline uint64_t load32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

/* The number that n <= 7 bytes are, lowest first. Loads overlap: no loop, no call. */
static inline uint64_t piece(const unsigned char *p, size_t n)
{
    if (n >= 4)
        return load32(p) | load32(p + n - 4) << 8 * (n - 4);
    if (n == 0)
        return 0;
    return p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
}

/* h * point + next, below 2^62 and equal modulo the prime; h is below 2^62, too. */
static inline uint64_t step(uint64_t h, uint64_t next)
{
    unsigned __int128 x = (unsigned __int128)h * hash_keys.point + next;

    return ((uint64_t)x & HASH_PRIME) + (uint64_t)(x >> 61);
}

uint64_t hash_bytes(const void *text, size_t n)
{
    const unsigned char *p = text;
    uint64_t h = n;

    for (; n > PIECE; n -= PIECE, p += PIECE)
        h = step(h, piece(p, PIECE));
    h = step(h, piece(p, n));
    h = (h & HASH_PRIME) + (h >> 61);
    return hash_u64(h == HASH_PRIME ? 0 : h);
}
