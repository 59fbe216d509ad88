/* sandwich bench --ops: every kernel variant that this processor can execute, those of one
 * operator and shape in turn. Weights come from memory: each product reads another copy, and
 * all copies exceed the last-level cache. Operators on a row work in the first cache. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "cli/cli.h"
#include "kernels/gemm.h"
#include "measure/card.h"

#define GEMM_N         5504
#define GEMM_K         2048
#define GEMM_ROWS_MAX  512
#define PLAIN_ROWS_MAX 32                  /* plain C would take minutes beyond */
#define ROTATE_BYTES   ((size_t)256 << 20) /* several last-level caches of a share */
#define PLAIN_CTX_MAX  512                 /* of many tokens */
#define ATTN_HEAD_DIM  128
#define ATTN_REPEATS   20 /* a trial */
#define ROW            2048
#define ROW_REPEATS    200

/* One operator on one shape. */
struct op_case {
    enum kern_op op;
    char shape[64];
    int n_threads;
    bool no_plain_c;
    double work;       /* of one call, in the unit below */
    const char *unit;  /* of work per nanosecond */
    double read_bytes; /* from memory; 0: none */
};

struct op_bench {
    struct cli_bench *b;
    struct par_team *team;
    const struct kern_variant *v[CLI_BENCH_VARIANTS_MAX];
    int n_variants;
};

/* The card's bound of this variant's rate and its name; NaN and NULL where there is none. */
static double bound_of(const struct cli_bench *b, const struct op_case *c,
                       const struct kern_variant *v, const char **name)
{
    bool gemm = kern_op_is_gemm(c->op);
    /* relaxed attention rounds to bf16 */
    const char *type = gemm ? kern_type_name((enum kern_type)(c->op - KERN_GEMM_F32))
                       : v->precision == KERN_EXACT ? "f32"
                                                    : "bf16";
    const char *precision = kern_precision_name(v->precision);
    double peak, roof;

    *name = NULL;
    if (strcmp(c->unit, "GFLOP/s") != 0)
        return NAN;
    *name = "peak_gflops";
    peak = measure_card_peak_gflops(b->card, type, precision, c->n_threads);
    if (c->read_bytes == 0)
        return peak;
    roof = measure_card_read_gbps(b->card, c->n_threads) * c->work / c->read_bytes;
    if (!(roof < peak))
        return peak;
    *name = "read_gbps";
    return roof;
}

/* Add the row of alternative i; v: its kernel, NULL: a phase of the team. */
static int add_row(struct op_bench *o, const struct op_case *c, int i, const char *op,
                   const struct kern_variant *v)
{
    struct cli_bench *b = o->b;
    const char *bound_name = NULL;
    double bound = v ? bound_of(b, c, v, &bound_name) : NAN;
    json_t *row = cli_bench_new_row(b), *all_ns = json_array();
    struct measure_report r;
    int n_rounds;
    const double *seconds = measure_times(b->measure, i, &n_rounds);

    if (!row || !all_ns)
        return err_set(ERR_NOMEM, "no memory for the result");
    measure_report(b->measure, i, &r);
    for (int k = 0; k < n_rounds; k++)
        json_array_append_new(all_ns, json_number(1e9 * seconds[k]));
    json_object_set_new(row, "op", json_string(op));
    json_object_set_new(row, "variant",
                        json_string(v ? v->name : par_team_name(o->team)));
    json_object_set_new(row, "shape", json_string(c->shape));
    json_object_set_new(row, "n_threads", json_integer(c->n_threads));
    json_object_set_new(row, "unit", json_string(c->unit));
    json_object_set_new(row, "rate", json_number(c->work / r.estimate * 1e-9));
    json_object_set_new(row, "rate_lo", json_number(c->work / r.hi * 1e-9));
    json_object_set_new(row, "rate_hi", json_number(c->work / r.lo * 1e-9));
    json_object_set_new(row, "n_disturbed", json_integer(r.n_disturbed));
    cli_bench_set_bound(row, bound_name, bound, c->work / r.estimate * 1e-9);
    json_object_set_new(row, "samples_ns", all_ns);
    return OK;
}

