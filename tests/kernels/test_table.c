/* The table of variants, names, and the scalar conversions against float64. */
#include "tests/kernels/check.h"

static void test_rows(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    (void)r;
    for (const struct kern_variant *const *p = kern_variants; *p; p++) {
        AT("%s %s", kern_op_name((*p)->op), (*p)->name);
        CHECK((*p)->fn.add != NULL, "no function");
        CHECK(((*p)->isa == 0) == (strncmp((*p)->name, "ref", 3) == 0),
              "isa does not fit");
        for (const struct kern_variant *const *q = kern_variants; q < p; q++)
            CHECK((*q)->op != (*p)->op || strcmp((*q)->name, (*p)->name) != 0,
                  "two variants of this name");
        if (kern_op_is_gemm((*p)->op))
            CHECK(kern_gemm_rows(*p, 1) > 0, "a GEMM without tile sizes");
    }
}

static int rank_of(const struct kern_variant *v)
{
    return v->isa ? 64 - __builtin_clzll(v->isa) : 0;
}

/* At every mask: allowed, precise enough, and no other allowed variant ranks higher. */
static void test_choice(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    for (int n = 0; n < 200; n++) {
        uint64_t mask = n == 0 ? 0 : n == 1 ? ~UINT64_C(0) : rng_u64(r);
        enum kern_precision prec = (enum kern_precision)(n % 3);
        struct kern_table t;

        AT("mask=%llx precision=%d", (unsigned long long)mask, prec);
        kern_table_choose(&t, mask, prec);
        for (int op = 0; op < KERN_N_OPS; op++) {
            CHECK(t.v[op] && t.v[op]->op == (enum kern_op)op, "%s: none or wrong",
                  kern_op_name((enum kern_op)op));
            CHECK((t.v[op]->isa & ~mask) == 0, "%s=%s is not allowed",
                  kern_op_name((enum kern_op)op), t.v[op]->name);
            CHECK(t.v[op]->precision <= prec, "%s=%s is not precise enough",
                  kern_op_name((enum kern_op)op), t.v[op]->name);
        }
        for (const struct kern_variant *const *p = kern_variants; *p; p++) {
            bool a8 = kern_a_is_i8((*p)->a_format);

            if (((*p)->isa & ~mask) != 0 || (*p)->precision > prec)
                continue;
            CHECK(a8 != kern_a_is_i8(t.v[(*p)->op]->a_format) ||
                      rank_of(*p) <= rank_of(t.v[(*p)->op]),
                  "%s: %s was passed over", kern_op_name((*p)->op), (*p)->name);
            CHECK(!a8 || !(*p)->isa || kern_a_is_i8(t.v[(*p)->op]->a_format),
                  "%s: %s was passed over for a slower one", kern_op_name((*p)->op),
                  (*p)->name);
        }
    }
}

static void test_print(const struct kern_variant *v, struct rng *r)
{
    struct kern_table t;
    char line[1024];

    (void)v;
    (void)r;
    kern_table_choose(&t, 0, KERN_EXACT);
    kern_table_print(&t, line, sizeof(line));
    CHECK(strncmp(line, "gemm_f32=ref gemm_f16=ref gemm_bf16=ref gemm_q8_0=ref ", 53) ==
              0,
          "got \"%s\"", line);
    CHECK(strstr(line, " argmax=ref") && line[strlen(line) - 1] == 'f', "got \"%s\"",
          line);
    for (size_t n = 1; n < 40; n++) {
        char *cut = guard_get(0, n);

        kern_table_print(&t, cut, n);
        CHECK(strlen(cut) == n - 1 && strncmp(cut, line, n - 1) == 0, "cut at %d: \"%s\"",
              (int)n, cut);
        guard_check(0, n);
    }
}

static void test_types(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    (void)r;
    for (int t = 0; t < KERN_N_TYPES; t++) {
        enum kern_type back = KERN_N_TYPES;

        AT("%s", kern_type_name((enum kern_type)t));
        CHECK(kern_type_parse(kern_type_name((enum kern_type)t), &back) == OK &&
                  back == (enum kern_type)t,
              "got %d", back);
        CHECK(kern_type_quantised((enum kern_type)t) ==
                  (kern_type_block((enum kern_type)t) > 1),
              "blocks");
    }
    enum kern_type untouched = KERN_BF16;

    CHECK(kern_type_parse("f64", &untouched) == ERR_ARG && untouched == KERN_BF16, "f64");
    CHECK(strstr(err_msg(), "\"f64\""), "message: %s", err_msg());
}

/* ---- conversions ---- */

