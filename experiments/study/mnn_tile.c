/* The tile of MNN-LLM's formula compared with the measured best one: every micro-kernel that
 * the engine has for a matrix, with the slice that its cost model gives it, and the
 * tuner's schedule.
 * Paper: MNN-LLM IV-D. */
#include <math.h>
#include <stdio.h>

#include "cpu/cpu.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tile_formula.h"
#include "experiments/study/support/tuning.h"

struct opts {
    char *matrix;
    int type;
    int64_t m, registers, rounds, cache_mb, seed;
    double budget_s;
};

enum { W4A8, W4C, BF16, F32 };

static const struct opt_row table[] = {
    ROW_MATRIX_SPLIT,
    OPT_ROW(ENUM, type, "w4a8",
            "Weights and activations: q4_0 or the paper's w4c, with 8 bits, or bf16 or "
            "f32 with f32.",
            .values = "w4a8|w4c|bf16|f32"),
    OPT_ROW(INT, m, "560", "Rows of activations.", .min = 1, .max = 65536),
    OPT_ROW(INT, registers, "0",
            "Vector registers in the formula. 0: those of the variant's instruction set.",
            .min = 0, .max = 256),
    OPT_ROW(INT, rounds, "9",
            "Rounds in which the formula's tile, the best ones and the tuner's schedule "
            "are measured again, in turn.",
            .min = 3, .max = 99),
    OPT_ROW(F64, budget_s, "3", "Measuring time of the tuner. 0: no limit.", .unit = "s",
            .min = 0, .max = 1e6),
    ROW_CACHE_MB,
    OPT_ROW(INT, seed, "1", "Seed of weights, activations and the tuner's choices."),
    {0},
};

static const struct study_metric metrics[] = {
    {"formula_over_best", "", "higher",
     "rate of the formula's tile / rate of the best tile, by rounds in turn"},
    {"formula_over_tuned", "", "higher",
     "rate of the formula's tile / rate of the tuner's schedule, which also chose its "
     "slice"},
    {"formula_gflops", "GFLOP/s", "higher", "rate of the formula's tile"},
    {"best_gflops", "GFLOP/s", "higher", "rate of the best tile"},
    {"tuned_gflops", "GFLOP/s", "higher", "rate of the tuner's schedule"},
    {"formula_rows", "", "", "rows of the formula's tile"},
    {"formula_cols", "", "", "columns of the formula's tile"},
    {"best_rows", "", "", "rows of the best tile"},
    {"best_cols", "", "", "columns of the best tile"},
    {"tuned_rows", "", "", "rows of the tuner's tile"},
    {"tuned_cols", "", "", "columns of the tuner's tile"},
    {"ideal_rows", "", "",
     "rows of the formula's tile among all sizes, whether the engine has it or not"},
    {"ideal_cols", "", "", "columns of the same tile"},
    {"registers", "", "", "vector registers in the formula"},
    {"n_tiles", "", "", "tiles measured"},
    {0},
};

/* The entries that are measured again: the formula's tile, the tuner's schedule, and the tiles
 * that were fastest the first time. */
enum { FORMULA, TUNED, FIRST_FAST, N_FAST = 4, N_AGAIN = FIRST_FAST + N_FAST };

