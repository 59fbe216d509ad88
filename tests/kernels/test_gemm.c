/* GEMM micro-kernels: every variant, every tile height and width, whole and split K. */
#include "tests/kernels/gemm_check.h"

enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_CONVERTED, SLOT_FACTOR };

#define ROWS_MAX 64 /* of any micro-kernel */

/* One tile of the packed operands. C has ldc floats a row; what is beyond 16 np columns
 * is padding that must stay. */
struct shape {
    int mr, np;
    int64_t k, k_unit, ldc; /* k_unit 0: not split */
    bool accumulate;
    enum fill fill;
};

static void describe(const struct shape *s)
{
    AT("mr=%d np=%d k=%d k_unit=%d ldc=%d accumulate=%d %s", s->mr, s->np, (int)s->k,
       (int)s->k_unit, (int)s->ldc, s->accumulate, fill_names[s->fill]);
}

static size_t c_floats(const struct shape *s)
{
    return (size_t)((s->mr - 1) * s->ldc + s->np * KERN_PANEL);
}

/* Fill the tile's memory; C holds `c0`, or the guard pattern in its padding. */
static void prepare(struct kern_gemm_tile *t, const struct kern_variant *v,
                    const struct shape *s, const struct kern_mat *w, const float *c0)
{
    float *c = guard_get(SLOT_C, c_floats(s) * 4);
    void *a = guard_get(SLOT_A, kern_a_bytes(v->a_format, s->mr, w->k_pad));

    kern_a_pack(v, a, check_a, s->k, s->mr, s->k, w->k_pad);
    for (int i = 0; i < s->mr; i++)
        memcpy(c + i * s->ldc, c0 + i * s->np * KERN_PANEL,
               (size_t)s->np * KERN_PANEL * 4);
    *t = (struct kern_gemm_tile){
        .a = a,
        .b = w->data,
        .b_panel_bytes = w->panel_bytes,
        .b_unit_bytes = w->unit_bytes,
        .k = w->k_pad,
        .k_unit = w->k_unit,
        .c = c,
        .ldc = s->ldc,
        .mr = s->mr,
        .np = s->np,
        .accumulate = s->accumulate,
        .sparse = s->accumulate,
        .next = w->data,
        .next_step = 64,
    };
    check_convert(
        v, t, s->accumulate ? 1 : v->convert_blocks,
        guard_get_aligned(SLOT_CONVERTED, KERN_CONVERTED_BYTES(w->k_pad, s->np)),
        guard_get(SLOT_FACTOR, (size_t)s->np * KERN_PANEL * sizeof(float)));
}

static void compare(const struct kern_variant *v, const struct shape *s,
                    const struct kern_gemm_tile *t, const float *c0)
{
    const int n = s->np * KERN_PANEL;

    for (int i = 0; i < s->mr; i++) {
        for (int j = 0; j < n; j++) {
            double before = s->accumulate ? c0[i * n + j] : 0, bound;
            double want = check_product(v, i, j, n, s->k, &bound) + before;

            bound += EPS * ((double)(s->k + 2) * fabs(before) + 2 * fabs(want));
            CHECK(near_to(t->c[i * s->ldc + j], want, bound),
                  "C[%d][%d]: got %.9g, wanted %.9g, off by %.3g > %.3g", i, j,
                  t->c[i * s->ldc + j], want, fabs(t->c[i * s->ldc + j] - want), bound);
        }
        for (int64_t j = n; j < s->ldc && i + 1 < s->mr; j++)
            CHECK(guard_untouched(&t->c[i * s->ldc + j]), "wrote padding C[%d][%d]", i,
                  (int)j);
    }
    guard_check(SLOT_C, c_floats(s) * 4);
}

static void tile_once(const struct kern_variant *v, struct rng *r, const struct shape *s)
{
    static float c0[ROWS_MAX * KERN_NP_MAX * KERN_PANEL];
    struct kern_gemm_tile t;
    struct kern_mat w;

    describe(s);
    check_operands(&w, SLOT_B, r, s->fill, type_of_op(v->op), s->mr, s->np * KERN_PANEL,
                   s->k, s->k_unit);
    fill_f32(r, s->fill, c0, (int64_t)s->mr * s->np * KERN_PANEL);
    prepare(&t, v, s, &w, c0);
    v->fn.gemm(&t);
    compare(v, s, &t, c0);
}

