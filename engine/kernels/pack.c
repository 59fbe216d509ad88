#include "kernels/pack.h"

#include <assert.h>
#include <string.h>

#include "kernels/pack_i8.h"
#include "kernels/panel.h"
#include "kernels/quant.h"
#include "kernels/transpose.h"

/* Rows of K handled at once: 16 columns of 64 words are 4 KiB, which stay in L1 while the
 * four groups of columns fill them. */
#define BLOCK_K 64
#define ROWS_K  512 /* of a row of A; a multiple of KERN_A_ROWS_K */

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* ---- layout ---- */

/* Bytes added to a unit so that the same panel of successive units walks through the
 * cache sets: an odd number of panel strides does (odd times any power of two cycles
 * through all multiples). One panel may cost 1.5 % at most; else one line is better than
 * nothing. */
static size_t unit_skew(int64_t n_panels, size_t panel_bytes)
{
    if (n_panels % 2 == 1)
        return 0;
    return n_panels * 15 >= 1000 ? panel_bytes : 64;
}

void kern_mat_layout(struct kern_mat *m, enum kern_type type, int64_t n, int64_t k,
                     int64_t k_unit)
{
    assert(n > 0 && k > 0 && k_unit >= 0 && k_unit % 2 == 0);
    memset(m, 0, sizeof(*m));
    m->type = type;
    m->n = n;
    m->k = k;
    m->n_panels = round_up(n, KERN_PANEL) / KERN_PANEL;
    m->k_pad = round_up(k, type == KERN_BF16 ? 2 : kern_type_block(type));
    k_unit = round_up(k_unit, kern_type_block(type));
    m->k_unit = k_unit == 0 || k_unit > m->k_pad ? m->k_pad : k_unit;
    m->n_units = (m->k_pad + m->k_unit - 1) / m->k_unit;
    m->panel_bytes = kern_panel_size(type, m->k_unit);
    m->bytes = (size_t)m->n_panels * m->panel_bytes;
    if (m->n_units > 1) {
        m->unit_bytes = (size_t)round_up(
            (int64_t)(m->bytes + unit_skew(m->n_panels, m->panel_bytes)), 64);
        m->bytes += (size_t)(m->n_units - 1) * m->unit_bytes;
    }
    m->bytes = (size_t)round_up((int64_t)m->bytes, 64);
}

/* Rows of unit u that exist (the last may be short). */
static int64_t unit_rows(const struct kern_mat *m, int64_t u)
{
    int64_t left = m->k_pad - u * m->k_unit;

    return left < m->k_unit ? left : m->k_unit;
}

/* ---- weights ---- */

/* One column's piece of K, and where to copy it when it cannot be read where it is. */
struct piece {
    _Alignas(16) float stage[BLOCK_K];
    const char *at;
};

/* Weights [k0, k0 + n) of a row of 16-bit numbers, as f32. */
static void widen(float *out, const char *row, enum kern_type type, int64_t k0, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;

        memcpy(&h, row + 2 * (k0 + i), 2);
        out[i] = type == KERN_BF16 ? kern_bf16_to(h) : kern_f16_to(h);
    }
}

/* The same of a row of blocks. */
static void dequantise(float *out, const char *row, enum kern_type type, int64_t k0,
                       int64_t n)
{
    const int weights = kern_type_block(type);
    float block[KERN_QUANT_MAX];

    for (int64_t left = n; left > 0;) {
        int64_t from = k0 % weights, have = weights - from < left ? weights - from : left;

        kern_quant_to_f32(kern_quant_of(type), block,
                          row + kern_type_size(type, k0 - from), weights);
        memcpy(out, block + from, (size_t)have * sizeof(float));
        out += have, k0 += have, left -= have;
    }
}

/* Elements [k0, k0 + n) of a source row in the matrix's own type; those at or beyond m->k
 * (and the one after an odd n) are zero. Reads nothing beyond the row. */
static void piece_get(struct piece *p, const struct kern_mat *m, const char *src,
                      enum kern_type src_type, int64_t k0, int64_t n)
{
    int64_t have = m->k - k0 < n ? m->k - k0 : n;
    size_t esz = kern_type_bytes(src_type);

