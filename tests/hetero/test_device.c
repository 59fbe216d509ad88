/* An accelerator that is a device, of the name TEST_ACCEL; opencl if there is none, which PoCL
 * makes of the CPU. Its products have the bits of a chain of fused multiply-adds for every type of
 * weights, and models in slices compute what float64 loops do. test_cuda.sh runs it with cuda. */
#include <math.h>

#include "kernels/panel.h"
#include "tests/hetero/sliced.h"

#define N_TOK 3
#define N     48
#define K     512

static const char *name(void)
{
    const char *s = getenv("TEST_ACCEL");

    return s ? s : "opencl";
}

static const struct accel_kind *device(struct accel **a)
{
    const struct accel_kind *k;
    char begin[40];
    int rc;

    if (getenv("SAN") && *getenv("SAN"))
        test_skip("what a device needs is not built with a sanitizer");
    assert_ok(accel_find(name(), &k));
    rc = k->open(a, &(struct accel_opts){.machine = &sliced_machines[0], .cpu = -1});
    if (rc == ERR_UNSUPPORTED) {
        snprintf(begin, sizeof(begin), "accelerator %s: ", name());
        assert_true(strncmp(err_msg(), begin, strlen(begin)) == 0);
        test_skip("%s", err_msg());
    }
    assert_ok(rc);
    return k;
}

/* Any bytes are codes; factors are small. */
static void fill(struct kern_mat *m, struct rng *r)
{
    const struct kern_form *f = kern_form(m->type);
    uint8_t *at = m->data;

    for (size_t i = 0; i < m->bytes; i++)
        at[i] = (uint8_t)rng_below(r, 256);
    for (int64_t u = 0; u < m->n_units; u++)
        for (int64_t p = 0; p < m->n_panels; p++) {
            char *panel = kern_mat_at(m, u, p);
            int64_t subs = kern_form_subs(f, m->k_unit);
            int64_t n = kern_type_quantised(m->type) ? m->k_unit / KERN_SUB / subs : 0;

            for (int64_t b = 0; b < n; b++)
                for (int i = 0; i < f->head; i += 2) {
                    uint16_t h = kern_f16_of((float)rng_normal(r) * 0.01F);

                    memcpy(panel + b * (f->head + subs * f->sub) + i, &h, 2);
                }
        }
}

static void make_matrix(struct kern_mat *m, enum kern_type t, int64_t k_unit,
                        struct rng *r)
{
    kern_mat_layout(m, t, N, K, k_unit);
    m->data = mem_new(MEM_TEST, m->bytes, 1);
    assert_non_null(m->data);
    if (kern_type_quantised(t)) {
        fill(m, r);
        return;
    }
    for (int n = 0; n < N; n++) {
        float row[K];
        uint16_t half[K];

        for (int k = 0; k < K; k++) {
            row[k] = (float)rng_normal(r);
            half[k] = t == KERN_F16 ? kern_f16_of(row[k]) : kern_bf16_of(row[k]);
        }
        kern_mat_put_row(m, n, t == KERN_F32 ? (const void *)row : half, t);
    }
}

/* y = (accumulate ? y : 0) + x w, one chain along K each. */
static void chains(float *y, const float *x, const struct kern_mat *m, bool accumulate)
{
    float w[K];

    for (int n = 0; n < N; n++) {
        kern_mat_get_row(m, n, w);
        for (int t = 0; t < N_TOK; t++) {
            float sum = accumulate ? y[t * N + n] : 0;

            for (int k = 0; k < K; k++)
                sum = fmaf(x[t * K + k], w[k], sum);
            y[t * N + n] = sum;
        }
    }
}

static void multiply(const struct accel_kind *k, struct accel *a,
                     const struct kern_mat *m, const float *x)
{
    float want[N_TOK * N], got[N_TOK * N];
    struct accel_gemm g = {.n_tok = N_TOK, .ldx = K, .ldy = N, .layout = *m};
    double s;

    assert_ok(k->alloc(a, sizeof(float) * N_TOK * K, &g.x.buffer));
    assert_ok(k->alloc(a, m->bytes, &g.w.buffer));
    assert_ok(k->alloc(a, sizeof(got), &g.y.buffer));
    assert_ok(k->copy(a, g.x, x, sizeof(float) * N_TOK * K));
    assert_ok(k->copy(a, g.w, m->data, m->bytes));
    k->wait(a, ACCEL_COMPUTE, k->record(a, ACCEL_COPY));
    assert_ok(k->gemm(a, &g));
    g.accumulate = true;
    assert_ok(k->gemm(a, &g));
    k->wait(a, ACCEL_COPY, k->record(a, ACCEL_COMPUTE));
    assert_ok(k->fetch(a, got, g.y, sizeof(got)));
    assert_ok(k->finish(a, &s));
    chains(want, x, m, false);
    chains(want, x, m, true);
    for (int i = 0; i < N_TOK * N; i++)
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
            fail_msg("%s in units of %lld, row %d, column %d: %.9g, expected %.9g",
                     kern_type_name(m->type), (long long)m->k_unit, i / N, i % N,
                     (double)got[i], (double)want[i]);
}

