/* Operators: every variant this CPU can execute, interleaved. Matrices are rotated beyond
 * the last-level cache; the small operators work on a row that stays in the first. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "tests/bench/bench.h"

#define GEMM_N       5504
#define GEMM_K       2048
#define MAX_VARIANT  16
#define MAX_ROUNDS   1000
#define ROTATE_BYTES ((size_t)256 << 20) /* several last-level caches of a share */

struct trial {
    const struct kern_variant *v;
    double s[MAX_ROUNDS];
};

static int variants_of(enum kern_op op, struct trial *t)
{
    uint64_t usable = cpu_isa_usable();
    int n = 0;

    for (int i = 0; kern_variants[i] && n < MAX_VARIANT; i++) {
        if (kern_variants[i]->op == op && !(kern_variants[i]->isa & ~usable))
            t[n++].v = kern_variants[i];
    }
    return n;
}

static int report(struct bench *b, const struct trial *t, const char *shape, double work,
                  const char *unit, double bound, const char *of)
{
    size_t n = (size_t)b->o.rounds;
    double median = stats_median(t->s, n), mad = stats_mad(t->s, n);
    double rate = work / median * 1e-9;

    printf("%-10s %-12s %-22s %9.1f %-7s +- %4.1f %%", kern_op_name(t->v->op), t->v->name,
           shape, rate, unit, 100 * mad / median);
    if (bound > 0)
        printf("  %5.1f %% of %s %.0f", 100 * rate / bound, of, bound);
    printf("\n");
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f}", "op",
                                  kern_op_name(t->v->op), "variant", t->v->name, "shape",
                                  shape, "rate", rate, "unit", unit, "mad_frac",
                                  mad / median));
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
};

static double gemm_once(struct bench *b, struct gemm_buffers *g,
                        const struct kern_variant *v, int64_t m, int turn)
{
    uint64_t t0;

    g->w.data = g->weights + (size_t)(turn % g->n_copies) * g->w.bytes;
    g->run.job = (struct kern_gemm_job){.v = v,
                                        .w = &g->w,
                                        .a_packed = g->a,
                                        .m = m,
                                        .c = g->c,
                                        .ldc = GEMM_N,
                                        .epilogue = KERN_STORE};
    kern_schedule_default(&g->run.job.s, v, &g->w, m, b->n_threads);
    t0 = clock_ns();
    par_team_run(b->team, b->n_threads, gemm_share, &g->run);
    return (double)(clock_ns() - t0) * 1e-9;
}