/* Measure the variants that this processor can execute; fn's argument is `arg`. */
static int measure_case(struct op_bench *o, const struct op_case *c, measure_fn fn,
                        void *arg)
{
    struct cli_bench *b = o->b;
    const struct measure_opts mo = {MEASURE_EXACTLY((int)b->f->repetitions)};
    uint64_t usable = cpu_isa_usable();
    size_t first = json_array_size(b->rows);

    o->n_variants = 0;
    for (int i = 0; kern_variants[i] && o->n_variants < CLI_BENCH_VARIANTS_MAX; i++) {
        const struct kern_variant *v = kern_variants[i];

        if (v->op == c->op && !(v->isa & ~usable) && (v->isa || !c->no_plain_c))
            o->v[o->n_variants++] = v;
    }
    if (o->n_variants == 0)
        return OK;
    if (cli_interrupted)
        return err_set(ERR_CANCELED, "interrupted");
    TRY(measure_compare(b->measure, o->n_variants, &mo, fn, arg));
    for (int i = 0; i < o->n_variants; i++)
        TRY(add_row(o, c, i, kern_op_name(c->op), o->v[i]));
    cli_bench_print(b, first);
    return OK;
}

/* ---- GEMM, by a team ---- */

struct gemm_bench {
    struct op_bench *o;
    struct kern_mat w;
    char *weights, *scratch;
    void *a;
    float *c;
    int n_copies, turn, n_threads;
    int64_t m;
    struct kern_gemm_job job; /* p_lo, p_hi and scratch are each thread's */
};

static void gemm_thread(void *arg, struct par_self *self)
{
    struct gemm_bench *g = arg;
    struct kern_gemm_job j = g->job;

    kern_gemm_part(&j, 1, self->id);
    j.scratch = g->scratch + (size_t)self->id * KERN_GEMM_SCRATCH_BYTES;
    kern_gemm_run(&j);
}

static int gemm_trial(void *arg, int i, struct measure_trial *t)
{
    struct gemm_bench *g = arg;
    const struct kern_variant *v = g->o->v[i];
    uint64_t t0;

    g->w.data = g->weights + (size_t)(g->turn++ % g->n_copies) * g->w.bytes;
    g->job = (struct kern_gemm_job){.v = v,
                                    .w = &g->w,
                                    .a_packed = g->a,
                                    .m = g->m,
                                    .c = g->c,
                                    .ldc = GEMM_N,
                                    .epilogue = KERN_STORE};
    kern_schedule_default(&g->job.s, v, &g->w, g->m, g->n_threads);
    t0 = clock_ns();
    par_team_run(g->o->team, g->n_threads, gemm_thread, g);
    t->seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

static int gemm_sizes(struct gemm_bench *g, enum kern_op op)
{
    static const int64_t rows[] = {1, 8, 32, 128, GEMM_ROWS_MAX};
    const struct cli_bench_list *threads = &g->o->b->threads;

    for (int t = 0; t < threads->n; t++) {
        for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
            struct op_case c = {.op = op,
                                .n_threads = (int)threads->v[t],
                                .no_plain_c = rows[i] > PLAIN_ROWS_MAX,
                                .work = 2.0 * (double)rows[i] * GEMM_N * GEMM_K,
                                .unit = "GFLOP/s",
                                .read_bytes = (double)g->w.bytes};

            g->m = rows[i];
            g->n_threads = c.n_threads;
            snprintf(c.shape, sizeof(c.shape), "%lldx%dx%d", (long long)g->m, GEMM_N,
                     GEMM_K);
            TRY(measure_case(g->o, &c, gemm_trial, g));
        }
    }
    return OK;
}

static int gemm(struct op_bench *o, enum kern_op op)
{
    struct gemm_bench g = {.o = o};
    size_t a_bytes = (size_t)GEMM_ROWS_MAX * GEMM_K * sizeof(float), all_bytes;
    size_t n_threads = (size_t)par_team_size(o->team);
    int rc = ERR_NOMEM;

    kern_mat_layout(&g.w, (enum kern_type)(op - KERN_GEMM_F32), GEMM_N, GEMM_K, 0);
    g.n_copies = (int)(ROTATE_BYTES / g.w.bytes) + 1;
    all_bytes = (size_t)g.n_copies * g.w.bytes;
    g.weights = mem_map(MEM_OTHER, all_bytes, MEM_NODE_ANY);
    g.a = mem_new(MEM_OTHER, a_bytes, 1);
    g.c = mem_new(MEM_OTHER, (size_t)GEMM_ROWS_MAX * GEMM_N, sizeof(float));
    g.scratch = mem_new(MEM_OTHER, n_threads, KERN_GEMM_SCRATCH_BYTES);
    if (g.weights && g.a && g.c && g.scratch) {
        /* One byte pattern: small, equal values, no denormals in any of the types. */
        memset(g.weights, 0x3c, all_bytes);
        memset(g.a, 0x3c, a_bytes);
        rc = gemm_sizes(&g, op);
    }
    mem_unmap(MEM_OTHER, g.weights, all_bytes);
    mem_free(g.a);
    mem_free(g.c);
    mem_free(g.scratch);
    return rc;
}

/* ---- attention, one thread ---- */

struct attn_bench {
    struct op_bench *o;
    struct kern_attn_args a;
};

