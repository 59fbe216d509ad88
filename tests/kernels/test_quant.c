/* Quantised weights: blocks are read as their definition says, bit for bit, and rounding
 * stays within the stated bounds. */
#include <float.h>

#include "kernels/panel.h"
#include "kernels/quant.h"
#include "tests/kernels/check.h"
#include "tests/support/naive_quant.h"

#define N_BLOCKS 7

/* Finite scales of every size: random, zero, denormal, the largest. */
static void set_f16(uint8_t *p, struct rng *r)
{
    static const uint16_t extremes[] = {0x0000, 0x8000, 0x0001, 0x8001,
                                        0x03ff, 0x0400, 0x7bff, 0xfbff};
    uint16_t h = (uint16_t)(rng_u64(r) & 0xbfff);

    if (rng_below(r, 3) == 0)
        h = extremes[rng_below(r, 8)];
    memcpy(p, &h, sizeof(h));
}

static void random_blocks(enum kern_type t, uint8_t *to, int n, struct rng *r)
{
    const size_t bytes = kern_type_bytes(t);

    for (size_t i = 0; i < (size_t)n * bytes; i++)
        to[i] = (uint8_t)rng_u64(r);
    for (int b = 0; b < n; b++, to += bytes) {
        static const uint8_t extremes[] = {0, 1, 2, 254, 255};

        if (t == KERN_MXFP4) { /* any byte is a scale */
            if (rng_below(r, 2))
                to[0] = extremes[rng_below(r, 5)];
            continue;
        }
        if (t == KERN_W4G128 || t == KERN_W8G128) {
            uint8_t h[4];

            set_f16(h, r);
            set_f16(h + 2, r);
            naive_set_scales(t, to, kern_form_f16(h), kern_form_f16(h + 2));
            continue;
        }
        set_f16(to + naive_d_at(t), r);
        if (kern_form(t)->min)
            set_f16(to + naive_d_at(t) + 2, r);
    }
}

static void test_table(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    (void)r;
    for (int t = 0; t < KERN_N_TYPES; t++) {
        const struct kern_quant *f = kern_quant_of((enum kern_type)t);
        int block = kern_type_block((enum kern_type)t);

        AT("%s", kern_type_name((enum kern_type)t));
        CHECK((f != NULL) == kern_type_quantised((enum kern_type)t), "its format");
        if (!f)
            continue;
        CHECK(block <= KERN_QUANT_MAX && block % f->sub == 0 &&
                  block / f->sub <= KERN_QUANT_SUB_MAX,
              "block of %d, sub-blocks of %d", block, f->sub);
    }
}

static void test_reads(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    for (int i = 0; kern_quants[i]; i++) {
        const struct kern_quant *f = kern_quants[i];
        const int weights = kern_type_block(f->type);
        const size_t bytes = kern_type_bytes(f->type),
                     out_bytes = N_BLOCKS * 4u * weights;
        int lowest = 0, highest = 0;

        for (int trial = 0; trial < 60; trial++) {
            uint8_t *row = guard_get(0, N_BLOCKS * bytes);
            float *out = guard_get(1, out_bytes);

            AT("%s, trial %d", kern_type_name(f->type), trial);
            random_blocks(f->type, row, N_BLOCKS, r);
            kern_quant_to_f32(f, out, row, N_BLOCKS * weights);
            guard_check(1, out_bytes);
            for (int k = 0; k < N_BLOCKS * weights; k++) {
                float want = (float)naive_weight(
                    f->type, row + (size_t)(k / weights) * bytes, k % weights);

                CHECK(float_bits(out[k]) == float_bits(want), "weight %d: %a, wanted %a",
                      k, out[k], want);
            }
            for (int b = 0; b < N_BLOCKS; b++) {
                struct kern_quant_block block;

                kern_quant_decode(f, &block, row + (size_t)b * bytes);
                for (int k = 0; k < weights; k++) {
                    lowest = block.q[k] < lowest ? block.q[k] : lowest;
                    highest = block.q[k] > highest ? block.q[k] : highest;
                }
            }
        }
        CHECK(lowest == f->q_min && highest == f->q_max, "q from %d to %d", lowest,
              highest);
    }
}

