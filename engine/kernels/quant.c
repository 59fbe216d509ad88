/* All formats of quantised weights share these: rows, rounding, and the schemes. */
#include "kernels/quant.h"

#include <assert.h>
#include <inttypes.h>

#include "kernels/panel.h"

const struct kern_quant *kern_quant_of(enum kern_type t)
{
    for (int i = 0; kern_quants[i]; i++)
        if (kern_quants[i]->type == t)
            return kern_quants[i];
    return NULL;
}

void kern_quant_decode(const struct kern_quant *f, struct kern_quant_block *out,
                       const void *block)
{
    out->dmin = 0;
    memset(out->scale, 1, sizeof(out->scale));
    memset(out->min, 0, sizeof(out->min));
    f->decode(out, block);
}

void kern_quant_to_f32(const struct kern_quant *f, float *out, const void *row, int64_t n)
{
    const int weights = kern_type_block(f->type);
    const uint8_t *block = row;
    struct kern_quant_block b;

    assert(n % weights == 0);
    for (; n > 0; n -= weights, block += kern_type_bytes(f->type), out += weights) {
        kern_quant_decode(f, &b, block);
        for (int s = 0; s < weights / f->sub; s++) {
            float scale = b.d * b.scale[s], min = b.dmin * b.min[s];

            for (int i = s * f->sub; i < (s + 1) * f->sub; i++)
                out[i] = scale * b.q[i] - min;
        }
    }
}

bool kern_quant_is_w4c(const void *row, int64_t n)
{
    const size_t bytes = kern_type_bytes(KERN_Q4_1);
    const uint8_t *block = row;
    bool same = true;

    for (int64_t i = kern_type_block(KERN_Q4_1); i < n && same;
         i += kern_type_block(KERN_Q4_1), block += bytes)
        same = memcmp(block, block + bytes, 4) == 0;
    return same;
}

void kern_row_to_f32(enum kern_type t, float *out, const void *row, int64_t n)
{
    const char *p = row;

    if (kern_type_quantised(t)) {
        kern_quant_to_f32(kern_quant_of(t), out, row, n);
    } else if (t == KERN_F32) {
        memcpy(out, row, (size_t)n * sizeof(float));
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;

            memcpy(&h, p + 2 * i, sizeof(h));
            out[i] = t == KERN_BF16 ? kern_bf16_to(h) : kern_f16_to(h);
        }
    }
}

/* ---- rounding ---- */

float kern_quant_f16_above(float x)
{
    uint16_t h = kern_f16_of(x);

    return kern_f16_to(kern_f16_to(h) < x ? h + 1 : h);
}

float kern_quant_f16_below(float x)
{
    uint16_t h = kern_f16_of(x);

    if (kern_f16_to(h) > x)
        h = h & 0x8000 ? h + 1 : h - 1; /* away from zero, or towards it */
    return kern_f16_to(h);
}

void kern_quant_scale_from(float lo, float hi, int q_max, float *d, float *dmin)
{
    float m = kern_quant_f16_below(lo);

    *d = kern_quant_f16_above((hi - m) / (float)q_max);
    *dmin = -m;
}

void kern_quant_get_5_bits(int8_t *q, const uint8_t *p)
{
    for (int i = 0; i < 32; i++) {
        int low = p[4 + i % 16] >> i / 16 * 4 & 15, high = p[i / 8] >> i % 8 & 1;

        q[i] = (int8_t)(low | high << 4);
    }
}

void kern_quant_put_5_bits(uint8_t *p, const int8_t *q)
{
    memset(p, 0, 20);
    for (int i = 0; i < 32; i++) {
        p[4 + i % 16] |= (uint8_t)((q[i] & 15) << i / 16 * 4);
        p[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
    }
}

void kern_quant_get_book(int8_t *q, const uint8_t *p, int book, int zero)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(kern_books[book][p[i] & 15] - zero);
        q[16 + i] = (int8_t)(kern_books[book][p[i] >> 4] - zero);
    }
}

void kern_quant_put_4_bits(uint8_t *p, const uint8_t *number)
{
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)(number[i] | number[16 + i] << 4);
}

