/* rmsnorm, rope, silu_mul, add, argmax and the conversions: every variant against float64
 * or, where the answer is exact, bit for bit against the reference. */
#include "tests/kernels/check.h"

#include <float.h>

static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17,   31,  32,
                                33, 47, 48, 63, 64, 65, 127, 128, 129, 288, 1000, 2048};
#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))
#define N_MAX   2048

static float in1[N_MAX], in2[N_MAX];

static float *copy_in(int slot, const float *x, int64_t n)
{
    float *p = guard_get(slot, (size_t)n * 4);

    memcpy(p, x, (size_t)n * 4);
    return p;
}

static void same_bits(const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        CHECK(float_bits(got[i]) == float_bits(want[i]) ||
                  (isnan(got[i]) && isnan(want[i])),
              "[%d]: got %a, wanted %a", (int)i, got[i], want[i]);
}

/* ---- add ---- */

static void test_add(const struct kern_variant *v, struct rng *r)
{
    static float want[N_MAX];

    for (int s = 0; s < N_SIZES; s++) {
        for (int f = 0; f < FILL_N; f++) {
            int64_t n = sizes[s];
            float *x, *y;

            AT("n=%d %s", (int)n, fill_names[f]);
            fill_f32(r, (enum fill)f, in1, n);
            fill_f32(r, (enum fill)f, in2, n);
            in1[n / 2] = f == FILL_HUGE ? INFINITY : in1[n / 2];
            x = copy_in(0, in1, n);
            y = copy_in(1, in2, n);
            for (int64_t i = 0; i < n; i++)
                want[i] = in2[i] + in1[i];
            v->fn.add(y, x, n);
            same_bits(y, want, n);
            same_bits(x, in1, n);
            guard_check(1, (size_t)n * 4);
        }
    }
}

/* ---- rmsnorm ---- */

static void rmsnorm_once(const struct kern_variant *v, int64_t n, float eps,
                         bool in_place)
{
    float *x = copy_in(0, in1, n), *w = copy_in(1, in2, n);
    float *out = in_place ? x : guard_get(2, (size_t)n * 4);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)in1[i] * in1[i];
    v->fn.rmsnorm(out, x, w, n, eps);
    for (int64_t i = 0; i < n; i++) {
        double want = in1[i] / sqrt(sum / (double)n + eps) * in2[i];
        /* the mean carries n roundings, of which the square root halves the effect */
        double bound = fabs(want) * EPS * (8 + (double)n / 2) + 1e-44;

        CHECK(near_to(out[i], want, bound),
              "[%d]: got %.9g, wanted %.9g, off by %.3g > %.3g", (int)i, out[i], want,
              fabs(out[i] - want), bound);
    }
    guard_check(in_place ? 0 : 2, (size_t)n * 4);
}

static void test_rmsnorm(const struct kern_variant *v, struct rng *r)
{
    /* squares stay finite: that is the contract of an f32 sum */
    static const enum fill fills[] = {FILL_NORMAL, FILL_HUGE,   FILL_ZERO,
                                      FILL_CANCEL, FILL_DENORM, FILL_MIXED};

    for (int s = 0; s < N_SIZES; s++) {
        for (int f = 0; f < (int)(sizeof(fills) / sizeof(fills[0])); f++) {
            AT("n=%d %s", (int)sizes[s], fill_names[fills[f]]);
            fill_f32(r, fills[f], in1, sizes[s]);
            fill_f32(r, FILL_NORMAL, in2, sizes[s]);
            rmsnorm_once(v, sizes[s], 1e-5f, false);
            rmsnorm_once(v, sizes[s], 1e-6f, true);
        }
    }
}

/* ---- layernorm ---- */

static void layernorm_once(const struct kern_variant *v, int64_t n, float eps,
                           bool in_place, bool biased)
{
    float *x = copy_in(0, in1, n), *w = copy_in(1, in2, n), *b = copy_in(3, in2, n);
    float *out = in_place ? x : guard_get(2, (size_t)n * 4);
    double mean = 0, square = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        mean += (double)in1[i] / (double)n;
        size = fmax(size, fabs((double)in1[i]));
    }
    for (int64_t i = 0; i < n; i++)
        square += ((double)in1[i] - mean) * ((double)in1[i] - mean) / (double)n;
    v->fn.layernorm(out, x, w, biased ? b : NULL, n, eps);
    for (int64_t i = 0; i < n; i++) {
        double unit = 1 / sqrt(square + (double)eps);
        double want = ((double)in1[i] - mean) * unit * in2[i] + (biased ? in2[i] : 0);
        /* the mean is off by roundings of sums of `size`, and so is what it is taken from */
        double bound = EPS * (8 + (double)n) *
                           (fabs(want) + fabs((double)in2[i]) * (1 + size * unit)) +
                       1e-44;

        CHECK(near_to(out[i], want, bound),
              "[%d]: got %.9g, wanted %.9g, off by %.3g > %.3g", (int)i, out[i], want,
              fabs(out[i] - want), bound);
    }
    guard_check(in_place ? 0 : 2, (size_t)n * 4);
}