    if (src && src_type == m->type && have == n && (n % 2 == 0 || esz == 4)) {
        p->at = src + (size_t)k0 * esz;
        return;
    }
    memset(p->stage, 0, sizeof(p->stage));
    if (src && src_type == m->type)
        memcpy(p->stage, src + (size_t)k0 * esz, (size_t)have * esz);
    else if (src && kern_type_quantised(src_type))
        dequantise(p->stage, src, src_type, k0, have);
    else if (src)
        widen(p->stage, src, src_type, k0, have);
    p->at = (const char *)p->stage;
}

/* [n/2][16] words of two halves -> [n][16] halves. */
static void split_pairs(uint16_t *dst, const uint32_t *words, int64_t n)
{
    for (int64_t k = 0; k + 1 < n; k += 2, dst += 2 * KERN_PANEL, words += KERN_PANEL) {
        for (int c = 0; c < KERN_PANEL; c++)
            dst[c] = (uint16_t)words[c];
        for (int c = 0; c < KERN_PANEL; c++)
            dst[KERN_PANEL + c] = (uint16_t)(words[c] >> 16);
    }
    if (n % 2 == 1)
        for (int c = 0; c < KERN_PANEL; c++)
            dst[c] = (uint16_t)words[c];
}

/* Column n of a quantised matrix, in every unit. */
static void put_blocks(struct kern_mat *m, int64_t n, const char *src)
{
    const int block = kern_type_block(m->type);

    assert(m->k % block == 0);
    for (int64_t u = 0; u < m->n_units; u++)
        kern_panel_put(m->type, kern_mat_at(m, u, n / KERN_PANEL), (int)(n % KERN_PANEL),
                       src ? src + kern_type_size(m->type, u * m->k_unit) : NULL,
                       unit_rows(m, u) / block);
}

/* Panel p of a quantised matrix, in every unit. */
static void put_panel(struct kern_mat *m, int64_t p, const void *const *rows)
{
    for (int64_t u = 0; u < m->n_units; u++) {
        size_t from = kern_type_size(m->type, u * m->k_unit);
        const void *at[KERN_PANEL];

        for (int c = 0; c < KERN_PANEL; c++)
            at[c] = rows[c] ? (const char *)rows[c] + from : NULL;
        kern_panel_put_all(m->type, kern_mat_at(m, u, p), at,
                           unit_rows(m, u) / kern_type_block(m->type));
    }
}

/* n <= BLOCK_K rows of one panel from its 16 columns. */
static void block_put(char *dst, enum kern_type type, const struct piece *col, int64_t n)
{
    uint32_t pairs[BLOCK_K / 2 * KERN_PANEL];
    char *to = type == KERN_F16 ? (char *)pairs : dst;
    int64_t n_words = type == KERN_F32 ? n : (n + 1) / 2;

    for (int c = 0; c < KERN_PANEL; c += 4) {
        const char *const four[4] = {col[c].at, col[c + 1].at, col[c + 2].at,
                                     col[c + 3].at};

        kern_transpose4(to + 4 * c, 4 * KERN_PANEL, four, n_words);
    }
    if (type == KERN_F16)
        split_pairs((uint16_t *)dst, pairs, n);
}

void kern_mat_put_panels(struct kern_mat *m, int64_t p_lo, int64_t p_hi,
                         const void *const *rows, enum kern_type src_type)
{
    const size_t row_bytes = KERN_PANEL * kern_type_bytes(m->type);
    struct piece col[KERN_PANEL];

    assert(src_type == m->type || m->type == KERN_F32);
    assert(p_lo >= 0 && p_hi <= m->n_panels);
    if (kern_type_quantised(m->type)) {
        assert(m->k % kern_type_block(m->type) == 0);
        for (int64_t p = p_lo; p < p_hi; p++, rows += KERN_PANEL)
            put_panel(m, p, rows);
        return;
    }
    for (int64_t p = p_lo; p < p_hi; p++, rows += KERN_PANEL) {
        for (int64_t u = 0; u < m->n_units; u++) {
            char *dst = kern_mat_at(m, u, p);
            int64_t n = unit_rows(m, u);

            for (int64_t k = 0; k < n; k += BLOCK_K) {
                int64_t nb = n - k < BLOCK_K ? n - k : BLOCK_K;

                for (int c = 0; c < KERN_PANEL; c++)
                    piece_get(&col[c], m, rows[c], src_type, u * m->k_unit + k, nb);
                block_put(dst + (size_t)k * row_bytes, m->type, col, nb);
            }
        }
    }
}

