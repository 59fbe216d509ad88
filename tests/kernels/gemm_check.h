/* tests/kernels/gemm_check.h - random matrices for the GEMM tests, and the error a
 * variant may make.
 *
 * The bound per element is that of any order of summation: k eps sum|a||b|. A relaxed
 * variant may in addition round each activation to bf16 (2^-8) and take bf16 denormals
 * for zero; or sum chains of 32 products in halves. One with activations of 8 bits may be off
 * by half a step of each. test_error.c holds the variants to what they state of the error on
 * the whole. */
#ifndef TESTS_KERNELS_GEMM_CHECK_H
#define TESTS_KERNELS_GEMM_CHECK_H

#include "kernels/pack.h"
#include "tests/kernels/check.h"
#include "tests/kernels/blocks.h"
#include "tests/kernels/chain_f16_emulated.h"

#define CHECK_M_MAX 640
#define CHECK_N_MAX 512
#define CHECK_K_MAX 768

static float check_a[CHECK_M_MAX * CHECK_K_MAX]; /* [m][k] */
static float
    check_b[CHECK_N_MAX * CHECK_K_MAX]; /* [n][k], rounded to the weights' type */
static char check_src[CHECK_N_MAX * CHECK_K_MAX * 4 + 2];

/* The sizes of the terms that a weight of a quantised type is made of. */
static float check_terms[CHECK_N_MAX * CHECK_K_MAX];

static inline enum kern_type type_of_op(enum kern_op op)
{
    return (enum kern_type)(op - KERN_GEMM_F32);
}

/* k, rounded up to whole blocks of the weights. */
static inline int64_t check_k(enum kern_type t, int64_t k)
{
    return (k + kern_type_block(t) - 1) / kern_type_block(t) * kern_type_block(t);
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

/* Random W [n][k] at src, as files hold it, and in check_b. */
static inline void check_weights(char *src, struct rng *r, enum fill f,
                                 enum kern_type type, int64_t n, int64_t k)
{
    const size_t esz = kern_type_bytes(type);

    if (kern_type_quantised(type)) {
        blocks_random(r, f, type, src, n, k);
        blocks_values(type, src, n * k, check_b, check_terms);
        return;
    }
    fill_f32(r, f == FILL_DENORM ? FILL_NORMAL : f, check_b, n * k);
    for (int64_t i = 0; i < n * k; i++) {
        uint16_t h;

        check_b[i] = check_round(check_b[i], type);
        h = type == KERN_F16 ? kern_f16_of(check_b[i]) : kern_bf16_of(check_b[i]);
        memcpy(src + (size_t)i * esz, type == KERN_F32 ? (void *)&check_b[i] : (void *)&h,
               esz);
    }
}

/* Random A [m][k] and W [n][k]; W goes into `w` (data in guarded slot `slot`) as its
 * type. The source rows are unaligned on purpose. */
static inline void check_operands(struct kern_mat *w, int slot, struct rng *r,
                                  enum fill f, enum kern_type type, int64_t m, int64_t n,
                                  int64_t k, int64_t k_unit)
{
    const void *rows[CHECK_N_MAX + KERN_PANEL] = {0};
    char *src = check_src + (type == KERN_F32 ? 0 : 1);

    fill_f32(r, f, check_a, m * k);
    check_weights(src, r, f, type, n, k);
    kern_mat_layout(w, type, n, k, k_unit);
    w->data = guard_get_aligned(slot, w->bytes);
    for (int64_t i = 0; i < n; i++)
        rows[i] = src + kern_type_size(type, i * k);
    kern_mat_put_panels(w, 0, w->n_panels, rows, type);
}

/* What a product with activations of 8 bits may be off by: each activation half a step, or all of
 * it where that is too small for steps; each of the f32 operations on sums of 32; and products of
 * scales that underflow. */
static inline double check_bound_a8(const float *a, const float *b, const float *terms,
                                    int64_t k, bool whole_row)
{
    const int64_t together = whole_row ? k : KERN_SUB;
    double steps = 0, size = 0;

    for (int64_t x = 0; x < k; x += together) {
        double most = 0, step; /* of the integers */

        for (int64_t i = 0; i < together; i++)
            most = fabs(a[x + i]) > most ? fabs(a[x + i]) : most;
        step = most / 127 + 2 * KERN_A_I8_MIN;
        for (int64_t i = 0; i < together; i++) {
            steps += fabs(b[x + i]) * step * (0.5 + 0x1p-16);
            size += (fabs(a[x + i]) + step) * terms[x + i];
        }
    }
    return steps + (double)(k / 16 + 8) * (EPS * size + 0x1p-128);
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
    if (v->precision == KERN_RELAXED) /* of activations, and of quantised weights */
        *bound += mass * (kern_type_quantised(type_of_op(v->op)) ? 0x1.01p-7 : 0x1p-8) +
                  flush * 0x1p-126;
    if (kern_a_is_i8(v->a_format))
        *bound = check_bound_a8(a, b, check_terms + j * k, k,
                                kern_type_one_block(type_of_op(v->op)));
    if (v->a_format == KERN_A_F16_TWICE) /* 34 roundings to 11 bits, or to the least */
        *bound += mass * 34 * 0x1p-11 + (double)(k + 32) * a_max * b_max * 0x1p-24;
    return sum;
}

/* What the driver does to a tile before it calls v->fn.gemm for n_blocks blocks of rows: `to` and
 * `factor` have room for the converted columns. */
static inline void check_convert(const struct kern_variant *v, struct kern_gemm_tile *t,
                                 int n_blocks, void *to, float *factor)
{
    if (v->a_format == KERN_A_F16_TWICE)
        t->row_factor =
            (const float *)((const char *)t->a + (size_t)(t->k * t->mr) * sizeof(float));
    if (!v->convert || n_blocks < v->convert_blocks)
        return;
    v->convert(t, to, factor);
    t->converted = true;
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
