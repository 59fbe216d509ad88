/* base/sha256.h - SHA-256 (FIPS 180-4) of bytes that come in pieces, for what must be the same
 * bytes years later: nobody can make others of the same digest.   Threads: one owner. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_TEXT  (2 * SHA256_BYTES + 1)

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    unsigned char block[64]; /* the bytes that do not fill one yet */
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* The digest as hexadecimal digits. `s` is used up. */
void sha256_end(struct sha256 *s, char text[SHA256_TEXT]);

#endif