/* The bytes of blocks that a linear congruential generator makes, through the reader of
 * ggml itself: FNV-1a of the f32 values that its dequantize_row_* gave for them. */
static void test_golden(const struct kern_variant *v, struct rng *r)
{
    static const struct {
        enum kern_type type;
        uint64_t hash;
    } golden[] = {
        {KERN_Q8_0, UINT64_C(0x8cfd9af300bdb21a)},
        {KERN_Q4_0, UINT64_C(0x87d8ed6e1e4de605)},
        {KERN_Q4_1, UINT64_C(0x71e515c86bc088ea)},
        {KERN_W4C, UINT64_C(0x71e515c86bc088ea)}, /* it is Q4_1 */
        {KERN_Q5_0, UINT64_C(0xe2d38ded32547e3b)},
        {KERN_Q5_1, UINT64_C(0xdf706431be6ea7d0)},
        {KERN_Q4_K, UINT64_C(0xb4ba24541995f03c)},
        {KERN_Q5_K, UINT64_C(0x4a9867d717b3f95e)},
        {KERN_Q6_K, UINT64_C(0xebd707525b767192)},
    };

    (void)v;
    (void)r;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        enum kern_type t = golden[i].type;
        const int weights = kern_type_block(t), n = 64;
        uint8_t blocks[64 * 256];
        uint64_t hash = UINT64_C(1469598103934665603);
        uint32_t x = 1;
        float out[256];

        AT("%s", kern_type_name(t));
        for (size_t k = 0; k < n * kern_type_bytes(t); k++) {
            x = x * 1664525 + 1013904223;
            blocks[k] = (uint8_t)(x >> 24);
        }
        for (int b = 0; b < n; b++) {
            uint8_t *block = blocks + (size_t)b * kern_type_bytes(t);

            /* finite scales: the upper bit of the exponent is 0 */
            block[1] &= 0xbf, block[3] &= 0xbf;
            if (t == KERN_Q6_K)
                block[209] &= 0xbf;
            kern_quant_to_f32(kern_quant_of(t), out, block, weights);
            for (size_t k = 0; k < weights * sizeof(float); k++)
                hash = (hash ^ ((const uint8_t *)out)[k]) * UINT64_C(1099511628211);
        }
        CHECK(hash == golden[i].hash, "hash 0x%016llx, wanted 0x%016llx",
              (unsigned long long)hash, (unsigned long long)golden[i].hash);
    }
}

/* A row is W4C where no block has other scales than the first; codes do not matter. */
static void test_w4c(const struct kern_variant *v, struct rng *r)
{
    uint8_t row[5 * 20];

    (void)v;
    for (int n = 1; n <= 5; n++) {
        AT("%d blocks", n);
        random_blocks(KERN_Q4_1, row, n, r);
        for (int i = 1; i < n; i++)
            memcpy(row + 20 * i, row, 4);
        CHECK(kern_quant_is_w4c(row, 32 * n), "equal scales");
        for (int i = 0; i < 4 * n; i++) {
            uint8_t *byte = &row[i / 4 * 20 + i % 4];

            *byte ^= 1;
            CHECK(kern_quant_is_w4c(row, 32 * n) == (n == 1),
                  "byte %d of the scales of block %d", i % 4, i / 4);
            *byte ^= 1;
        }
    }
}

static void test_f16(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    (void)r;
    for (uint16_t h = 0; h < 0x7c00; h++) {
        float x = kern_f16_to(h), next = kern_f16_to((uint16_t)(h + 1));
        float between = h == 0x7bff ? 65519 : (x + next) / 2;

        AT("0x%04x", h);
        CHECK(kern_quant_f16_above(x) == x && kern_quant_f16_below(x) == x &&
                  kern_quant_f16_below(-x) == -x,
              "itself");
        CHECK(kern_quant_f16_above(between) == next, "above %a", between);
        CHECK(kern_quant_f16_below(between) == x, "below %a", between);
        CHECK(kern_quant_f16_below(-between) == -next, "below %a", -between);
    }
}