/* Where element (k, column c) of a panel is, k counted inside the unit. */
static char *element(const struct kern_mat *m, char *panel, int64_t k, int64_t c)
{
    if (m->type == KERN_F32)
        return panel + 4 * (k * KERN_PANEL + c);
    if (m->type == KERN_F16)
        return panel + 2 * (k * KERN_PANEL + c);
    return panel + 4 * (k / 2 * KERN_PANEL + c) + 2 * (k % 2);
}

void kern_mat_put_row(struct kern_mat *m, int64_t n, const void *src,
                      enum kern_type src_type)
{
    const size_t esz = kern_type_bytes(m->type);
    struct piece col;

    assert(src_type == m->type || m->type == KERN_F32);
    assert(n >= 0 && n < m->n_panels * KERN_PANEL);
    if (kern_type_quantised(m->type)) {
        put_blocks(m, n, src);
        return;
    }
    for (int64_t u = 0; u < m->n_units; u++) {
        char *panel = kern_mat_at(m, u, n / KERN_PANEL);
        int64_t rows = unit_rows(m, u);

        for (int64_t k = 0; k < rows; k += BLOCK_K) {
            int64_t nb = rows - k < BLOCK_K ? rows - k : BLOCK_K;

            piece_get(&col, m, src, src_type, u * m->k_unit + k, nb);
            for (int64_t i = 0; i < nb; i++)
                memcpy(element(m, panel, k + i, n % KERN_PANEL), col.at + (size_t)i * esz,
                       esz);
        }
    }
}

void kern_mat_get_row(const struct kern_mat *m, int64_t n, float *out)
{
    assert(n >= 0 && n < m->n_panels * KERN_PANEL);
    if (kern_type_quantised(m->type)) {
        for (int64_t u = 0; u < m->n_units; u++)
            kern_panel_get(m->type, kern_mat_at(m, u, n / KERN_PANEL),
                           (int)(n % KERN_PANEL), out + u * m->k_unit,
                           unit_rows(m, u) / kern_type_block(m->type));
        return;
    }
    for (int64_t k = 0; k < m->k; k++) {
        char *panel = kern_mat_at(m, k / m->k_unit, n / KERN_PANEL);
        const char *from = element(m, panel, k % m->k_unit, n % KERN_PANEL);

        if (m->type == KERN_F32)
            memcpy(&out[k], from, 4);
        else
            widen(&out[k], from, m->type, 0, 1);
    }
}

/* ---- activations ---- */

size_t kern_a_offset(enum kern_a_format fmt, int64_t mr, int64_t k)
{
    if (kern_a_is_i8(fmt)) {
        assert(k % KERN_SUB == 0);
        return (size_t)(k / KERN_SUB * KERN_A_I8_WORDS * mr) * 4;
    }
    return (size_t)(k * mr) *
           (fmt == KERN_A_BF16_PAIR || fmt == KERN_A_BF16_ROWS ? 2 : 4);
}

size_t kern_a_bytes(enum kern_a_format fmt, int64_t m, int64_t k_pad)
{
    int64_t k = fmt == KERN_A_BF16_ROWS ? round_up(k_pad, KERN_A_ROWS_K) : k_pad;
    size_t bytes = kern_a_offset(fmt, m, k);

    return fmt == KERN_A_F16_TWICE ? bytes + (size_t)m * sizeof(float) : bytes;
}

/* Up to four rows of A, columns [k0, k0 + n), as words in the packed format. */
struct a_rows {
    _Alignas(64) float pad[4][BLOCK_K];
    _Alignas(64) uint32_t words[4][BLOCK_K];
    const char *at[4];
};