static int attn_trial(void *arg, int i, struct measure_trial *t)
{
    const struct attn_bench *x = arg;
    uint64_t t0 = clock_ns();

    for (int k = 0; k < ATTN_REPEATS; k++)
        x->o->v[i]->fn.attn(&x->a);
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / ATTN_REPEATS;
    return OK;
}

/* n_tok tokens of g query heads per head of keys, the last of which sees ctx_tok keys; without
 * plain C where that takes long. */
static int attn(struct op_bench *o, enum kern_op op, int n_tok, int g, int64_t ctx_tok)
{
    enum { HD = ATTN_HEAD_DIM };
    size_t key_bytes = kern_kv_bytes((enum kern_kv_type)(op - KERN_ATTN_F32), HD);
    size_t run_bytes = (size_t)ctx_tok * key_bytes;
    float *q = mem_new(MEM_OTHER, (size_t)(n_tok * g) * HD * 2, sizeof(float));
    char *kv = mem_new(MEM_OTHER, run_bytes, 2);
    void *scratch = mem_new(MEM_OTHER, KERN_ATTN_SCRATCH_BYTES(HD), 1);
    /* Each token sees all keys before it and itself; two products of HD multiply-adds. */
    double keys = (double)n_tok * (double)(ctx_tok - n_tok) + n_tok * (n_tok + 1) / 2.0;
    struct op_case c = {.op = op,
                        .n_threads = 1,
                        .no_plain_c = n_tok > 1 && ctx_tok > PLAIN_CTX_MAX,
                        .work = n_tok > 1 ? 4.0 * HD * g * keys : 2.0 * (double)run_bytes,
                        .unit = n_tok > 1 ? "GFLOP/s" : "GB/s"};
    struct attn_bench x = {.o = o,
                           .a = {.q = q,
                                 .q_stride = g * HD,
                                 .k = kv + run_bytes - key_bytes,
                                 .v = kv + run_bytes,
                                 .out = q + (size_t)(n_tok * g) * HD,
                                 .out_stride = g * HD,
                                 .scratch = scratch,
                                 .kv_hi = ctx_tok,
                                 .pos0 = ctx_tok - n_tok,
                                 .n_tok = n_tok,
                                 .g = g,
                                 .head_dim = HD,
                                 .scale = 0.1f}};
    int rc = ERR_NOMEM;

    snprintf(c.shape, sizeof(c.shape), "%dx%d ctx %lld hd %d", n_tok, g,
             (long long)ctx_tok, HD);
    if (q && kv && scratch)
        rc = measure_case(o, &c, attn_trial, &x);
    mem_free(q);
    mem_free(kv);
    mem_free(scratch);
    return rc;
}

/* ---- operators on one row, one thread ---- */

struct row_bench {
    struct op_bench *o;
    float *x, *y, *w;
};

static void row_call(const struct kern_variant *v, const struct row_bench *f)
{
    switch (v->op) {
    case KERN_RMSNORM:
        v->fn.rmsnorm(f->y, f->x, f->w, ROW, 1e-5f);
        break;
    case KERN_LAYERNORM:
        v->fn.layernorm(f->y, f->x, f->w, f->w, ROW, 1e-5f);
        break;
    case KERN_ROPE:
        v->fn.rope(f->y, f->x, f->w, ROW / ATTN_HEAD_DIM, ATTN_HEAD_DIM);
        break;
    case KERN_SILU_MUL:
    case KERN_GELU_MUL:
    case KERN_SWIGLU_OAI:
        v->fn.gate(f->y, f->x, f->w, ROW);
        break;
    case KERN_ADD:
        v->fn.add(f->y, f->x, ROW);
        break;
    case KERN_TO_BF16:
    case KERN_TO_F16:
        v->fn.to_bf16((uint16_t *)f->y, f->x, ROW);
        break;
    case KERN_FROM_BF16:
    case KERN_FROM_F16:
        v->fn.from_bf16(f->y, (const uint16_t *)f->x, ROW);
        break;
    default:
        f->y[0] = (float)v->fn.argmax(f->x, ROW);
    }
}

static int row_trial(void *arg, int i, struct measure_trial *t)
{
    const struct row_bench *f = arg;
    uint64_t t0 = clock_ns();

    for (int k = 0; k < ROW_REPEATS; k++)
        row_call(f->o->v[i], f);
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / ROW_REPEATS;
    return OK;
}