/* ---- rounding ---- */

enum kind { NORMAL, OUTLIER, POSITIVE, EQUAL, ZERO, SMALL, LARGE, FAR_FROM_0, N_KINDS };

static void fill_row(enum kind kind, float *w, int64_t n, struct rng *r)
{
    for (int64_t i = 0; i < n; i++) {
        double x = rng_normal(r);

        switch (kind) {
        case OUTLIER:
            x *= i % 37 == 5 ? 50 : 1;
            break;
        case POSITIVE:
            x = fabs(x);
            break;
        case EQUAL:
            x = -0.1;
            break;
        case ZERO:
            x = i % 2 ? 0.0 : -0.0;
            break;
        case SMALL: /* f16 scales are denormal, or zero but for rounding up */
            x = ldexp(x, -18 - (int)(i / 32 * 4 % 30));
            break;
        case LARGE:
            x *= 1e4;
            break;
        case FAR_FROM_0:
            x = 1000 + 1e-3 * x;
            break;
        default:
            break;
        }
        w[i] = (float)x;
    }
}

/* Weights [at, end) share a scale: errors within the bound, which is as small as a step. */
static void check_group(const struct kern_quant_scheme *s, const float *w,
                        const float *got, int64_t at, int64_t end)
{
    static const int levels_of[KERN_N_TYPES] = {
        [KERN_Q8_0] = 254, [KERN_Q4_0] = 8,  [KERN_Q4_1] = 30,
        [KERN_Q4_K] = 30,  [KERN_Q5_0] = 16, [KERN_Q5_1] = 62};
    const int levels = levels_of[s->type];
    const double least = s->type == KERN_Q4_K ? 63 * 0x1p-24 : 0x1p-24; /* step */
    float lo = w[at], hi = w[at], bound;
    double range, step;

    for (int64_t i = at; i < end; i++) {
        lo = fminf(lo, w[i]);
        hi = fmaxf(hi, w[i]);
    }
    bound = naive_quant_error(s, lo, hi);
    for (int64_t i = at; i < end; i++)
        CHECK(fabs((double)w[i] - (double)got[i]) <= (double)bound,
              "weight %d is %a, was %a, bound %g", (int)i, got[i], w[i], bound);
    if (naive_searched(s->type))
        return;
    if (s->type == KERN_Q4_1 || s->type == KERN_Q5_1)
        range = (double)hi - (double)lo + fabs((double)lo) * 0x1p-10 + least;
    else if (s->type == KERN_Q4_K)
        range = fmax(hi, 0) - fmin(lo, 0) + least;
    else
        range = fmax(fabs((double)lo), fabs((double)hi));
    step = range / levels * 1.002 + 1.01 * least + range * 1e-6 + fabs((double)hi) * 1e-6;
    CHECK((double)bound <= step, "bound %g of weights in [%g, %g], expected %g", bound,
          lo, hi, step);
}

static void check_row(const struct kern_quant_scheme *s, enum kind kind, int64_t n,
                      struct rng *r)
{
    const struct kern_quant *f = kern_quant_of(s->type);
    const size_t bytes = kern_type_size(s->type, n);
    const int64_t group = s->group ? s->group : n;
    float *w = guard_get(0, (size_t)n * 4), *got = guard_get(1, (size_t)n * 4);
    uint8_t *row = guard_get(2, bytes);

    AT("%s, kind %d, row of %d", s->name, (int)kind, (int)n);
    fill_row(kind, w, n, r);
    CHECK(kern_quantize(s, row, w, n) == OK, "%s", err_msg());
    guard_check(2, bytes);
    kern_quant_to_f32(f, got, row, n);
    for (int64_t at = 0; at < n; at += group) {
        int64_t end = at + group < n ? at + group : n;
        const int scales = kern_form(s->type)->min ? 4 : 2; /* bytes */

        check_group(s, w, got, at, end);
        for (int64_t i = at; i < end; i += kern_type_block(s->type))
            CHECK(memcmp(row + kern_type_size(s->type, at),
                         row + kern_type_size(s->type, i), (size_t)scales) == 0,
                  "weights %d and %d have different scales", (int)at, (int)i);
    }
    for (int64_t i = 0; kind == ZERO && i < n; i++)
        CHECK(got[i] == 0, "zero became %a", got[i]);
}