void kern_quant_scale_min(const uint8_t *p, int s, int8_t *scale, int8_t *min)
{
    /* Bytes 0 to 3 and 4 to 7 hold the low six bits of scales and mins 0 to 3. Bytes 8 to
     * 11 hold four bits of scale and min 4 to 7 each, whose upper two are on top of bytes
     * 0 to 7. */
    if (s < 4) {
        *scale = (int8_t)(p[s] & 63);
        *min = (int8_t)(p[4 + s] & 63);
    } else {
        *scale = (int8_t)((p[4 + s] & 15) | (p[s - 4] >> 6) << 4);
        *min = (int8_t)(p[4 + s] >> 4 | (p[s] >> 6) << 4);
    }
}

void kern_quant_put_scale_min(uint8_t *p, int s, int scale, int min)
{
    if (s < 4) {
        p[s] |= (uint8_t)scale;
        p[4 + s] |= (uint8_t)min;
    } else {
        p[4 + s] = (uint8_t)((scale & 15) | (min & 15) << 4);
        p[s - 4] |= (uint8_t)(scale >> 4 << 6);
        p[s] |= (uint8_t)(min >> 4 << 6);
    }
}

/* ---- schemes ---- */

#define SCHEME(name, T, group) {name, KERN_##T, group},
const struct kern_quant_scheme kern_quant_schemes[] = {
    KERN_QUANT_SCHEMES(SCHEME, SCHEME){0}};

int kern_quant_scheme_find(const char *name, const struct kern_quant_scheme **out)
{
#define NAME(name, ...)       name
#define OTHER_NAME(name, ...) ", " name
    for (*out = kern_quant_schemes; (*out)->name; (*out)++)
        if (strcmp((*out)->name, name) == 0)
            return OK;
    *out = NULL;
    return err_set(ERR_ARG,
                   "expected a scheme of quantisation (" KERN_QUANT_SCHEMES(
                       NAME, OTHER_NAME) "), found \"%.40s\"",
                   name);
}

const struct kern_quant_scheme *
kern_quant_scheme_for_row(const struct kern_quant_scheme *s, int64_t n)
{
    const struct kern_quant_scheme *other = kern_quant_schemes;

    if (kern_type_block(s->type) < 256 || n % kern_type_block(s->type) == 0)
        return s;
    while (other->type != KERN_Q4_0)
        other++;
    return other;
}

/* The range of w[n]. ERR_ARG: a weight is not finite. */
static int range_of(const float *w, int64_t n, int64_t first, float *lo, float *hi)
{
    *lo = *hi = w[0];
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(w[i]))
            return err_set(ERR_ARG,
                           "weight %" PRId64
                           " of a row: expected a finite number, found %g",
                           first + i, w[i]);
        *lo = w[i] < *lo ? w[i] : *lo;
        *hi = w[i] > *hi ? w[i] : *hi;
    }
    return OK;
}

int kern_quantize(const struct kern_quant_scheme *s, void *out, const float *w, int64_t n)
{
    const struct kern_quant *f = kern_quant_of(s->type);
    const int weights = kern_type_block(s->type);
    int64_t group = s->group > 0 ? s->group : n;
    uint8_t *block = out;

    if (n % weights != 0)
        return err_set(ERR_ARG,
                       "a row of %" PRId64 " weights: expected a multiple of %d for %s",
                       n, weights, s->name);
    for (int64_t at = 0; at < n; at += group) {
        int64_t end = at + group < n ? at + group : n;
        float lo, hi, d, dmin;

        TRY(range_of(w + at, end - at, at, &lo, &hi));
        f->scale(lo, hi, &d, &dmin);
        if (!isfinite(d) || !isfinite(dmin))
            return err_set(ERR_ARG,
                           "weights %" PRId64 " to %" PRId64
                           " of a row: expected a range that the f16 scales of %s can "
                           "hold, found %g to %g",
                           at, end - 1, s->name, lo, hi);
        for (int64_t i = at; i < end; i += weights, block += kern_type_bytes(s->type))
            f->encode(block, w + i, d, dmin);
    }
    return OK;
}
