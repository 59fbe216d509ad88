/* Our GEMMs compared with every library's, run in turn in the same cell: one matrix, one number
 * of rows, one type of weights. Ours run with a tuned schedule and with the cost model's.
 * bf16 weights are computed both exactly and relaxed.
 * Paper: Sandwich 8.2, Fig. 7. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "baselines/gemm.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/schedules.h"
#include "experiments/study/support/variant.h"

enum { COLD, WARM };
#define SEED 1 /* of weights, activations and sampled elements */

#define OPTIONS(X)                                                                       \
    OPTION_MATRIX_SPLIT(X)                                                               \
    X(ENUM, type, "f32", "Type of the weights. bf16 is computed exactly and relaxed.",   \
      .values = "f32|bf16")                                                              \
    X(ENUM, weights, "cold",                                                             \
      "cold: weights rotate through copies larger than the last-level cache. warm: one " \
      "copy stays in the cache; weights that do not fit are left out.",                  \
      .values = "cold|warm")                                                             \
    X(INT, m, "1", "Rows of activations.", .min = 1, .max = 65536)                       \
    OPTION_THREADS(                                                                      \
        X, "0",                                                                          \
        "Number of threads, for our GEMM and the libraries. 0: all CPUs of the budget.") \
    X(F64, tune_s, "0",                                                                  \
      "Time to search this engine's schedule first, per precision. A search begins "     \
      "with what was found for fewer rows. 0: use the cost model.",                      \
      .unit = "s", .min = 0, .max = 3600)                                                \
    X(INT, sigma, "3",                                                                   \
      "The first N numbers of rows of a matrix are searched from nothing, later ones "   \
      "from the last N that were found.",                                                \
      .min = 1, .max = STUDY_ROWS_MAX)                                                   \
    OPTION_CACHE_MB(X)                                                                   \
    X(INT, rounds, "15", "Largest number of rounds; at least three are run.", .min = 3,  \
      .max = 99)                                                                         \
    X(F64, cell_s, "1", "No further round is begun after this time.", .unit = "s",       \
      .min = 0, .max = 3600)                                                             \
    X(F64, baseline_s, "0.4", "Time for each library to find its best setting.",         \
      .unit = "s", .min = 0, .max = 3600)                                                \
    X(F64, max_gflop, "1e9", "Larger products are left out.", .unit = "GFLOP", .min = 0, \
      .max = 1e9)

