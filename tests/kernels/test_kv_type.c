/* How keys and values are written: each type's bytes, the error that q8 states, alone and in
 * what attention makes of it, on data that is kind, has outliers, cancels, has one sign or sizes
 * of its own; extreme numbers; the same bytes by every variant. The figures are printed. */
#include "kernels/kv_type.h"
#include "tests/kernels/check.h"

enum data { NORMAL, OUTLIERS, CANCELLING, ONE_SIGN, UNEVEN, N_DATA };
static const char *const data_names[N_DATA] = {"normal", "outliers", "cancelling",
                                               "one sign", "uneven"};
enum slot { SLOT_VEC, SLOT_K, SLOT_V, SLOT_OUT, SLOT_SCRATCH };

#define HD   64
#define KEYS 150

/* Vectors of one token each. */
static void fill(struct rng *r, enum data d, float *x, int n_tok, int hd)
{
    for (int i = 0; i < n_tok * hd; i++) {
        double v = rng_normal(r);

        if (d == OUTLIERS && i % hd == 7 % hd)
            v *= 50;
        if (d == CANCELLING && i % 2 == 1)
            v = -x[i - 1] * (1 + 1e-3 * v);
        if (d == ONE_SIGN)
            v = fabs(v);
        if (d == UNEVEN)
            v *= ldexp(1, i / hd % 8 - 4);
        x[i] = (float)v;
    }
}

static struct kern_table table_of(uint64_t isa)
{
    struct kern_table t;

    kern_table_choose(&t, isa, KERN_EXACT);
    return t;
}

/* A q8 vector of x, checked against what it is declared to be; returns it. */
static const int8_t *check_q8(const float *x, int hd)
{
    const struct kern_table ref = table_of(0), best = table_of(cpu_isa_usable());
    const size_t bytes = kern_kv_bytes(KERN_KV_Q8, hd);
    int8_t *v = guard_get(SLOT_VEC, bytes), same[KERN_HEAD_DIM_MAX + 8];
    float largest = 0, scale;

    CHECK(bytes == (size_t)(hd + 3) / 4 * 4 + 4, "%zu bytes", bytes);
    kern_kv_store(&ref, KERN_KV_Q8, v, x, hd);
    guard_check(SLOT_VEC, bytes);
    kern_kv_store(&best, KERN_KV_Q8, same, x, hd);
    CHECK(memcmp(v, same, bytes) == 0, "another variant writes other bytes");
    scale = kern_q8_scale(v, hd);
    for (int d = 0; d < hd; d++)
        largest = fmaxf(largest, fabsf(x[d]));
    CHECK(scale == (largest == 0 ? 0 : fmaxf(largest / 127, 0x1p-100f)),
          "scale %g, largest magnitude %g", scale, largest);
    for (int d = 0; d < hd; d++)
        CHECK(v[d] >= -127 && fabs((double)v[d] * scale - x[d]) <= KERN_Q8_ERROR * scale,
              "[%d]: %d x %g for %g", d, v[d], scale, x[d]);
    for (size_t d = (size_t)hd; d < bytes - 4; d++)
        CHECK(v[d] == 0, "[%zu]: %d behind the last element", d, v[d]);
    return v;
}

static void test_q8(const struct kern_variant *none, struct rng *r)
{
    float x[KERN_HEAD_DIM_MAX], y[KERN_HEAD_DIM_MAX];

    (void)none;
    for (int hd = 2; hd <= KERN_HEAD_DIM_MAX; hd += 2) {
        for (int f = 0; f < FILL_N; f++) {
            AT("head_dim=%d %s", hd, fill_names[f]);
            fill_f32(r, (enum fill)f, x, hd);
            check_q8(x, hd);
        }
        for (int d = 0; d < N_DATA; d++) {
            int8_t v[KERN_HEAD_DIM_MAX];
            const int8_t *w;

            AT("head_dim=%d %s", hd, data_names[d]);
            fill(r, (enum data)d, x, 1, hd);
            memcpy(v, check_q8(x, hd), (size_t)hd);
            for (int i = 0; i < hd; i++) /* a power of two goes to the scale, exactly */
                y[i] = x[i] * 0x1p-20f;
            w = check_q8(y, hd);
            CHECK(memcmp(v, w, (size_t)hd) == 0, "other elements at another size");
        }
    }
}

