/* base/hash_stream.h - a checksum of bytes that come in pieces, the same in every process.
 *
 * It finds accidents of transfer and storage: any change of one aligned word of 8 bytes is
 * found, any other with a probability of 1 - 2^-64 or nearly so. It does not resist bytes that
 * are chosen to collide (base/hash.h is for tables).   Threads: one owner. */
#ifndef BASE_HASH_STREAM_H
#define BASE_HASH_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define HASH_STREAM_SUMS 4 /* words in turn: their products do not wait for each other */

struct hash_stream {
    uint64_t h[HASH_STREAM_SUMS];
    uint64_t word; /* the bytes that do not fill one yet */
    uint64_t n_bytes;
};

void hash_stream_init(struct hash_stream *s);
/* However the bytes are divided into pieces, the result is the same. */
void hash_stream_add(struct hash_stream *s, const void *p, size_t n);
uint64_t hash_stream_end(const struct hash_stream *s);

#endif
