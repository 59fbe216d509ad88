/* Our GEMMs compared with every library's, run in turn in the same cell: one matrix, one number
 * of rows, one type of weights. Ours run with a tuned schedule and with the cost model's.
 * bf16 weights are computed both exactly and relaxed.
 * Paper: Sandwich 8.2, Fig. 7. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "baselines/gemm.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/schedules.h"
#include "experiments/study/support/variant.h"

struct opts {
    char *matrix;
    int64_t m, threads, cache_mb, sigma, rounds;
    int type, weights; /* type: STUDY_F32 or STUDY_BF16 */
    double cell_s, baseline_s, tune_s, max_gflop;
};

enum { COLD, WARM };
#define SEED 1 /* of weights, activations and sampled elements */

static const struct opt_row table[] = {
    ROW_MATRIX_SPLIT,
    OPT_ROW(ENUM, type, "f32",
            "Type of the weights. bf16 is computed exactly and relaxed.",
            .values = "f32|bf16"),
    OPT_ROW(ENUM, weights, "cold",
            "cold: weights rotate through copies larger than the last-level cache. "
            "warm: one copy stays in the cache; weights that do not fit are left out.",
            .values = "cold|warm"),
    OPT_ROW(INT, m, "1", "Rows of activations.", .min = 1, .max = 65536),
    ROW_THREADS(
        "0",
        "Number of threads, for our GEMM and the libraries. 0: all CPUs of the budget."),
    OPT_ROW(F64, tune_s, "0",
            "Time to search this engine's schedule first, per precision. A search begins "
            "with what was found for fewer rows. 0: use the cost model.",
            .unit = "s", .min = 0, .max = 3600),
    OPT_ROW(
        INT, sigma, "3",
        "The first N numbers of rows of a matrix are searched from nothing, later ones "
        "from the last N that were found.",
        .min = 1, .max = STUDY_ROWS_MAX),
    ROW_CACHE_MB,
    OPT_ROW(INT, rounds, "15", "Largest number of rounds; at least three are run.",
            .min = 3, .max = 99),
    OPT_ROW(F64, cell_s, "1", "No further round is begun after this time.", .unit = "s",
            .min = 0, .max = 3600),
    OPT_ROW(F64, baseline_s, "0.4", "Time for each library to find its best setting.",
            .unit = "s", .min = 0, .max = 3600),
    OPT_ROW(F64, max_gflop, "1e9", "Larger products are left out.", .unit = "GFLOP",
            .min = 0, .max = 1e9),
    {0},
};

#define RATIO_TO(name)                                                                   \
    {                                                                                    \
        "ratio_vs_" name, "x", "", "time of it / ours, median over the rounds"           \
    }
/* Metrics of our own products, exact and relaxed. */
#define OURS(suffix, how)                                                                \
    {"gflops" suffix, "GFLOP/s", "higher", "ours" how ": tuned where it was tuned"},     \
        {"ratio_tuned_vs_best" suffix, "x", "higher",                                    \
         "time of the best baseline / ours" how                                          \
         ", tuned schedule, median over the rounds"},                                    \
        {"ratio_default_vs_best" suffix, "x", "",                                        \
         "time of the best baseline / ours" how                                          \
         ", cost model's schedule, median over the rounds"},                             \
        {"ratio_tuned_vs_default" suffix, "x", "",                                       \
         "time of the cost model's schedule / tuned, median over the rounds"},           \
        RATIO_TO("onednn" suffix), RATIO_TO("openblas" suffix), RATIO_TO("blis" suffix), \
        RATIO_TO("libxsmm" suffix),                                                      \
        {"ratio_again" suffix, "x", "",                                                  \
         "A/A: time of ours" how " in a second run of each round / in the first"},       \
        {"detectable_frac" suffix, "", "",                                               \
         "smallest difference from another that this A/A could have seen"},              \
        {"roof_frac" suffix, "", "higher", "gflops" suffix " / roof_gflops" suffix},     \
        {"peak_frac" suffix, "", "higher", "gflops" suffix " / peak_gflops" suffix},     \
        {"error" suffix, "", "lower", "RMS error against float64, relative, ours" how},  \
        {"gflops_default" suffix, "GFLOP/s", "", "ours" how ", cost model's schedule"},  \
        {"gflops_tuned" suffix, "GFLOP/s", "", "ours" how ", tuned schedule"},           \
        {"tuning_s" suffix, "s", "lower", "time of its search"},                         \
        {"peak_gflops" suffix, "GFLOP/s", "", "peak of the machine card" how},           \
    {                                                                                    \
        "roof_gflops" suffix, "GFLOP/s", "", "min(peak, read bandwidth x intensity)" how \
    }
