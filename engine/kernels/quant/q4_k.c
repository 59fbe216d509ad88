/* 256 weights in 8 sub-blocks of 32, (d scale) q - dmin min: d and dmin in f16, 12 bytes of
 * 6-bit scales and mins, then 32 bytes for each pair of sub-blocks, the i-th with q of weight
 * i of the first in its low and of the second in its high half. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    const uint8_t *q = block + 16;

    out->d = kern_quant_f16(block);
    out->dmin = kern_quant_f16(block + 2);
    for (int s = 0; s < 8; s++)
        kern_quant_scale_min(block + 4, s, &out->scale[s], &out->min[s]);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15);
}

/* A sub-block of the file is a half of each of 32 bytes, one of a panel both halves of 16. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    uint8_t stage[KERN_PANEL][16];
    const uint8_t *column[KERN_PANEL];

    for (int c = 0; c < KERN_PANEL; c++) {
        memcpy(to + 2 * c, block[c], 2);
        memcpy(to + 2 * KERN_PANEL + 2 * c, block[c] + 2, 2);
        column[c] = stage[c];
    }
    to += KERN_Q4_K_HEAD;
    for (int s = 0; s < 8; s++, to += KERN_Q4_K_SUB) {
        for (int c = 0; c < KERN_PANEL; c++) {
            const uint8_t *q = block[c] + 16 + s / 2 * 32;
            int8_t *scale = (int8_t *)to + KERN_Q4_K_SCALES + c;

            for (int i = 0; i < 16 && s % 2 == 0; i++)
                stage[c][i] = (uint8_t)((q[i] & 15) | q[16 + i] << 4);
            for (int i = 0; i < 16 && s % 2 == 1; i++)
                stage[c][i] = (uint8_t)(q[i] >> 4 | (q[16 + i] & 0xf0));
            kern_quant_scale_min(block[c] + 4, s, scale, scale + KERN_PANEL);
        }
        kern_transpose_panel(to, column, 0);
    }
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *dmin = kern_quant_f16_above((lo < 0 ? -lo : 0) / 63);
    *d = kern_quant_f16_above((hi + 63 * *dmin) / (63 * 15));
}

/* The smallest of 0 ... 63 whose product with `unit` is not below x. */
static int above(float x, float unit)
{
    float n = unit > 0 ? ceilf(x / unit) : 0;

    return n < 0 ? 0 : n > 63 ? 63 : (int)n;
}

static void put_sub(uint8_t *block, int s, const float *w, int scale, int min)
{
    const float step = kern_quant_f16(block) * (float)scale;
    const float low = kern_quant_f16(block + 2) * (float)min;
    uint8_t *q = block + 16 + s / 2 * 32;

    kern_quant_put_scale_min(block + 4, s, scale, min);
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)(kern_quant_nearest(w[i] + low, step, 0, 15) << s % 2 * 4);
}

/* With scales and mins rounded up: each weight is within half a step of its sub-block. */
static void cover(uint8_t *block, const float *w, float d, float dmin)
{
    memset(block, 0, 144);
    kern_quant_put_f16(block, d);
    kern_quant_put_f16(block + 2, dmin);
    for (int s = 0; s < 8; s++, w += 32) {
        float lo = w[0], hi = w[0];
        int min;

        for (int i = 1; i < 32; i++) {
            lo = w[i] < lo ? w[i] : lo;
            hi = w[i] > hi ? w[i] : hi;
        }
        min = above(-lo, dmin);
        put_sub(block, s, w, above(hi + dmin * (float)min, 15 * d), min);
    }
}

/* ---- the least sum of squared errors ---- */

/* w is near step * q - low. */
struct fit {
    double step, low; /* >= 0 */
};

/* The least squares for given integers. n = 32. */
struct sums {
    double w, ww, q, qq, wq;
};

static double squares(const struct sums *s, struct fit f)
{
    return s->ww + f.step * (f.step * s->qq - 2 * s->wq - 2 * f.low * s->q) +
           f.low * (32 * f.low + 2 * s->w);
}

static struct fit least_squares(const struct sums *s)
{
    const double det = 32 * s->qq - s->q * s->q;
    struct fit f = {0, 0};

    if (det > 0) {
        f.step = (32 * s->wq - s->q * s->w) / det;
        f.low = (f.step * s->q - s->w) / 32;
    }
    if (f.low < 0 || det <= 0)
        f = (struct fit){s->qq > 0 ? s->wq / s->qq : 0, 0};
    if (f.step < 0)
        f.step = 0;
    return f;
}

/* The nearest of 0 ... 15; floats near `whole` are whole numbers, so that adding it rounds. */
static inline float nearest(float x)
{
    const float whole = 0x1.8p23f;

    x = x < 0 ? 0 : x > 15 ? 15 : x;
    return x + whole - whole;
}