static void test_layernorm(const struct kern_variant *v, struct rng *r)
{
    static const enum fill fills[] = {FILL_NORMAL, FILL_ZERO, FILL_CANCEL, FILL_MIXED};

    for (int s = 0; s < N_SIZES; s++) {
        for (int f = 0; f < (int)(sizeof(fills) / sizeof(fills[0])); f++) {
            AT("n=%d %s", (int)sizes[s], fill_names[fills[f]]);
            fill_f32(r, fills[f], in1, sizes[s]);
            fill_f32(r, FILL_NORMAL, in2, sizes[s]);
            layernorm_once(v, sizes[s], 1e-5f, false, true);
            layernorm_once(v, sizes[s], 1e-6f, true, false);
        }
    }
}

/* ---- rope ---- */

static void rope_once(const struct kern_variant *v, struct rng *r, int heads, int hd,
                      enum fill fill)
{
    const int half = hd / 2, n = heads * hd;
    float *x, *c = guard_get(1, (size_t)half * 4), *s = guard_get(2, (size_t)half * 4);

    fill_f32(r, fill, in1, n);
    for (int i = 0; i < half; i++) {
        double angle = 6.283 * rng_f64(r);

        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
    x = copy_in(0, in1, n);
    v->fn.rope(x, c, s, heads, hd);
    for (int i = 0; i < n; i++) {
        int pair = i % hd % half;
        int lo = i / hd * hd + pair, hi = lo + half;
        bool first = i == lo;
        double p = (double)in1[first ? lo : hi] * c[pair];
        double q = (double)in1[first ? hi : lo] * s[pair] * (first ? -1 : 1);
        double bound = 3 * EPS * (fabs(p) + fabs(q)) + 3e-45;

        CHECK(near_to(x[i], p + q, bound), "head %d [%d]: got %.9g, wanted %.9g", i / hd,
              i % hd, x[i], p + q);
    }
    guard_check(0, (size_t)n * 4);
}

static void test_rope(const struct kern_variant *v, struct rng *r)
{
    static const int dims[] = {2,  4,  6,  8,  10, 16, 18,  30,
                               32, 34, 48, 64, 80, 96, 128, 256};

    for (int d = 0; d < (int)(sizeof(dims) / sizeof(dims[0])); d++) {
        for (int heads = 1; heads <= 8; heads++) {
            for (int f = 0; f < FILL_N; f++) {
                AT("head_dim=%d n_heads=%d %s", dims[d], heads, fill_names[f]);
                rope_once(v, r, heads, dims[d], (enum fill)f);
            }
        }
    }
}

/* ---- silu_mul ---- */

/* Each element against float64: a few units in the last place. Where exp(-gate) passes
 * the largest float the true value is below 3e-37 of `up`. */
static void gate_check(const struct kern_variant *v, const float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool gelu = v->op == KERN_GELU_MUL;
        double g = in1[i], y = gelu ? 2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g) : g;
        double want = g / (1 + exp(-y)) * in2[i];
        /* a rounding of y is one of exp(y), times y */
        double bound = (8 + (gelu ? 4 * fmin(fabs(y), 110) : 0)) * EPS * fabs(want) +
                       3e-37 * fabs(in2[i]) + 3e-45;

        if (g == -INFINITY)
            want = NAN; /* -inf / inf, as the formula says */
        CHECK(near_to(out[i], want, bound), "[%d]: act(%a) * %a: got %.9g, wanted %.9g",
              (int)i, in1[i], in2[i], out[i], want);
    }
}

/* (u + 1) g sigmoid(1.702 g), clamped. */
static void clamped_check(const float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double g = in1[i] > 7 ? 7 : in1[i];
        double u = in2[i] > 7 ? 7 : in2[i] < -7 ? -7 : in2[i];
        double want = (u + 1) * g / (1 + exp(-1.702 * g));
        double bound = (12 + 8 * fmin(fabs(g), 110)) * EPS * fabs(want) + 3e-36;

        if (g == -INFINITY)
            want = NAN;
        CHECK(near_to(out[i], want, bound), "[%d]: act(%a, %a): got %.9g, wanted %.9g",
              (int)i, in1[i], in2[i], out[i], want);
    }
}