static void test_rounding(const struct kern_variant *v, struct rng *r)
{
    static const int64_t blocks[] = {1, 2, 3, 5, 8, 13, 67};
    const int n_sizes = sizeof(blocks) / sizeof(blocks[0]);

    (void)v;
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int i = 0; i < n_sizes; i++)
                check_row(s, (enum kind)kind, kern_type_block(s->type) * blocks[i], r);
}

/* The scales of Q4_K are searched: those that only cover the range err 1.12 times as much as
 * the format's reference, whose error of normal weights is 0.0713 of their deviation. */
static void test_search(const struct kern_variant *v, struct rng *r)
{
    const struct kern_quant_scheme *s;
    const int n = 1000;
    float w[256], got[256];
    uint8_t block[144];
    double sum = 0;

    (void)v;
    CHECK(kern_quant_scheme_find("q4_k", &s) == OK, "%s", err_msg());
    for (int b = 0; b < n; b++) {
        for (int i = 0; i < 256; i++)
            w[i] = (float)rng_normal(r);
        CHECK(kern_quantize(s, block, w, 256) == OK, "%s", err_msg());
        kern_quant_to_f32(kern_quant_of(s->type), got, block, 256);
        for (int i = 0; i < 256; i++)
            sum += ((double)got[i] - (double)w[i]) * ((double)got[i] - (double)w[i]);
    }
    CHECK(sqrt(sum / n / 256) <= 1.01 * 0.0713, "an error of %g, expected %g",
          sqrt(sum / n / 256), 0.0713);
}

/* ---- the least sum of squared errors, by trying scales ---- */

/* The squared error of w[n] with this scale, each weight with the nearest value. */
static double tried(const float *w, int n, const double *value, int n_values,
                    double scale)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        double least = INFINITY;

        for (int v = 0; v < n_values; v++) {
            const double e = scale * value[v] - (double)w[i];

            least = e * e < least ? e * e : least;
        }
        sum += least;
    }
    return sum;
}

/* The least error of a block over a fine scan of d. With sub-blocks each takes the best of the 64
 * integer scales for it. */
static double best_of_scan(enum kern_type t, const float *w)
{
    const bool is_q3 = t == KERN_Q3_K, subs = kern_type_block(t) == 256;
    const int n = is_q3 ? 16 : 32, n_values = is_q3 ? 8 : 16, n_steps = subs ? 24 : 400;
    double value[16], most = 0, least = INFINITY;

    for (int v = 0; v < n_values; v++)
        value[v] = is_q3 ? v - 4 : t == KERN_MXFP4 ? 2 * naive_e2m1[v] : naive_iq4[v];
    for (int i = 0; i < kern_type_block(t); i++)
        most = fmax(most, fabs((double)w[i]));
    if (t == KERN_MXFP4) {
        for (int e = -20; e < 20; e++)
            least = fmin(least, tried(w, 32, value, 16, ldexp(1, e)));
        return least;
    }
    for (int k = 0; k < 2 * n_steps; k++) {
        const double part = 0.75 + 0.5 * (k / 2) / n_steps;
        const double d = (k % 2 ? most : -most) * part / value[0] / (subs ? 32 : 1);
        double sum = 0;

        for (int s = 0; s < kern_type_block(t) / n && sum < least; s++) {
            double best = subs ? INFINITY : tried(w, n, value, n_values, d);

            for (int scale = -32; scale < 32 && subs; scale++)
                best = fmin(best, tried(w + n * s, n, value, n_values, d * scale));
            sum += best;
        }
        least = fmin(least, sum);
    }
    return least;
}

/* Errors of the searched types are within 2 % of those that trying many scales finds, of normal
 * weights and of those with heavy tails. */
