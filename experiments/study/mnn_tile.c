/* The tile of MNN-LLM's formula compared with the measured best one: every micro-kernel that
 * the engine has for a matrix, with the slice that its cost model gives it, and the
 * tuner's schedule.
 * Paper: MNN-LLM IV-D. */
#include <math.h>
#include <stdio.h>

#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/tile_formula.h"
#include "experiments/study/support/tuning.h"

enum { W4A8, W4C, BF16, F32 };

#define OPTIONS(X)                                                                       \
    OPTION_MATRIX_SPLIT(X)                                                               \
    X(ENUM, type, "w4a8",                                                                \
      "Weights and activations: q4_0 or the paper's w4c, with 8 bits, or bf16 or f32 "   \
      "with f32.",                                                                       \
      .values = "w4a8|w4c|bf16|f32")                                                     \
    X(INT, m, "560", "Rows of activations.", .min = 1, .max = 65536)                     \
    X(INT, registers, "0",                                                               \
      "Vector registers in the formula. 0: those of the variant's instruction set.",     \
      .min = 0, .max = 256)                                                              \
    X(INT, rounds, "9",                                                                  \
      "Rounds in which the formula's tile, the best ones and the tuner's schedule are "  \
      "measured again, in turn.",                                                        \
      .min = 3, .max = 99)                                                               \
    X(F64, budget_s, "3", "Measuring time of the tuner. 0: no limit.", .unit = "s",      \
      .min = 0, .max = 1e6)                                                              \
    OPTION_CACHE_MB(X)                                                                   \
    X(INT, seed, "1", "Seed of weights, activations and the tuner's choices.")

#define RESULTS(X)                                                                       \
    X(formula_over_best, "", HIGHER,                                                     \
      "rate of the formula's tile / rate of the best tile, by rounds in turn")           \
    X(formula_over_tuned, "", HIGHER,                                                    \
      "rate of the formula's tile / rate of the tuner's schedule, which also chose its " \
      "slice")                                                                           \
    X(formula_gflops, "GFLOP/s", HIGHER, "rate of the formula's tile")                   \
    X(best_gflops, "GFLOP/s", HIGHER, "rate of the best tile")                           \
    X(tuned_gflops, "GFLOP/s", HIGHER, "rate of the tuner's schedule")                   \
    X(formula_rows, "", 0, "rows of the formula's tile")                                 \
    X(formula_cols, "", 0, "columns of the formula's tile")                              \
    X(best_rows, "", 0, "rows of the best tile")                                         \
    X(best_cols, "", 0, "columns of the best tile")                                      \
    X(tuned_rows, "", 0, "rows of the tuner's tile")                                     \
    X(tuned_cols, "", 0, "columns of the tuner's tile")                                  \
    X(ideal_rows, "", 0,                                                                 \
      "rows of the formula's tile among all sizes, whether the engine has it or not")    \
    X(ideal_cols, "", 0, "columns of the same tile")                                     \
    X(registers, "", 0, "vector registers in the formula")                               \
    X(n_tiles, "", 0, "tiles measured")

FRAME_TYPES;

/* The entries that are measured again: the formula's tile, the tuner's schedule, and the tiles
 * that were fastest the first time. */
enum { FORMULA, TUNED, FIRST_FAST, N_FAST = 4, N_AGAIN = FIRST_FAST + N_FAST };

struct mnn_tile {
    FRAME_CELL;
    struct study_threads threads;
    struct tune_bench *bench;
    struct tune_shape shape;
    struct tune_opts tune;
    struct study_tile_product product;
    struct tune_mk tiles[TUNE_MKS_MAX];
    struct kern_schedule schedules[TUNE_MKS_MAX];
    struct measure_report first[TUNE_MKS_MAX];
    int n_tiles, formula;
    struct kern_schedule again[N_AGAIN];
    struct measure_report times[N_AGAIN];
    int n_again, best; /* best: of the tiles, in `again` */
};

/* ---- the tiles ---- */