#define BASELINE(name)                                                                   \
    {                                                                                    \
        "gflops_" name, "GFLOP/s", "", "rate of " name " with its best setting"          \
    }
static const struct study_metric metrics[] = {
    OURS("", ", exact"),
    OURS("_relaxed", ", relaxed"),
    {"gflops_best_baseline", "GFLOP/s", "", "the baseline with the lowest time"},
    {"error_best_baseline", "", "", "its RMS error against float64, relative"},
    BASELINE("onednn"),
    BASELINE("openblas"),
    BASELINE("blis"),
    BASELINE("libxsmm"),
    {"read_gbps", "GB/s", "", "read bandwidth, the better of before and after the cell"},
    {"read_again_frac", "", "", "read bandwidth after the cell / before it"},
    {"n_rounds", "", "", "measured rounds"},
    {0},
};

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

/* What is timed: ours, on a bench, or a library's. */
struct entry {
    const char *name;
    struct tune_bench *bench; /* NULL: a library's */
    struct kern_schedule schedule;
    int baseline; /* -1: ours */
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct cache *kept;
    struct series series[N_SERIES];
    int n_series;
    struct entry entries[3 * N_SERIES + LIBRARIES_MAX]; /* ours come first */
    int n_ours, n_entries;
    struct study_compare rounds;
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

static int by_search(const struct cell *c, struct series *s, struct kern_schedule *out)
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
static int add_entries(struct cell *c, int i)
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

static int enter_ours(struct cell *c, const struct tune_shape *shape)
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
static void enter_libraries(struct cell *c)
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
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *c = arg;
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

static double read_gbps(const struct cell *c)
{
    const struct study_threads *t = &c->kept->threads;

    return c->o->weights == COLD ? study_read_gbps(t, 4 * t->cache_bytes, READ_S) : NAN;
}

static int measure(struct cell *c)
{
    c->read_before = read_gbps(c);
    c->rounds = (struct study_compare){.how = {.min_rounds = 3,
                                               .max_rounds = (int)c->o->rounds,
                                               .budget_s = fmax(c->o->cell_s, 1e-9),
                                               .keep_all = true},
                                       .doing = "in turn",
                                       .from = 0.6};
    TRY(study_compare(&c->rounds, c->out, c->n_entries, 0, trial, c));
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

static int begin(struct cell *c, struct tune_shape *shape)
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

/* --- what is said */

/* GFLOP/s of an entry; NaN where it did not last. */
static double rate_of(const struct cell *c, int entry)
{
    return study_gflops(&c->series[0].shape, c->rounds.time[entry].estimate);
}

/* The library with the lowest time; -1: there is none. */
static int best_library(const struct cell *c)
{
    int best = -1;

    for (int i = c->n_ours; i < c->n_entries; i++)
        if (!isnan(rate_of(c, i)) && (best < 0 || rate_of(c, i) > rate_of(c, best)))
            best = i;
    return best;
}

/* The entry of library i; -1: it does not compute this shape. */
static int entry_of(const struct cell *c, int i)
{
    int k = c->n_entries - 1;

    while (k >= 0 && c->entries[k].baseline != i)
        k--;
    return k;
}

static void report(const struct cell *c, const char *name, const char *suffix,
                   double value, const char *why)
{
    char metric[80];

    snprintf(metric, sizeof(metric), "%s%s", name, suffix);
    study_value(c->out, metric, value, why);
}

/* How many times as fast as `other` the entry `ours` is; either may be -1. */
static void report_ratio(const struct cell *c, const char *name, const char *suffix,
                         int ours, int other, const char *why)
{
    struct measure_report r = {.estimate = NAN, .lo = NAN, .hi = NAN};
    char full[48];

    if (ours >= 0 && other >= 0)
        measure_ratio(c->rounds.measure, other, ours, &r);
    snprintf(full, sizeof(full), "%s%s", name, suffix);
    study_value_interval(c->out, full, r.estimate, r.lo, r.hi, why);
}

static const char not_tuned[] = "no time for tuning";
static const char no_library[] = "no baseline computed this shape";

static void report_ratios(const struct cell *c, const struct series *s,
                          const char *suffix)
{
    int best = best_library(c);
    char name[64];

    report_ratio(c, "ratio_tuned_vs_best", suffix, s->tuned_entry, best,
                 best < 0 ? no_library : not_tuned);
    report_ratio(c, "ratio_default_vs_best", suffix, s->entry, best, no_library);
    report_ratio(c, "ratio_tuned_vs_default", suffix, s->tuned_entry, s->entry,
                 not_tuned);
    study_compare_again(&c->rounds, suffix, s->again, ours(s));
    for (int i = 0; is_library(i); i++) {
        snprintf(name, sizeof(name), "ratio_vs_%s", gemm_baseline_names[i]);
        report_ratio(c, name, suffix, ours(s), entry_of(c, i), c->kept->why[i]);
    }
}

static void report_series(const struct cell *c, const char *name, const char *suffix,
                          int entry)
{
    char full[64];

    snprintf(full, sizeof(full), "%s%s", name, suffix);
    study_series(c->out, full, "s", study_compare_times(&c->rounds, entry),
                 (size_t)c->rounds.n_rounds);
}

static void report_ours(const struct cell *c, const struct series *s, const char *suffix)
{
    bool tuned = s->tuned_entry >= 0;

    report(c, "gflops", suffix, rate_of(c, ours(s)), NULL);
    report(c, "gflops_default", suffix, rate_of(c, s->entry), NULL);
    report(c, "gflops_tuned", suffix, tuned ? rate_of(c, s->tuned_entry) : NAN,
           not_tuned);
    report(c, "tuning_s", suffix, s->tuning_s, "nothing was searched");
    report(c, "error", suffix, s->error, "the result is not a number");
    report_ratios(c, s, suffix);
    report_series(c, "s_default", suffix, s->entry);
    if (tuned)
        report_series(c, "s_tuned", suffix, s->tuned_entry);
}

static void report_bounds(const struct cell *c, const struct series *s,
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

    report(c, "peak_gflops", suffix, peak, no_peak);
    report(c, "peak_frac", suffix, rate / peak, no_peak);
    report(c, "roof_gflops", suffix, roof, no_roof);
    report(c, "roof_frac", suffix, rate / roof, no_roof);
    if (s != &c->series[0])
        return;
    study_value(c->out, "read_gbps", read, no_read);
    study_value(c->out, "read_again_frac", c->read_after / c->read_before, no_read);
}

/* Of those that did not last, the reason. */
static void report_libraries(const struct cell *c)
{
    json_t *lasted = json_object();
    int best = best_library(c);

    for (int i = 0; is_library(i); i++) {
        const struct gemm_baseline *r = c->kept->baselines[i];
        int at = entry_of(c, i);
        double rate = at < 0 ? NAN : rate_of(c, at);

        report(c, "gflops_", gemm_baseline_names[i], rate, c->kept->why[i]);
        if (isnan(rate))
            continue;
        report_series(c, "s_", gemm_baseline_names[i], at);
        json_object_set_new(
            lasted, gemm_baseline_names[i],
            json_pack("{s:s, s:s, s:f}", "version", gemm_baseline_version(r), "setting",
                      gemm_baseline_setting(r), "error", gemm_baseline_error(r)));
    }
    study_note(c->out, "baselines", lasted);
    study_value(c->out, "n_rounds", c->rounds.n_rounds, NULL);
    study_value(c->out, "gflops_best_baseline", best < 0 ? NAN : rate_of(c, best),
                no_library);
    study_value(c->out, "error_best_baseline",
                best < 0
                    ? NAN
                    : gemm_baseline_error(c->kept->baselines[c->entries[best].baseline]),
                best < 0 ? no_library : "the baseline states none");
    if (best >= 0)
        study_note_text(c->out, "best_baseline", c->entries[best].name);
}

static void note_ours(const struct cell *c)
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

static void note_particulars(const struct cell *c, const struct series *s,
                             const char *suffix)
{
    const struct entry *e = &c->entries[ours(s)];
    struct text text = {0};
    char key[64];

    study_schedule_particulars(&s->shape, tune_bench_mat(s->bench), &e->schedule,
                               c->rounds.time[ours(s)].estimate, &text);
    snprintf(key, sizeof(key), "particulars%s", suffix);
    study_note_text(c->out, key, text.rc == OK ? text.p : "");
    text_fini(&text);
}

static int run(struct cell *c)
{
    struct tune_shape shape;

    c->kept = study_kept(c->out);
    TRY(begin(c, &shape));
    TRY(enter_ours(c, &shape));
    enter_libraries(c);
    TRY(measure(c));
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

static void end(struct cell *c)
{
    study_compare_close(&c->rounds);
}

STUDY(gemm_vendors, "our GEMM compared with every library's, in turn in one run",
      .kept_bytes = sizeof(struct cache), .wants_machine = true, .close = close_kept,
      .aa = aa);