#define RATIO_TO(X, library, suffix, some)                                               \
    X(ratio_vs_##library##suffix, "x", some, "time of it / ours, median over the rounds")
#define OUR_RESULTS(X, suffix, how, some)                                                \
    X(gflops##suffix, "GFLOP/s", HIGHER | some, "ours" how ": tuned where it was tuned") \
    X(ratio_tuned_vs_best##suffix, "x", HIGHER | some,                                   \
      "time of the best baseline / ours" how ", tuned schedule, median over the rounds") \
    X(ratio_default_vs_best##suffix, "x", some,                                          \
      "time of the best baseline / ours" how                                             \
      ", cost model's schedule, median over the rounds")                                 \
    X(ratio_tuned_vs_default##suffix, "x", some,                                         \
      "time of the cost model's schedule / tuned, median over the rounds")               \
    RATIO_TO(X, onednn, suffix, some)                                                    \
    RATIO_TO(X, openblas, suffix, some)                                                  \
    RATIO_TO(X, blis, suffix, some)                                                      \
    RATIO_TO(X, libxsmm, suffix, some)                                                   \
    X(ratio_again##suffix, "x", some,                                                    \
      "A/A: time of ours" how " in a second run of each round / in the first")           \
    X(detectable_frac##suffix, "", some,                                                 \
      "smallest difference from another that this A/A could have seen")                  \
    X(roof_frac##suffix, "", HIGHER | some, "gflops" #suffix " / roof_gflops" #suffix)   \
    X(peak_frac##suffix, "", HIGHER | some, "gflops" #suffix " / peak_gflops" #suffix)   \
    X(error##suffix, "", LOWER | some, "RMS error against float64, relative, ours" how)  \
    X(gflops_default##suffix, "GFLOP/s", some, "ours" how ", cost model's schedule")     \
    X(gflops_tuned##suffix, "GFLOP/s", some, "ours" how ", tuned schedule")              \
    X(tuning_s##suffix, "s", LOWER | some, "time of its search")                         \
    X(peak_gflops##suffix, "GFLOP/s", some, "peak of the machine card" how)              \
    X(roof_gflops##suffix, "GFLOP/s", some, "min(peak, read bandwidth x intensity)" how)
#define BASELINE(X, library)                                                             \
    X(gflops_##library, "GFLOP/s", 0, "rate of " #library " with its best setting")

#define RESULTS(X)                                                                       \
    OUR_RESULTS(X, , ", exact", 0)                                                       \
    OUR_RESULTS(X, _relaxed, ", relaxed", SOME)                                          \
    X(gflops_best_baseline, "GFLOP/s", 0, "the baseline with the lowest time")           \
    X(error_best_baseline, "", 0, "its RMS error against float64, relative")             \
    BASELINE(X, onednn)                                                                  \
    BASELINE(X, openblas)                                                                \
    BASELINE(X, blis)                                                                    \
    BASELINE(X, libxsmm)                                                                 \
    X(read_gbps, "GB/s", 0, "read bandwidth, the better of before and after the cell")   \
    X(read_again_frac, "", 0, "read bandwidth after the cell / before it")               \
    X(n_rounds, "", 0, "measured rounds")

FRAME_TYPES;

static const struct study_aa aa[] = {
    {"ratio_tuned_vs_best", "ratio_again"},
    {"ratio_default_vs_best", "ratio_again"},
    {"ratio_tuned_vs_default", "ratio_again"},
    {"ratio_tuned_vs_best_relaxed", "ratio_again_relaxed"},
    {"ratio_default_vs_best_relaxed", "ratio_again_relaxed"},
    {"ratio_tuned_vs_default_relaxed", "ratio_again_relaxed"},
    {0}};

enum { EXACT, RELAXED, N_SERIES };
static const char *const suffixes[N_SERIES] = {"", "_relaxed"};

/* Ours at one precision. */
struct series {
    int mode;
    struct tune_shape shape; /* with its variant */
    struct tune_bench *bench;
    int entry;       /* in the comparison, with the cost model's schedule */
    int tuned_entry; /* the same where that was the best found; -1: not tuned */
    int again;       /* what stands for ours a second time: the A/A */
    double error, tuning_s;
};

#define LIBRARIES_MAX 8

/* Kept from cell to cell: threads, weights and children take long to make. */
struct cache {
    bool warm;
    struct study_threads threads;
    int64_t n_threads, cache_mb;        /* as asked */
    struct tune_bench *bench[N_SERIES]; /* two, so that each rotates its own copies */
    struct study_choices choices;
    struct study_schedules schedules;
    /* In the order of gemm_baseline_names. NULL: it is absent or died, and why. */
    struct gemm_baseline *baselines[LIBRARIES_MAX];
    char why[LIBRARIES_MAX][96];
};

/* A product that is timed: ours, on a bench, or a library's. */
struct entry {
    const char *name;
    struct tune_bench *bench; /* NULL: a library's */
    struct kern_schedule schedule;
    int baseline; /* -1: ours */
};

struct gemm_vendors {
    FRAME_CELL;
    struct cache *kept;
    struct series series[N_SERIES];
    int n_series;
    struct entry entries[3 * N_SERIES + LIBRARIES_MAX]; /* ours come first */
    int n_ours, n_entries;
    double read_before, read_after;
};

static bool is_library(int i)
{
    return i < LIBRARIES_MAX && gemm_baseline_names[i];
}

static void keep_why(struct cache *kept, int i)
{
    snprintf(kept->why[i], sizeof(kept->why[i]), "%s", err_msg());
}

static void close_kept(void *arg)
{
    struct cache *kept = arg;

    for (int i = 0; i < LIBRARIES_MAX; i++)
        gemm_baseline_close(&kept->baselines[i]);
    for (int i = 0; i < N_SERIES; i++)
        tune_bench_close(&kept->bench[i]);
    study_threads_close(&kept->threads);
    memset(kept, 0, sizeof(*kept));
}

static int open_kept(struct cache *kept, const struct opts *o)
{
    struct tune_bench_opts b = {.warm = o->weights == WARM, .seed = SEED};
    struct gemm_baseline_opts g = {.seed = SEED};

    if (kept->threads.team &&
        (kept->n_threads != o->threads || kept->cache_mb != o->cache_mb))
        close_kept(kept);
    for (int i = 0; i < N_SERIES && kept->warm != b.warm; i++)
        tune_bench_close(&kept->bench[i]);
    kept->warm = b.warm;
    if (!kept->threads.team) {
        TRY(study_threads_open(&kept->threads, o->threads, o->cache_mb));
        kept->n_threads = o->threads;
        kept->cache_mb = o->cache_mb;
    }
    g.cpus = kept->threads.budget.cpus;
    g.n_threads = kept->threads.n;
    g.cache_bytes = b.cache_bytes = kept->threads.cache_bytes;
    for (int i = 0; is_library(i); i++) /* one that was lost may suit the next shape */
        if (!kept->baselines[i] &&
            gemm_baseline_open(&kept->baselines[i], gemm_baseline_names[i], &g) != OK)
            keep_why(kept, i);
    for (int i = 0; i < N_SERIES; i++)
        if (!kept->bench[i])
            TRY(tune_bench_open(&kept->bench[i], kept->threads.team, &b));
    return OK;
}

/* --- ours */

static int by_search(const struct gemm_vendors *c, struct series *s,
                     struct kern_schedule *out)
{
    struct tune_opts tune;
    struct tune_cost cost = {0};
    char key[160];
    int rc;

    TRY(opt_init(tune_opt_table, &tune));
    tune.budget_s = c->o->tune_s;
    tune.seed = SEED;
    tune.sigma = c->o->sigma;
    snprintf(key, sizeof(key), "%d %d %s", s->mode, c->o->weights, c->o->matrix);
    rc = study_schedules_search(&c->kept->schedules, s->bench, key, &tune,
                                c->kept->threads.n, &s->shape, out, &cost);
    s->tuning_s = cost.seconds;
    opt_free(tune_opt_table, &tune);
    return rc;
}

/* The default's entry, and the tuned schedule's where it is another. */
static int add_entries(struct gemm_vendors *c, int i)
{
    struct series *s = &c->series[i];
    const struct kern_mat *w = tune_bench_mat(s->bench);
    struct kern_schedule plain, tuned;

    s->tuning_s = NAN;
    kern_schedule_default(&plain, s->shape.v, w, s->shape.m, c->kept->threads.n);
    tune_clamp(&plain, w, s->shape.m); /* as searches write schedules */
    tuned = plain;
    if (c->o->tune_s > 0)
        TRY(by_search(c, s, &tuned));
    s->entry = c->n_ours++;
    c->entries[s->entry] = (struct entry){"default", s->bench, plain, -1};
    s->tuned_entry = c->o->tune_s > 0 ? s->entry : -1;
    if (!tune_same(&tuned, &plain)) {
        s->tuned_entry = c->n_ours++;
        c->entries[s->tuned_entry] = (struct entry){"tuned", s->bench, tuned, -1};
    }
    s->again = c->n_ours++;
    c->entries[s->again] = c->entries[s->again - 1]; /* the tuned one, or the only one */
    return OK;
}

static int enter_ours(struct gemm_vendors *c, const struct tune_shape *shape)
{
    c->n_series = c->o->type == STUDY_BF16 ? N_SERIES : 1;
    for (int i = 0; i < c->n_series; i++) {
        struct series *s = &c->series[i];

        s->mode = i == EXACT ? c->o->type : STUDY_BF16_RELAXED;
        s->shape = *shape;
        s->bench = c->kept->bench[i];
        TRY(study_choices_apply(&c->kept->choices, s->bench, s->mode, c->o->matrix,
                                &s->shape));
        TRY(add_entries(c, i));
    }
    return OK;
}

/* The entry that stands for ours. */
static int ours(const struct series *s)
{
    return s->tuned_entry >= 0 ? s->tuned_entry : s->entry;
}

/* --- the cell */

/* Those that are here and compute such a shape. */
static void enter_libraries(struct gemm_vendors *c)
{
    const struct tune_shape *s = &c->series[0].shape;

    c->n_entries = c->n_ours;
    for (int i = 0; is_library(i); i++) {
        study_progress(c->out, 0.15 * i, gemm_baseline_names[i]);
        if (!c->kept->baselines[i])
            continue;
        if (gemm_baseline_shape(c->kept->baselines[i], study_mode_type(c->o->type), s->m,
                                s->n, s->k, c->o->weights == WARM,
                                c->o->baseline_s) == OK)
            c->entries[c->n_entries++] =
                (struct entry){.name = gemm_baseline_names[i], .baseline = i};
        else
            keep_why(c->kept, i);
    }
}

static void nothing(void *arg, struct par_self *self)
{
    (void)arg, (void)self;
}

/* Our threads are woken before a run, as libraries wake theirs: parked ones must not be timed.
 * A library that fails leaves with its reason. */
static int gemm_vendors_trial(void *arg, int i, struct measure_trial *t)
{
    struct gemm_vendors *c = arg;
    struct cache *kept = c->kept;
    const struct entry *e = &c->entries[i];

    if (e->bench) {
        par_team_run(kept->threads.team, kept->threads.n, nothing, NULL);
        return tune_run_once(e->bench, &e->schedule, kept->threads.n, &t->seconds);
    }
    if (gemm_baseline_run(kept->baselines[e->baseline], &t->seconds) != OK) {
        keep_why(kept, e->baseline);
        gemm_baseline_close(&kept->baselines[e->baseline]);
        t->seconds = NAN;
    }
    return OK;
}

#define READ_S 0.04 /* some ten trials of each order of reading */

static double read_gbps(const struct gemm_vendors *c)
{
    const struct study_threads *t = &c->kept->threads;

    return c->o->weights == COLD ? study_read_gbps(t, 4 * t->cache_bytes, READ_S) : NAN;
}

static int gemm_vendors_measure(struct gemm_vendors *c)
{
    c->read_before = read_gbps(c);
    c->f->progress = 0.6;
    TRY(frame_rounds_by(c->f, "in turn", c->n_entries,
                        &(struct measure_opts){.min_rounds = 3,
                                               .max_rounds = (int)c->o->rounds,
                                               .budget_s = fmax(c->o->cell_s, 1e-9),
                                               .keep_all = true},
                        gemm_vendors_trial, c));
    c->read_after = read_gbps(c);
    for (int i = 0; i < c->n_series; i++) {
        struct series *s = &c->series[i];
        double
            seconds; /* once more, since a bench holds the result of its latest run only */

        TRY(tune_run_once(s->bench, &c->entries[ours(s)].schedule, c->kept->threads.n,
                          &seconds));
        TRY(study_gemm_error(s->bench, &s->shape, SEED, &s->error));
    }
    return OK;
}

static int begin(struct gemm_vendors *c, struct tune_shape *shape)
{
    double bytes, gflop;

    TRY(study_matrix_parse(c->o->matrix, c->o->m, shape));
    gflop = study_gflops(shape, 1);
    if (gflop > c->o->max_gflop)
        return err_set(ERR_NOTFOUND, "%.0f GFLOP a product, max_gflop is %g", gflop,
                       c->o->max_gflop);
    TRY(open_kept(c->kept, c->o));
    if (c->o->weights == COLD)
        return OK;
    bytes = (double)shape->n * (double)shape->k * (c->o->type == STUDY_F32 ? 4 : 2);
    /* A quarter is for activations and results. */
    if (bytes > 0.75 * (double)c->kept->threads.cache_bytes)
        return err_set(ERR_NOTFOUND,
                       "%.1f MB of weights do not stay in a cache of %.1f MB",
                       bytes / 1e6, (double)c->kept->threads.cache_bytes / 1e6);
    return OK;
}

/* --- what is reported */

/* GFLOP/s of an entry; NaN where it did not last. */
static double rate_of(const struct gemm_vendors *c, int entry)
{
    return study_gflops(&c->series[0].shape, frame_seconds(c->f, entry));
}

/* The library with the lowest time; -1: there is none. */
static int best_library(const struct gemm_vendors *c)
{
    int best = -1;

    for (int i = c->n_ours; i < c->n_entries; i++)
        if (!isnan(rate_of(c, i)) && (best < 0 || rate_of(c, i) > rate_of(c, best)))
            best = i;
    return best;
}

/* The entry of library i; -1: it does not compute this shape. */
static int entry_of(const struct gemm_vendors *c, int i)
{
    int k = c->n_entries - 1;

    while (k >= 0 && c->entries[k].baseline != i)
        k--;
    return k;
}

/* How many times as fast as `other` the entry `ours` is; either may be -1. */
static void report_ratio(struct gemm_vendors *c, double *x, int ours, int other,
                         const char *why)
{
    *x = NAN;
    if (ours >= 0 && other >= 0)
        frame_ratio(c->f, x, other, ours, 0);
    frame_set(c->f, x, *x, why);
}

static const char not_tuned[] = "no time for tuning";
static const char no_library[] = "no baseline computed this shape";

static void report_ratios(struct gemm_vendors *c, const struct series *s,
                          const char *suffix)
{
    int best = best_library(c);

    report_ratio(c, frame_named(c->f, "ratio_tuned_vs_best%s", suffix), s->tuned_entry,
                 best, best < 0 ? no_library : not_tuned);
    report_ratio(c, frame_named(c->f, "ratio_default_vs_best%s", suffix), s->entry, best,
                 no_library);
    report_ratio(c, frame_named(c->f, "ratio_tuned_vs_default%s", suffix), s->tuned_entry,
                 s->entry, not_tuned);
    frame_again(c->f, suffix, s->again, ours(s));
    for (int i = 0; is_library(i); i++)
        report_ratio(c,
                     frame_named(c->f, "ratio_vs_%s%s", gemm_baseline_names[i], suffix),
                     ours(s), entry_of(c, i), c->kept->why[i]);
}

static void report_series(struct gemm_vendors *c, const char *name, const char *suffix,
                          int entry)
{
    char full[64];

    snprintf(full, sizeof(full), "%s%s", name, suffix);
    frame_times_series(c->f, full, entry);
}

static void report_ours(struct gemm_vendors *c, const struct series *s,
                        const char *suffix)
{
    bool tuned = s->tuned_entry >= 0;

    frame_set(c->f, frame_named(c->f, "gflops%s", suffix), rate_of(c, ours(s)),
              "it did not last");
    frame_set(c->f, frame_named(c->f, "gflops_default%s", suffix), rate_of(c, s->entry),
              "it did not last");
    frame_set(c->f, frame_named(c->f, "gflops_tuned%s", suffix),
              tuned ? rate_of(c, s->tuned_entry) : NAN, not_tuned);
    frame_set(c->f, frame_named(c->f, "tuning_s%s", suffix), s->tuning_s,
              "nothing was searched");
    frame_set(c->f, frame_named(c->f, "error%s", suffix), s->error,
              "the result is not a number");
    report_ratios(c, s, suffix);
    report_series(c, "s_default", suffix, s->entry);
    if (tuned)
        report_series(c, "s_tuned", suffix, s->tuned_entry);
}

static void report_bounds(struct gemm_vendors *c, const struct series *s,
                          const char *suffix)
{
    const char *no_read = c->o->weights == WARM
                              ? "cached weights are not read from memory"
                              : "read bandwidth was not measured";
    const char *no_peak = "no trusted peak in the machine card";
    double peak = study_peak_gflops(study_machine(c->out), s->mode, c->kept->threads.n);
    double read = fmax(c->read_before, c->read_after);
    double roof =
        study_roof_gflops(peak, study_memory_roof_gflops(s->mode, s->shape.m, read));
    double rate = rate_of(c, ours(s));
    const char *no_roof = isnan(read) ? no_read : no_peak;

    frame_set(c->f, frame_named(c->f, "peak_gflops%s", suffix), peak, no_peak);
    frame_set(c->f, frame_named(c->f, "peak_frac%s", suffix), rate / peak, no_peak);
    frame_set(c->f, frame_named(c->f, "roof_gflops%s", suffix), roof, no_roof);
    frame_set(c->f, frame_named(c->f, "roof_frac%s", suffix), rate / roof, no_roof);
    if (s != &c->series[0])
        return;
    frame_set(c->f, &c->r->read_gbps, read, no_read);
    frame_set(c->f, &c->r->read_again_frac, c->read_after / c->read_before, no_read);
}

/* Notes which libraries lasted, and why the others did not. */
static void report_libraries(struct gemm_vendors *c)
{
    json_t *lasted = json_object();
    int best = best_library(c);

    for (int i = 0; is_library(i); i++) {
        const struct gemm_baseline *r = c->kept->baselines[i];
        int at = entry_of(c, i);
        double rate = at < 0 ? NAN : rate_of(c, at);

        frame_set(c->f, frame_named(c->f, "gflops_%s", gemm_baseline_names[i]), rate,
                  c->kept->why[i]);
        if (isnan(rate))
            continue;
        report_series(c, "s_", gemm_baseline_names[i], at);
        json_object_set_new(
            lasted, gemm_baseline_names[i],
            json_pack("{s:s, s:s, s:f}", "version", gemm_baseline_version(r), "setting",
                      gemm_baseline_setting(r), "error", gemm_baseline_error(r)));
    }
    study_note(c->out, "baselines", lasted);
    c->r->n_rounds = c->f->n_rounds;
    frame_set(c->f, &c->r->gflops_best_baseline, best < 0 ? NAN : rate_of(c, best),
              no_library);
    frame_set(c->f, &c->r->error_best_baseline,
              best < 0
                  ? NAN
                  : gemm_baseline_error(c->kept->baselines[c->entries[best].baseline]),
              best < 0 ? no_library : "the baseline states none");
    if (best >= 0)
        study_note_text(c->out, "best_baseline", c->entries[best].name);
}

static void note_ours(const struct gemm_vendors *c)
{
    json_t *list = json_array();
    char schedule[128];

    for (int i = 0; list && i < c->n_series; i++) {
        const struct series *s = &c->series[i];
        const struct entry *entry = &c->entries[ours(s)];

        kern_schedule_print(&entry->schedule, schedule, sizeof(schedule));
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "precision",
                                              study_mode_precision(s->mode), "variant",
                                              s->shape.v->name, "schedule", schedule,
                                              "of", entry->name));
    }
    study_note(c->out, "ours", list);
}

static void note_particulars(const struct gemm_vendors *c, const struct series *s,
                             const char *suffix)
{
    const struct entry *e = &c->entries[ours(s)];
    struct text text = {0};
    char key[64];

    study_schedule_particulars(&s->shape, tune_bench_mat(s->bench), &e->schedule,
                               frame_seconds(c->f, ours(s)), &text);
    snprintf(key, sizeof(key), "particulars%s", suffix);
    study_note_text(c->out, key, text.rc == OK ? text.p : "");
    text_fini(&text);
}

static int gemm_vendors_run(struct gemm_vendors *c)
{
    struct tune_shape shape;

    c->kept = study_kept(c->out);
    TRY(begin(c, &shape));
    TRY(enter_ours(c, &shape));
    enter_libraries(c);
    TRY(gemm_vendors_measure(c));
    for (int i = 0; i < c->n_series; i++) {
        report_ours(c, &c->series[i], suffixes[i]);
        report_bounds(c, &c->series[i], suffixes[i]);
        note_particulars(c, &c->series[i], suffixes[i]);
    }
    report_libraries(c);
    note_ours(c);
    study_note_machine(c->out, &c->kept->threads);
    return OK;
}

STUDY(gemm_vendors, "our GEMM compared with every library's, in turn in one run",
      .kept_bytes = sizeof(struct cache), .wants_machine = true, .close = close_kept,
      .aa = aa);