/* Row r of the group; `have` of the n columns exist, the rest are zero. */
static void a_row_get(struct a_rows *g, int r, const struct kern_variant *v,
                      const float *x, int64_t have, int64_t n, float scale)
{
    if (have < n) {
        memset(g->pad[r], 0, sizeof(g->pad[r]));
        if (have > 0)
            memcpy(g->pad[r], x, (size_t)have * 4);
        x = g->pad[r];
    }
    g->at[r] = (const char *)x;
    if (v->a_words) {
        v->a_words(g->words[r], x, n, scale);
        g->at[r] = (const char *)g->words[r];
    }
}

/* Fewer than four rows left: word by word. */
static void scatter(char *dst, size_t stride, const struct a_rows *g, int n_rows,
                    int64_t n)
{
    for (int r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < n; j++)
            memcpy(dst + (size_t)j * stride + 4 * r, g->at[r] + 4 * j, 4);
}

/* Rows of KERN_A_BF16_ROWS. */
static void pack_rows(const struct kern_variant *v, char *dst, const float *x,
                      int64_t ldx, int64_t mr, int64_t k, int64_t k_pad)
{
    const int64_t whole = k - k % KERN_A_ROWS_K, all = round_up(k_pad, KERN_A_ROWS_K);
    uint32_t words[ROWS_K / 2];

    for (int64_t r = 0; r < mr; r++, x += ldx) {
        for (int64_t k0 = 0, n; k0 < all; k0 += n) {
            char *to = dst + (k0 * mr + r * KERN_A_ROWS_K) * 2;
            float end[KERN_A_ROWS_K] = {0};
            const float *from = x + k0;

            n = whole - k0 < ROWS_K ? whole - k0 : ROWS_K;
            if (n <= 0) {
                n = KERN_A_ROWS_K;
                if (k0 < k)
                    memcpy(end, from, (size_t)(k - k0) * sizeof(float));
                from = end;
            }
            v->a_words(words, from, n, 1);
            for (int64_t i = 0; i < n; i += KERN_A_ROWS_K)
                memcpy(to + i * mr * 2, words + i / 2, KERN_A_ROWS_K * 2);
        }
    }
}

void kern_a_pack(const struct kern_variant *v, void *dst, const float *x, int64_t ldx,
                 int64_t mr, int64_t k, int64_t k_pad)
{
    const int per_word = v->a_format == KERN_A_BF16_PAIR ? 2 : 1;
    const size_t stride = (size_t)mr * 4; /* one word of every row */
    float *factor = (float *)((char *)dst + (size_t)k_pad * stride);
    struct a_rows g;

    assert(k_pad >= k && k_pad % per_word == 0);
    if (kern_a_is_i8(v->a_format)) {
        kern_a_pack_i8(v, dst, x, ldx, mr, k);
        return;
    }
    if (v->a_format == KERN_A_BF16_ROWS) {
        pack_rows(v, dst, x, ldx, mr, k, k_pad);
        return;
    }
    for (int64_t r = 0; v->a_scale && r < mr; r++)
        factor[r] = 1 / v->a_scale(x + r * ldx, k);
    for (int64_t k0 = 0; k0 < k_pad; k0 += BLOCK_K) {
        int64_t n = k_pad - k0 < BLOCK_K ? k_pad - k0 : BLOCK_K;
        int64_t have = k - k0 < n ? k - k0 : n;
        char *to = (char *)dst + (size_t)(k0 / per_word) * stride;

        for (int64_t r = 0; r < mr; r += 4) {
            int rows = mr - r < 4 ? (int)(mr - r) : 4;

            for (int i = 0; i < rows; i++)
                a_row_get(&g, i, v, x + (r + i) * ldx + k0, have, n,
                          v->a_scale ? 1 / factor[r + i] : 1);
            if (rows == 4)
                kern_transpose4(to + 4 * r, stride, g.at, n / per_word);
            else
                scatter(to + 4 * r, stride, &g, rows, n / per_word);
        }
    }
}