TEST(products_have_the_bits_of_a_chain)
{
    static float x[N_TOK * K];
    struct accel *a = NULL;
    const struct accel_kind *k = device(&a);
    struct rng r;

    rng_init(&r, test_seed(), "products");
    for (int i = 0; i < N_TOK * K; i++)
        x[i] = (float)rng_normal(&r);
    for (int t = 0; t < KERN_N_TYPES; t++)
        for (int64_t unit = 0; unit <= 256; unit += 256) {
            struct kern_mat m;

            make_matrix(&m, (enum kern_type)t, unit, &r);
            multiply(k, a, &m, x);
            mem_free(m.data);
        }
    k->close(&a);
}

TEST(activations)
{
    float in[2][4 * KERN_PANEL], out[2][2 * KERN_PANEL];
    struct accel *a = NULL;
    const struct accel_kind *k = device(&a);
    struct accel_swiglu s = {
        .n_tok = 2, .n_pairs = 2, .ldh = 2 * KERN_PANEL, .ld = 4 * KERN_PANEL};
    struct rng r;
    double seconds;

    rng_init(&r, test_seed(), "swiglu");
    for (int i = 0; i < 8 * KERN_PANEL; i++)
        in[i / (4 * KERN_PANEL)][i % (4 * KERN_PANEL)] = 4 * (float)rng_normal(&r);
    assert_ok(k->alloc(a, sizeof(in), &s.gate_up.buffer));
    assert_ok(k->alloc(a, sizeof(out), &s.h.buffer));
    assert_ok(k->copy(a, s.gate_up, in, sizeof(in)));
    k->wait(a, ACCEL_COMPUTE, k->record(a, ACCEL_COPY));
    assert_ok(k->swiglu(a, &s));
    k->wait(a, ACCEL_COPY, k->record(a, ACCEL_COMPUTE));
    assert_ok(k->fetch(a, out, s.h, sizeof(out)));
    assert_ok(k->finish(a, &seconds));
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2 * KERN_PANEL; i++) {
            const float *at = in[t] + i / KERN_PANEL * 2 * KERN_PANEL + i % KERN_PANEL;
            double want = at[0] / (1 + exp(-at[0])) * at[KERN_PANEL];

            assert_true(fabs(out[t][i] - want) <= 1e-5 * fabs(want) + 1e-9);
        }
    k->close(&a);
}

/* Buffers are of zeros; bytes beyond their end are refused. */
TEST(buffers)
{
    char bytes[100], zeros[100] = {0};
    struct accel *a = NULL;
    const struct accel_kind *k = device(&a);
    struct accel_at at = {0, 1};
    double s;

    assert_ok(k->alloc(a, sizeof(bytes), &at.buffer));
    assert_err(k->copy(a, at, bytes, sizeof(bytes)), ERR_ARG, "buffer 0");
    at.offset = 0;
    assert_ok(k->fetch(a, bytes, at, sizeof(bytes)));
    assert_ok(k->finish(a, &s));
    assert_memory_equal(bytes, zeros, sizeof(bytes));
    at.buffer = 1;
    assert_err(k->fetch(a, bytes, at, 1), ERR_ARG, "buffer 1");
    k->close(&a);
}

TEST(models_in_slices)
{
    struct accel *a = NULL;
    const struct accel_kind *k = device(&a); /* or skip */
    const bool all = !getenv("TEST_FEW_MODELS");
    int64_t n_taken_over = 0;
    struct rng r;

    k->close(&a);
    rng_init(&r, test_seed(), "slices");
    for (int t = 0; t < step_n_traits && (all || t < 1); t++)
        sliced_run(&step_traits[t], name(), 1 + t % 2, &r, &n_taken_over);
    for (int t = 0; t < step_n_quant_traits && all; t++)
        sliced_run(&step_quant_traits[t], name(), 1 + t % 2, &r, &n_taken_over);
    for (int t = 0; t < step_n_expert_traits && (all || t < 1); t++)
        sliced_run(&step_expert_traits[t], name(), 1 + t % 2, &r, &n_taken_over);
    assert_true(n_taken_over > 0);
}
