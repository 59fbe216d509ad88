/* Micro-kernels that engine/ir generates from the reference product, against those that are
 * written by hand: one matrix, one number of rows, the same schedule, in turn. How far ahead the
 * generated ones ask for weights is a parameter that is tuned first, in rounds of its own.
 * Paper: Sandwich 7.1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/raised.h"
#include "experiments/study/support/options.h"

enum { COLD, WARM };
enum { BITS, FAST };
#define SEED 1
/* Bytes between what a generated micro-kernel multiplies and what it asks for. */
static const int64_t distances[] = {4096, 16384, 65536};
#define N_DISTANCES  (int)(sizeof(distances) / sizeof(*distances))
#define TUNING_SHARE 0.5 /* of the time for a cell */

#define OPTIONS(X)                                                                       \
    OPTION_MATRIX_SPLIT(X)                                                               \
    X(ENUM, vectors, "widest",                                                           \
      "The widest vectors of this processor, or those of AVX2.",                         \
      .values = STUDY_VECTORS)                                                           \
    X(ENUM, form, "fast",                                                                \
      "Generated micro-kernels: bits: multiplications and additions are rounded as in "  \
      "kernels/ref/. fast: fused multiply-adds, and several sums where there are few, "  \
      "as those written by hand have them.",                                             \
      .values = "bits|fast")                                                             \
    X(ENUM, weights, "cold",                                                             \
      "cold: weights rotate through copies larger than the last-level cache. warm: one " \
      "copy stays in the cache; weights that do not fit are left out.",                  \
      .values = "cold|warm")                                                             \
    X(INT, m, "1", "Rows of activations.", .min = 1, .max = 65536)                       \
    X(INT, tile_rows, "30", "Most rows of a generated tile.", .min = 1, .max = 30)       \
    X(INT, tile_panels, "8", "Most panels of a generated tile.", .min = 1,               \
      .max = KERN_NP_MAX)                                                                \
    OPTION_THREADS(X, "0", "Number of threads. 0: all CPUs of the budget.")              \
    OPTION_CACHE_MB(X)                                                                   \
    X(INT, rounds, "15", "Largest number of rounds; at least three are run.", .min = 3,  \
      .max = 99)                                                                         \
    X(F64, cell_s, "0.5", "No further round is begun after this time.", .unit = "s",     \
      .min = 0, .max = 3600)

#define RESULTS(X)                                                                       \
    X(ratio, "x", HIGHER,                                                                \
      "time of the micro-kernel written by hand / time of the generated one, median "    \
      "over the rounds")                                                                 \
    X(generated_gflops, "GFLOP/s", HIGHER, "rate of the generated one")                  \
    X(handwritten_gflops, "GFLOP/s", 0, "rate of the one written by hand")               \
    X(roof_gflops, "GFLOP/s", 0, "min(peak, read bandwidth x intensity)")                \
    X(roof_frac, "", HIGHER, "generated_gflops / roof_gflops")                           \
    X(error, "", LOWER, "RMS error of the generated one against float64, relative")      \
    X(error_handwritten, "", 0, "that of the one written by hand")                       \
    X(tile_rows_used, "", 0, "rows of the micro-kernel of both")                         \
    X(tile_panels_used, "", 0, "its panels")                                             \
    X(ahead_bytes, "B", 0, "distance at which the generated one asks for weights")       \
    X(n_rounds, "", 0, "measured rounds")

FRAME_TYPES;

enum { GENERATED, HANDWRITTEN, N };
/* Those that are generated, one a distance, and that written by hand: each has its own copies of
 * the weights, which rotate. */
#define N_KERNELS (N_DISTANCES + 1)

/* Kept from cell to cell: threads, weights and kernels take long to make. */
struct cache {
    bool warm;
    struct study_threads threads;
    int64_t n_threads, cache_mb;
    struct tune_bench *bench[N_KERNELS];
    struct ir_kernel kernel[N_DISTANCES];
    const struct ir_target *target; /* of the kernels, with their form and tiles */
    int form;
    int64_t tile_rows, tile_panels;
};

