#include "model/choose.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "kernels/kv_type.h"
#include "measure/compare.h"
#include "model/state.h"

/* One number of each range: decode, batches, and prefill, which is bound by arithmetic. */
static const int trial_rows[MODEL_RANGES] = {4, 16, 256};
#define TRIAL_ROWS_MAX 256
/* Elements of the matrix: about a millisecond of arithmetic a trial. */
#define TRIAL_ELEMS  1000000
#define BUDGET_S     0.1 /* for each number of rows: a model opens with it */
#define ROUNDS_MAX   25
#define VARIANTS_MAX 16
/* Another variant than the table's is worth a gain beyond that of a trial's own noise. */
#define MARGIN_FRAC 0.02

struct trial {
    const struct kern_variant *variants[VARIANTS_MAX]; /* the table's choice first */
    int n_variants;
    struct kern_mat w;
    struct kern_gemm_job job;
    struct measure *measure;
    float *x, *c;
    void *weights, *a, *scratch;
};

static void find_variants(struct trial *t, const struct kern_variant *first,
                          enum kern_precision precision)
{
    uint64_t usable = cpu_isa_usable();

    t->variants[t->n_variants++] = first;
    for (int i = 0; kern_variants[i] && t->n_variants < VARIANTS_MAX; i++) {
        const struct kern_variant *v = kern_variants[i];

        if (v->op == first->op && v != first && v->isa && !(v->isa & ~usable) &&
            v->precision <= precision &&
            kern_a_is_i8(v->a_format) == kern_a_is_i8(first->a_format))
            t->variants[t->n_variants++] = v;
    }
}

static void pack(struct trial *t, const struct kern_variant *v)
{
    const struct kern_mat *w = &t->w;
    int64_t rows = t->job.m, n_blocks = kern_a_blocks(rows, t->job.s.mr);

    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t r0 = kern_a_row(rows, n_blocks, b);
        int64_t r1 = kern_a_row(rows, n_blocks, b + 1);

        kern_a_pack(v, (char *)t->a + kern_a_bytes(v->a_format, r0, w->k_pad),
                    t->x + r0 * w->k, w->k, r1 - r0, w->k, w->k_pad);
    }
}

