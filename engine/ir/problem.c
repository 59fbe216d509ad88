/* Problems of every operator, with random data: kernels are checked and timed on them. */
#include "ir/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/gemm.h"
#include "kernels/kv_type.h"

/* What child.h reckons its limits from: time for a problem is 60 ms, which takes 1 at most. */
#define PROBLEM_BYTES ((size_t)64 << 10)

enum { IN, IN2, IN3, WORK, OUT, N_PARTS };

struct ir_problem {
    enum kern_op op;
    char text[128];
    void *part[N_PARTS];
    size_t bytes[N_PARTS];
    int64_t n;              /* elements, or those of a vector */
    int64_t rows;           /* heads, rows of a product */
    struct kern_mat mat;    /* a product's weights; data in IN2 */
    void *packed, *scratch; /* its activations; of products and attention */
    size_t packed_bytes;
    struct kern_attn_args attn;
    float *result; /* [n_result], from OUT */
    int64_t n_result;
    struct rng r;
    bool any_tile; /* micro-kernels at random */
};

static int take(struct ir_problem *p, int part, size_t bytes)
{
    p->bytes[part] = bytes;
    p->part[part] = mem_new(MEM_OTHER, bytes + 64, 1);
    return p->part[part] ? OK : ERR_NOMEM;
}

static int take_floats(struct ir_problem *p, int part, int64_t n)
{
    float *x;

    TRY(take(p, part, (size_t)n * sizeof(float)));
    x = p->part[part];
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&p->r);
    return OK;
}

/* Numbers of 16 bits that are finite. */
static int take_halves(struct ir_problem *p, int part, int64_t n)
{
    uint16_t *x;

    TRY(take(p, part, (size_t)n * sizeof(*x)));
    x = p->part[part];
    for (int64_t i = 0; i < n; i++)
        x[i] = p->op == KERN_FROM_F16 || p->op == KERN_GEMM_F16
                   ? kern_f16_of((float)rng_normal(&p->r))
                   : kern_bf16_of((float)rng_normal(&p->r));
    return OK;
}

static int64_t draw(struct ir_problem *p, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_below(&p->r, (uint64_t)(hi - lo + 1));
}

/* ---- products ---- */

static int make_product(struct ir_problem *p, int64_t m, int64_t n, int64_t k,
                        int64_t k_unit)
{
    const enum kern_type type = (enum kern_type)(p->op - KERN_GEMM_F32);
    const void *rows[KERN_PANEL] = {0};

    if (type > KERN_BF16)
        return err_set(ERR_UNSUPPORTED, "%s: only products of f32, f16 and bf16 weights",
                       kern_op_name(p->op));
    kern_mat_layout(&p->mat, type, n, k, k_unit);
    p->rows = m;
    p->n = k;
    TRY(take_floats(p, IN, m * k));
    TRY(take(p, IN2, p->mat.bytes));
    p->mat.data = p->part[IN2];
    if (type == KERN_F32)
        TRY(take_floats(p, IN3, n * k));
    else
        TRY(take_halves(p, IN3, n * k));
    for (int64_t panel = 0; panel < p->mat.n_panels; panel++) {
        for (int64_t c = 0; c < KERN_PANEL; c++)
            rows[c] = panel * KERN_PANEL + c < n
                          ? (char *)p->part[IN3] +
                                kern_type_size(type, (panel * KERN_PANEL + c) * k)
                          : NULL;
        kern_mat_put_panels(&p->mat, panel, panel + 1, rows, type);
    }
    p->packed_bytes = kern_a_bytes(KERN_A_F32, m, p->mat.k_pad) + 4096;
    p->packed = mem_new(MEM_OTHER, p->packed_bytes, 1);
    p->scratch = mem_new(MEM_OTHER, KERN_GEMM_SCRATCH_BYTES, 1);
    p->n_result = m * p->mat.n_panels * KERN_PANEL;
    return p->packed && p->scratch ? take(p, OUT, (size_t)p->n_result * sizeof(float))
                                   : ERR_NOMEM;
}

