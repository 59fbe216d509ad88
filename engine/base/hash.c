#include "base/hash.h"

#include <endian.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static inline void rounds(struct sip *s, int n)
{
    for (int i = 0; i < n; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 = rotl(s->v2, 32);
    }
}

static inline void word(struct sip *s, uint64_t m, int c)
{
    s->v3 ^= m;
    rounds(s, c);
    s->v0 ^= m;
}

/* Inlined wherever n, c or d is constant. */
static inline __attribute__((always_inline)) uint64_t
siphash(const unsigned char *p, size_t n, const uint64_t key[2], int c, int d)
{
    struct sip s = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                    key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t m, last = (uint64_t)n << 56;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        memcpy(&m, p + i, 8);
        word(&s, le64toh(m), c);
    }
    for (size_t k = 0; i + k < n; k++)
        last |= (uint64_t)p[i + k] << 8 * k;
    word(&s, last, c);
    s.v2 ^= 0xff;
    rounds(&s, d);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t hash_siphash(const void *p, size_t n, const uint64_t key[2], int c, int d)
{
    return siphash(p, n, key, c, d);
}

/* --- this process's key */

static uint64_t process_key[2];

/* Before main() and any thread. The kernel hands each program 16 random bytes, too, where
 * the call is forbidden. */
__attribute__((constructor)) static void draw_key(void)
{
    const void *given = (const void *)getauxval(AT_RANDOM);

    if (getrandom(process_key, sizeof(process_key), GRND_NONBLOCK) !=
            (ssize_t)sizeof(process_key) &&
        given)
        memcpy(process_key, given, sizeof(process_key));
}

uint64_t hash_bytes(const void *p, size_t n)
{
    return siphash(p, n, process_key, 1, 3);
}

uint64_t hash_u64(uint64_t x)
{
    x = htole64(x);
    return siphash((const unsigned char *)&x, sizeof(x), process_key, 1, 3);
}
