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

/* The factor of the next word. */
static uint64_t *sum_of(struct hash_stream *s)
{
    return &s->h[s->n_bytes / 8 % HASH_STREAM_SUMS];
}

void hash_stream_init(struct hash_stream *s)
{
    *s = (struct hash_stream){.n_bytes = 0};
    for (int i = 0; i < HASH_STREAM_SUMS; i++) /* digits of pi */
        s->h[i] = UINT64_C(0x243f6a8885a308d3) + (uint64_t)i;
}

static void add_byte(struct hash_stream *s, unsigned char byte)
{
    s->word |= (uint64_t)byte << 8 * (s->n_bytes % 8);
    if (s->n_bytes % 8 == 7) {
        *sum_of(s) = step(*sum_of(s), s->word);
        s->word = 0;
    }
    s->n_bytes++;
}

static void add_word(struct hash_stream *s, const unsigned char *at)
{
    uint64_t word;

    memcpy(&word, at, 8);
    *sum_of(s) = step(*sum_of(s), word);
    s->n_bytes += 8;
}

/* Add rows of as many words as there are sums; returns the place behind the last. */
static const unsigned char *add_rows(struct hash_stream *s, const unsigned char *at,
                                     const unsigned char *end)
{
    uint64_t h[HASH_STREAM_SUMS], word[HASH_STREAM_SUMS];
    const unsigned char *from = at;

    memcpy(h, s->h, sizeof(h));
    for (; end - at >= (ptrdiff_t)sizeof(word); at += sizeof(word)) {
        memcpy(word, at, sizeof(word));
#pragma GCC unroll 4
        for (int i = 0; i < HASH_STREAM_SUMS; i++)
            h[i] = step(h[i], word[i]);
    }
    memcpy(s->h, h, sizeof(h));
    s->n_bytes += (uint64_t)(at - from);
    return at;
}

void hash_stream_add(struct hash_stream *s, const void *p, size_t n)
{
    const unsigned char *at = p, *end = at + n;

    for (; at < end && s->n_bytes % 8 != 0; at++)
        add_byte(s, *at);
    for (; end - at >= 8 && sum_of(s) != s->h; at += 8)
        add_word(s, at);
    at = add_rows(s, at, end);
    for (; end - at >= 8; at += 8)
        add_word(s, at);
    for (; at < end; at++)
        add_byte(s, *at);
}

uint64_t hash_stream_end(const struct hash_stream *s)
{
    uint64_t h = s->word;

    for (int i = 0; i < HASH_STREAM_SUMS; i++)
        h = step(h, s->h[i]);
    h = step(h, s->n_bytes);
    return h ^ h >> 32;
}