/* Halves go to the even of two; the ends are reached; the largest float has a scale. */
static void test_rounding(const struct kern_variant *none, struct rng *r)
{
    float x[KERN_HEAD_DIM_MAX] = {127, -127, 0.5f, 1.5f, -0.5f, -2.5f, 126.5f, -0.0f};
    static const int8_t want[] = {127, -127, 0, 2, 0, -2, 126, 0};
    const int8_t *v;

    (void)none, (void)r;
    AT("halves");
    v = check_q8(x, 40);
    CHECK(memcmp(v, want, sizeof(want)) == 0, "%d %d %d %d", v[2], v[3], v[5], v[6]);
    AT("largest float");
    x[0] = 0x1.fffffep127f;
    CHECK(check_q8(x, 40)[0] == 127, "not the largest element");
    AT("denormal");
    memset(x, 0, sizeof(x));
    x[3] = 0x1p-149f;
    check_q8(x, 40);
}

/* One element that is not finite makes all that the vector stands for NaN. */
static void test_not_finite(const struct kern_variant *none, struct rng *r)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct kern_table ref = table_of(0);
    float x[KERN_HEAD_DIM_MAX];
    int8_t v[KERN_HEAD_DIM_MAX + 8];

    (void)none;
    for (int i = 0; i < 3 * 40; i++) {
        AT("%g at %d", bad[i % 3], i / 3);
        fill_f32(r, FILL_NORMAL, x, 40);
        x[i / 3] = bad[i % 3];
        kern_kv_store(&ref, KERN_KV_Q8, v, x, 40);
        CHECK(isnan(kern_q8_scale(v, 40)), "scale %g", kern_q8_scale(v, 40));
    }
}

/* Vectors of 16 bits are as the conversion makes them. */
static void check_halves(struct rng *r, enum kern_kv_type t, uint16_t (*of)(float),
                         int hd)
{
    const struct kern_table best = table_of(cpu_isa_usable());
    const size_t bytes = 2 * (size_t)hd;
    uint16_t *h = guard_get(SLOT_VEC, bytes);
    float x[KERN_HEAD_DIM_MAX];

    CHECK(kern_kv_bytes(t, hd) == bytes, "bytes of %s", kern_kv_type_name(t));
    fill_f32(r, FILL_MIXED, x, hd);
    kern_kv_store(&best, t, h, x, hd);
    for (int d = 0; d < hd; d++)
        CHECK(h[d] == of(x[d]), "%s [%d]: %x for %g", kern_kv_type_name(t), d, h[d],
              x[d]);
    guard_check(SLOT_VEC, bytes);
}

/* f32 keeps the bits, f16 and bf16 are the conversions. */
static void test_plain(const struct kern_variant *none, struct rng *r)
{
    const struct kern_table best = table_of(cpu_isa_usable());
    float x[KERN_HEAD_DIM_MAX];

    (void)none;
    for (int hd = 2; hd <= KERN_HEAD_DIM_MAX; hd += 2) {
        const size_t n = (size_t)hd;
        float *f;

        AT("head_dim=%d", hd);
        CHECK(kern_kv_bytes(KERN_KV_F32, hd) == 4 * n, "bytes of f32");
        fill_f32(r, FILL_MIXED, x, hd);
        f = guard_get(SLOT_VEC, 4 * n);
        kern_kv_store(&best, KERN_KV_F32, f, x, hd);
        CHECK(memcmp(f, x, 4 * n) == 0, "f32 is not as it was");
        guard_check(SLOT_VEC, 4 * n);
        check_halves(r, KERN_KV_F16, kern_f16_of, hd);
        check_halves(r, KERN_KV_BF16, kern_bf16_of, hd);
    }
}

/* ---- attention over what was rounded, against keys and values that were not ---- */

static float keys[KEYS * HD], values[KEYS * HD], q[HD];

/* One row in float64 over the keys and values as they were, and the most that rounding them
 * may change: a score by e, so a weight by a factor exp(2e), and each value by its own error. */
