/* The GEMM driver: C[M, N] against float64 over ragged shapes, split K, every epilogue
 * and any legal schedule for one to six threads. */
#include "kernels/gemm.h"
#include "tests/kernels/gemm_check.h"

enum slot { SLOT_A, SLOT_B, SLOT_C, SLOT_BIAS, SLOT_SCRATCH, SLOT_PARTIAL };

struct shape {
    int64_t m, n, k, k_unit, ldc;
    enum kern_epilogue epilogue;
    bool bias;
    int64_t step; /* every step-th row is compared */
};

static float c_before[CHECK_M_MAX * (CHECK_N_MAX + 64)];

static void describe(const struct shape *s, const char *schedule)
{
    static const char *const names[] = {"store", "residual", "swiglu", "act"};

    AT("M=%d N=%d K=%d k_unit=%d ldc=%d %s%s, %s", (int)s->m, (int)s->n, (int)s->k,
       (int)s->k_unit, (int)s->ldc, names[s->epilogue], s->bias ? " bias" : "", schedule);
}

/* Columns of C that are written: 16 for each panel, or pair of panels. */
static int64_t c_columns(const struct kern_gemm_job *j)
{
    int64_t n = j->w->n_panels * KERN_PANEL;

    return j->epilogue == KERN_GATED ? n / 2 : n;
}

static void pack_a(const struct kern_variant *v, void *a, const struct shape *s, int mr,
                   int64_t k_pad)
{
    int64_t blocks = kern_a_blocks(s->m, mr);

    for (int64_t i = 0; i < blocks; i++) {
        int64_t r0 = kern_a_row(s->m, blocks, i), r1 = kern_a_row(s->m, blocks, i + 1);

        kern_a_pack(v, (char *)a + kern_a_bytes(v->a_format, r0, k_pad),
                    check_a + r0 * s->k, s->k, r1 - r0, s->k, k_pad);
    }
}

/* What C[i][j] must be, and how far off it may be. */
static double expect(const struct kern_gemm_job *j, const struct shape *s, int64_t i,
                     int64_t col, double *bound)
{
    double want, gate, up, d_gate, d_up;

    if (j->epilogue != KERN_GATED) {
        want = check_product(j->v, i, col, s->n, s->k, bound);
        want += j->bias ? j->bias[col] : 0;
        want += j->epilogue == KERN_RESIDUAL ? c_before[i * s->ldc + col] : 0;
        *bound += 4 * EPS * fabs(want) +
                  (double)s->k * 2 * EPS * fabs(c_before[i * s->ldc + col]);
        if (j->epilogue == KERN_ACT) {
            *bound *= 1.1; /* |silu'| */
            want /= 1 + exp(-want);
            *bound += 16 * EPS * fabs(want) + 1e-36;
        }
        return want;
    }
    col += col / KERN_PANEL * KERN_PANEL; /* gate panel of the pair; up is the next */
    gate = check_product(j->v, i, col, s->n, s->k, &d_gate);
    up = check_product(j->v, i, col + KERN_PANEL, s->n, s->k, &d_up);
    want = gate / (1 + exp(-gate)) * up;
    /* |silu'| <= 1.1, |silu(x)| <= |x| */
    *bound = 1.1 * d_gate * (fabs(up) + d_up) + (fabs(gate) + d_gate) * d_up +
             16 * EPS * fabs(want) + 1e-36;
    return want;
}

static void compare(const struct kern_gemm_job *j, const struct shape *s)
{
    for (int64_t i = 0; i < s->m; i += s->step) {
        for (int64_t col = 0; col < c_columns(j); col++) {
            float got = j->c[i * s->ldc + col];
            double bound, want = expect(j, s, i, col, &bound);

            CHECK(near_to(got, want, bound),
                  "C[%d][%d]: got %.9g, wanted %.9g, off by %.3g > %.3g", (int)i,
                  (int)col, got, want, fabs(got - want), bound);
        }
        for (int64_t col = c_columns(j); col < s->ldc && i + 1 < s->m; col++)
            CHECK(guard_untouched(&j->c[i * s->ldc + col]), "wrote padding C[%d][%d]",
                  (int)i, (int)col);
    }
}

