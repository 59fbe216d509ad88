/* How wrong the GEMM variants are on the whole: each is held to the error it states
 * (kern_variant.error), and a relaxed one to what rounding the activations, and weights that are
 * quantised, to bf16 and nothing else would cost, on data that is kind, has outliers, cancels, or
 * has rows and columns of very different size. Sums of one sign are large compared with their
 * products; there short chains in halves may err more than rounding activations does, though little
 * compared with the sum, and only the stated error holds. The figures are printed. */
#include "kernels/gemm.h"
#include "kernels/pack.h"
#include "tests/kernels/gemm_check.h"

#define M 13
#define N 48
#define K 4096

enum data { NORMAL, OUTLIERS, CANCELLING, ONE_SIGN, UNEVEN, N_DATA };
static const char *const data_names[N_DATA] = {"normal", "outliers", "cancelling",
                                               "one sign", "uneven"};
enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_SCRATCH };

static float x[M * K], y[N * K]; /* activations; weights [n][k], in the type */

static void fill(struct rng *r, enum data d, enum kern_type type)
{
    for (int64_t i = 0; i < M; i++) {
        double size = d == UNEVEN ? ldexp(1, (int)rng_below(r, 40) - 20) : 1;

        for (int64_t k = 0; k < K; k++) {
            double v = rng_normal(r) * size;

            if (d == OUTLIERS &&
                k % 512 == 7) /* one column in 512 is 50 times as large */
                v *= 50;
            if (d == OUTLIERS && k == 100) /* and one a thousand times */
                v *= 1000;
            if (d == ONE_SIGN)
                v = fabs(v);
            if (d == CANCELLING && k % 2 == 1)
                v = x[i * K + k - 1] * (1 + 1e-3 * v);
            x[i * K + k] = (float)v;
        }
    }
    for (int64_t i = 0; i < N; i++) {
        double size = d == UNEVEN ? ldexp(1, (int)rng_below(r, 8) - 8) : 1;

        for (int64_t k = 0; k < K; k++) {
            double v = rng_normal(r) * 0.05 * size;

            if (d == ONE_SIGN)
                v = fabs(v);
            if (d == CANCELLING && k % 2 == 1)
                v = -y[i * K + k - 1];
            y[i * K + k] =
                kern_type_quantised(type) ? (float)v : check_round((float)v, type);
        }
    }
}

static void multiply(const struct kern_variant *v, struct kern_mat *w, float *c)
{
    struct kern_gemm_job j = {.v = v, .w = w, .m = M, .c = c, .ldc = N};
    char *a;

    j.scratch = guard_get_aligned(SLOT_SCRATCH, KERN_GEMM_SCRATCH_BYTES);
    kern_schedule_default(&j.s, v, w, M, 1);
    a = guard_get_aligned(SLOT_A, kern_a_bytes(v->a_format, M, w->k_pad));
    for (int64_t i = 0, n = kern_a_blocks(M, j.s.mr); i < n; i++) {
        int64_t r0 = kern_a_row(M, n, i);

        kern_a_pack(v, a + kern_a_bytes(v->a_format, r0, w->k_pad), x + r0 * K, K,
                    kern_a_row(M, n, i + 1) - r0, K, w->k_pad);
    }
    j.a_packed = a;
    kern_gemm_part(&j, 1, 0);
    kern_gemm_run(&j);
}

/* Root mean square errors over C in units of sqrt(C^2 + sum (a b)^2): of c, and of rounding
 * the activations to bf16, or with `both` the weights, too. */
static void errors(const float *c, bool both, double *of_c, double *of_bf16)
{
    double size = 0, err = 0, err_bf16 = 0;

    for (int64_t i = 0; i < M; i++) {
        double row_size = 0, row = 0, row_bf16 = 0;

        for (int64_t n = 0; n < N; n++) {
            double sum = 0, rounded = 0, square = 0;

            for (int64_t k = 0; k < K; k++) {
                float w = y[n * K + k];
                double p = (double)x[i * K + k] * w;

                sum += p;
                square += p * p;
                if (both)
                    w = kern_bf16_to(kern_bf16_of(w));
                rounded += (double)kern_bf16_to(kern_bf16_of(x[i * K + k])) * w;
            }
            row_size += square + sum * sum;
            row += (c[i * N + n] - sum) * (c[i * N + n] - sum);
            row_bf16 += (rounded - sum) * (rounded - sum);
        }
        size += 1; /* rows count alike, however large */
        err += row / row_size;
        err_bf16 += row_bf16 / row_size;
    }
    *of_c = sqrt(err / size);
    *of_bf16 = sqrt(err_bf16 / size);
}

/* The weights as a file holds them; those of a quantised type become what it can hold. */
static char *store(enum kern_type type)
{
    static char file[N * K * 4];
    static float terms[N * K];

    if (kern_type_quantised(type)) {
        for (int64_t i = 0; i < N; i++)
            blocks_near(type, file + kern_type_size(type, i * K), y + i * K, K);
        blocks_values(type, file, N * K, y, terms);
        return file;
    }
    if (type == KERN_F32)
        memcpy(file, y, sizeof(y));
    for (int64_t i = 0; i < N * K && type != KERN_F32; i++) {
        uint16_t h = type == KERN_F16 ? kern_f16_of(y[i]) : kern_bf16_of(y[i]);

        memcpy(file + 2 * i, &h, 2);
    }
    return file;
}

static void test_error(const struct kern_variant *v, struct rng *r)
{
    static const void *rows[N];
    enum kern_type type = type_of_op(v->op);

    for (enum data d = 0; d < N_DATA; d++) {
        double of_c, of_bf16;
        struct kern_mat w;
        char *file;
        float *c;

        AT("%s", data_names[d]);
        fill(r, d, type);
        file = store(type);
        for (int64_t n = 0; n < N; n++)
            rows[n] = file + kern_type_size(type, n * K);
        kern_mat_layout(&w, type, N, K, 0);
        w.data = guard_get_aligned(SLOT_B, w.bytes);
        kern_mat_put_panels(&w, 0, w.n_panels, rows, type);
        c = guard_get(SLOT_C, sizeof(float) * M * N);
        multiply(v, &w, c);
        errors(c, v->precision == KERN_RELAXED && kern_type_quantised(type), &of_c,
               &of_bf16);
        printf("# %s %s, %s: %.2e (states %.2e; in bf16 %.2e)\n", kern_op_name(v->op),
               v->name, data_names[d], of_c, v->error, of_bf16);
        CHECK(of_c <= v->error, "%.3g, more than the %.3g it states", of_c, v->error);
        CHECK(v->precision != KERN_RELAXED || d == ONE_SIGN || of_c <= 1.05 * of_bf16,
              "%.3g, more than the %.3g of numbers in bf16", of_c, of_bf16);
    }
}

int main(void)
{
    check_init();
    for (int t = 0; t < KERN_N_TYPES; t++)
        check_gemm_variants(KERN_GEMM_F32 + t, test_error);
    return check_done();
}
