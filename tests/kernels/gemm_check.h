/* tests/kernels/gemm_check.h - random matrices for the GEMM tests, and the error a
 * variant may make.
 *
 * The bound per element is that of any order of summation: k eps sum|a||b|. A relaxed
 * variant may in addition round each activation to bf16 (2^-8) and take bf16 denormals
 * for zero; or sum chains of 32 products in halves. test_error.c holds the variants to
 * what they state of the error on the whole. */
#ifndef TESTS_KERNELS_GEMM_CHECK_H
#define TESTS_KERNELS_GEMM_CHECK_H

#include "kernels/pack.h"
#include "tests/kernels/check.h"
#include "tests/kernels/chain_f16_emulated.h"

#define CHECK_M_MAX 640
#define CHECK_N_MAX 512
#define CHECK_K_MAX 640

static float check_a[CHECK_M_MAX * CHECK_K_MAX]; /* [m][k] */
static float
    check_b[CHECK_N_MAX * CHECK_K_MAX]; /* [n][k], rounded to the weights' type */
static char check_src[CHECK_N_MAX * CHECK_K_MAX * 4 + 2];

static inline enum kern_type type_of_op(enum kern_op op)
{
    return op == KERN_GEMM_F32 ? KERN_F32 : op == KERN_GEMM_F16 ? KERN_F16 : KERN_BF16;
}

static inline float check_round(float x, enum kern_type t)
{
    if (t == KERN_F32)
        return x;
    if (t == KERN_BF16)
        return kern_bf16_to(kern_bf16_of(x));
    x = fminf(fmaxf(x, -60000.0f), 60000.0f);
    return kern_f16_to(kern_f16_of(x));
}

/* Random A [m][k] and W [n][k]; W goes into `w` (data in guarded slot `slot`) as its
 * type. The source rows are unaligned on purpose. */
static inline void check_operands(struct kern_mat *w, int slot, struct rng *r,
                                  enum fill f, enum kern_type type, int64_t m, int64_t n,
                                  int64_t k, int64_t k_unit)
{
    const void *rows[CHECK_N_MAX + KERN_PANEL] = {0};
    const size_t esz = kern_type_bytes(type);
    char *src = check_src + (type == KERN_F32 ? 0 : 1);

    fill_f32(r, f, check_a, m * k);
    fill_f32(r, f == FILL_DENORM ? FILL_NORMAL : f, check_b, n * k);
    for (int64_t i = 0; i < n * k; i++) {
        uint16_t h;

        check_b[i] = check_round(check_b[i], type);
        h = type == KERN_F16 ? kern_f16_of(check_b[i]) : kern_bf16_of(check_b[i]);
        memcpy(src + (size_t)i * esz, type == KERN_F32 ? (void *)&check_b[i] : (void *)&h,
               esz);
    }
    kern_mat_layout(w, type, n, k, k_unit);
    w->data = guard_get_aligned(slot, w->bytes);
    for (int64_t i = 0; i < n; i++)
        rows[i] = src + (size_t)(i * k) * esz;
    kern_mat_put_panels(w, 0, w->n_panels, rows, type);
}

/* The exact product of row i of A and column j of W, and in *bound the error allowed to
 * `v`. */
static inline double check_product(const struct kern_variant *v, int64_t i, int64_t j,
                                   int64_t n, int64_t k, double *bound)
{
    const float *a = check_a + i * k, *b = check_b + j * k;
    double sum = 0, mass = 0, flush = 0, a_max = 0, b_max = 0;

    *bound = 0;
    if (j >= n)
        return 0; /* a column of padding */
    for (int64_t x = 0; x < k; x++) {
        double p = (double)a[x] * b[x];

        sum += p;
        mass += fabs(p);
        a_max = fmax(a_max, fabs(a[x]));
        b_max = fmax(b_max, fabs(b[x]));
    }
    for (int64_t x = 0; x < k && v->precision == KERN_RELAXED; x++)
        flush += 1 + fabs(a[x]) + fabs(b[x]);
    *bound = (double)(k + 2) * (EPS * mass + 1.5e-45);
    if (v->precision == KERN_RELAXED)
        *bound += mass * 0x1p-8 + flush * 0x1p-126;
    if (v->a_format == KERN_A_F16_TWICE) /* 34 roundings to 11 bits, or to the least */
        *bound += mass * 34 * 0x1p-11 + (double)(k + 32) * a_max * b_max * 0x1p-24;
    return sum;
}

/* What the driver does to a tile before it calls v->fn.gemm: `to` and `factor` have room
 * for the converted columns. */
static inline void check_convert(const struct kern_variant *v, struct kern_gemm_tile *t,
                                 void *to, float *factor)
{
    if (v->a_format == KERN_A_F16_TWICE)
        t->row_factor =
            (const float *)((const char *)t->a + (size_t)(t->k * t->mr) * sizeof(float));
    if (!v->convert)
        return;
    v->convert(t, to, factor);
    t->b = to;
    t->k_unit = t->k;
    t->col_factor = factor;
}

/* The variants of an operator, and those that are emulated where the CPU lacks them. */
static inline void check_gemm_variants(enum kern_op op, check_fn fn)
{
    const struct kern_variant *v = check_emulated();

    check_variants(op, fn);
    if (v && v->op == op)
        check_case("gemm_bf16 avx512fp16, its multiply-add emulated", fn, v);
}

#endif