static void silu_once(const struct kern_variant *v, int64_t n)
{
    size_t bytes = (size_t)n * 4;
    float *gate = copy_in(0, in1, n), *up = copy_in(1, in2, n);
    float *out = guard_get(2, bytes);

    v->fn.gate(out, gate, up, n);
    if (v->op == KERN_SWIGLU_OAI)
        clamped_check(out, n);
    else
        gate_check(v, out, n);
    guard_check(2, bytes);
    v->fn.gate(gate, gate, up, n);
    same_bits(gate, out, n);
    guard_check(0, bytes);
    gate = copy_in(0, in1, n);
    v->fn.gate(up, gate, up, n);
    same_bits(up, out, n);
    guard_check(1, bytes);
}

static void test_silu_mul(const struct kern_variant *v, struct rng *r)
{
    static const float special[] = {
        0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,   88.0f,  88.8f,  -88.0f,
        -88.7f,  -88.8f,   -104.0f,  1e-40f,    1e30f, -1e30f, 127.0f, -127.5f,
        0.3465f, -0.3466f, 1e-20f,   -1e-20f,   17.0f, -17.3f, 89.9f,  -90.1f};
    const int n_special = (int)(sizeof(special) / sizeof(special[0]));

    for (int s = 0; s < N_SIZES; s++) {
        AT("n=%d", (int)sizes[s]);
        fill_f32(r, FILL_NORMAL, in2, sizes[s]);
        for (int64_t i = 0; i < sizes[s]; i++)
            in1[i] = (float)(240 * rng_f64(r) - 120);
        silu_once(v, sizes[s]);
        fill_f32(r, FILL_NORMAL, in1, sizes[s]);
        silu_once(v, sizes[s]);
    }
    AT("special values");
    for (int i = 0; i < n_special; i++) {
        in1[i] = special[i];
        in2[i] = 1.5f;
    }
    silu_once(v, n_special);
}

/* ---- conversions ---- */

/* Every upper half of a float with lower halves around the rounding points of bf16, or of f16
 * where the upper half decides them, and next to both. */
static void test_to_16(const struct kern_variant *v, struct rng *r)
{
    static const uint32_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001,
                                   0x7fff, 0x8000, 0x8001, 0xffff};
    const bool bf16 = v->op == KERN_TO_BF16;
    const struct kern_variant *ref = check_ref(v->op);
    kern_to_16_fn fn = bf16 ? v->fn.to_bf16 : v->fn.to_f16;
    kern_to_16_fn fn_ref = bf16 ? ref->fn.to_bf16 : ref->fn.to_f16;
    static uint16_t want[N_MAX];

    for (uint32_t h = 0; h < 0x10000; h += N_MAX) {
        for (int j = 0; j < 9; j++) {
            int64_t n = N_MAX - rng_range(r, 0, 40);
            float *x = guard_get(0, (size_t)n * 4);
            uint16_t *out = guard_get(1, (size_t)n * 2);

            AT("floats from 0x%04x%04x, n=%d", h, low[j], (int)n);
            for (int64_t i = 0; i < n; i++)
                x[i] = float_from((h + (uint32_t)i) << 16 | low[j]);
            fn_ref(want, x, n);
            fn(out, x, n);
            for (int64_t i = 0; i < n; i++)
                CHECK(out[i] == want[i], "%a: got 0x%04x, wanted 0x%04x", x[i], out[i],
                      want[i]);
            guard_check(1, (size_t)n * 2);
        }
    }
}

/* Both widenings: all 65536 inputs. */
static void test_from_16(const struct kern_variant *v, struct rng *r)
{
    static float want[N_MAX];
    const bool bf16 = v->op == KERN_FROM_BF16;
    kern_from_16_fn fn = bf16 ? v->fn.from_bf16 : v->fn.from_f16;
    const struct kern_variant *ref = check_ref(v->op);

    for (uint32_t h = 0; h < 0x10000; h += N_MAX) {
        int64_t n = N_MAX;
        uint16_t *x = guard_get(0, (size_t)n * 2);
        float *out = guard_get(1, (size_t)n * 4);

        AT("halves from 0x%04x", h);
        for (int64_t i = 0; i < n; i++)
            x[i] = (uint16_t)(h + (uint32_t)i);
        (bf16 ? ref->fn.from_bf16 : ref->fn.from_f16)(want, x, n);
        fn(out, x, n);
        same_bits(out, want, n);
        guard_check(1, (size_t)n * 4);
    }
    for (int s = 0; s < N_SIZES; s++) {
        int64_t n = sizes[s];
        uint16_t *x = guard_get(0, (size_t)n * 2);
        float *out = guard_get(1, (size_t)n * 4);

        AT("n=%d", (int)n);
        for (int64_t i = 0; i < n; i++)
            x[i] = (uint16_t)rng_u64(r);
        (bf16 ? ref->fn.from_bf16 : ref->fn.from_f16)(want, x, n);
        fn(out, x, n);
        same_bits(out, want, n);
        guard_check(1, (size_t)n * 4);
    }
}