static int run_product(struct ir_problem *p, const struct kern_variant *v)
{
    struct kern_gemm_job j = {.v = v,
                              .w = &p->mat,
                              .a_packed = p->packed,
                              .m = p->rows,
                              .c = p->part[OUT],
                              .ldc = p->mat.n_panels * KERN_PANEL,
                              .scratch = p->scratch};
    int64_t blocks;

    if (v->a_format != KERN_A_F32)
        return err_set(ERR_UNSUPPORTED, "%s: not with activations of f32", v->name);
    kern_schedule_default(&j.s, v, &p->mat, p->rows, 1);
    while (p->any_tile) {
        j.s.np = (int)draw(p, 1, KERN_NP_MAX);
        if (kern_gemm_rows(v, j.s.np) == 0)
            continue;
        j.s.mr = (int)draw(p, 1, kern_gemm_rows(v, j.s.np));
        j.s.bk = draw(p, 2, 2 * p->n);
        break;
    }
    blocks = kern_a_blocks(p->rows, j.s.mr);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t r0 = kern_a_row(p->rows, blocks, i),
                r1 = kern_a_row(p->rows, blocks, i + 1);

        kern_a_pack(v, (char *)p->packed + kern_a_bytes(v->a_format, r0, p->mat.k_pad),
                    (float *)p->part[IN] + r0 * p->n, p->n, r1 - r0, p->n, p->mat.k_pad);
    }
    kern_gemm_part(&j, 1, 0);
    kern_gemm_run(&j);
    return OK;
}

/* ---- attention ---- */

static int make_attention(struct ir_problem *p, int64_t n_tok, int64_t g, int64_t hd,
                          int64_t kv)
{
    const enum kern_kv_type type = (enum kern_kv_type)(p->op - KERN_ATTN_F32);
    const size_t vec = kern_kv_bytes(type, (int)hd);
    struct kern_table plain;
    char *k, *v;

    kern_table_choose(&plain, 0, KERN_EXACT);
    TRY(take_floats(p, IN, n_tok * g * hd));
    TRY(take_floats(p, IN3, 2 * kv * hd));
    TRY(take(p, IN2, 2 * vec * (size_t)kv));
    k = (char *)p->part[IN2] + vec * (size_t)(kv - 1);
    v = (char *)p->part[IN2] + vec * (size_t)kv;
    for (int64_t i = 0; i < kv; i++) {
        const float *x = (float *)p->part[IN3] + 2 * i * hd;

        kern_kv_store(&plain, type, k - (size_t)i * vec, x, (int)hd);
        kern_kv_store(&plain, type, v + (size_t)i * vec, x + hd, (int)hd);
    }
    p->n_result = n_tok * g * hd;
    p->scratch = mem_new(MEM_OTHER, KERN_ATTN_SCRATCH_BYTES((size_t)hd), 1);
    TRY(take(p, OUT, (size_t)p->n_result * sizeof(float)));
    p->attn = (struct kern_attn_args){.q = p->part[IN],
                                      .q_stride = g * hd,
                                      .k = k,
                                      .v = v,
                                      .out = p->part[OUT],
                                      .out_stride = g * hd,
                                      .scratch = p->scratch,
                                      .kv_hi = kv,
                                      .pos0 = kv - n_tok,
                                      .n_tok = (int)n_tok,
                                      .g = (int)g,
                                      .head_dim = (int)hd,
                                      .scale = 1 / sqrtf((float)hd)};
    return p->scratch ? OK : ERR_NOMEM;
}

/* ---- the others ---- */

static bool makes_halves(enum kern_op op)
{
    return op == KERN_TO_BF16 || op == KERN_TO_F16;
}

static int make_vectors(struct ir_problem *p, int64_t n)
{
    bool halves = p->op == KERN_FROM_BF16 || p->op == KERN_FROM_F16;

    p->n = n;
    p->n_result = p->op == KERN_ARGMAX ? 1 : n;
    TRY(halves ? take_halves(p, IN, n) : take_floats(p, IN, n));
    TRY(take_floats(p, IN2, n));
    TRY(take_floats(p, IN3, n));
    return take(p, OUT, (size_t)n * sizeof(float));
}

static int make_rope(struct ir_problem *p, int64_t heads, int64_t hd)
{
    p->rows = heads;
    p->n = hd;
    p->n_result = heads * hd;
    TRY(take_floats(p, IN, heads * hd));
    TRY(take_floats(p, IN2, hd / 2));
    TRY(take_floats(p, IN3, hd / 2));
    return take(p, OUT, (size_t)p->n_result * sizeof(float));
}

