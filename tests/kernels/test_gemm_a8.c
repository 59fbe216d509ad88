/* Quantised weights times activations of 8 bits: exact integers in every variant, and the
 * bits of plain C. */
#include "tests/kernels/gemm_check.h"

enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_WANT, SLOT_CONVERTED };

#define K_MAX 512

static float product[32 * KERN_PANEL];

/* v's product of mr rows of check_a with one panel, which is converted as for n_blocks blocks of
 * rows; c points into slot `slot`. */
static float *multiply(const struct kern_variant *v, const struct kern_mat *w, int slot,
                       int mr, bool accumulate, int n_blocks)
{
    const size_t a_bytes = kern_a_bytes(v->a_format, mr, w->k_pad);
    struct kern_gemm_tile t = {
        .b = w->data,
        .b_panel_bytes = w->panel_bytes,
        .b_unit_bytes = w->unit_bytes,
        .k = w->k_pad,
        .k_unit = w->k_unit,
        .ldc = KERN_PANEL,
        .mr = mr,
        .np = 1,
        .accumulate = accumulate,
        .next = w->data,
    };
    void *a = guard_get(SLOT_A, a_bytes);

    kern_a_pack(v, a, check_a, w->k, mr, w->k, w->k_pad);
    t.a = a;
    t.c = guard_get(slot, (size_t)mr * KERN_PANEL * sizeof(float));
    memcpy(t.c, product, (size_t)mr * KERN_PANEL * sizeof(float));
    check_convert(v, &t, n_blocks,
                  guard_get_aligned(SLOT_CONVERTED, KERN_CONVERTED_BYTES(w->k_pad, 1)),
                  NULL);
    v->fn.gemm(&t);
    guard_check(slot, (size_t)mr * KERN_PANEL * sizeof(float));
    return t.c;
}

/* As few blocks of rows as there can be, or enough for v to convert columns. */
static int any_blocks(const struct kern_variant *v, struct rng *r)
{
    return rng_below(r, 2) ? 1 : v->convert_blocks;
}

/* Scales of sub-blocks, 1 or -1, in types with signed scales of 6 bits; and 1 in Q2_K. */
static void whole_scales(struct rng *r, enum kern_type t, uint8_t *p)
{
    const bool plus = rng_below(r, 2);

    if (t == KERN_Q2_K)
        memset(p, 0x11, 16);
    if (t == KERN_Q3_K) {
        memset(p + 96, plus ? 0x11 : 0xff, 8);
        memset(p + 104, plus ? 0xaa : 0x55, 4);
    }
    if (t == KERN_IQ4_XS) {
        memset(p + 2, plus ? 0xaa : 0x55, 2);
        memset(p + 4, plus ? 0x11 : 0xff, 4);
    }
}

/* A row of blocks whose weights are integers: scales and mins of 1, and codes at random or all at
 * one end of their range. */
static void whole_weights(struct rng *r, enum kern_type t, uint8_t *p, int64_t n)
{
    const size_t bytes = kern_type_bytes(t);
    float dmin = 1;

    for (int64_t i = 0; i < n / kern_type_block(t); i++, p += bytes) {
        uint64_t kind = rng_below(r, 3);

        if (i == 0 || t != KERN_W4C)
            dmin = rng_below(r, 2) ? 1 : -1;
        for (size_t j = 0; j < bytes; j++)
            p[j] = kind == 0 ? (uint8_t)rng_u64(r) : kind == 1 ? 0xff : 0;
        for (size_t j = 0; (t == KERN_Q8_0 || t == KERN_W8G128) && j < bytes; j++)
            p[j] = kind == 1 ? 0x80 : p[j];
        if (t == KERN_Q4_K || t == KERN_Q5_K) {
            memset(p + 4, 1, 8);
            memset(p + 12, 0x11, 4);
        }
        for (int j = 0; j < 16 && t == KERN_Q6_K; j++)
            p[192 + j] = rng_below(r, 2) ? 1 : 0xff;
        whole_scales(r, t, p);
        naive_set_scales(t, p, 1, dmin);
    }
}

/* Activations that are their own codes: each 32 has a 127. */
static void whole_activations(struct rng *r, int64_t n)
{
    for (int64_t at = 0; at < n; at += KERN_SUB) {
        uint64_t kind = rng_below(r, 3);

        for (int i = 0; i < KERN_SUB; i++)
            check_a[at + i] = kind == 0   ? (float)rng_range(r, -127, 127)
                              : kind == 1 ? 127
                                          : -127;
        check_a[at + (int64_t)rng_below(r, KERN_SUB)] = 127;
    }
}

