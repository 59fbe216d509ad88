#include "base/hash_stream.h"

#include <string.h>

/* Maps h one to one for a given word, and a word one to one for a given h. A product spreads a
 * bit to those above it only, so high bits are first brought down, and low ones up afterwards. */
static uint64_t step(uint64_t h, uint64_t word)
{
    h ^= word;
    h = (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return h << 29 | h >> 35;
}

void hash_stream_init(struct hash_stream *s)
{
    *s = (struct hash_stream){.h = UINT64_C(0x243f6a8885a308d3)}; /* digits of pi */
}

void hash_stream_add(struct hash_stream *s, const void *p, size_t n)
{
    const unsigned char *at = p, *end = at + n;
    uint64_t h, word;

    for (; at < end && s->n_bytes % 8 != 0; at++, s->n_bytes++) {
        s->word |= (uint64_t)*at << 8 * (s->n_bytes % 8);
        if (s->n_bytes % 8 == 7) {
            s->h = step(s->h, s->word);
            s->word = 0;
        }
    }
    for (h = s->h; end - at >= 8; at += 8, s->n_bytes += 8) {
        memcpy(&word, at, 8);
        h = step(h, word);
    }
    s->h = h;
    for (; at < end; at++, s->n_bytes++)
        s->word |= (uint64_t)*at << 8 * (s->n_bytes % 8);
}

uint64_t hash_stream_end(const struct hash_stream *s)
{
    uint64_t h = step(step(s->h, s->word), s->n_bytes);

    return h ^ h >> 32;
}
