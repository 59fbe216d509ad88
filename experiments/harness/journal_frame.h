/* experiments/harness/journal_frame.h - the bytes of a journal: frames, and the encoding
 * of numbers and text in their payloads. Private to journal*.c and their tests.
 *
 * Everything is little-endian and unaligned. Threads: none of its own. */
#ifndef HARNESS_JOURNAL_FRAME_H
#define HARNESS_JOURNAL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define JOURNAL_TAG(a, b, c, d)                                                          \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/* Types read as words in a hex dump. */
enum {
    JOURNAL_HEAD = JOURNAL_TAG('H', 'E', 'A', 'D'), /* JSON: the run's header */
    JOURNAL_RESUME =
        JOURNAL_TAG('R', 'S', 'U', 'M'),             /* JSON: when and where it went on */
    JOURNAL_CELL = JOURNAL_TAG('C', 'E', 'L', 'L'),  /* text: key of the cell beginning */
    JOURNAL_ROW = JOURNAL_TAG('R', 'O', 'W', ' '),   /* one request and its tokens */
    JOURNAL_VALUE = JOURNAL_TAG('V', 'A', 'L', 'U'), /* one summary number */
    JOURNAL_SERIES = JOURNAL_TAG('S', 'E', 'R', 'I'), /* one named array */
    JOURNAL_END = JOURNAL_TAG('E', 'N', 'D', ' '),    /* state, counts, attributes */
};

#define JOURNAL_FRAME_HEAD 12 /* length, type, CRC */

/* CRC-32C (Castagnoli) of n bytes, continuing from `crc` (0 to begin). */
uint32_t journal_crc32c(uint32_t crc, const void *p, size_t n);

/* --- writing: a payload grows behind room for its frame's head */
struct journal_buf {
    uint8_t *p;
    size_t n, cap;
    int rc; /* the first error; later calls do nothing */
};
void journal_put_begin(struct journal_buf *b); /* forget the payload, keep the memory */
void journal_put_bytes(struct journal_buf *b, const void *p, size_t n);
void journal_put_u32(struct journal_buf *b, uint32_t v);
void journal_put_i64(struct journal_buf *b, int64_t v);
void journal_put_f64(struct journal_buf *b, double v);
void journal_put_text(struct journal_buf *b, const char *s);
/* Fill in the head: b->p[0 .. b->n) is the frame. ERR_NOMEM, ERR_LIMIT above 4 GiB. */
MUST int journal_put_end(struct journal_buf *b, uint32_t type);

/* --- reading */
struct journal_frame {
    uint32_t type;
    const uint8_t *payload;
    size_t n;
};
/* The frame at *at, which then moves behind it. false: the bytes there are no whole
 * frame. */
bool journal_frame_next(const uint8_t *p, size_t n, size_t *at, struct journal_frame *f);

/* A payload read from front to back; after a read beyond its end `bad` is set and every
 * answer is 0 or "". */
struct journal_cursor {
    const uint8_t *p;
    size_t n;
    bool bad;
};
const void *journal_get_bytes(struct journal_cursor *c, size_t n); /* NULL: bad */
uint32_t journal_get_u32(struct journal_cursor *c);
int64_t journal_get_i64(struct journal_cursor *c);
double journal_get_f64(struct journal_cursor *c);
/* Text of at most out_n - 1 bytes; longer is bad. */
void journal_get_text(struct journal_cursor *c, char *out, size_t out_n);

#endif
