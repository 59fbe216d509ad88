/* Operators: every variant this CPU can execute, interleaved. Matrices are rotated beyond
 * the last-level cache; the small operators work on a row that stays in the first. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "tests/bench/bench.h"

#define GEMM_N         5504
#define GEMM_K         2048
#define MAX_VARIANT    16
#define PLAIN_ROWS_MAX 32                  /* plain C would take minutes beyond */
#define ROTATE_BYTES   ((size_t)256 << 20) /* several last-level caches of a share */

struct variants {
    const struct kern_variant *v[MAX_VARIANT];
    int n;
    struct measure *measure;
};

/* Those that this CPU can execute; without plain C where that would take minutes. */
static int variants_open(struct variants *t, const struct bench *b, enum kern_op op,
                         bool plain)
{
    uint64_t usable = cpu_isa_usable();

    *t = (struct variants){.n = 0};
    for (int i = 0; kern_variants[i] && t->n < MAX_VARIANT; i++) {
        const struct kern_variant *v = kern_variants[i];

        if (v->op == op && !(v->isa & ~usable) && (plain || v->isa))
            t->v[t->n++] = v;
    }
    return t->n ? measure_open(&t->measure, t->n, (int)b->o.rounds) : OK;
}

static int run_all(struct variants *t, const struct bench *b, measure_fn fn, void *arg)
{
    const struct measure_opts o = {MEASURE_EXACTLY((int)b->o.rounds)};

    return t->n ? measure_compare(t->measure, t->n, &o, fn, arg) : OK;
}

static int report(struct bench *b, const struct variants *t, int k, const char *shape,
                  double work, const char *unit, double bound, const char *of)
{
    const struct kern_variant *v = t->v[k];
    struct measure_report r;
    double rate;

    measure_report(t->measure, k, &r);
    rate = work / r.estimate * 1e-9;
    printf("%-10s %-12s %-22s %9.1f %-7s %s", kern_op_name(v->op), v->name, shape, rate,
           unit, bench_interval(&r));
    if (bound > 0)
        printf("  %5.1f %% of %s %.0f", 100 * rate / bound, of, bound);
    printf("\n");
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f}", "op",
                                  kern_op_name(v->op), "variant", v->name, "shape", shape,
                                  "rate", rate, "unit", unit, "rate_lo",
                                  work / r.hi * 1e-9, "rate_hi", work / r.lo * 1e-9));
}

/* ---- GEMM ---- */

struct gemm_run {
    struct kern_gemm_job job; /* p_lo, p_hi and scratch are each thread's */
    char *scratch;
};

static void gemm_share(void *arg, struct par_self *self)
{
    struct gemm_run *g = arg;
    struct kern_gemm_job j = g->job;

    kern_gemm_part(&j, 1, self->id);
    j.scratch = g->scratch + (size_t)self->id * KERN_GEMM_SCRATCH_BYTES;
    kern_gemm_run(&j);
}

struct gemm_buffers {
    struct kern_mat w;
    char *weights;
    int n_copies;
    void *a;
    float *c;
    struct gemm_run run;
    struct bench *bench;
    struct variants variants;
    int64_t m;
    int turn;
};

