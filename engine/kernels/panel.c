#include "kernels/panel.h"

#include <assert.h>

#define FORM(T)                                                                          \
    [KERN_##                                                                             \
        T] = {KERN_##T##_SUBS, KERN_##T##_HEAD, KERN_##T##_SUB,    KERN_##T##_BITS,      \
              KERN_##T##_ZERO, KERN_##T##_MIN,  KERN_##T##_SCALES, KERN_##T##_HALVES}

static const struct kern_form forms[KERN_N_TYPES] = {FORM(Q8_0), FORM(Q4_0), FORM(Q4_1),
                                                     FORM(Q4_K), FORM(Q5_K), FORM(Q6_K)};

const struct kern_form *kern_form(enum kern_type t)
{
    return &forms[t];
}

/* ---- blocks as files have them ---- */

#define BLOCK_MAX 256

/* A block of one column. */
struct block {
    uint16_t d, dmin; /* f16 */
    uint8_t code[BLOCK_MAX];
    uint8_t scale[16], min[8]; /* of the sub-blocks */
};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* The halves of n bytes: the low ones become codes [0, n), the high ones [n, 2 n). */
static void halves(uint8_t *code, const uint8_t *q, int n)
{
    for (int i = 0; i < n; i++) {
        code[i] = q[i] & 15;
        code[n + i] = q[i] >> 4;
    }
}

/* d, 32 signed codes. */
static void read_q8_0(struct block *b, const uint8_t *p)
{
    b->d = get16(p);
    for (int i = 0; i < 32; i++)
        b->code[i] = p[2 + i] ^ 0x80;
}

/* d, 32 codes of which the first 16 are low halves. */
static void read_q4_0(struct block *b, const uint8_t *p)
{
    b->d = get16(p);
    halves(b->code, p + 2, 16);
}

/* d, the least weight, and codes as Q4_0. */
static void read_q4_1(struct block *b, const uint8_t *p)
{
    b->d = get16(p);
    b->dmin = get16(p + 2) ^ 0x8000;
    halves(b->code, p + 4, 16);
}

/* d, dmin, and 8 scales and 8 mins of 6 bits in 12 bytes: bytes 0 to 3 hold scales 0 to 3,
 * bytes 4 to 7 mins 0 to 3, bytes 8 to 11 the low halves of scales and of mins 4 to 7, whose
 * other two bits are on top of the first eight bytes. */
static void read_scales(struct block *b, const uint8_t *p)
{
    b->d = get16(p);
    b->dmin = get16(p + 2);
    p += 4;
    for (int i = 0; i < 4; i++) {
        b->scale[i] = p[i] & 63;
        b->min[i] = p[4 + i] & 63;
        b->scale[4 + i] = (uint8_t)((p[8 + i] & 15) | p[i] >> 6 << 4);
        b->min[4 + i] = (uint8_t)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
    }
}

/* Scales, then for each pair of sub-blocks 32 bytes with the codes of both. */
static void read_q4_k(struct block *b, const uint8_t *p)
{
    read_scales(b, p);
    for (int i = 0; i < 4; i++)
        halves(b->code + 64 * i, p + 16 + 32 * i, 32);
}

/* As Q4_K, with 32 bytes before the codes: bit s of byte i is the fifth bit of code i of
 * sub-block s. */
static void read_q5_k(struct block *b, const uint8_t *p)
{
    read_scales(b, p);
    for (int i = 0; i < 4; i++)
        halves(b->code + 64 * i, p + 48 + 32 * i, 32);
    for (int i = 0; i < 256; i++)
        b->code[i] |= (uint8_t)((p[16 + i % 32] >> (i / 32) & 1) << 4);
}

/* 128 bytes of low halves, 64 bytes of pairs of bits, 16 signed scales, d. Half a block has 64
 * and 32 of these bytes: the low halves of the first 64 weights, then the high halves for the
 * other 64; each byte of pairs is for four weights 32 apart. */
static void read_q6_k(struct block *b, const uint8_t *p)
{
    for (int h = 0; h < 2; h++) {
        uint8_t *code = b->code + 128 * h;

        halves(code, p + 64 * h, 64);
        for (int i = 0; i < 128; i++)
            code[i] |= (uint8_t)((p[128 + 32 * h + i % 32] >> (i / 32 * 2) & 3) << 4);
    }
    memcpy(b->scale, p + 192, 16);
    b->d = get16(p + 208);
}

static void (*const read_block[KERN_N_TYPES])(struct block *b, const uint8_t *p) = {
    [KERN_Q8_0] = read_q8_0, [KERN_Q4_0] = read_q4_0, [KERN_Q4_1] = read_q4_1,
    [KERN_Q4_K] = read_q4_k, [KERN_Q5_K] = read_q5_k, [KERN_Q6_K] = read_q6_k,
};

/* ---- blocks in a panel ---- */

/* The codes of 32 rows into the sub-block at `to`, which begins at the column's first lane. */
static void put_codes(int bits, uint8_t *to, const uint8_t *code)
{
    uint32_t w[8], high[2] = {0, 0};

    memcpy(w, code, sizeof(w));
    for (int j = 0; j < 8; j++) {
        if (bits == 8)
            memcpy(to + 64 * j, &w[j], 4);
        else if (bits == 5)
            high[0] |= (w[j] >> 4 & 0x01010101) << j;
        else if (bits == 6)
            high[j / 4] |= (w[j] >> 4 & 0x03030303) << (2 * (j % 4));
    }
    if (bits == 8)
        return;
    for (int v = 0; v < 4; v++) {
        uint32_t pair = (w[v] & 0x0f0f0f0f) | (w[4 + v] & 0x0f0f0f0f) << 4;

        memcpy(to + 64 * v, &pair, 4);
    }
    for (int h = 0; h < bits - 4; h++)
        memcpy(to + 256 + 64 * h, &high[h], 4);
}

static void put_block(const struct kern_form *f, uint8_t *to, int c,
                      const struct block *b)
{
    memcpy(to + 2 * c, &b->d, 2);
    if (f->min)
        memcpy(to + 2 * KERN_PANEL + 2 * c, &b->dmin, 2);
    for (int i = 0; i < f->subs; i++) {
        uint8_t *sub = to + f->head + i * f->sub, *scale = sub + f->scales + c;

        put_codes(f->bits, sub + 4 * c, b->code + KERN_SUB * i);
        for (int h = 0; f->scales && h < f->halves; h++)
            scale[KERN_PANEL * h] = b->scale[f->halves * i + h];
        if (f->scales && f->min)
            scale[KERN_PANEL] = b->min[i];
    }
}

void kern_panel_put(enum kern_type t, void *panel, int c, const void *row,
                    int64_t n_blocks)
{
    const struct kern_form *f = kern_form(t);
    const uint8_t *from = row;
    uint8_t *to = panel;
    struct block b = {0};

    assert(kern_type_quantised(t) && c >= 0 && c < KERN_PANEL);
    for (int64_t i = 0; i < n_blocks; i++) {
        if (from)
            read_block[t](&b, from + (size_t)i * kern_type_bytes(t));
        put_block(f, to + (size_t)i * kern_form_bytes(f), c, &b);
    }
}

void kern_panel_get(enum kern_type t, const void *panel, int c, float *out,
                    int64_t n_blocks)
{
    const struct kern_form *f = kern_form(t);
    const uint8_t *b = panel;

    for (int64_t i = 0; i < n_blocks; i++, b += kern_form_bytes(f)) {
        for (int s = 0; s < f->subs; s++)
            for (int k = 0; k < KERN_SUB; k++)
                *out++ = kern_form_weight(f, b, b + f->head + s * f->sub, k, c);
    }
}