static void test_near_best(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++) {
        const int n = kern_type_block(s->type), blocks = n == 256 ? 6 : 200;

        for (int tails = 0; tails < 2 && naive_searched(s->type); tails++) {
            double sum = 0, best = 0, size = 0;

            for (int b = 0; b < blocks; b++) {
                float w[256], got[256];
                uint8_t block[256];

                for (int i = 0; i < n; i++) {
                    const double x = rng_normal(r);

                    w[i] = (float)(tails ? x / (0.1 + fabs(rng_normal(r))) : x);
                    size += (double)w[i] * (double)w[i];
                }
                CHECK(kern_quantize(s, block, w, n) == OK, "%s", err_msg());
                kern_quant_to_f32(kern_quant_of(s->type), got, block, n);
                for (int i = 0; i < n; i++)
                    sum +=
                        ((double)got[i] - (double)w[i]) * ((double)got[i] - (double)w[i]);
                best += best_of_scan(s->type, w);
            }
            printf("# %s, %s: error %.4f, best of a scan %.4f of the deviation\n",
                   s->name, tails ? "heavy tails" : "normal", sqrt(sum / size),
                   sqrt(best / size));
            CHECK(sqrt(sum) <= 1.02 * sqrt(best), "%s: error %g, best of a scan %g",
                  s->name, sqrt(sum / size), sqrt(best / size));
        }
    }
}

/* Sub-blocks of very different ranges: a weight may err by half a step of the largest range of
 * all, in sum of squares by half a step of its own sub-block, whose scale and min are rounded
 * up to 1/63 of the largest ones. */
static void test_sub_blocks(const struct kern_variant *v, struct rng *r)
{
    const struct kern_quant_scheme *s;
    float w[256], got[256];
    uint8_t block[144];

    (void)v;
    CHECK(kern_quant_scheme_find("q4_k", &s) == OK, "%s", err_msg());
    for (int trial = 0; trial < 200; trial++) {
        float lo_all = 0, hi_all = 0, step;
        double squares = 0, most_squares = 0;

        AT("trial %d", trial);
        for (int i = 0; i < 256; i++) {
            w[i] = (float)ldexp(rng_normal(r), -(i / 32) - trial % 3);
            lo_all = fminf(lo_all, w[i]);
            hi_all = fmaxf(hi_all, w[i]);
        }
        step = (hi_all - lo_all) / 63; /* of scales and of mins, 15 times in all */
        CHECK(kern_quantize(s, block, w, 256) == OK, "%s", err_msg());
        kern_quant_to_f32(kern_quant_of(s->type), got, block, 256);
        for (int i = 0; i < 256; i += 32) {
            float lo = 0, hi = 0, half;

            for (int k = i; k < i + 32; k++)
                lo = fminf(lo, w[k]), hi = fmaxf(hi, w[k]);
            half = (hi - lo + 2 * step) / 30 * 1.01f + step / 60;
            most_squares += 32 * (double)half * (double)half;
            for (int k = i; k < i + 32; k++) {
                double e = (double)w[k] - (double)got[k];

                squares += e * e;
                CHECK(fabs(e) <= (double)((hi_all - lo_all) / 30 * 1.02f + step / 15),
                      "weight %d is %a, was %a, of [%g, %g]", k, got[k], w[k], lo, hi);
            }
        }
        CHECK(squares <= most_squares, "squares of errors: %g, at most %g", squares,
              most_squares);
    }
    CHECK(kern_quant_scheme_for_row(s, 512) == s, "whole blocks");
    CHECK(kern_quant_scheme_for_row(s, 5504)->type == KERN_Q4_0, "not whole blocks");
    CHECK(kern_quant_scheme_find("w4c", &s) == OK &&
              kern_quant_scheme_for_row(s, 33) == s,
          "another scheme");
}

