/* base/hash.h - hashes for tables whose keys come from files.
 *
 * SipHash-1-3 under a key that is drawn once per process. Whoever writes a file cannot know
 * the key, so no choice of keys makes a table slow. A hash is therefore different in every
 * process: it may choose a slot, but must never be written, printed or decide an order.
 * Paper: Aumasson and Bernstein, SipHash: a fast short-input PRF.   Threads: any. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *p, size_t n);
/* The hash of the 8 bytes of x, lowest first. */
uint64_t hash_u64(uint64_t x);

/* SipHash with c rounds per 8 bytes and d rounds at the end, for tests: published values
 * exist for 2 and 4. */
uint64_t hash_siphash(const void *p, size_t n, const uint64_t key[2], int c, int d);

#endif
