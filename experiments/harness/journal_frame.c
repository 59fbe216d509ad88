#include "experiments/harness/journal_frame.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the journal is little-endian");

/* --- CRC-32C, a byte at a time: 0.4 GB/s, far above what a run appends */

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
        crc_table[i] = c;
    }
}

uint32_t journal_crc32c(uint32_t crc, const void *p, size_t n)
{
    const uint8_t *b = p;

    pthread_once(&crc_once, crc_fill);
    crc = ~crc;
    for (size_t i = 0; i < n; i++)
        crc = crc_table[(crc ^ b[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

/* --- writing */

void journal_put_begin(struct journal_buf *b)
{
    static const uint8_t room[JOURNAL_FRAME_HEAD];

    b->n = 0;
    b->rc = OK;
    journal_put_bytes(b, room, sizeof(room));
}

void journal_put_bytes(struct journal_buf *b, const void *p, size_t n)
{
    size_t cap = b->cap ? b->cap : 4096;
    uint8_t *grown;

    if (b->rc != OK || n == 0)
        return;
    while (cap - b->n < n && cap < SIZE_MAX / 4)
        cap *= 2;
    if (cap > b->cap) {
        grown = mem_resize(MEM_HARNESS, b->p, cap, 1);
        if (!grown) {
            b->rc = ERR_NOMEM;
            return;
        }
        b->p = grown;
        b->cap = cap;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void journal_put_u32(struct journal_buf *b, uint32_t v)
{
    journal_put_bytes(b, &v, sizeof(v));
}

void journal_put_i64(struct journal_buf *b, int64_t v)
{
    journal_put_bytes(b, &v, sizeof(v));
}

void journal_put_f64(struct journal_buf *b, double v)
{
    journal_put_bytes(b, &v, sizeof(v));
}

void journal_put_text(struct journal_buf *b, const char *s)
{
    size_t n = strlen(s);

    if (n > UINT32_MAX && b->rc == OK)
        b->rc = err_set(ERR_LIMIT, "journal: a text of %zu bytes", n);
    journal_put_u32(b, (uint32_t)n);
    journal_put_bytes(b, s, n);
}

/* The CRC covers length and type too: a damaged length is found before it is used. */
static uint32_t frame_crc(const uint8_t *frame, const uint8_t *payload, size_t n)
{
    return journal_crc32c(journal_crc32c(0, frame, 8), payload, n);
}

int journal_put_end(struct journal_buf *b, uint32_t type)
{
    size_t n = b->n - JOURNAL_FRAME_HEAD;
    uint32_t length = (uint32_t)n, crc;

    if (b->rc != OK)
        return b->rc;
    if (n > UINT32_MAX)
        return err_set(ERR_LIMIT, "journal: a frame of %zu bytes, at most %u", n,
                       UINT32_MAX);
    memcpy(b->p, &length, 4);
    memcpy(b->p + 4, &type, 4);
    crc = frame_crc(b->p, b->p + JOURNAL_FRAME_HEAD, n);
    memcpy(b->p + 8, &crc, 4);
    return OK;
}

/* --- reading */

bool journal_frame_next(const uint8_t *p, size_t n, size_t *at, struct journal_frame *f)
{
    uint32_t length, crc;
    const uint8_t *frame = p + *at;
    size_t left = n - *at;

    if (left < JOURNAL_FRAME_HEAD)
        return false;
    memcpy(&length, frame, 4);
    memcpy(&f->type, frame + 4, 4);
    memcpy(&crc, frame + 8, 4);
    if (length > left - JOURNAL_FRAME_HEAD)
        return false;
    f->payload = frame + JOURNAL_FRAME_HEAD;
    f->n = length;
    if (crc != frame_crc(frame, f->payload, f->n))
        return false;
    *at += JOURNAL_FRAME_HEAD + f->n;
    return true;
}

const void *journal_get_bytes(struct journal_cursor *c, size_t n)
{
    const void *p = c->p;

    if (c->bad || n > c->n) {
        c->bad = true;
        return NULL;
    }
    c->p += n;
    c->n -= n;
    return p;
}

uint32_t journal_get_u32(struct journal_cursor *c)
{
    const void *p = journal_get_bytes(c, 4);
    uint32_t v = 0;

    if (p)
        memcpy(&v, p, 4);
    return v;
}

int64_t journal_get_i64(struct journal_cursor *c)
{
    const void *p = journal_get_bytes(c, 8);
    int64_t v = 0;

    if (p)
        memcpy(&v, p, 8);
    return v;
}

double journal_get_f64(struct journal_cursor *c)
{
    const void *p = journal_get_bytes(c, 8);
    double v = 0;

    if (p)
        memcpy(&v, p, 8);
    return v;
}

void journal_get_text(struct journal_cursor *c, char *out, size_t out_n)
{
    size_t n = journal_get_u32(c);
    const void *p = n < out_n ? journal_get_bytes(c, n) : NULL;

    out[0] = 0;
    if (!p) {
        c->bad = true;
        return;
    }
    memcpy(out, p, n);
    out[n] = 0;
}