static void integers(struct sums *s, const float *w, float lo, float per_step)
{
    float q[32];

    for (int i = 0; i < 32; i++)
        q[i] = nearest((w[i] - lo) * per_step);
    s->q = s->qq = s->wq = 0;
    for (int i = 0; i < 32; i++) {
        s->q += (double)q[i];
        s->qq += (double)(q[i] * q[i]);
        s->wq += (double)w[i] * (double)q[i];
    }
}

/* Integers for steps a little shorter and longer than the range asks for, and for each the best
 * step and low: a clipped weight costs less than coarser steps for all. More steps than these
 * change the error by less than a thousandth. */
static struct fit fit_sub(const float *w)
{
    struct sums s = {0};
    struct fit best = {0, 0};
    float lo = 0, hi = w[0];
    double least;

    for (int i = 0; i < 32; i++) {
        lo = w[i] < lo ? w[i] : lo;
        hi = w[i] > hi ? w[i] : hi;
        s.w += (double)w[i];
        s.ww += (double)w[i] * (double)w[i];
    }
    least = s.ww;
    for (int k = 0; k <= 16 && hi > lo; k++) {
        struct fit f;
        double error;

        integers(&s, w, lo, (13.8f + 0.2f * (float)k) / (hi - lo));
        f = least_squares(&s);
        error = squares(&s, f);
        if (error < least) {
            least = error;
            best = f;
        }
    }
    return best;
}

/* The squared error of w[32] with these scales; INFINITY: a weight errs by more than `most`. */
static double error_of(const float *w, float step, float low, float most)
{
    const float per_step = step > 0 ? 1 / step : 0;
    double sum = 0;
    float e[32];

    for (int i = 0; i < 32; i++)
        e[i] = fabsf(step * nearest((w[i] + low) * per_step) - low - w[i]);
    for (int i = 0; i < 32; i++) {
        if (!(e[i] <= most))
            return INFINITY;
        sum += (double)e[i] * (double)e[i];
    }
    return sum;
}

static int in_6_bits(double x)
{
    return x < 0 ? 0 : x > 63 ? 63 : (int)(x + 0.5);
}

/* The best pair of the integers next to the fit. */
static double round_fit(const float *w, struct fit f, float d, float dmin, float most,
                        int *scale, int *min)
{
    const int s0 = d > 0 ? in_6_bits(f.step / (double)d) : 0;
    const int m0 = dmin > 0 ? in_6_bits(f.low / (double)dmin) : 0;
    double least = INFINITY;

    *scale = s0;
    *min = m0;
    for (int ds = -1; ds <= 1; ds++)
        for (int dm = -1; dm <= 1; dm++) {
            const int s = s0 + ds, m = m0 + dm;
            double error;

            if (s < 0 || s > 63 || m < 0 || m > 63)
                continue;
            error = error_of(w, d * (float)s, dmin * (float)m, most);
            if (error < least) {
                least = error;
                *scale = s;
                *min = m;
            }
        }
    return least;
}

static double search(uint8_t *block, const float *w, float most)
{
    struct fit f[8], largest = {0, 0};
    double error = 0;
    float d, dmin;

    for (int s = 0; s < 8; s++) {
        f[s] = fit_sub(w + 32 * s);
        largest.step = f[s].step > largest.step ? f[s].step : largest.step;
        largest.low = f[s].low > largest.low ? f[s].low : largest.low;
    }
    memset(block, 0, 144);
    kern_quant_put_f16(block, (float)(largest.step / 63));
    kern_quant_put_f16(block + 2, (float)(largest.low / 63));
    d = kern_quant_f16(block);
    dmin = kern_quant_f16(block + 2);
    if (!isfinite(d) || !isfinite(dmin))
        return INFINITY;
    for (int s = 0; s < 8; s++) {
        int scale, min;

        error += round_fit(w + 32 * s, f[s], d, dmin, most, &scale, &min);
        put_sub(block, s, w + 32 * s, scale, min);
    }
    return error;
}

static double error_of_block(const uint8_t *block, const float *w)
{
    struct kern_quant_block b;
    double sum = 0;

    decode(&b, block);
    for (int s = 0; s < 8; s++)
        sum += error_of(w + 32 * s, b.d * (float)b.scale[s], b.dmin * (float)b.min[s],
                        INFINITY);
    return sum;
}

/* d and dmin cover all weights; where smaller scales make a smaller sum of squared errors, and
 * no weight then errs by more than the largest scale allows, the block has its own. */
static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    uint8_t searched[144];

    cover(block, w, d, dmin);
    if (search(searched, w, d * 63 / 2) < error_of_block(block, w))
        memcpy(block, searched, sizeof(searched));
}

const struct kern_quant kern_quant_q4_k = {.type = KERN_Q4_K,
                                           .gguf_type = 12,
                                           .gguf_file_type = 14,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 15,
                                           .decode = decode,
                                           .put = put,
                                           .scale = scale,
                                           .encode = encode};