/* Any legal schedule; one in three is the default. */
static int any_schedule(struct kern_schedule *s, struct rng *r,
                        const struct kern_variant *v, const struct kern_mat *w, int64_t m)
{
    int n_threads = (int)rng_range(r, 1, 6), n = 0;
    int splits[36][3];

    kern_schedule_default(s, v, w, m, n_threads);
    if (rng_below(r, 3) == 0)
        return n_threads;
    for (int a = 1; a <= n_threads; a++)
        for (int b = 1; b <= n_threads / a; b++)
            if (n_threads % (a * b) == 0) {
                splits[n][0] = a, splits[n][1] = b;
                splits[n++][2] = n_threads / (a * b);
            }
    do {
        int *split = splits[rng_below(r, (uint64_t)n)];

        s->np = (int)rng_range(r, 1, KERN_NP_MAX);
        s->mr = (int)rng_range(r, 1, 30);
        s->bm = rng_below(r, 4) ? rng_range(r, 1, 70) : KERN_ALL;
        s->bn = rng_below(r, 4) ? rng_range(r, 1, 9) : KERN_ALL;
        s->bk = rng_below(r, 4) ? rng_range(r, 2, 130) : KERN_ALL;
        s->pm = split[0], s->pn = split[1], s->pk = split[2];
        s->order = (enum kern_order)rng_below(r, KERN_N_ORDERS);
    } while (kern_schedule_check(s, v, w, m, n_threads) != OK);
    return n_threads;
}

/* Every thread's part, in any order, then every thread's share of the reduction. */
static void run_parts(struct kern_gemm_job *j, struct rng *r, int n_threads)
{
    int first = (int)rng_below(r, (uint64_t)n_threads);

    for (int i = 0; i < n_threads; i++) {
        kern_gemm_part(j, j->epilogue == KERN_GATED ? 2 : 1, (first + i) % n_threads);
        kern_gemm_run(j);
    }
    for (int i = 0; i < n_threads; i++)
        kern_gemm_reduce(j, (first + i) % n_threads, n_threads);
}

static void run_once(const struct kern_variant *v, struct rng *r, const struct shape *s)
{
    struct kern_mat w;
    struct kern_gemm_job j = {.v = v, .w = &w, .m = s->m, .ldc = s->ldc};
    size_t bytes, c_bytes;
    char schedule[96];
    int n_threads;
    float *bias;
    void *a;

    check_operands(&w, SLOT_B, r, FILL_NORMAL, type_of_op(v->op), s->m, s->n, s->k,
                   s->k_unit);
    n_threads = any_schedule(&j.s, r, v, &w, s->m);
    kern_schedule_print(&j.s, schedule, sizeof(schedule));
    describe(s, schedule);
    j.epilogue = s->epilogue;
    j.gate = check_ref(KERN_SILU_MUL);
    bytes = kern_a_bytes(v->a_format, s->m, w.k_pad);
    j.a_packed = a = guard_get_aligned(SLOT_A, bytes);
    pack_a(v, a, s, j.s.mr, w.k_pad);
    guard_check(SLOT_A, bytes);
    c_bytes = (size_t)((s->m - 1) * s->ldc + c_columns(&j)) * 4;
    j.c = guard_get(SLOT_C, c_bytes);
    fill_f32(r, FILL_NORMAL, c_before, s->m * s->ldc);
    for (int64_t i = 0; i < s->m && s->epilogue == KERN_RESIDUAL; i++)
        memcpy(j.c + i * s->ldc, c_before + i * s->ldc, (size_t)c_columns(&j) * 4);
    bias = guard_get(SLOT_BIAS, (size_t)(w.n_panels * KERN_PANEL) * 4);
    fill_f32(r, FILL_NORMAL, bias, w.n_panels * KERN_PANEL);
    j.bias = s->bias ? bias : NULL;
    j.scratch = guard_get_aligned(SLOT_SCRATCH, KERN_GEMM_SCRATCH_BYTES);
    j.partial = guard_get_aligned(SLOT_PARTIAL, kern_gemm_partial_bytes(&j) + 64);
    run_parts(&j, r, n_threads);
    compare(&j, s);
    guard_check(SLOT_C, c_bytes);
    guard_check(SLOT_SCRATCH, KERN_GEMM_SCRATCH_BYTES);
    guard_check(SLOT_PARTIAL, kern_gemm_partial_bytes(&j) + 64);
}

