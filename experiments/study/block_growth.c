/* How the rate of a GEMM grows as one side of its computation slice does.
 * Paper: Sandwich 3.2 and 6, Fig. 2b. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/variant.h"

struct opts {
    char *matrix;
    int64_t m, mr, np, step, max, other, bk, cache_mb;
    int mode, along;
};

enum { ALONG_M, ALONG_N };

static const struct opt_row table[] = {
    ROW_MATRIX,
    ROW_MODE,
    OPT_ROW(ENUM, along, "m", "Side of the slice that grows.", .values = "m|n"),
    OPT_ROW(INT, m, "512", "Rows of activations.", .min = 1, .max = 65536),
    OPT_ROW(INT, mr, "4", "Rows of the micro-kernel.", .min = 1, .max = 64),
    OPT_ROW(INT, np, "1", "Panels of 16 columns of the micro-kernel.", .min = 1,
            .max = KERN_NP_MAX),
    OPT_ROW(INT, step, "4", "Rows or columns by which a slice grows; whole tiles only.",
            .min = 1, .max = 65536),
    OPT_ROW(INT, max, "128", "Largest side.", .min = 1, .max = 65536),
    OPT_ROW(INT, other, "64", "Side that does not grow, in rows or columns.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, bk, "256", "Rows of K of the slice.", .min = 2, .max = 65536),
    ROW_CACHE_MB,
    {0},
};

static const struct study_metric metrics[] = {
    {"gflops_first", "GFLOP/s", "higher", "rate with the smallest slice"},
    {"gflops_best", "GFLOP/s", "higher", "rate with the best slice"},
    {"growth", "x", "higher", "gflops_best / gflops_first"},
    {"knee", "", "lower", "smallest side that reaches 95 % of the best rate"},
    {"best_side", "", "", "side of the best slice, in rows or columns"},
    {0},
};

#define MAX_STEPS 512
#define KNEE_FRAC 0.95

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_threads threads;
    struct tune_bench *bench;
    struct tune_shape shape;
    double side[MAX_STEPS], gflops[MAX_STEPS];
    size_t n;
};

static int measure(const struct opts *o, struct cell *f)
{
    int64_t rows = o->along == ALONG_M ? 0 : o->other;
    int64_t columns = o->along == ALONG_M ? o->other : 0;
    int64_t tile = o->along == ALONG_M ? o->mr : o->np * KERN_PANEL;

    for (int64_t side = o->step; side <= o->max; side += o->step) {
        int64_t bn = columns ? columns : side;
        struct kern_schedule s = {.mr = (int)o->mr,
                                  .np = (int)o->np,
                                  .bm = rows ? rows : side,
                                  .bn = (bn + KERN_PANEL - 1) / KERN_PANEL,
                                  .bk = o->bk,
                                  .pm = 1,
                                  .pn = f->threads.n,
                                  .pk = 1,
                                  .order = KERN_ORDER_NMK};
        struct measure_report t;

        if (side % tile) /* the driver would round it up to the next one measured */
            continue;
        if (f->n == MAX_STEPS)
            return err_set(ERR_LIMIT, "max: more than %d steps", MAX_STEPS);
        TRY(tune_measure(f->bench, &s, f->threads.n, &t));
        f->side[f->n] = (double)side;
        f->gflops[f->n++] = study_gflops(&f->shape, t.estimate);
    }
    return f->n ? OK
                : err_set(ERR_ARG,
                          "step: no multiple of it up to %lld is whole micro-kernels",
                          (long long)o->max);
}

static void report(const struct opts *o, const struct cell *f, struct study_cell *out)
{
    double best = stats_max(f->gflops, f->n), knee = NAN, best_side = NAN;

    for (size_t i = f->n; i-- > 0;) {
        knee = f->gflops[i] >= KNEE_FRAC * best ? f->side[i] : knee;
        best_side = f->gflops[i] == best ? f->side[i] : best_side;
    }
    study_value(out, "gflops_first", f->gflops[0], NULL);
    study_value(out, "gflops_best", best, NULL);
    study_value(out, "growth", best / f->gflops[0], NULL);
    study_value(out, "knee", knee, NULL);
    study_value(out, "best_side", best_side, NULL);
    study_series(out, "side", o->along == ALONG_M ? "rows" : "columns", f->side, f->n);
    study_series(out, "gflops", "GFLOP/s", f->gflops, f->n);
    study_note_setting(out, &f->threads, o->mode, f->shape.v);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    struct tune_bench_opts bench = {.seed = 1, .measure = {.budget_s = 0.05}};
    int64_t mr = o->mr, np = o->np;

    TRY(study_matrix_parse(o->matrix, o->m, &f->shape));
    TRY(study_threads_open(&f->threads, 1, o->cache_mb));
    bench.cache_bytes = f->threads.cache_bytes;
    TRY(tune_bench_open(&f->bench, f->threads.team, &bench));
    TRY(study_variant_choose(&f->shape, o->mode));
    TRY(study_tile(f->shape.v, &mr, &np));
    TRY(tune_bench_shape(f->bench, &f->shape));
    TRY(measure(o, f));
    report(o, f, f->out);
    return OK;
}

static void end(struct cell *f)
{
    tune_bench_close(&f->bench);
    study_threads_close(&f->threads);
}

STUDY(block_growth, "rate of a GEMM as one side of its slice grows");