/* The sums of integers are those of 64 bits: nothing saturates, wraps or rounds. */
static void test_integers(const struct kern_variant *v, struct rng *r)
{
    const enum kern_type type = type_of_op(v->op);

    for (int n = 0; n < 400; n++) {
        int64_t k = check_k(type, rng_range(r, 1, K_MAX));
        int mr = (int)rng_range(r, 1, kern_gemm_rows(v, 1));
        const void *rows[KERN_PANEL];
        struct kern_mat w;
        float *c;

        AT("mr=%d k=%d", mr, (int)k);
        for (int i = 0; i < KERN_PANEL; i++)
            whole_weights(r, type, (uint8_t *)check_src + kern_type_size(type, i * k), k);
        blocks_values(type, check_src, KERN_PANEL * k, check_b, check_terms);
        whole_activations(r, mr * k);
        for (int i = 0; i < KERN_PANEL; i++)
            rows[i] = check_src + kern_type_size(type, i * k);
        kern_mat_layout(&w, type, KERN_PANEL, k, rng_below(r, 2) ? 256 : 0);
        w.data = guard_get_aligned(SLOT_B, w.bytes);
        kern_mat_put_panels(&w, 0, 1, rows, type);
        c = multiply(v, &w, SLOT_C, mr, false, any_blocks(v, r));
        for (int i = 0; i < mr * KERN_PANEL; i++) {
            const float *a = check_a + i / KERN_PANEL * k,
                        *b = check_b + i % KERN_PANEL * k;
            int64_t sum = 0;

            for (int64_t x = 0; x < k; x++)
                sum += (int64_t)a[x] * (int64_t)b[x];
            CHECK(sum < 1 << 24 && sum > -(1 << 24), "%lld is not a float",
                  (long long)sum);
            CHECK(c[i] == (float)sum, "C[%d][%d]: got %.9g, wanted %lld", i / KERN_PANEL,
                  i % KERN_PANEL, c[i], (long long)sum);
        }
    }
}

static const struct kern_variant *ref_a8(enum kern_op op)
{
    struct kern_table t;

    kern_table_choose(&t, 0, KERN_A8);
    return t.v[op];
}

/* Every variant gives the bits of plain C, for activations and weights of any size. */
static void test_bits(const struct kern_variant *v, struct rng *r)
{
    const struct kern_variant *ref = ref_a8(v->op);
    const enum kern_type type = type_of_op(v->op);

    CHECK(ref->precision == KERN_A8 && ref->isa == 0, "plain C is %s", ref->name);
    for (int n = 0; n < 300; n++) {
        int64_t k = check_k(type, rng_range(r, 1, K_MAX));
        int mr = (int)rng_range(r, 1, kern_gemm_rows(v, 1));
        enum fill f = (enum fill)rng_below(r, FILL_N);
        size_t bytes = (size_t)mr * KERN_PANEL * sizeof(float);
        bool accumulate = rng_below(r, 2);
        struct kern_mat w;
        float *want, *got;

        AT("mr=%d k=%d %s", mr, (int)k, fill_names[f]);
        check_operands(&w, SLOT_B, r, f, type, mr, KERN_PANEL, k,
                       rng_below(r, 2) ? 2 * rng_range(r, 1, 160) : 0);
        fill_f32(r, f, product, (int64_t)mr * KERN_PANEL);
        want = multiply(ref, &w, SLOT_WANT, mr, accumulate, 1);
        got = multiply(v, &w, SLOT_C, mr, accumulate, any_blocks(v, r));
        for (int i = 0; i < mr * KERN_PANEL; i++)
            CHECK(float_bits(got[i]) == float_bits(want[i]),
                  "C[%d][%d]: got %a, wanted %a", i / KERN_PANEL, i % KERN_PANEL, got[i],
                  want[i]);
        /* a row twice as large has a product twice as large, and zeros have none */
        if (f == FILL_NORMAL) {
            memcpy(product, got, bytes);
            for (int64_t i = 0; i < mr * k; i++)
                check_a[i] *= i < k ? 0 : 2;
            want = multiply(v, &w, SLOT_WANT, mr, false, any_blocks(v, r));
            for (int i = 0; i < mr * KERN_PANEL && !accumulate; i++)
                CHECK(want[i] == (i < KERN_PANEL ? 0 : 2 * product[i]),
                      "C[%d][%d] of twice the row: %a, before %a", i / KERN_PANEL,
                      i % KERN_PANEL, want[i], product[i]);
        }
    }
}

static void test_a8(const struct kern_variant *v, struct rng *r)
{
    test_integers(v, r);
    test_bits(v, r);
}

int main(void)
{
    check_init();
    for (const struct kern_variant *const *p = kern_variants; *p; p++)
        if (kern_a_is_i8((*p)->a_format))
            check_variant(*p, test_a8);
    return check_done();
}
