/* What tuning one matrix costs and what it gives, by one policy.
 * Paper: Sandwich 8.3 and B, Table 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tuning.h"

struct opts {
    char *matrix, *ms, *policy;
    int64_t n_shapes, m_max, threads, trials, rounds, cache_mb, seed;
    int mode;
    double budget_s;
};

static const struct opt_row table[] = {
    ROWS_SHAPES("8"),
    OPT_ROW(STR, policy, "sandwich", "Tuning policy."),
    ROWS_TUNING("7"),
    {0},
};

static const struct study_metric metrics[] = {
    {"tuning_s", "s", "lower", "time spent in measurements, warm-up included"},
    {"tuning_wall_s", "s", "lower",
     "wall time of the policy, its own computation included"},
    {"n_measurements", "", "lower", "number of schedules measured"},
    {"n_runs", "", "", "number of GEMMs computed for these measurements"},
    {"gflops", "GFLOP/s", "higher",
     "rate, geometric mean over the shapes, measured again"},
    {"gflops_default", "GFLOP/s", "", "that rate with the schedules of the cost model"},
    {"speedup", "x", "higher", "geometric mean of (default's time / tuned time)"},
    {"n_shapes", "", "", "number of shapes tuned"},
    {0},
};

struct cell {
    struct study_threads threads;
    struct study_shapes shapes;
    struct tune_opts tune;
    struct study_tuned tuned, untuned;
    double gflops[STUDY_SHAPES_MAX], gflops_default[STUDY_SHAPES_MAX],
        speedup[STUDY_SHAPES_MAX], m[STUDY_SHAPES_MAX];
};

static int search(const struct opts *o, struct cell *f)
{
    TRY(opt_init(tune_opt_table, &f->tune));
    f->tune.trials = o->trials ? o->trials : f->tune.trials;
    f->tune.budget_s = o->budget_s;
    f->tune.seed = o->seed;
    TRY(study_tune(o->policy, &f->tune, &f->threads, &f->shapes, &f->tuned));
    return study_tune("default", &f->tune, &f->threads, &f->shapes, &f->untuned);
}

/* Other numbers in the buffers than those it was tuned on. */
static int again(const struct opts *o, struct cell *f)
{
    const struct study_tuned *both[] = {&f->tuned, &f->untuned};
    double s[STUDY_SHAPES_MAX][2];

    TRY(study_remeasure(&f->threads, &f->shapes, both, 2, (int)o->rounds, o->seed + 1,
                        s[0]));
    for (int i = 0; i < f->shapes.n; i++) {
        f->m[i] = (double)f->shapes.v[i].m;
        f->gflops[i] = study_gflops(&f->shapes.v[i], s[i][0]);
        f->gflops_default[i] = study_gflops(&f->shapes.v[i], s[i][1]);
        f->speedup[i] = s[i][1] / s[i][0];
    }
    return OK;
}

static void report(const struct cell *f, struct study_cell *out)
{
    size_t n = (size_t)f->shapes.n;
    const struct study_number all[] = {
        {"tuning_s", f->tuned.cost.seconds},
        {"tuning_wall_s", f->tuned.wall_s},
        {"n_measurements", (double)f->tuned.cost.n_measurements},
        {"n_runs", (double)f->tuned.cost.n_runs},
        {"gflops", stats_geomean(f->gflops, n)},
        {"gflops_default", stats_geomean(f->gflops_default, n)},
        {"speedup", stats_geomean(f->speedup, n)},
        {"n_shapes", (double)n}};

    STUDY_VALUES(out, all, "a time was not a number");
    study_series(out, "m", "", f->m, n);
    study_series(out, "gflops_of_m", "GFLOP/s", f->gflops, n);
    study_series(out, "gflops_default_of_m", "GFLOP/s", f->gflops_default, n);
}

static void note(const struct cell *f, struct study_cell *out)
{
    json_t *list = json_array();
    char text[128];

    for (int i = 0; list && i < f->shapes.n; i++) {
        kern_schedule_print(&f->tuned.schedule[i], text, sizeof(text));
        json_array_append_new(
            list,
            json_pack("{s:I, s:s}", "m", (json_int_t)f->shapes.v[i].m, "schedule", text));
    }
    study_note(out, "schedules", list);
    study_note_setting(out, &f->threads, f->shapes.mode, f->shapes.v[0].v);
}

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct cell *f = context;

    TRY(study_threads_open(&f->threads, o->threads, o->cache_mb));
    TRY(study_shapes_make(&f->shapes, o->matrix, o->mode, o->ms, o->n_shapes, o->m_max,
                          o->seed));
    study_progress(out, 0.05, "tune");
    TRY(search(o, f));
    study_progress(out, 0.9, "measure again");
    TRY(again(o, f));
    report(f, out);
    note(f, out);
    return OK;
}

static void end(void *context)
{
    struct cell *f = context;

    opt_free(tune_opt_table, &f->tune);
    study_threads_close(&f->threads);
}

STUDY(tuning, "what tuning one matrix costs and what it gives");