static int run(void *arg, int i, struct measure_trial *out)
{
    struct trial *t = arg;
    uint64_t t0;

    t->job.v = t->variants[i];
    kern_schedule_default(&t->job.s, t->job.v, &t->w, t->job.m, 1);
    pack(t, t->job.v);
    kern_gemm_part(&t->job, 1, 0);
    t0 = clock_ns();
    kern_gemm_run(&t->job);
    out->seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

/* The table's choice, or what is surely faster. */
static int choose(const struct trial *t)
{
    int64_t complexity[VARIANTS_MAX] = {0};
    int at;

    for (int i = 1; i < t->n_variants; i++)
        complexity[i] = 1;
    at = measure_choose(t->measure, complexity, MARGIN_FRAC);
    return at < 0 ? 0 : at;
}

static void trial_close(struct trial *t)
{
    measure_close(&t->measure);
    mem_free(t->weights);
    mem_free(t->x);
    mem_free(t->c);
    mem_free(t->a);
    mem_free(t->scratch);
}

static int trial_open(struct trial *t, enum kern_type type, int64_t n, int64_t k)
{
    int64_t most = (TRIAL_ELEMS / k / KERN_PANEL + 1) * KERN_PANEL;
    int rc;

    kern_mat_layout(&t->w, type, n < most ? n : most, k, 0);
    t->weights = mem_new(MEM_OTHER, t->w.bytes, 1);
    t->x = mem_new(MEM_OTHER, (size_t)(TRIAL_ROWS_MAX * k), sizeof(float));
    t->c = mem_new(MEM_OTHER, (size_t)(TRIAL_ROWS_MAX * t->w.n_panels * KERN_PANEL),
                   sizeof(float));
    t->a = mem_new(MEM_OTHER, (size_t)(TRIAL_ROWS_MAX * (t->w.k_pad + KERN_PANEL)),
                   sizeof(float));
    t->scratch = mem_new(MEM_OTHER, KERN_GEMM_SCRATCH_BYTES, 1);
    if (!t->weights || !t->x || !t->c || !t->a || !t->scratch)
        return ERR_NOMEM;
    rc = measure_open(&t->measure, t->n_variants, ROUNDS_MAX);
    memset(t->weights, 0x3c, t->w.bytes); /* small numbers of any type */
    for (int64_t i = 0; i < TRIAL_ROWS_MAX * k; i++)
        t->x[i] = (float)(i % 17 - 8) / 8;
    t->w.data = t->weights;
    t->job = (struct kern_gemm_job){.w = &t->w,
                                    .a_packed = t->a,
                                    .c = t->c,
                                    .ldc = t->w.n_panels * KERN_PANEL,
                                    .epilogue = KERN_STORE,
                                    .scratch = t->scratch};
    return rc;
}

/* Is the table's choice not always the fastest? Where activations have 8 bits, all variants give
 * the same bits, and only tiles need many rows. */
static bool is_measured(const struct kern_variant *v, enum kern_precision precision)
{
    return v->isa && (precision == KERN_RELAXED || v->a_format == KERN_A_I8_ROWS);
}

int model_variants_choose(struct model_variants *out, enum kern_type type,
                          enum kern_precision precision, int64_t n, int64_t k)
{
    const struct measure_opts o = {.budget_s = BUDGET_S};
    const struct kern_variant *usual;
    struct kern_table table;
    struct trial t = {0};
    int rc;

    kern_table_choose(&table, cpu_isa_usable(), precision);
    usual = table.v[KERN_GEMM_F32 + type];
    *out = (struct model_variants){.v = {usual, usual, usual}};
    if (!is_measured(usual, precision))
        return OK;
    find_variants(&t, usual, precision);
    rc = trial_open(&t, type, n, k);
    for (int i = 0; i < MODEL_RANGES && rc == OK; i++) {
        t.job.m = trial_rows[i];
        rc = measure_compare(t.measure, t.n_variants, &o, run, &t);
        out->v[i] = t.variants[choose(&t)];
    }
    trial_close(&t);
    snprintf(out->note, sizeof(out->note),
             "%s: fastest at %d, %d, %d rows: %s, %s, %s (measured, one thread)",
             kern_op_name(usual->op), trial_rows[0], trial_rows[1], trial_rows[2],
             out->v[0]->name, out->v[1]->name, out->v[2]->name);
    return rc;
}

/* The variant of another product that has this one's name; NULL: there is none. */
static const struct kern_variant *namesake(const struct kern_variant *v, enum kern_op op)
{
    for (int i = 0; kern_variants[i]; i++)
        if (kern_variants[i]->op == op && strcmp(kern_variants[i]->name, v->name) == 0)
            return kern_variants[i];
    return NULL;
}

/* Set the table by the variants that are fastest for `type`: where it is quantised, other quantised
 * types get those of the same names. */
static void keep(struct model *m, enum kern_type type)
{
    for (int t = 0; t < KERN_N_TYPES; t++) {
        if (t != (int)type && !(kern_type_quantised(type) && kern_type_quantised(t)))
            continue;
        for (int i = 0; i < MODEL_RANGES; i++)
            m->by_rows[t][i] =
                namesake(m->variants.v[i], KERN_GEMM_F32 + (enum kern_op)t);
        if (m->by_rows[t][MODEL_RANGES - 1])
            m->kern.v[KERN_GEMM_F32 + t] = m->by_rows[t][MODEL_RANGES - 1];
    }
}

int model_choose_gemm(struct model *m, enum kern_precision precision)
{
    enum kern_type type = m->layers[0].mats[MODEL_MAT_QKV].type;
    struct model_shape shapes[MODEL_N_MATS];
    uint64_t t0 = clock_ns();
    int rc;

    if (precision == KERN_EXACT) /* the table's, or the batch-invariant one */
        return OK;
    model_shapes(&m->c, shapes);
    rc = model_variants_choose(&m->variants, type, precision, shapes[MODEL_MAT_QKV].n,
                               shapes[MODEL_MAT_QKV].k);
    if (rc == OK && m->variants.note[0])
        keep(m, type);
    m->load.choose_s = (double)(clock_ns() - t0) * 1e-9;
    return rc;
}

void model_cap_attn(struct model *m)
{
    struct kern_table plain;

    kern_table_choose(&plain, 0, KERN_EXACT);
    for (int t = 0; t < KERN_N_KV_TYPES && m->c.attn_softcap != 0; t++) {
        enum kern_op op = kern_kv_attn((enum kern_kv_type)t);

        m->kern.v[op] = plain.v[op];
    }
}

void model_choose_attn(struct model *m, bool bf16_dot)
{
    struct kern_table exact;

    kern_table_choose(&exact, cpu_isa_usable(), KERN_EXACT);
    for (int t = 0; t < KERN_N_KV_TYPES && !bf16_dot; t++) {
        enum kern_op op = kern_kv_attn((enum kern_kv_type)t);

        if (m->kern.v[op]->isa & CPU_MASK(AVX512BF16))
            m->kern.v[op] = exact.v[op];
    }
}