/* What is quantised symmetrically and quantised again stays the same bytes. */
static void test_twice(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++) {
        float w[320];
        uint8_t once[400], twice[400];

        if (kern_form(s->type)->min || naive_searched(s->type))
            continue;
        AT("%s", s->name);
        fill_row(NORMAL, w, 320, r);
        CHECK(kern_quantize(s, once, w, 320) == OK, "%s", err_msg());
        kern_quant_to_f32(kern_quant_of(s->type), w, once, 320);
        CHECK(kern_quantize(s, twice, w, 320) == OK, "%s", err_msg());
        CHECK(memcmp(once, twice, kern_type_size(s->type, 320)) == 0, "other bytes");
    }
}

static void refused(const struct kern_quant_scheme *s, int64_t n, int64_t at, float x,
                    const char *why)
{
    float w[3 * KERN_QUANT_MAX];
    uint8_t row[3 * KERN_QUANT_MAX];

    AT("%s, weight %d is %g, row of %d", s->name, (int)at, x, (int)n);
    for (int i = 0; i < 3 * KERN_QUANT_MAX; i++)
        w[i] = (float)i / 96;
    w[at] = x;
    CHECK(kern_quantize(s, row, w, n) == ERR_ARG && strstr(err_msg(), why) &&
              !strchr(err_msg(), '\n'),
          "\"%s\"", err_msg());
}

/* The scales of MXFP4 reach farther than f32: what is written is finite. */
static void test_largest(const struct kern_variant *v, struct rng *r)
{
    static const float most[] = {FLT_MAX, 3e38f, 2.6e38f, 2.5e38f, 1.8e38f, 1.2e38f};
    const struct kern_quant_scheme *s;

    (void)v;
    (void)r;
    CHECK(kern_quant_scheme_find("mxfp4", &s) == OK, "%s", err_msg());
    for (int i = 0; i < 6; i++) {
        float w[32], got[32];
        uint8_t block[17];

        AT("%a", most[i]);
        for (int k = 0; k < 32; k++)
            w[k] = most[i] / 16 * (float)(k - 16);
        CHECK(kern_quantize(s, block, w, 32) == OK, "%s", err_msg());
        kern_quant_to_f32(kern_quant_of(s->type), got, block, 32);
        for (int k = 0; k < 32; k++)
            CHECK(fabs((double)got[k] - (double)w[k]) <= most[i] * 0.26, "%a is %a", w[k],
                  got[k]);
    }
}

static void test_refusals(const struct kern_variant *v, struct rng *r)
{
    const struct kern_quant_scheme *s;

    (void)v;
    (void)r;
    for (s = kern_quant_schemes; s->name; s++) {
        const int64_t n = 3 * kern_type_block(s->type);

        refused(s, n, 64, INFINITY, "weight 64 of a row: expected a finite number");
        refused(s, n, 0, -INFINITY, "found -inf");
        refused(s, n, 95, NAN, "weight 95");
        if (s->type != KERN_MXFP4 && s->type != KERN_IQ4_XS) /* theirs reach farther */
            refused(s, n, 40, 1e8f, "f16 scales");
        if (s->type != KERN_MXFP4)
            refused(s, n, 40, -3e38f, "f16 scales");
        refused(s, n - 1, 40, 0,
                n == 96 ? "a row of 95 weights: expected a multiple of 32"
                        : "a row of 767 weights: expected a multiple of 256");
    }
    AT("names");
    CHECK(kern_quant_scheme_find("w4c", &s) == OK && s->type == KERN_Q4_1 &&
              s->group == 0,
          "w4c");
    CHECK(kern_quant_scheme_find("q2_k", &s) == ERR_ARG && !s &&
              strstr(err_msg(), "found \"q2_k\""),
          "\"%s\"", err_msg());
}

int main(void)
{
    check_init();
    check_case("table", test_table, NULL);
    check_case("reads", test_reads, NULL);
    check_case("golden", test_golden, NULL);
    check_case("w4c", test_w4c, NULL);
    check_case("f16", test_f16, NULL);
    check_case("rounding", test_rounding, NULL);
    check_case("sub-blocks", test_sub_blocks, NULL);
    check_case("search", test_search, NULL);
    check_case("near the best", test_near_best, NULL);
    check_case("twice", test_twice, NULL);
    check_case("largest", test_largest, NULL);
    check_case("refusals", test_refusals, NULL);
    return check_done();
}