static const struct kern_variant *variant_of(int type)
{
    static const enum kern_op ops[] = {KERN_GEMM_Q4_0, KERN_GEMM_W4C, KERN_GEMM_BF16,
                                       KERN_GEMM_F32};
    struct kern_table t;

    kern_table_choose(&t, cpu_isa_usable(), type <= W4C ? KERN_A8 : KERN_EXACT);
    return t.v[ops[type]];
}

/* Vectors of 8 columns are AVX2's, which has half as many registers as the others. Plain C has
 * none; there a panel's row counts as one. */
static int registers_of(const struct kern_variant *v)
{
    return v->vec_cols == 8 ? 16 : 32;
}

/* The cost model's slice for a tile: its choice for a variant that has no other. */
static void slice(const struct mnn_tile *c, struct tune_mk tile, struct kern_schedule *s)
{
    struct kern_variant only = *c->shape.v;

    for (int np = 1; np <= KERN_NP_MAX; np++)
        only.rows[np - 1] = np == tile.np ? (uint8_t)tile.mr : 0;
    kern_schedule_default(s, &only, tune_bench_mat(c->bench), c->shape.m, c->threads.n);
}

static int list_tiles(struct mnn_tile *c)
{
    c->formula = -1;
    c->n_tiles = tune_mks(c->shape.v, c->shape.m, c->tiles);
    for (int i = 0; i < c->n_tiles; i++) {
        int64_t mr = c->tiles[i].mr, cols = c->tiles[i].np * KERN_PANEL;
        const struct tune_mk *best = &c->tiles[c->formula < 0 ? i : c->formula];

        slice(c, c->tiles[i], &c->schedules[i]);
        if (study_tile_fits(&c->product, mr, cols) &&
            study_tile_moved(&c->product, mr, cols) <=
                study_tile_moved(&c->product, best->mr, best->np * KERN_PANEL))
            c->formula = i;
    }
    if (c->formula < 0)
        return err_set(ERR_UNSUPPORTED, "no tile of %s fits into %d registers",
                       c->shape.v->name, c->product.registers);
    return OK;
}

static int open_work(struct mnn_tile *c)
{
    const struct opts *o = c->o;
    struct tune_bench_opts bench = {.seed = o->seed};

    TRY(study_matrix_parse(o->matrix, o->m, &c->shape));
    TRY(study_threads_open(&c->threads, 0, o->cache_mb));
    bench.cache_bytes = c->threads.cache_bytes;
    c->shape.v = variant_of(o->type);
    c->product = (struct study_tile_product){
        .e = o->m,
        .h = c->shape.n,
        .l = c->shape.k,
        .registers = o->registers ? (int)o->registers : registers_of(c->shape.v),
        .vec_cols = c->shape.v->isa ? c->shape.v->vec_cols : KERN_PANEL};
    TRY(tune_bench_open(&c->bench, c->threads.team, &bench));
    TRY(tune_bench_shape(c->bench, &c->shape));
    return list_tiles(c);
}

/* ---- measuring ---- */

/* Add a tile to those that are measured again, unless it is there. */
static void add(struct mnn_tile *c, const struct kern_schedule *s)
{
    for (int i = 0; i < c->n_again; i++)
        if (i != TUNED && tune_same(&c->again[i], s))
            return;
    c->again[c->n_again++] = *s;
}

static int nth_fastest(const struct mnn_tile *c, int nth)
{
    for (int i = 0; i < c->n_tiles; i++) {
        int faster = 0;

        for (int k = 0; k < c->n_tiles; k++)
            faster += c->first[k].estimate < c->first[i].estimate ||
                      (c->first[k].estimate == c->first[i].estimate && k < i);
        if (faster == nth)
            return i;
    }
    return 0;
}

/* Every tile twice; then the fastest ones with the others: a maximum over many tiles flatters
 * itself. */