struct dual_ir {
    FRAME_CELL;
    struct cache *kept;
    struct tune_shape shape[N_KERNELS];
    struct kern_schedule schedule;
    int at
        [N]; /* which kernels are compared: the fastest of those generated, and the last */
    double error[N];
};

static void close_kept(void *arg)
{
    struct cache *kept = arg;

    for (int i = 0; i < N_KERNELS; i++)
        tune_bench_close(&kept->bench[i]);
    study_threads_close(&kept->threads);
    for (int i = 0; i < N_DISTANCES; i++)
        ir_unload(&kept->kernel[i]);
    memset(kept, 0, sizeof(*kept));
}

static int open_kernels(struct cache *kept, const struct opts *o)
{
    const struct ir_target *target;
    struct ir high;
    int rc;

    TRY(study_target(o->vectors, &target));
    if (kept->target == target && kept->form == o->form &&
        kept->tile_rows == o->tile_rows && kept->tile_panels == o->tile_panels)
        return OK;
    kept->target = NULL;
    TRY(study_raise(&high, "gemm_f32"));
    rc = ir_set_product(&high, target, o->form == BITS);
    if (rc == OK)
        rc = ir_set(&high, "uM", o->tile_rows);
    if (rc == OK)
        rc = ir_set(&high, "uN", o->tile_panels);
    for (int i = 0; rc == OK && i < N_DISTANCES; i++) {
        ir_unload(&kept->kernel[i]);
        rc = ir_set(&high, "aK", distances[i]);
        if (rc == OK)
            rc = study_build(&kept->kernel[i], &high, target);
    }
    ir_fini(&high);
    if (rc != OK)
        return rc;
    kept->target = target;
    kept->form = o->form;
    kept->tile_rows = o->tile_rows;
    kept->tile_panels = o->tile_panels;
    return OK;
}

static int open_kept(struct cache *kept, const struct opts *o)
{
    struct tune_bench_opts b = {.warm = o->weights == WARM, .seed = SEED};

    if (kept->threads.team &&
        (kept->n_threads != o->threads || kept->cache_mb != o->cache_mb))
        close_kept(kept);
    for (int i = 0; i < N_KERNELS && kept->warm != b.warm; i++)
        tune_bench_close(&kept->bench[i]);
    kept->warm = b.warm;
    if (!kept->threads.team) {
        TRY(study_threads_open(&kept->threads, o->threads, o->cache_mb));
        kept->n_threads = o->threads;
        kept->cache_mb = o->cache_mb;
    }
    b.cache_bytes = kept->threads.cache_bytes;
    for (int i = 0; i < N_KERNELS; i++)
        if (!kept->bench[i])
            TRY(tune_bench_open(&kept->bench[i], kept->threads.team, &b));
    return open_kernels(kept, o);
}

/* The cost model's schedule for tiles that both have. */
static void choose_schedule(struct dual_ir *c)
{
    struct kern_variant both = *c->shape[N_DISTANCES].v;
    const struct kern_variant *generated = c->shape[0].v;

    for (int np = 1; np <= KERN_NP_MAX; np++)
        if (both.rows[np - 1] > generated->rows[np - 1])
            both.rows[np - 1] = generated->rows[np - 1];
    kern_schedule_default(&c->schedule, &both, tune_bench_mat(c->kept->bench[0]), c->o->m,
                          c->kept->threads.n);
}

static void nothing(void *arg, struct par_self *self)
{
    (void)arg, (void)self;
}

static int trial_kernel(void *arg, int i, struct measure_trial *t)
{
    struct dual_ir *c = arg;

    par_team_run(c->kept->threads.team, c->kept->threads.n, nothing, NULL);
    return tune_run_once(c->kept->bench[i], &c->schedule, c->kept->threads.n,
                         &t->seconds);
}

static int dual_ir_trial(void *arg, int i, struct measure_trial *t)
{
    struct dual_ir *c = arg;

    return trial_kernel(arg, c->at[i], t);
}

/* The fastest distance; of near equals the shortest. */
static int tune_distance(struct dual_ir *c)
{
    const struct measure_opts how = {.max_rounds = (int)c->o->rounds,
                                     .budget_s = fmax(TUNING_SHARE * c->o->cell_s, 1e-9)};

    TRY(frame_rounds_by(c->f, NULL, N_DISTANCES, &how, trial_kernel, c));
    c->at[GENERATED] = frame_choose(c->f, distances);
    c->at[HANDWRITTEN] = N_DISTANCES;
    return OK;
}