int ir_problem_run(struct ir_problem *p, const struct kern_variant *v, bool fresh)
{
    float *out = p->part[OUT];
    const float *in = p->part[IN], *in2 = p->part[IN2], *in3 = p->part[IN3];

    if (fresh && (p->op == KERN_ROPE || p->op == KERN_ADD))
        memcpy(out, in, p->bytes[IN]);
    else if (fresh)
        memset(out, 0xff, p->bytes[OUT]);
    if (kern_op_is_gemm(p->op))
        return run_product(p, v);
    if (kern_op_is_attn(p->op))
        v->fn.attn(&p->attn);
    else if (p->op == KERN_ROPE)
        v->fn.rope(out, in2, in3, (int)p->rows, (int)p->n);
    else if (p->op == KERN_RMSNORM)
        v->fn.rmsnorm(out, in, in2, p->n, 1e-5f);
    else if (p->op == KERN_SILU_MUL)
        v->fn.gate(out, in, in2, p->n);
    else if (p->op == KERN_ADD)
        v->fn.add(out, in2, p->n);
    else if (makes_halves(p->op))
        v->fn.to_bf16((uint16_t *)out, in, p->n);
    else if (p->op == KERN_FROM_BF16 || p->op == KERN_FROM_F16)
        v->fn.from_bf16(out, (const uint16_t *)in, p->n);
    else
        out[0] = (float)v->fn.argmax(in, p->n);
    return OK;
}

/* The results, as floats (an index as one, 16-bit results by their bits). */
static const float *result_of(const struct ir_problem *p, int64_t *n)
{
    const uint16_t *bits = p->part[OUT];

    *n = p->n_result;
    if (!makes_halves(p->op))
        return p->part[OUT];
    for (int64_t i = 0; i < p->n_result; i++)
        p->result[i] = bits[i];
    return p->result;
}

/* ---- opening ---- */

static int make_random(struct ir_problem *p)
{
    if (kern_op_is_gemm(p->op)) {
        int64_t unit = 2 * draw(p, 1, 24);

        p->any_tile = true;
        return draw(p, 0, 1)
                   ? make_product(p, draw(p, 1, 40), draw(p, 1, 100),
                                  unit * draw(p, 1, 5), unit)
                   : make_product(p, draw(p, 1, 40), draw(p, 1, 100), draw(p, 1, 150), 0);
    }
    if (kern_op_is_attn(p->op)) {
        int64_t n_tok = draw(p, 1, 6);

        return make_attention(p, n_tok, draw(p, 1, 6), 2 * draw(p, 1, 64),
                              n_tok + draw(p, 0, 60));
    }
    if (p->op == KERN_ROPE)
        return make_rope(p, draw(p, 1, 8), 2 * draw(p, 1, 100));
    return make_vectors(p, draw(p, 1, 300));
}

static int make_bench(struct ir_problem *p, int64_t m)
{
    if (kern_op_is_gemm(p->op)) {
        snprintf(p->text, sizeof(p->text), "%lld rows, 1024 x 1024", (long long)m);
        return make_product(p, m, 1024, 1024, 0);
    }
    if (kern_op_is_attn(p->op)) {
        snprintf(p->text, sizeof(p->text), "1 token, 4 heads of 128, 1024 keys");
        return make_attention(p, 1, 4, 128, 1024);
    }
    if (p->op == KERN_ROPE) {
        snprintf(p->text, sizeof(p->text), "32 heads of 128");
        return make_rope(p, 32, 128);
    }
    snprintf(p->text, sizeof(p->text), "4096 elements");
    return make_vectors(p, 4096);
}

/* m: of the benchmark; 0: random sizes. */
static int open_problem(struct ir_problem **out, enum kern_op op, uint64_t seed,
                        int64_t m)
{
    struct ir_problem *p = mem_new(MEM_OTHER, 1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p)
        return ERR_NOMEM;
    p->op = op;
    rng_init(&p->r, seed, "problem");
    rc = m > 0 ? make_bench(p, m) : make_random(p);
    if (rc == OK) {
        p->result = mem_new(MEM_OTHER, (size_t)p->n_result, sizeof(*p->result));
        rc = p->result ? OK : ERR_NOMEM;
    }
    if (rc == OK)
        *out = p;
    else
        ir_problem_close(&p);
    return rc;
}

int ir_problem_bench(struct ir_problem **out, enum kern_op op, int64_t m)
{
    return open_problem(out, op, 1, m > 0 ? m : 64);
}

void ir_problem_close(struct ir_problem **p)
{
    if (!*p)
        return;
    for (int i = 0; i < N_PARTS; i++)
        mem_free((*p)->part[i]);
    mem_free((*p)->packed);
    mem_free((*p)->scratch);
    mem_free((*p)->result);
    mem_free(*p);
    *p = NULL;
}

const char *ir_problem_text(const struct ir_problem *p)
{
    return p->text;
}

/* ---- checking ---- */

const struct kern_variant *ir_reference(enum kern_op op)
{
    struct kern_table t;

    kern_table_choose(&t, 0, KERN_EXACT);
    return t.v[op];
}