static void expect(double *want, double *bound, const float *k_scale,
                   const float *v_scale)
{
    double score[KEYS], max = -INFINITY, sum = 0, e = 0;

    for (int t = 0; t < KEYS; t++) {
        double mass = 0, off = 0;

        score[t] = 0;
        for (int d = 0; d < HD; d++) {
            score[t] += (double)q[d] * keys[t * HD + d] / 8;
            off += fabs(q[d]) / 8 * KERN_Q8_ERROR * k_scale[t];
            mass += fabs(q[d] / 8 * keys[t * HD + d]);
        }
        e = fmax(e, off + (HD + 8) * EPS * mass);
        max = fmax(max, score[t]);
    }
    for (int t = 0; t < KEYS; t++)
        sum += score[t] = exp(score[t] - max);
    for (int d = 0; d < HD; d++) {
        double mass = 0, off = 0;

        want[d] = 0;
        for (int t = 0; t < KEYS; t++) {
            double w = score[t] / sum;

            want[d] += w * values[t * HD + d];
            mass += w * fabs(values[t * HD + d]);
            off += w * KERN_Q8_ERROR * v_scale[t];
        }
        bound[d] = mass * expm1(2 * e) + off * exp(2 * e) + mass * EPS * (2 * KEYS + 32);
    }
}

/* Root mean square of got - want over that of want. */
static double relative(const float *got, const double *want)
{
    double err = 0, size = 0;

    for (int d = 0; d < HD; d++) {
        err += (got[d] - want[d]) * (got[d] - want[d]);
        size += want[d] * want[d];
    }
    return sqrt(err / size);
}

static void attend(const struct kern_variant *v, enum kern_kv_type type, float *out)
{
    const struct kern_table ref = table_of(0);
    const size_t bytes = kern_kv_bytes(type, HD);
    char *k = guard_get(SLOT_K, KEYS * bytes), *val = guard_get(SLOT_V, KEYS * bytes);
    struct kern_attn_args a = {.q = q,
                               .q_stride = HD,
                               .k = k + (KEYS - 1) * bytes,
                               .v = val,
                               .out = out,
                               .out_stride = HD,
                               .kv_hi = KEYS,
                               .pos0 = KEYS - 1,
                               .n_tok = 1,
                               .g = 1,
                               .head_dim = HD,
                               .scale = 0.125f};

    a.scratch = guard_get_aligned(SLOT_SCRATCH, KERN_ATTN_SCRATCH_BYTES(HD));
    for (int t = 0; t < KEYS; t++) {
        kern_kv_store(&ref, type, k + (size_t)(KEYS - 1 - t) * bytes, keys + t * HD, HD);
        kern_kv_store(&ref, type, val + (size_t)t * bytes, values + t * HD, HD);
    }
    v->fn.attn(&a);
}

static void test_attention(const struct kern_variant *v, struct rng *r)
{
    for (int d = 0; d < N_DATA; d++) {
        float out[HD], bf16[HD], k_scale[KEYS], v_scale[KEYS];
        double want[HD], bound[HD];

        AT("%s", data_names[d]);
        fill(r, (enum data)d, keys, KEYS, HD);
        fill(r, (enum data)d, values, KEYS, HD);
        fill(r, NORMAL, q, 1, HD);
        attend(v, KERN_KV_Q8, out);
        for (int t = 0; t < KEYS; t++) {
            const size_t at = (size_t)t * kern_kv_bytes(KERN_KV_Q8, HD);

            k_scale[t] = kern_q8_scale((int8_t *)guard_slots[SLOT_K].at + at, HD);
            v_scale[t] = kern_q8_scale((int8_t *)guard_slots[SLOT_V].at + at, HD);
        }
        expect(want, bound, k_scale, v_scale);
        for (int i = 0; i < HD; i++)
            CHECK(near_to(out[i], want[i], bound[i]),
                  "[%d]: got %.9g, wanted %.9g +- %.2g", i, out[i], want[i], bound[i]);
        attend(check_ref(KERN_ATTN_BF16), KERN_KV_BF16, bf16);
        if (!v->isa)
            printf("# attention in q8, %s: relative error %.2g, in bf16 %.2g\n",
                   data_names[d], relative(out, want), relative(bf16, want));
    }
}

int main(void)
{
    check_init();
    check_case("q8", test_q8, NULL);
    check_case("q8 rounding", test_rounding, NULL);
    check_case("q8 of infinite numbers and NaN", test_not_finite, NULL);
    check_case("f32, f16 and bf16", test_plain, NULL);
    check_variants(KERN_ATTN_Q8, test_attention);
    return check_done();
}