static struct shape any_shape(struct rng *r, const struct kern_variant *v, int64_t m,
                              int64_t n_max, int64_t k_max)
{
    struct shape s = {
        .m = m, .n = rng_range(r, 1, n_max), .k = rng_range(r, 1, k_max), .step = 1};

    s.k = check_k(type_of_op(v->op), s.k);
    s.epilogue = (enum kern_epilogue)rng_below(r, 4);
    s.bias = (s.epilogue == KERN_STORE || s.epilogue == KERN_ACT) && rng_below(r, 2);
    if (rng_below(r, 2))
        s.k_unit = 2 * rng_range(r, 1, 48);
    if (s.epilogue == KERN_GATED) /* whole pairs of panels */
        s.n = (s.n + 31) / 32 * 32;
    s.ldc = (s.n + 15) / 16 * 16 + rng_range(r, 0, 3) * 4;
    return s;
}

/* Fewer shapes for quantised types, which are many and share their code. */
static void test_run(const struct kern_variant *v, struct rng *r)
{
    const bool quantised = kern_type_quantised(type_of_op(v->op));

    for (int64_t m = 1; m <= 40; m += quantised ? 3 : 1) {
        for (int n = 0; n < check_cases(3); n++) {
            struct shape s = any_shape(r, v, m, 180, 200);

            run_once(v, r, &s);
        }
    }
    /* several slices along M and K (those above have several along N); 17 rows apart
     * meets every row of a tile */
    for (int n = quantised ? 2 : 0; n < 3; n++) {
        struct shape s =
            any_shape(r, v, CHECK_M_MAX - rng_range(r, 0, 60), 200, CHECK_K_MAX);

        s.k = check_k(type_of_op(v->op), CHECK_K_MAX - rng_range(r, 0, 60));
        s.k_unit = n % 2 ? 64 : 0;
        s.step = 17;
        run_once(v, r, &s);
    }
}

/* C by a schedule drawn at random that does not split K. */
static void draw_product(const struct kern_variant *v, struct rng *r,
                         const struct shape *s, const struct kern_mat *w, float *c)
{
    struct kern_gemm_job j = {.v = v, .w = w, .m = s->m, .c = c, .ldc = s->ldc};
    char schedule[96];
    int n_threads;
    void *a;

    do
        n_threads = any_schedule(&j.s, r, v, w, s->m);
    while (j.s.pk > 1);
    kern_schedule_print(&j.s, schedule, sizeof(schedule));
    describe(s, schedule);
    a = guard_get_aligned(SLOT_A, kern_a_bytes(v->a_format, s->m, w->k_pad));
    pack_a(v, a, s, j.s.mr, w->k_pad);
    j.a_packed = a;
    j.scratch = guard_get_aligned(SLOT_SCRATCH, KERN_GEMM_SCRATCH_BYTES);
    run_parts(&j, r, n_threads);
}

/* A batch-invariant variant's bits: the same by every schedule, and of a row alone. */
static void test_batch_invariant(const struct kern_variant *v, struct rng *r)
{
    static float first[CHECK_M_MAX * (CHECK_N_MAX + 64)];
    static float again[CHECK_M_MAX * (CHECK_N_MAX + 64)];

    for (int n = 0; v->batch_invariant && n < check_cases(30); n++) {
        struct shape s = {.m = rng_range(r, 1, 40), .n = rng_range(r, 1, 180)};
        int64_t row = rng_range(r, 0, s.m - 1);
        size_t row_bytes;
        struct kern_mat w;

        s.k = check_k(type_of_op(v->op), rng_range(r, 1, 200));
        s.k_unit = rng_below(r, 2) ? 2 * rng_range(r, 1, 48) : 0;
        check_operands(&w, SLOT_B, r, FILL_NORMAL, type_of_op(v->op), s.m, s.n, s.k,
                       s.k_unit);
        s.ldc = w.n_panels * KERN_PANEL;
        row_bytes = (size_t)s.ldc * sizeof(float);
        draw_product(v, r, &s, &w, first);
        for (int k = 0; k < 6; k++) {
            draw_product(v, r, &s, &w, again);
            CHECK(memcmp(first, again, (size_t)s.m * row_bytes) == 0,
                  "other bits than by another schedule");
        }
        memmove(check_a, check_a + row * s.k, (size_t)s.k * sizeof(float));
        s.m = 1;
        draw_product(v, r, &s, &w, again);
        CHECK(memcmp(first + row * s.ldc, again, row_bytes) == 0,
              "other bits than among other rows");
    }
}

int main(void)
{
    check_init();
    for (int t = 0; t < KERN_N_TYPES; t++) {
        check_gemm_variants(KERN_GEMM_F32 + t, test_batch_invariant);
        check_gemm_variants(KERN_GEMM_F32 + t, test_run);
    }
    return check_done();
}