static int open_shapes(struct dual_ir *c)
{
    double bytes;

    for (int i = 0; i < N_KERNELS; i++)
        TRY(study_matrix_parse(c->o->matrix, c->o->m, &c->shape[i]));
    bytes = 4.0 * (double)c->shape[0].n * (double)c->shape[0].k;
    TRY(open_kept(c->kept, c->o));
    if (c->o->weights == WARM && bytes > 0.75 * (double)c->kept->threads.cache_bytes)
        return err_set(ERR_NOTFOUND,
                       "%.1f MB of weights do not stay in a cache of %.1f MB",
                       bytes / 1e6, (double)c->kept->threads.cache_bytes / 1e6);
    for (int i = 0; i < N_DISTANCES; i++)
        c->shape[i].v = &c->kept->kernel[i].v;
    c->shape[N_DISTANCES].v = study_handwritten(KERN_GEMM_F32, c->kept->target);
    for (int i = 0; i < N_KERNELS; i++)
        TRY(tune_bench_shape(c->kept->bench[i], &c->shape[i]));
    choose_schedule(c);
    return tune_distance(c);
}

static void dual_ir_report(struct dual_ir *c)
{
    double gflops[N], roof, read = NAN;
    const struct study_threads *t = &c->kept->threads;

    for (int i = 0; i < N; i++)
        gflops[i] = study_gflops(&c->shape[c->at[i]], frame_seconds(c->f, i));
    if (c->o->weights == COLD)
        read = study_read_gbps(t, 4 * t->cache_bytes, 0.04);
    roof = study_peak_gflops(study_machine(c->out), STUDY_F32, t->n);
    if (c->o->weights == COLD)
        roof =
            study_roof_gflops(roof, study_memory_roof_gflops(STUDY_F32, c->o->m, read));
    frame_ratio(c->f, &c->r->ratio, HANDWRITTEN, GENERATED, 0);
    c->r->generated_gflops = gflops[GENERATED];
    c->r->handwritten_gflops = gflops[HANDWRITTEN];
    c->r->error = c->error[GENERATED];
    c->r->error_handwritten = c->error[HANDWRITTEN];
    c->r->tile_rows_used = c->schedule.mr;
    c->r->tile_panels_used = c->schedule.np;
    c->r->ahead_bytes = (double)distances[c->at[GENERATED]];
    c->r->n_rounds = c->f->n_rounds;
    frame_why(c->f, NULL, "a time was not a number");
    c->r->roof_gflops = roof;
    c->r->roof_frac = gflops[GENERATED] / roof;
    frame_why(c->f, NULL, "no trusted bound of this machine");
    study_note_setting(c->out, t, STUDY_F32, c->shape[c->at[GENERATED]].v);
    study_note_text(c->out, "handwritten", c->shape[N_DISTANCES].v->name);
}

static int dual_ir_run(struct dual_ir *c)
{
    const struct measure_opts how = {.min_rounds = 3,
                                     .max_rounds = (int)c->o->rounds,
                                     .budget_s = fmax(c->o->cell_s, 1e-9),
                                     .keep_all = true};
    double seconds;

    c->kept = study_kept(c->out);
    TRY(open_shapes(c));
    c->f->progress = 0.3;
    TRY(frame_rounds_by(c->f, "in turn", N, &how, dual_ir_trial, c));
    frame_times_series(c->f, "s_generated", GENERATED);
    frame_times_series(c->f, "s_handwritten", HANDWRITTEN);
    for (int i = 0; i < N; i++) {
        struct tune_bench *b = c->kept->bench[c->at[i]];

        TRY(tune_run_once(b, &c->schedule, c->kept->threads.n, &seconds));
        TRY(study_gemm_error(b, &c->shape[c->at[i]], SEED, &c->error[i]));
    }
    dual_ir_report(c);
    return OK;
}

STUDY(dual_ir, "micro-kernels generated from the reference against those written by hand",
      .kept_bytes = sizeof(struct cache), .close = close_kept, .wants_machine = true);