/* ---- argmax ---- */

static void argmax_is(const struct kern_variant *v, const float *x, int64_t n)
{
    int64_t want = check_ref(KERN_ARGMAX)->fn.argmax(x, n), got = v->fn.argmax(x, n);

    CHECK(got == want, "got %d, wanted %d", (int)got, (int)want);
}

/* By hand, for the reference too. */
static void argmax_known(const struct kern_variant *v)
{
    static const float x[] = {NAN, 1, 7, -3, 7, -INFINITY, 2};

    AT("known");
    CHECK(v->fn.argmax(x + 1, 4) == 1, "got %d", (int)v->fn.argmax(x + 1, 4));
    CHECK(v->fn.argmax(x + 3, 2) == 1, "got %d", (int)v->fn.argmax(x + 3, 2));
    CHECK(v->fn.argmax(x, 4) == -1, "NaN first: got %d", (int)v->fn.argmax(x, 4));
    CHECK(v->fn.argmax(x, 1) == -1, "NaN alone: got %d", (int)v->fn.argmax(x, 1));
    CHECK(v->fn.argmax(x + 3, 4) == -1, "-infinity: got %d", (int)v->fn.argmax(x + 3, 4));
}

/* One number that is not finite, at each place and of each kind. */
static void argmax_refuses(const struct kern_variant *v, float *x, int64_t n)
{
    static const uint32_t kinds[] = {0x7f800000, 0xff800000, 0x7fc00000,
                                     0xffc00000, 0x7f800001, 0xffffffff};

    for (int64_t i = 0; i < n; i++) {
        float before = x[i];

        for (int k = 0; k < 6; k++) {
            memcpy(&x[i], &kinds[k], sizeof(x[i]));
            CHECK(v->fn.argmax(x, n) == -1, "[%d] is %#x: got %d", (int)i, kinds[k],
                  (int)v->fn.argmax(x, n));
        }
        x[i] = before;
    }
}

static void test_argmax(const struct kern_variant *v, struct rng *r)
{
    argmax_known(v);
    for (int s = 0; s < N_SIZES; s++) {
        int64_t n = sizes[s];
        float *x = guard_get(0, (size_t)n * 4);

        for (int f = 0; f < FILL_N; f++) {
            AT("n=%d %s", (int)n, fill_names[f]);
            fill_f32(r, (enum fill)f, x, n);
            argmax_is(v, x, n);
            for (int k = 0; k < 8; k++) { /* ties, and places near both ends */
                AT("n=%d %s with ties (%d)", (int)n, fill_names[f], k);
                x[rng_range(r, 0, n - 1)] = 3e20f;
                x[rng_range(r, 0, n - 1)] = 3e20f;
                argmax_is(v, x, n);
            }
        }
        AT("n=%d, the largest and the smallest numbers", (int)n);
        for (int64_t i = 0; i < n; i++)
            x[i] = i % 2 ? FLT_MAX : -FLT_MAX;
        argmax_is(v, x, n);
        argmax_refuses(v, x, n);
        for (int64_t i = 0; i < n; i++)
            x[i] = i % 2 ? 0.0f : -0.0f;
        argmax_is(v, x, n);
    }
}

int main(void)
{
    check_init();
    check_variants(KERN_ADD, test_add);
    check_variants(KERN_RMSNORM, test_rmsnorm);
    check_variants(KERN_LAYERNORM, test_layernorm);
    check_variants(KERN_ROPE, test_rope);
    check_variants(KERN_SILU_MUL, test_silu_mul);
    check_variants(KERN_GELU_MUL, test_silu_mul);
    check_variants(KERN_SWIGLU_OAI, test_silu_mul);
    check_variants(KERN_TO_BF16, test_to_16);
    check_variants(KERN_TO_F16, test_to_16);
    check_variants(KERN_FROM_BF16, test_from_16);
    check_variants(KERN_FROM_F16, test_from_16);
    check_variants(KERN_ARGMAX, test_argmax);
    return check_done();
}