static int gemm_trial(void *arg, int i, struct measure_trial *t)
{
    struct gemm_buffers *g = arg;
    const struct kern_variant *v = g->variants.v[i];
    int n_threads = g->bench->n_threads;
    uint64_t t0;

    g->w.data = g->weights + (size_t)(g->turn++ % g->n_copies) * g->w.bytes;
    g->run.job = (struct kern_gemm_job){.v = v,
                                        .w = &g->w,
                                        .a_packed = g->a,
                                        .m = g->m,
                                        .c = g->c,
                                        .ldc = GEMM_N,
                                        .epilogue = KERN_STORE};
    kern_schedule_default(&g->run.job.s, v, &g->w, g->m, n_threads);
    t0 = clock_ns();
    par_team_run(g->bench->team, n_threads, gemm_share, &g->run);
    t->seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

static int gemm_rows(struct bench *b, struct gemm_buffers *g, enum kern_type type,
                     double read_gbps)
{
    double flop = 2.0 * (double)g->m * GEMM_N * GEMM_K;
    double roof = read_gbps * flop / (double)g->w.bytes;
    struct variants *t = &g->variants;
    char shape[64];
    int rc = variants_open(t, b, KERN_GEMM_F32 + type, g->m <= PLAIN_ROWS_MAX);

    if (rc == OK)
        rc = run_all(t, b, gemm_trial, g);
    snprintf(shape, sizeof(shape), "%lldx%dx%d", (long long)g->m, GEMM_N, GEMM_K);
    for (int k = 0; rc == OK && k < t->n; k++) {
        double peak = bench_peak_gflops(b, kern_type_name(type),
                                        kern_precision_name(t->v[k]->precision));

        rc = report(b, t, k, shape, flop, "GFLOP/s", roof < peak ? roof : peak,
                    roof < peak ? "bandwidth's" : "peak");
    }
    measure_close(&t->measure);
    return rc;
}

static int gemm_type(struct bench *b, enum kern_type type, struct gemm_buffers *g)
{
    static const int64_t sizes[] = {1, 8, 32, 128, 512};
    double read_gbps = bench_read_gbps(b);
    int rc = OK;

    g->bench = b;
    for (int i = 0; rc == OK && i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
        g->m = sizes[i];
        rc = gemm_rows(b, g, type, read_gbps);
    }
    return rc;
}

static int gemm(struct bench *b, enum kern_type type)
{
    struct gemm_buffers g = {0};
    size_t a_bytes = (size_t)512 * GEMM_K * 4;
    int rc = ERR_NOMEM;

    kern_mat_layout(&g.w, type, GEMM_N, GEMM_K, 0);
    g.n_copies = (int)(ROTATE_BYTES / g.w.bytes) + 1;
    g.weights = mem_map(MEM_TEST, (size_t)g.n_copies * g.w.bytes, MEM_NODE_ANY);
    g.a = mem_new(MEM_TEST, a_bytes, 1);
    g.c = mem_new(MEM_TEST, (size_t)512 * GEMM_N, sizeof(float));
    g.run.scratch = mem_new(MEM_TEST, (size_t)b->n_threads, KERN_GEMM_SCRATCH_BYTES);
    if (g.weights && g.a && g.c && g.run.scratch) {
        /* one byte pattern: small, equal values, no denormals in any of the types */
        memset(g.weights, 0x3c, (size_t)g.n_copies * g.w.bytes);
        memset(g.a, 0x3c, a_bytes);
        rc = gemm_type(b, type, &g);
    }
    mem_unmap(MEM_TEST, g.weights, (size_t)g.n_copies * g.w.bytes);
    mem_free(g.a);
    mem_free(g.c);
    mem_free(g.run.scratch);
    return rc;
}

/* ---- attention, one thread ---- */

struct attn_run {
    const struct variants *variants;
    struct kern_attn_args a;
};
#define ATTN_REPEATS 20

static int attn_trial(void *arg, int i, struct measure_trial *t)
{
    const struct attn_run *x = arg;
    uint64_t t0 = clock_ns();

    for (int k = 0; k < ATTN_REPEATS; k++)
        x->variants->v[i]->fn.attn(&x->a);
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / ATTN_REPEATS;
    return OK;
}

static int attn(struct bench *b, enum kern_op op, int n_tok, int g, int64_t ctx)
{
    enum { hd = 128 };
    const size_t run_bytes =
        (size_t)ctx * kern_kv_bytes((enum kern_kv_type)(op - KERN_ATTN_F32), hd);
    int rc = OK;
    struct variants v;
    float *q = mem_new(MEM_TEST, (size_t)(n_tok * g) * hd * 2, sizeof(float));
    char *kv = mem_new(MEM_TEST, run_bytes, 2);
    void *scratch = mem_new(MEM_TEST, KERN_ATTN_SCRATCH_BYTES(hd), 1);
    struct attn_run x = {.variants = &v,
                         .a = {.q = q,
                               .q_stride = g * hd,
                               .k = kv + run_bytes - run_bytes / (size_t)ctx,
                               .v = kv + run_bytes,
                               .out = q + n_tok * g * hd,
                               .out_stride = g * hd,
                               .scratch = scratch,
                               .kv_hi = ctx,
                               .pos0 = ctx - n_tok,
                               .n_tok = n_tok,
                               .g = g,
                               .head_dim = hd,
                               .scale = 0.1f}};
    /* keys each row sees, times two products of hd multiply-adds */
    double flop =
        4.0 * hd * g *
        ((double)n_tok * (double)(ctx - n_tok) + (double)n_tok * (n_tok + 1) / 2);
    double bytes = 2.0 * (double)run_bytes;
    char shape[64];

    rc = variants_open(&v, b, op, true);
    if (!q || !kv || !scratch)
        rc = ERR_NOMEM;
    if (rc == OK)
        rc = run_all(&v, b, attn_trial, &x);
    snprintf(shape, sizeof(shape), "%dx%d ctx %lld hd %d", n_tok, g, (long long)ctx, hd);
    for (int k = 0; rc == OK && k < v.n; k++)
        rc = n_tok > 1 ? report(b, &v, k, shape, flop, "GFLOP/s",
                                bench_peak_gflops(b, "f32", "exact") / b->n_threads,
                                "one thread's peak")
                       : report(b, &v, k, shape, bytes, "GB/s", 0, "");
    measure_close(&v.measure);
    mem_free(q);
    mem_free(kv);
    mem_free(scratch);
    return rc;
}

/* ---- operators on one row ---- */

struct row_bufs {
    float *x, *y, *w;
    const struct variants *variants;
};
#define ROW         2048
#define ROW_REPEATS 200

static void row_call(const struct kern_variant *v, const struct row_bufs *f, int64_t n)
{
    switch (v->op) {
    case KERN_RMSNORM:
        v->fn.rmsnorm(f->y, f->x, f->w, n, 1e-5f);
        break;
    case KERN_ROPE:
        v->fn.rope(f->y, f->x, f->w, (int)(n / 128), 128);
        break;
    case KERN_SILU_MUL:
        v->fn.silu_mul(f->y, f->x, f->w, n);
        break;
    case KERN_ADD:
        v->fn.add(f->y, f->x, n);
        break;
    case KERN_TO_BF16:
        v->fn.to_bf16((uint16_t *)f->y, f->x, n);
        break;
    case KERN_FROM_BF16:
    case KERN_FROM_F16:
        v->fn.from_bf16(f->y, (const uint16_t *)f->x, n);
        break;
    default:
        f->y[0] = (float)v->fn.argmax(f->x, n);
    }
}

static int row_trial(void *arg, int i, struct measure_trial *t)
{
    const struct row_bufs *f = arg;
    uint64_t t0 = clock_ns();

    for (int k = 0; k < ROW_REPEATS; k++)
        row_call(f->variants->v[i], f, ROW);
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / ROW_REPEATS;
    return OK;
}

static int row_op(struct bench *b, enum kern_op op)
{
    struct variants v;
    struct row_bufs f = {mem_new(MEM_TEST, ROW, 4), mem_new(MEM_TEST, ROW, 4),
                         mem_new(MEM_TEST, ROW, 4), &v};
    int rc = variants_open(&v, b, op, true);
    char shape[32];

    if (!f.x || !f.y || !f.w)
        rc = ERR_NOMEM;
    for (int i = 0; rc == OK && i < ROW; i++)
        f.x[i] = (float)(i % 29 - 14) / 16, f.w[i] = 0.5f;
    if (rc == OK)
        rc = run_all(&v, b, row_trial, &f);
    snprintf(shape, sizeof(shape), "%d, in cache", ROW);
    for (int k = 0; rc == OK && k < v.n; k++)
        rc = report(b, &v, k, shape, ROW, "Gelem/s", 0, "");
    measure_close(&v.measure);
    mem_free(f.x);
    mem_free(f.y);
    mem_free(f.w);
    return rc;
}

int bench_ops(struct bench *b)
{
    int rc = OK;

    for (enum kern_type type = 0; rc == OK && type < KERN_N_TYPES; type++)
        rc = gemm(b, type);
    for (enum kern_op op = KERN_ATTN_F32; rc == OK && kern_op_is_attn(op); op++) {
        rc = attn(b, op, 1, 1, 128);
        if (rc == OK)
            rc = attn(b, op, 1, 4, 2048);
        if (rc == OK)
            rc = attn(b, op, 128, 1, 512);
    }
    for (enum kern_op op = KERN_RMSNORM; rc == OK && op < KERN_N_OPS; op++)
        rc = row_op(b, op);
    return rc;
}