static int gemm_type(struct bench *b, enum kern_type type, struct gemm_buffers *g)
{
    static const int64_t sizes[] = {1, 8, 32, 128, 512};
    struct trial *t = mem_new(MEM_TEST, MAX_VARIANT, sizeof(*t));
    int n, turn = 0, rc = OK;
    double read = bench_read_gbps(b);

    if (!t)
        return ERR_NOMEM;
    n = variants_of(KERN_GEMM_F32 + type, t);
    for (int i = 0; rc == OK && i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
        int64_t m = sizes[i];
        double flop = 2.0 * (double)m * GEMM_N * GEMM_K;
        char shape[64];

        for (int r = -1; r < b->o.rounds; r++) /* the first round warms up */
            for (int k = 0; k < n; k++)
                if (m <= 32 || t[k].v->isa) /* plain C would take minutes */
                    t[k].s[r < 0 ? 0 : r] = gemm_once(b, g, t[k].v, m, turn++);
        snprintf(shape, sizeof(shape), "%lldx%dx%d", (long long)m, GEMM_N, GEMM_K);
        for (int k = 0; rc == OK && k < n; k++) {
            double peak =
                bench_peak_gflops(b, kern_type_name(type),
                                  t[k].v->precision == KERN_EXACT ? "exact" : "relaxed");
            double roof = read * flop / (double)g->w.bytes;

            if (m > 32 && !t[k].v->isa)
                continue;
            rc = report(b, &t[k], shape, flop, "GFLOP/s", roof < peak ? roof : peak,
                        roof < peak ? "bandwidth's" : "peak");
        }
    }
    mem_free(t);
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

static int attn(struct bench *b, enum kern_op op, int n_tok, int g, int64_t ctx)
{
    enum { hd = 128, repeats = 20 };
    int elem = op == KERN_ATTN_BF16 ? 2 : 4, n, rc = OK;
    struct trial *t = mem_new(MEM_TEST, MAX_VARIANT, sizeof(*t));
    float *q = mem_new(MEM_TEST, (size_t)(n_tok * g) * hd * 2, sizeof(float));
    char *kv = mem_new(MEM_TEST, (size_t)ctx * hd * 2, (size_t)elem);
    void *scratch = mem_new(MEM_TEST, KERN_ATTN_SCRATCH_BYTES(hd), 1);
    struct kern_attn_args a = {.q = q,
                               .q_stride = g * hd,
                               .k = kv,
                               .v = kv + ctx * hd * elem,
                               .out = q + n_tok * g * hd,
                               .out_stride = g * hd,
                               .scratch = scratch,
                               .kv_hi = ctx,
                               .pos0 = ctx - n_tok,
                               .n_tok = n_tok,
                               .g = g,
                               .head_dim = hd,
                               .scale = 0.1f};
    /* keys each row sees, times two products of hd multiply-adds */
    double flop =
        4.0 * hd * g *
        ((double)n_tok * (double)(ctx - n_tok) + (double)n_tok * (n_tok + 1) / 2);
    double bytes = 2.0 * (double)ctx * hd * elem;
    char shape[64];

    if (!t || !q || !kv || !scratch)
        rc = ERR_NOMEM;
    n = rc == OK ? variants_of(op, t) : 0;
    for (int r = -1; n > 0 && r < b->o.rounds; r++) {
        for (int k = 0; k < n; k++) {
            uint64_t t0 = clock_ns();

            for (int i = 0; i < repeats; i++)
                t[k].v->fn.attn(&a);
            t[k].s[r < 0 ? 0 : r] = (double)(clock_ns() - t0) * 1e-9 / repeats;
        }
    }
    snprintf(shape, sizeof(shape), "%dx%d ctx %lld hd %d", n_tok, g, (long long)ctx, hd);
    for (int k = 0; rc == OK && k < n; k++)
        rc = n_tok > 1 ? report(b, &t[k], shape, flop, "GFLOP/s",
                                bench_peak_gflops(b, "f32", "exact") / b->n_threads,
                                "one thread's peak")
                       : report(b, &t[k], shape, bytes, "GB/s", 0, "");
    mem_free(t);
    mem_free(q);
    mem_free(kv);
    mem_free(scratch);
    return rc;
}

/* ---- operators on one row ---- */

struct row_bufs {
    float *x, *y, *w;
};

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

static int row_op(struct bench *b, enum kern_op op)
{
    enum { n = 2048, repeats = 200 };
    struct trial *t = mem_new(MEM_TEST, MAX_VARIANT, sizeof(*t));
    struct row_bufs f = {mem_new(MEM_TEST, n, 4), mem_new(MEM_TEST, n, 4),
                         mem_new(MEM_TEST, n, 4)};
    int rc = OK, n_v = 0;
    char shape[32];

    if (!t || !f.x || !f.y || !f.w)
        rc = ERR_NOMEM;
    if (rc == OK)
        n_v = variants_of(op, t);
    for (int i = 0; rc == OK && i < n; i++)
        f.x[i] = (float)(i % 29 - 14) / 16, f.w[i] = 0.5f;
    for (int r = -1; n_v > 0 && r < b->o.rounds; r++) {
        for (int k = 0; k < n_v; k++) {
            uint64_t t0 = clock_ns();

            for (int i = 0; i < repeats; i++)
                row_call(t[k].v, &f, n);
            t[k].s[r < 0 ? 0 : r] = (double)(clock_ns() - t0) * 1e-9 / repeats;
        }
    }
    snprintf(shape, sizeof(shape), "%d, in cache", n);
    for (int k = 0; rc == OK && k < n_v; k++)
        rc = report(b, &t[k], shape, n, "Gelem/s", 0, "");
    mem_free(t);
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
    for (enum kern_op op = KERN_ATTN_F32; rc == OK && op <= KERN_ATTN_BF16; op++) {
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
