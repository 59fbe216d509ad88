/* tests/tune/bench_model.h - a machine that is a formula: what the policies search over
 * when a test must know the answer. Time is arithmetic, shortened by sums in registers,
 * lengthened by uneven parts, by slices that outgrow a cache and by slices so small that
 * starting them shows; a split of K pays for its reduction. */
#ifndef TESTS_TUNE_BENCH_MODEL_H
#define TESTS_TUNE_BENCH_MODEL_H

#include <math.h>

#include "tests/support/test.h"
#include "tune/policy.h"

struct bench_model {
    double cache_bytes; /* what a slice should fit in */
    double start_s;     /* of a slice */
    long n_runs;
};

static inline double bench_model_waste(double items, double parts)
{
    return ceil(items / parts) * parts / items;
}

static inline double bench_model_s(void *arg, const struct tune_shape *shape,
                                   const struct kern_schedule *s, int n_threads)
{
    struct bench_model *b = arg;
    double m = (double)shape->m, n = (double)shape->n, k = (double)shape->k;
    double blocks = (double)kern_a_blocks(shape->m, s->mr), panels = ceil(n / KERN_PANEL);
    double sums = m / blocks * s->np, t = 2e-11 * m * n * k / n_threads;
    double bn = fmin((double)s->bn, ceil(panels / s->pn)) * KERN_PANEL;
    double bm = fmin((double)s->bm, m), bk = fmin((double)s->bk, k);
    double bytes = 4 * (bm * bk + bn * bk + bm * bn);
    double slices = ceil(m / bm) * ceil(n / bn) * ceil(k / bk);

    b->n_runs++;
    t *= 1 + 4 / sums;
    t *= bench_model_waste(blocks, s->pm) * bench_model_waste(panels / s->np, s->pn);
    if (bytes > b->cache_bytes)
        t *= 1 + 0.25 * log2(bytes / b->cache_bytes);
    t += b->start_s * slices / n_threads;
    t += (s->pk - 1) * m * n * 4e-11;
    return t * (s->order == KERN_ORDER_KNM ? 1.1 : 1);
}

/* The first variant of this name for f32 weights. */
static inline const struct kern_variant *bench_model_variant(const char *name)
{
    for (int i = 0; kern_variants[i]; i++)
        if (kern_variants[i]->op == KERN_GEMM_F32 &&
            !strcmp(kern_variants[i]->name, name))
            return kern_variants[i];
    fail_msg("no variant %s", name);
    return NULL;
}

/* A row of micro-kernels as of a register file of 32, whatever this machine has: nothing
 * is executed, so the tests search the same space everywhere. */
static const struct kern_variant bench_model_mks = {
    .name = "model",
    .op = KERN_GEMM_F32,
    .rows = {30, 14, 9, 6, 5, 4, 3, 2},
    .vec_cols = 16,
    .a_format = KERN_A_F32,
};

static inline void bench_model_opts(struct tune_opts *o)
{
    assert_ok(opt_init(tune_opt_table, o));
}

#endif