/* The value of a 16-bit float with `e_bits` of exponent, from its definition. */
static double value16(uint16_t h, int e_bits)
{
    const int m_bits = 15 - e_bits, bias = (1 << (e_bits - 1)) - 1;
    int e = h >> m_bits & ((1 << e_bits) - 1), m = h & ((1 << m_bits) - 1);
    double x = e == 0 ? ldexp(m, 1 - bias - m_bits)
                      : ldexp(m + (1 << m_bits), e - bias - m_bits);

    if (e == (1 << e_bits) - 1)
        x = m ? NAN : INFINITY;
    return h & 0x8000 ? -x : x;
}

static void widening(float (*to)(uint16_t), int e_bits)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float got = to((uint16_t)h);
        double want = value16((uint16_t)h, e_bits);

        CHECK(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want),
              "0x%04x: got %a, wanted %a", h, got, want);
    }
}

/* `got` is a nearest value to x, and the even one of two; checked against its neighbours.
 */
static void is_nearest(float x, uint16_t got, int e_bits)
{
    double here = value16(got, e_bits);
    uint16_t sign = got & 0x8000, mag = got & 0x7fff;
    const uint16_t inf = (uint16_t)(((1 << e_bits) - 1) << (15 - e_bits));

    if (isnan(x)) {
        CHECK(isnan(here), "%a became 0x%04x", x, got);
        return;
    }
    CHECK(mag <= inf && (sign != 0) == (signbit(x) != 0), "%a became 0x%04x", x, got);
    /* infinity stands for the next value the exponent would have had */
    for (int step = -1; step <= 1; step += 2) {
        int other_mag = mag + step;
        double other, d, d_other;

        if (other_mag < 0 || other_mag > inf || isinf(x))
            continue;
        other = other_mag == inf ? ldexp(1, 1 << (e_bits - 1))
                                 : fabs(value16((uint16_t)other_mag, e_bits));
        here = mag == inf ? ldexp(1, 1 << (e_bits - 1)) : fabs(here);
        d = fabs(fabs((double)x) - here);
        d_other = fabs(fabs((double)x) - other);
        if (mag == inf && fabs((double)x) > here)
            continue;
        CHECK(d < d_other || (d == d_other && mag % 2 == 0), "%a became 0x%04x", x, got);
    }
    CHECK(!isinf(x) || mag == inf, "%a became 0x%04x", x, got);
}

static void test_bf16(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    AT("bf16");
    widening(kern_bf16_to, 8);
    for (uint32_t h = 0; h < 0x10000; h++)
        if (!isnan(kern_bf16_to((uint16_t)h)))
            CHECK(kern_bf16_of(kern_bf16_to((uint16_t)h)) == h, "0x%04x does not return",
                  h);
    for (int i = 0; i < 400000; i++) {
        uint32_t u = (uint32_t)rng_u64(r);
        float x = float_from(i % 4 == 0 ? u & 0xffff8000 : u);

        is_nearest(x, kern_bf16_of(x), 8);
    }
    is_nearest(0x1.fffffep+127f, kern_bf16_of(0x1.fffffep+127f), 8);
    CHECK(isnan(kern_bf16_to(kern_bf16_of(float_from(0x7f800001)))),
          "a small NaN payload");
}

static void test_f16(const struct kern_variant *v, struct rng *r)
{
    (void)v;
    AT("f16");
    widening(kern_f16_to, 5);
    for (uint32_t h = 0; h < 0x10000; h++)
        if (!isnan(kern_f16_to((uint16_t)h)))
            CHECK(kern_f16_of(kern_f16_to((uint16_t)h)) == h, "0x%04x does not return",
                  h);
    for (int i = 0; i < 400000; i++) {
        uint32_t u = (uint32_t)rng_u64(r);
        /* exponents around the range of halves, ties, and anything */
        float near_range =
            ldexpf(float_from((u & 0x807fffff) | 0x3f800000), (int)rng_range(r, -27, 17));
        float tie = float_from(float_bits(near_range) & 0xfffff000);
        float x = i % 3 == 0 ? near_range : i % 3 == 1 ? tie : float_from(u);

        is_nearest(x, kern_f16_of(x), 5);
    }
    is_nearest(65519.99f, kern_f16_of(65519.99f), 5);
    is_nearest(65520.0f, kern_f16_of(65520.0f), 5);
    is_nearest(0x1p-25f, kern_f16_of(0x1p-25f), 5);
    is_nearest(INFINITY, kern_f16_of(INFINITY), 5);
}

int main(void)
{
    check_init();
    check_case("rows", test_rows, NULL);
    check_case("choice", test_choice, NULL);
    check_case("print", test_print, NULL);
    check_case("types", test_types, NULL);
    check_case("bf16", test_bf16, NULL);
    check_case("f16", test_f16, NULL);
    return check_done();
}
