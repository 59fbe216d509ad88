/* How the rate of a GEMM grows as one side of its computation slice does.
 * Paper: Sandwich 3.2 and 6, Fig. 2b. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/variant.h"

enum { ALONG_M, ALONG_N };

#define OPTIONS(X)                                                                       \
    OPTION_MATRIX(X)                                                                     \
    OPTION_MODE(X)                                                                       \
    X(ENUM, along, "m", "Side of the slice that grows.", .values = "m|n")                \
    X(INT, m, "512", "Rows of activations.", .min = 1, .max = 65536)                     \
    X(INT, mr, "4", "Rows of the micro-kernel.", .min = 1, .max = 64)                    \
    X(INT, np, "1", "Panels of 16 columns of the micro-kernel.", .min = 1,               \
      .max = KERN_NP_MAX)                                                                \
    X(INT, step, "4", "Rows or columns by which a slice grows; whole tiles only.",       \
      .min = 1, .max = 65536)                                                            \
    X(INT, max, "128", "Largest side.", .min = 1, .max = 65536)                          \
    X(INT, other, "64", "Side that does not grow, in rows or columns.", .min = 1,        \
      .max = 65536)                                                                      \
    X(INT, bk, "256", "Rows of K of the slice.", .min = 2, .max = 65536)                 \
    OPTION_CACHE_MB(X)

#define RESULTS(X)                                                                       \
    X(gflops_first, "GFLOP/s", HIGHER, "rate with the smallest slice")                   \
    X(gflops_best, "GFLOP/s", HIGHER, "rate with the best slice")                        \
    X(growth, "x", HIGHER, "gflops_best / gflops_first")                                 \
    X(knee, "", LOWER, "smallest side that reaches 95 % of the best rate")               \
    X(best_side, "", 0, "side of the best slice, in rows or columns")

FRAME_TYPES;

#define MAX_STEPS 512
#define KNEE_FRAC 0.95

struct block_growth {
    FRAME_CELL;
    struct study_threads threads;
    struct tune_bench *bench;
    struct tune_shape shape;
    double side[MAX_STEPS], gflops[MAX_STEPS];
    size_t n;
};

static int block_growth_measure(const struct opts *o, struct block_growth *c)
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
                                  .pn = c->threads.n,
                                  .pk = 1,
                                  .order = KERN_ORDER_NMK};
        struct measure_report t;

        if (side % tile) /* the driver would round it up to the next one measured */
            continue;
        if (c->n == MAX_STEPS)
            return err_set(ERR_LIMIT, "max: more than %d steps", MAX_STEPS);
        TRY(tune_measure(c->bench, &s, c->threads.n, &t));
        c->side[c->n] = (double)side;
        c->gflops[c->n++] = study_gflops(&c->shape, t.estimate);
    }
    return c->n ? OK
                : err_set(ERR_ARG,
                          "step: no multiple of it up to %lld is whole micro-kernels",
                          (long long)o->max);
}

static void block_growth_report(const struct opts *o, const struct block_growth *c,
                                struct study_cell *out)
{
    double best = stats_max(c->gflops, c->n), knee = NAN, best_side = NAN;

    for (size_t i = c->n; i-- > 0;) {
        knee = c->gflops[i] >= KNEE_FRAC * best ? c->side[i] : knee;
        best_side = c->gflops[i] == best ? c->side[i] : best_side;
    }
    c->r->gflops_first = c->gflops[0];
    c->r->gflops_best = best;
    c->r->growth = best / c->gflops[0];
    c->r->knee = knee;
    c->r->best_side = best_side;
    study_series(out, "side", o->along == ALONG_M ? "rows" : "columns", c->side, c->n);
    study_series(out, "gflops", "GFLOP/s", c->gflops, c->n);
    study_note_setting(out, &c->threads, o->mode, c->shape.v);
}

static int block_growth_run(struct block_growth *c)
{
    const struct opts *o = c->o;
    struct tune_bench_opts bench = {.seed = 1, .measure = {.budget_s = 0.05}};
    int64_t mr = o->mr, np = o->np;

    FRAME_CLOSE(c->f, study_threads_close, &c->threads);
    FRAME_CLOSE(c->f, tune_bench_close, &c->bench);
    TRY(study_matrix_parse(o->matrix, o->m, &c->shape));
    TRY(study_threads_open(&c->threads, 1, o->cache_mb));
    bench.cache_bytes = c->threads.cache_bytes;
    TRY(tune_bench_open(&c->bench, c->threads.team, &bench));
    TRY(study_variant_choose(&c->shape, o->mode));
    TRY(study_tile(c->shape.v, &mr, &np));
    TRY(tune_bench_shape(c->bench, &c->shape));
    TRY(block_growth_measure(o, c));
    block_growth_report(o, c, c->out);
    return OK;
}

STUDY(block_growth, "rate of a GEMM as one side of its slice grows");