static enum fill any_fill(struct rng *r)
{
    return (enum fill)rng_below(r, FILL_N);
}

/* A number of panels for which there are micro-kernels. */
static int any_np(struct rng *r, const struct kern_variant *v)
{
    for (;;) {
        int np = (int)rng_range(r, 1, KERN_NP_MAX);

        if (kern_gemm_rows(v, np))
            return np;
    }
}

/* All heights and widths at a few depths, then random shapes. */
static void test_tiles(const struct kern_variant *v, struct rng *r)
{
    static const int depths[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};
    const enum kern_type type = type_of_op(v->op);

    CHECK(kern_gemm_rows(v, 1) >= 1 && kern_gemm_rows(v, 1) <= ROWS_MAX, "%d rows",
          kern_gemm_rows(v, 1));
    for (int np = 1; np <= KERN_NP_MAX; np++) {
        for (int mr = 1; mr <= kern_gemm_rows(v, np); mr++) {
            for (int d = 0; d < (int)(sizeof(depths) / sizeof(depths[0])); d++) {
                struct shape s = {.mr = mr, .np = np, .k = depths[d]};

                if (kern_type_quantised(type))
                    s.k = kern_type_block(type) * (1 + d % 3);
                s.ldc = np * KERN_PANEL + rng_range(r, 0, 3) * 5;
                s.accumulate = rng_below(r, 2);
                s.fill = any_fill(r);
                tile_once(v, r, &s);
            }
        }
    }
    for (int n = 0; n < 300; n++) {
        struct shape s = {.np = any_np(r, v), .k = check_k(type, rng_range(r, 1, 300))};

        s.mr = (int)rng_range(r, 1, kern_gemm_rows(v, s.np));
        if (rng_below(r, 2)) /* ragged: k is rarely a multiple of the unit */
            s.k_unit = 2 * rng_range(r, 1, 40);
        s.ldc = s.np * KERN_PANEL + rng_range(r, 0, 40);
        s.accumulate = rng_below(r, 2);
        s.fill = any_fill(r);
        tile_once(v, r, &s);
    }
}

/* NaN in one row of A or one column of B stays in that row or column; the rest is bit for
 * bit what it was. */
static void test_isolation(const struct kern_variant *v, struct rng *r)
{
    struct shape s = {
        .np = any_np(r, v), .k = check_k(type_of_op(v->op), 40), .fill = FILL_NORMAL};
    const int n = s.np * KERN_PANEL;
    static float c0[ROWS_MAX * KERN_NP_MAX * KERN_PANEL];
    static float clean[ROWS_MAX * KERN_NP_MAX * KERN_PANEL];
    struct kern_gemm_tile t;
    struct kern_mat w;

    s.mr = kern_gemm_rows(v, s.np);
    s.ldc = n;
    describe(&s);
    check_operands(&w, SLOT_B, r, s.fill, type_of_op(v->op), s.mr, n, s.k, 0);
    prepare(&t, v, &s, &w, c0);
    v->fn.gemm(&t);
    memcpy(clean, t.c, sizeof(float) * (size_t)(s.mr * n));
    for (int row = 0; row < s.mr; row++) {
        int64_t at = row * s.k + rng_range(r, 0, s.k - 1);
        float keep = check_a[at];

        check_a[at] = NAN;
        prepare(&t, v, &s, &w, c0);
        v->fn.gemm(&t);
        check_a[at] = keep;
        for (int i = 0; i < s.mr * n; i++) {
            if (i / n == row)
                CHECK(isnan(t.c[i]), "a NaN in row %d was lost in column %d", row, i % n);
            else
                CHECK(float_bits(t.c[i]) == float_bits(clean[i]),
                      "a NaN in row %d changed C[%d][%d]", row, i / n, i % n);
        }
    }
}

static void test_gemm(const struct kern_variant *v, struct rng *r)
{
    test_tiles(v, r);
    test_isolation(v, r);
}

int main(void)
{
    check_init();
    for (int t = 0; t < KERN_N_TYPES; t++)
        check_gemm_variants(KERN_GEMM_F32 + t, test_gemm);
    return check_done();
}