static void compare(struct ir_check *c, const float *want, const float *got, int64_t n)
{
    double square = 0, most = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);

        c->n_different += memcmp(&want[i], &got[i], sizeof(*got)) != 0;
        square += (double)want[i] * want[i];
        if (!(off <= most))
            most = isnan(off) ? INFINITY : off;
    }
    c->n_values += n;
    c->n_problems++;
    most /= sqrt(square / (double)n) + 1e-30;
    c->error = most > c->error ? most : c->error;
}

static int check_one(struct ir_check *c, const struct kern_variant *v, uint64_t seed)
{
    struct ir_problem *p;
    const float *result;
    float *want = NULL;
    int64_t n;
    int rc;

    TRY(open_problem(&p, v->op, seed, 0));
    rc = ir_problem_run(p, ir_reference(v->op), true);
    result = result_of(p, &n);
    if (rc == OK) {
        want = mem_new(MEM_OTHER, (size_t)n, sizeof(*want));
        rc = want ? OK : ERR_NOMEM;
    }
    if (rc == OK) {
        memcpy(want, result, (size_t)n * sizeof(*want));
        rc = ir_problem_run(p, v, true);
    }
    if (rc == OK) {
        result = result_of(p, &n);
        compare(c, want, result, n);
    }
    mem_free(want);
    ir_problem_close(&p);
    return rc;
}

int ir_run_apart(char **text, int (*fn)(void *ctx, FILE *out), void *ctx,
                 const struct kern_variant *v, int n_problems)
{
    const struct child c = {
        .fn = fn,
        .ctx = ctx,
        .where = v->name,
        .if_crash = "the kernel reads or writes out of bounds, or does not end",
        .foreign_bytes = PROBLEM_BYTES * (size_t)n_problems};
    size_t n;

    return child_run(&c, text, &n);
}

struct checking {
    const struct kern_variant *v;
    int n;
    uint64_t seed;
};

static int check_all(void *ctx, FILE *out)
{
    const struct checking *k = ctx;
    struct ir_check c = {.error = 0};

    for (int i = 0; i < k->n; i++)
        TRY(check_one(&c, k->v, k->seed + (uint64_t)i));
    fprintf(out, "%lld %lld %lld %a", (long long)c.n_problems, (long long)c.n_values,
            (long long)c.n_different, c.error);
    return OK;
}

int ir_check(struct ir_check *out, const struct kern_variant *v, int n, uint64_t seed)
{
    struct checking k = {v, n, seed};
    char *text;

    *out = (struct ir_check){.error = 0};
    TRY(ir_run_apart(&text, check_all, &k, v, n));
    (void)sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %la", &out->n_problems,
                 &out->n_values, &out->n_different, &out->error);
    mem_free(text);
    return OK;
}

int ir_check_verdict(const struct ir_check *c, bool keeps_bits)
{
    if (keeps_bits && c->n_different > 0)
        return err_set(ERR_STATE,
                       "%lld of %lld results differ from kernels/ref/: its parameters "
                       "should keep every bit",
                       (long long)c->n_different, (long long)c->n_values);
    if (!(c->error <= IR_ERROR_MAX))
        return err_set(ERR_STATE,
                       "results are off by %.2g of their RMS: more than %.0e, which no "
                       "order of sums explains",
                       c->error, IR_ERROR_MAX);
    return OK;
}

/* ---- timing ---- */

int ir_bench_trial(void *arg, int i, struct measure_trial *t)
{
    const struct ir_bench *b = arg;
    uint64_t from = clock_ns();

    for (int64_t run = 0; run < b->n_runs; run++)
        TRY(ir_problem_run(b->p, b->v[i], false));
    t->seconds = (double)(clock_ns() - from) * 1e-9 / (double)b->n_runs;
    return OK;
}

int ir_bench_open(struct ir_bench *b, double trial_s)
{
    struct measure_trial once = {.seconds = 0};

    TRY(ir_problem_run(b->p, b->v[0], true)); /* all of it is in the caches then */
    b->n_runs = 1;
    TRY(ir_bench_trial(b, 0, &once));
    if (once.seconds < trial_s)
        b->n_runs = (int64_t)(trial_s / (once.seconds + 1e-9)) + 1;
    return OK;
}

int ir_bench(struct measure_report *out, struct ir_problem *p,
             const struct kern_variant *const *v, int n)
{
    struct measure_opts o = {.keep_all = true, .max_rounds = 25};
    struct ir_bench b = {.p = p, .v = v};
    struct measure *m;
    int rc;

    TRY(ir_bench_open(&b, 5e-4));
    TRY(measure_open(&m, n, 25));
    rc = measure_compare(m, n, &o, ir_bench_trial, &b);
    for (int i = 0; i < n && rc == OK; i++)
        measure_report(m, i, &out[i]);
    measure_close(&m);
    return rc;
}
