#include "kernels/panel.h"

#include <assert.h>
#include <stdbool.h>

#include "kernels/quant.h"

static const struct kern_form forms[KERN_N_TYPES] = {
#define KERN_QUANT_TYPE(T, name, block, bytes, ...) [KERN_##T] = {__VA_ARGS__},
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
};

const struct kern_form *kern_form(enum kern_type t)
{
    return &forms[t];
}

/* ---- blocks in a panel ---- */

/* The codes of 32 rows into the sub-block at `to`, which begins at the column's first lane. */
static void put_codes(int bits, uint8_t *to, const uint8_t *code)
{
    uint32_t w[8], high[2] = {0, 0};

    memcpy(w, code, sizeof(w));
    for (int h = 0; h < 2 && bits < 4; h++) {
        uint32_t low = 0;

        for (int j = 0; j < 4; j++)
            low |= (w[4 * h + j] & 0x03030303) << 2 * j;
        memcpy(to + 64 * h, &low, 4);
    }
    for (int j = 0; j < 8; j++) {
        if (bits == 8)
            memcpy(to + 64 * j, &w[j], 4);
        else if (bits == 3)
            high[0] |= (w[j] >> 2 & 0x01010101) << j;
        else if (bits == 5)
            high[0] |= (w[j] >> 4 & 0x01010101) << j;
        else if (bits == 6)
            high[j / 4] |= (w[j] >> 4 & 0x03030303) << (2 * (j % 4));
    }
    if (bits == 3)
        memcpy(to + 128, &high[0], 4);
    if (bits == 8 || bits < 4)
        return;
    for (int v = 0; v < 4; v++) {
        uint32_t pair = (w[v] & 0x0f0f0f0f) | (w[4 + v] & 0x0f0f0f0f) << 4;

        memcpy(to + 64 * v, &pair, 4);
    }
    for (int h = 0; h < bits - 4; h++)
        memcpy(to + 256 + 64 * h, &high[h], 4);
}

/* The number of a code in its book: itself where there is none. A column of padding has a scale
 * of 0 and so any number: not every book has its zero. */
static uint8_t number_of(const struct kern_form *f, int code)
{
    uint8_t i = 0;

    if (f->book == KERN_BOOK_NONE)
        return (uint8_t)code;
    while (i < 15 && kern_books[f->book][i] != code)
        i++;
    return i;
}

/* The sub-block of block b from its sub-block `from` on. */
static void put_sub(const struct kern_form *f, uint8_t *to, int c,
                    const struct kern_quant_block *b, int from)
{
    uint8_t *scale = to + f->scales + c, code[KERN_SUB];

    for (int k = 0; k < KERN_SUB; k++)
        code[k] = number_of(f, b->q[KERN_SUB * from + k] + f->zero);
    put_codes(f->bits, to + 4 * c, code);
    for (int h = 0; f->scales && h < f->halves; h++)
        scale[KERN_PANEL * h] = (uint8_t)b->scale[f->halves * from + h];
    for (int h = 0; f->scales && f->min && h < f->halves; h++)
        scale[KERN_PANEL * (f->halves + h)] = (uint8_t)b->min[f->halves * from + h];
}

static void put_head(const struct kern_form *f, uint8_t *to, int c,
                     const struct kern_quant_block *b)
{
    const float x[2] = {b->d, b->dmin};

    for (int i = 0; i <= f->min; i++) {
        const uint16_t h = f->wide ? kern_bf16_of(x[i]) : kern_f16_of(x[i]);

        if (f->wide == 2)
            memcpy(to + 4 * (KERN_PANEL * i + c), &x[i], 4);
        else
            memcpy(to + 2 * (KERN_PANEL * i + c), &h, 2);
    }
}

void kern_panel_put(enum kern_type t, void *panel, int c, const void *row,
                    int64_t n_blocks)
{
    const struct kern_form *f = kern_form(t);
    const struct kern_quant *q = kern_quant_of(t);
    const int subs = kern_type_block(t) / KERN_SUB; /* in a block of the file */
    const uint8_t *from = row;
    uint8_t *to = panel;
    struct kern_quant_block b = {0};

    assert(q && c >= 0 && c < KERN_PANEL);
    for (int64_t i = 0; i < n_blocks; i++) {
        if (row)
            kern_quant_decode(q, &b, from + (size_t)i * kern_type_bytes(t));
        if (i == 0 || f->subs > 0) {
            put_head(f, to, c, &b);
            to += f->head;
        }
        for (int s = 0; s < subs; s++, to += f->sub)
            put_sub(f, to, c, &b, s);
    }
}

void kern_panel_put_all(enum kern_type t, void *panel, const void *const rows[KERN_PANEL],
                        int64_t n_blocks)
{
    const struct kern_form *f = kern_form(t);
    const struct kern_quant *q = kern_quant_of(t);
    const uint8_t *block[KERN_PANEL];
    bool fast = q->put != NULL;
    uint8_t *to = panel;

    for (int c = 0; c < KERN_PANEL; c++) {
        block[c] = rows[c];
        fast &= rows[c] != NULL;
    }
    for (int c = 0; c < KERN_PANEL && !fast; c++)
        kern_panel_put(t, panel, c, rows[c], n_blocks);
    for (int64_t i = 0; i < n_blocks && fast; i++, to += f->head + f->subs * f->sub) {
        q->put(to, block);
        for (int c = 0; c < KERN_PANEL; c++)
            block[c] += kern_type_bytes(t);
    }
}

void kern_panel_get(enum kern_type t, const void *panel, int c, float *out,
                    int64_t n_blocks)
{
    const struct kern_form *f = kern_form(t);
    const int64_t rows = n_blocks * kern_type_block(t), subs = kern_form_subs(f, rows);
    const uint8_t *b = panel, *s = b;

    for (int64_t i = 0; i < rows / KERN_SUB; i++, s += f->sub) {
        if (i % subs == 0) {
            b = s;
            s += f->head;
        }
        for (int k = 0; k < KERN_SUB; k++)
            *out++ = kern_form_weight(f, b, s, k, c);
    }
}