struct cell {
    const struct opts *o;
    struct study_cell *out;
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
static void slice(const struct cell *f, struct tune_mk tile, struct kern_schedule *s)
{
    struct kern_variant only = *f->shape.v;

    for (int np = 1; np <= KERN_NP_MAX; np++)
        only.rows[np - 1] = np == tile.np ? (uint8_t)tile.mr : 0;
    kern_schedule_default(s, &only, tune_bench_mat(f->bench), f->shape.m, f->threads.n);
}

static int list_tiles(struct cell *f)
{
    f->formula = -1;
    f->n_tiles = tune_mks(f->shape.v, f->shape.m, f->tiles);
    for (int i = 0; i < f->n_tiles; i++) {
        int64_t mr = f->tiles[i].mr, cols = f->tiles[i].np * KERN_PANEL;
        const struct tune_mk *best = &f->tiles[f->formula < 0 ? i : f->formula];

        slice(f, f->tiles[i], &f->schedules[i]);
        if (study_tile_fits(&f->product, mr, cols) &&
            study_tile_moved(&f->product, mr, cols) <=
                study_tile_moved(&f->product, best->mr, best->np * KERN_PANEL))
            f->formula = i;
    }
    if (f->formula < 0)
        return err_set(ERR_UNSUPPORTED, "no tile of %s fits into %d registers",
                       f->shape.v->name, f->product.registers);
    return OK;
}

static int open_work(struct cell *f)
{
    const struct opts *o = f->o;
    struct tune_bench_opts bench = {.seed = o->seed};

    TRY(study_matrix_parse(o->matrix, o->m, &f->shape));
    TRY(study_threads_open(&f->threads, 0, o->cache_mb));
    bench.cache_bytes = f->threads.cache_bytes;
    f->shape.v = variant_of(o->type);
    f->product = (struct study_tile_product){
        .e = o->m,
        .h = f->shape.n,
        .l = f->shape.k,
        .registers = o->registers ? (int)o->registers : registers_of(f->shape.v),
        .vec_cols = f->shape.v->isa ? f->shape.v->vec_cols : KERN_PANEL};
    TRY(tune_bench_open(&f->bench, f->threads.team, &bench));
    TRY(tune_bench_shape(f->bench, &f->shape));
    return list_tiles(f);
}

/* ---- measuring ---- */

/* Add a tile to those that are measured again, unless it is there. */
static void add(struct cell *f, const struct kern_schedule *s)
{
    for (int i = 0; i < f->n_again; i++)
        if (i != TUNED && tune_same(&f->again[i], s))
            return;
    f->again[f->n_again++] = *s;
}

static int nth_fastest(const struct cell *f, int nth)
{
    for (int i = 0; i < f->n_tiles; i++) {
        int faster = 0;

        for (int k = 0; k < f->n_tiles; k++)
            faster += f->first[k].estimate < f->first[i].estimate ||
                      (f->first[k].estimate == f->first[i].estimate && k < i);
        if (faster == nth)
            return i;
    }
    return 0;
}

/* Every tile twice; then the fastest ones with the others: a maximum over many tiles flatters
 * itself. */
static int measure_tiles(struct cell *f)
{
    const struct opts *o = f->o;
    struct kern_schedule tuned;

    TRY(tune_compare(f->bench, f->schedules, f->n_tiles, f->threads.n, 2, f->first));
    study_progress(f->out, 0.5, "tune");
    TRY(opt_init(tune_opt_table, &f->tune));
    f->tune.budget_s = o->budget_s;
    f->tune.seed = o->seed;
    TRY(study_tune_on(f->bench, "sandwich", &f->tune, f->threads.n, &f->shape, 1,
                      &tuned));
    f->again[FORMULA] = f->schedules[f->formula];
    f->again[TUNED] = tuned;
    f->n_again = FIRST_FAST;
    for (int i = 0; i < N_FAST && i < f->n_tiles; i++)
        add(f, &f->schedules[nth_fastest(f, i)]);
    TRY(tune_compare(f->bench, f->again, f->n_again, f->threads.n, (int)o->rounds,
                     f->times));
    f->best = FORMULA;
    for (int i = FIRST_FAST; i < f->n_again; i++)
        if (f->times[i].estimate < f->times[f->best].estimate)
            f->best = i;
    return OK;
}

/* ---- what is reported ---- */

static void report(struct cell *f, struct study_cell *c)
{
    const struct kern_schedule *formula = &f->again[FORMULA], *best = &f->again[f->best],
                               *tuned = &f->again[TUNED];
    double formula_s = f->times[FORMULA].estimate, best_s = f->times[f->best].estimate,
           tuned_s = f->times[TUNED].estimate;
    int64_t ep, hp;

    study_tile_best(&f->product, &ep, &hp);
    const struct study_number all[] = {
        {"formula_over_best", best_s / formula_s},
        {"formula_over_tuned", tuned_s / formula_s},
        {"formula_gflops", study_gflops(&f->shape, formula_s)},
        {"best_gflops", study_gflops(&f->shape, best_s)},
        {"tuned_gflops", study_gflops(&f->shape, tuned_s)},
        {"formula_rows", formula->mr},
        {"formula_cols", formula->np * KERN_PANEL},
        {"best_rows", best->mr},
        {"best_cols", best->np * KERN_PANEL},
        {"tuned_rows", tuned->mr},
        {"tuned_cols", tuned->np * KERN_PANEL},
        {"ideal_rows", (double)ep},
        {"ideal_cols", (double)hp},
        {"registers", f->product.registers},
        {"n_tiles", f->n_tiles},
    };

    STUDY_VALUES(c, all, "a time was not a number");
}

static void report_tiles(const struct cell *f, struct study_cell *c)
{
    double rows[TUNE_MKS_MAX], cols[TUNE_MKS_MAX], gflops[TUNE_MKS_MAX],
        moved[TUNE_MKS_MAX], fits[TUNE_MKS_MAX];
    size_t n = (size_t)f->n_tiles;

    for (int i = 0; i < f->n_tiles; i++) {
        int64_t mr = f->tiles[i].mr, width = f->tiles[i].np * KERN_PANEL;

        rows[i] = (double)mr;
        cols[i] = (double)width;
        gflops[i] = study_gflops(&f->shape, f->first[i].estimate);
        moved[i] = study_tile_moved(&f->product, mr, width);
        fits[i] = study_tile_fits(&f->product, mr, width);
    }
    study_series(c, "tile_rows", "rows", rows, n);
    study_series(c, "tile_cols", "columns", cols, n);
    study_series(c, "tile_gflops", "GFLOP/s", gflops, n);
    study_series(c, "tile_moved", "", moved, n);
    study_series(c, "tile_fits", "", fits, n);
}

static int run(struct cell *f)
{
    char text[128];

    TRY(open_work(f));
    study_progress(f->out, 0.1, "tiles");
    TRY(measure_tiles(f));
    report(f, f->out);
    report_tiles(f, f->out);
    kern_schedule_print(&f->again[TUNED], text, sizeof(text));
    study_note_text(f->out, "tuned", text);
    study_note_text(f->out, "variant", f->shape.v->name);
    study_note_machine(f->out, &f->threads);
    return OK;
}

static void end(struct cell *f)
{
    opt_free(tune_opt_table, &f->tune);
    tune_bench_close(&f->bench);
    study_threads_close(&f->threads);
}

STUDY(mnn_tile, "the tile of MNN-LLM's formula compared with the measured best one");