static int measure_tiles(struct mnn_tile *c)
{
    const struct opts *o = c->o;
    struct kern_schedule tuned;

    TRY(tune_compare(c->bench, c->schedules, c->n_tiles, c->threads.n, 2, c->first));
    study_progress(c->out, 0.5, "tune");
    TRY(opt_init(tune_opt_table, &c->tune));
    c->tune.budget_s = o->budget_s;
    c->tune.seed = o->seed;
    TRY(study_tune_on(c->bench, "sandwich", &c->tune, c->threads.n, &c->shape, 1,
                      &tuned));
    c->again[FORMULA] = c->schedules[c->formula];
    c->again[TUNED] = tuned;
    c->n_again = FIRST_FAST;
    for (int i = 0; i < N_FAST && i < c->n_tiles; i++)
        add(c, &c->schedules[nth_fastest(c, i)]);
    TRY(tune_compare(c->bench, c->again, c->n_again, c->threads.n, (int)o->rounds,
                     c->times));
    c->best = FORMULA;
    for (int i = FIRST_FAST; i < c->n_again; i++)
        if (c->times[i].estimate < c->times[c->best].estimate)
            c->best = i;
    return OK;
}

/* ---- what is reported ---- */

static void mnn_tile_report(struct mnn_tile *c)
{
    const struct kern_schedule *formula = &c->again[FORMULA], *best = &c->again[c->best],
                               *tuned = &c->again[TUNED];
    double formula_s = c->times[FORMULA].estimate, best_s = c->times[c->best].estimate,
           tuned_s = c->times[TUNED].estimate;
    int64_t ep, hp;

    study_tile_best(&c->product, &ep, &hp);
    c->r->formula_over_best = best_s / formula_s;
    c->r->formula_over_tuned = tuned_s / formula_s;
    c->r->formula_gflops = study_gflops(&c->shape, formula_s);
    c->r->best_gflops = study_gflops(&c->shape, best_s);
    c->r->tuned_gflops = study_gflops(&c->shape, tuned_s);
    c->r->formula_rows = formula->mr;
    c->r->formula_cols = formula->np * KERN_PANEL;
    c->r->best_rows = best->mr;
    c->r->best_cols = best->np * KERN_PANEL;
    c->r->tuned_rows = tuned->mr;
    c->r->tuned_cols = tuned->np * KERN_PANEL;
    c->r->ideal_rows = (double)ep;
    c->r->ideal_cols = (double)hp;
    c->r->registers = c->product.registers;
    c->r->n_tiles = c->n_tiles;
    frame_why(c->f, NULL, "a time was not a number");
}

static void report_tiles(const struct mnn_tile *c, struct study_cell *out)
{
    double rows[TUNE_MKS_MAX], cols[TUNE_MKS_MAX], gflops[TUNE_MKS_MAX],
        moved[TUNE_MKS_MAX], fits[TUNE_MKS_MAX];
    size_t n = (size_t)c->n_tiles;

    for (int i = 0; i < c->n_tiles; i++) {
        int64_t mr = c->tiles[i].mr, width = c->tiles[i].np * KERN_PANEL;

        rows[i] = (double)mr;
        cols[i] = (double)width;
        gflops[i] = study_gflops(&c->shape, c->first[i].estimate);
        moved[i] = study_tile_moved(&c->product, mr, width);
        fits[i] = study_tile_fits(&c->product, mr, width);
    }
    study_series(out, "tile_rows", "rows", rows, n);
    study_series(out, "tile_cols", "columns", cols, n);
    study_series(out, "tile_gflops", "GFLOP/s", gflops, n);
    study_series(out, "tile_moved", "", moved, n);
    study_series(out, "tile_fits", "", fits, n);
}

static void mnn_tile_close(struct mnn_tile *c)
{
    opt_free(tune_opt_table, &c->tune);
    tune_bench_close(&c->bench);
    study_threads_close(&c->threads);
}

static int mnn_tile_run(struct mnn_tile *c)
{
    char text[128];

    FRAME_CLOSE(c->f, mnn_tile_close, c);
    TRY(open_work(c));
    study_progress(c->out, 0.1, "tiles");
    TRY(measure_tiles(c));
    mnn_tile_report(c);
    report_tiles(c, c->out);
    kern_schedule_print(&c->again[TUNED], text, sizeof(text));
    study_note_text(c->out, "tuned", text);
    study_note_text(c->out, "variant", c->shape.v->name);
    study_note_machine(c->out, &c->threads);
    return OK;
}

STUDY(mnn_tile, "the tile of MNN-LLM's formula compared with the measured best one");