static int row_op(struct op_bench *o, enum kern_op op)
{
    struct op_case c = {.op = op, .n_threads = 1, .work = ROW, .unit = "Gelem/s"};
    float *buffer = mem_new(MEM_OTHER, 3 * ROW, sizeof(float));
    struct row_bench f = {o, buffer, buffer + ROW, buffer + 2 * ROW};
    int rc;

    if (!buffer)
        return ERR_NOMEM;
    for (int i = 0; i < ROW; i++)
        f.x[i] = (float)(i % 29 - 14) / 16, f.w[i] = 0.5f;
    snprintf(c.shape, sizeof(c.shape), "%d in cache", ROW);
    rc = measure_case(o, &c, row_trial, &f);
    mem_free(buffer);
    return rc;
}

/* ---- the team: phases in which nothing is computed ---- */

static const char *const team_ops[] = {"dispatch", "barrier"};
#define N_TEAM_OPS   2
#define TEAM_REPEATS 1000

struct team_bench {
    struct par_team *team;
    int n_threads, n_barriers; /* of each phase */
};

static void meet_often(void *arg, struct par_self *self)
{
    const struct team_bench *x = arg;

    for (int i = 0; i < x->n_barriers; i++)
        par_barrier(self);
}

static int team_trial(void *arg, int i, struct measure_trial *t)
{
    struct team_bench *x = arg;
    int n_runs = x->n_barriers ? 1 : TEAM_REPEATS;
    uint64_t t0 = clock_ns();

    (void)i;
    for (int k = 0; k < n_runs; k++)
        par_team_run(x->team, x->n_threads, meet_often, x);
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / TEAM_REPEATS;
    return OK;
}

/* dispatch: phases from beginning to end, one after the other. barrier: of one phase. */
static int team_op(struct op_bench *o, int which)
{
    struct cli_bench *b = o->b;
    const struct measure_opts mo = {MEASURE_EXACTLY((int)b->f->repetitions)};
    size_t first = json_array_size(b->rows);

    for (int t = 0; t < b->threads.n; t++) {
        struct team_bench x = {o->team, (int)b->threads.v[t], which ? TEAM_REPEATS : 0};
        const struct op_case c = {
            .shape = "-", .n_threads = x.n_threads, .work = 1e3, .unit = "calls/us"};

        if (cli_interrupted)
            return err_set(ERR_CANCELED, "interrupted");
        TRY(measure_compare(b->measure, 1, &mo, team_trial, &x));
        TRY(add_row(o, &c, 0, team_ops[which], NULL));
    }
    cli_bench_print(b, first);
    return OK;
}

/* ---- all of them ---- */

static int measure_op(struct op_bench *o, enum kern_op op)
{
    if (kern_op_is_gemm(op))
        return gemm(o, op);
    if (!kern_op_is_attn(op))
        return row_op(o, op);
    TRY(attn(o, op, 1, 1, 128));
    TRY(attn(o, op, 1, 4, 2048));
    TRY(attn(o, op, 128, 1, 512));
    return attn(o, op, 128, 1, 4096);
}

/* wanted[op]: is it in the list of --only, or is there no list? Those of the team come last. */
static int parse_only(bool wanted[KERN_N_OPS + N_TEAM_OPS], const char *list)
{
    const char *names[KERN_N_OPS + N_TEAM_OPS + 1] = {NULL};
    char *copy = list ? mem_strdup(MEM_OTHER, list) : NULL, *save = NULL;
    int rc = list && !copy ? ERR_NOMEM : OK;

    for (int op = 0; op < KERN_N_OPS + N_TEAM_OPS; op++) {
        names[op] =
            op < KERN_N_OPS ? kern_op_name((enum kern_op)op) : team_ops[op - KERN_N_OPS];
        wanted[op] = !list;
    }
    for (char *p = copy ? strtok_r(copy, ",", &save) : NULL; p && rc == OK;
         p = strtok_r(NULL, ",", &save)) {
        int op = name_index(names, p);

        if (op < 0)
            rc = name_unknown(ERR_ARG, p, names, "--only: no operator \"%s\"", p);
        else
            wanted[op] = true;
    }
    mem_free(copy);
    return rc;
}

int cli_bench_ops(struct cli_bench *b)
{
    struct op_bench o = {.b = b};
    bool wanted[KERN_N_OPS + N_TEAM_OPS];
    int rc = OK;

    TRY(parse_only(wanted, b->f->only));
    if (b->f->output == CLI_BENCH_MD)
        cli_bench_print_head(b);
    TRY(par_team_open_by(&o.team, b->team_kind, b->budget.cpus, b->budget.n, 1));
    for (enum kern_op op = 0; op < KERN_N_OPS && rc == OK; op++)
        if (wanted[op])
            rc = measure_op(&o, op);
    for (int i = 0; i < N_TEAM_OPS && rc == OK; i++)
        if (wanted[KERN_N_OPS + i])
            rc = team_op(&o, i);
    par_team_close(&o.team);
    return rc;
}
