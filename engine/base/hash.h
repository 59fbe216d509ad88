/* base/hash.h - hashes for tables whose keys come from files.
 *
 * Under keys that are drawn once per process: whoever writes a file cannot know them, so no
 * choice of texts or numbers makes a table slow. A hash is therefore different in every
 * process: it may choose a slot, but must never be written, printed or decide an order.
 * Any two texts or numbers have equal low k bits with a probability of about 2^-k, which is
 * as much as a keyed hash of cryptography would promise here, in a third of the time (an
 * attacker never sees a hash). Papers: Thorup, "String hashing for linear probing";
 * Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
 * arithmetic without primes".   Threads: any. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_PRIME ((UINT64_C(1) << 61) - 1)

extern struct hash_keys {
    unsigned __int128 factor, term;
    uint64_t point; /* below HASH_PRIME */
} hash_keys;        /* written before main() */

/* (factor * x + term) / 2^64, modulo 2^64, and then mixed one to one, so that numbers at
 * equal distances do not get slots at equal distances. */
static inline uint64_t hash_u64(uint64_t x)
{
    uint64_t h = (uint64_t)((hash_keys.factor * x + hash_keys.term) >> 64);

    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* hash_u64() of a polynomial at `point` modulo HASH_PRIME, whose coefficients are n and the
 * text in pieces of 7 bytes. */
uint64_t hash_bytes(const void *p, size_t n);

/* FNV-1a of a text, continued from h: the same in every process, so it may be written and
 * printed. It does not resist inputs that are chosen to collide. */
#define HASH_FNV1A UINT64_C(0xcbf29ce484222325) /* h to begin with */
static inline uint64_t hash_fnv1a(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

#endif
