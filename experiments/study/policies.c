/* Tuning policies over the same micro-kernels, on the same shapes: how far what they
 * choose is from the oracle's choice, and what it cost them. All begin alike (with the cost
 * model's schedule, or none of them), measure their fastest again by the same rule, and are
 * charged for that and for offline work. What they choose is at last run in turn on fresh
 * buffers, which no policy is charged for.
 * Paper: Sandwich 8.2, Fig. 8; 8.3 and B, Table 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/stats.h"
#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/tuning.h"
#include "tune/search.h"

struct opts {
    char *matrix, *ms, *policies;
    int64_t n_shapes, m_max, threads, sigma, retest, trials, rounds, cache_mb, seed;
    int mode;
    bool start_default;
    double budget_s;
};

static const struct opt_row table[] = {
    ROWS_SHAPES("4"),
    OPT_ROW(STR, policies, NULL,
            "Policies to compare. Default: all. Example: \"sandwich roller oracle\""),
    OPT_ROW(INT, sigma, "0",
            "Length of the sliding window in shapes. 0: the policies' default.", .min = 0,
            .max = 1000),
    OPT_ROW(INT, retest, "5",
            "Number of the fastest schedules that each policy that measures measures "
            "again before it chooses. 0: none does.",
            .min = 0, .max = TUNE_RETEST_MAX),
    OPT_ROW(BOOL, start_default, NULL,
            "Let each policy that measures begin with the cost model's schedule, too. "
            "Default: none does."),
    ROWS_TUNING("15"),
    {0},
};

/* The policies a record has columns for; "default" is the cost model, which tunes
 * nothing. */
#define POLICIES(X)                                                                      \
    X(sandwich)                                                                          \
    X(sandwich_paper)                                                                    \
    X(roller) X(roller_topk) X(mikpoly) X(dietcode) X(ansor) X(oracle) X(default)

#define ROWS(p)                                                                          \
    {"regret_" #p, "", "lower",                                                          \
     "geometric mean of (time of " #p " / time of oracle) - 1"},                         \
        {"vs_ansor_" #p, "x", "higher",                                                  \
         "geometric mean of (time of ansor / time of " #p "): the paper's measure"},     \
        {"measurements_" #p, "", "lower", "schedules that " #p " measured"},             \
        {"runs_" #p, "", "", "GEMMs computed for these measurements"},                   \
        {"tuning_s_" #p, "s", "lower", "time " #p " spent measuring"},                   \
        {"tuning_wall_s_" #p, "s", "",                                                   \
         "wall time of " #p ", its own computation included"},                           \
        {"speedup_" #p, "x", "higher",                                                   \
         "geometric mean of (time of the cost model's schedule / time of " #p "'s)"},    \
        {"gflops_" #p, "GFLOP/s", "",                                                    \
         "rate, geometric mean over the shapes, measured again"},
static const struct study_metric metrics[] = {
    POLICIES(ROWS){"tuning_ansor_over_sandwich_paper", "x", "higher",
                   "measuring time of ansor over that of sandwich_paper"},
    {"tuning_roller_over_sandwich_paper", "x", "higher",
     "measuring time of roller over that of sandwich_paper"},
    {"n_shapes", "", "", "number of shapes of this matrix"},
    {0},
};

#define NAME(p) #p,
static const char *const names[] = {POLICIES(NAME) NULL};
#define MAX_POLICIES ((int)(sizeof(names) / sizeof(names[0]) - 1))

struct entrant {
    const char *name;
    struct study_tuned tuned;
    double s[STUDY_SHAPES_MAX]; /* measured again */
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_threads threads;
    struct study_shapes shapes;
    struct tune_opts tune;
    struct entrant entrants[MAX_POLICIES];
    int n;
};

/* Is `word` among the words of `list`? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return true;
    return false;
}

/* Every word must be a policy that the record has columns for. */
static int check_policies(const char *list)
{
    const struct tune_policy *p;
    char word[64];
    int n;

    for (const char *at = list; at && sscanf(at, "%63s%n", word, &n) == 1; at += n) {
        if (tune_policy_find(word, &p) != OK)
            return err_prefix(ERR_NOTFOUND, "study.policies");
        if (name_index(names, word) < 0)
            return err_set(ERR_ARG, "study.policies: %s has no columns in this study",
                           word);
    }
    return OK;
}

static int search(const struct opts *o, struct cell *f, struct study_cell *out)
{
    const struct tune_policy *p;

    TRY(opt_init(tune_opt_table, &f->tune));
    f->tune.sigma = o->sigma ? o->sigma : f->tune.sigma;
    f->tune.retest = o->retest;
    f->tune.start_default = o->start_default;
    f->tune.trials = o->trials ? o->trials : f->tune.trials;
    f->tune.budget_s = o->budget_s;
    f->tune.seed = o->seed;
    for (int i = 0; names[i]; i++) {
        struct entrant *e = &f->entrants[f->n];
        int rc;

        if (o->policies ? !has_word(o->policies, names[i])
                        : tune_policy_find(names[i], &p) != OK)
            continue;
        study_progress(out, 0.05 + 0.85 * i / MAX_POLICIES, names[i]);
        e->name = names[i];
        f->n++;
        rc = study_tune(names[i], &f->tune, &f->threads, &f->shapes, &e->tuned);
        if (rc != OK)
            return err_prefix(rc, "%s", names[i]);
    }
    return OK;
}

static int again(const struct opts *o, struct cell *f)
{
    const struct study_tuned *all[MAX_POLICIES];
    double s[STUDY_SHAPES_MAX * MAX_POLICIES];

    for (int k = 0; k < f->n; k++)
        all[k] = &f->entrants[k].tuned;
    TRY(study_remeasure(&f->threads, &f->shapes, all, f->n, (int)o->rounds, o->seed + 1,
                        s));
    for (int i = 0; i < f->shapes.n; i++)
        for (int k = 0; k < f->n; k++)
            f->entrants[k].s[i] = s[i * f->n + k];
    return OK;
}

/* NULL: it was not asked. */
static const struct entrant *entrant_of(const struct cell *f, const char *name)
{
    for (int k = 0; k < f->n; k++)
        if (strcmp(f->entrants[k].name, name) == 0)
            return &f->entrants[k];
    return NULL;
}

/* The geometric mean over the shapes of the time of a over that of b; either may be NULL. */
static double time_ratio(const struct cell *f, const struct entrant *a,
                         const struct entrant *b)
{
    double ratio[STUDY_SHAPES_MAX];

    for (int i = 0; i < f->shapes.n && a && b; i++)
        ratio[i] = a->s[i] / b->s[i];
    return a && b ? stats_geomean(ratio, (size_t)f->shapes.n) : NAN;
}

static double gflops_of(const struct cell *f, const struct entrant *e)
{
    double gflops[STUDY_SHAPES_MAX];

    for (int i = 0; i < f->shapes.n; i++)
        gflops[i] = study_gflops(&f->shapes.v[i], e->s[i]);
    return stats_geomean(gflops, (size_t)f->shapes.n);
}

static void report_one(const struct cell *f, const struct entrant *e,
                       struct study_cell *out)
{
    const struct {
        const char *prefix;
        double value;
        const char *why;
    } all[] = {
        {"regret_", time_ratio(f, e, entrant_of(f, "oracle")) - 1,
         "the oracle was not asked"},
        {"vs_ansor_", time_ratio(f, entrant_of(f, "ansor"), e), "ansor was not asked"},
        {"speedup_", time_ratio(f, entrant_of(f, "default"), e), "default was not asked"},
        {"measurements_", (double)e->tuned.cost.n_measurements, NULL},
        {"runs_", (double)e->tuned.cost.n_runs, NULL},
        {"tuning_s_", e->tuned.cost.seconds, NULL},
        {"tuning_wall_s_", e->tuned.wall_s, NULL},
        {"gflops_", gflops_of(f, e), NULL},
    };
    char name[64];

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", all[i].prefix, e->name);
        study_value(out, name, all[i].value, all[i].why);
    }
    snprintf(name, sizeof(name), "s_%s", e->name);
    study_series(out, name, "s", e->s, (size_t)f->shapes.n);
}

/* How much longer `name` measured than the paper's algorithm. */
static void report_cost(const struct cell *f, const char *name, const char *metric,
                        struct study_cell *out)
{
    const struct entrant *a = entrant_of(f, name), *b = entrant_of(f, "sandwich_paper");

    study_value(out, metric,
                a && b && b->tuned.cost.seconds > 0
                    ? a->tuned.cost.seconds / b->tuned.cost.seconds
                    : NAN,
                "one of them was not asked, or measured nothing");
}

static void note(const struct cell *f, struct study_cell *out)
{
    json_t *all = json_object();
    char text[128];

    for (int k = 0; all && k < f->n; k++) {
        json_t *list = json_array();

        for (int i = 0; list && i < f->shapes.n; i++) {
            kern_schedule_print(&f->entrants[k].tuned.schedule[i], text, sizeof(text));
            json_array_append_new(list, json_string(text));
        }
        json_object_set_new(all, f->entrants[k].name, list);
    }
    study_note(out, "schedules", all);
    study_note_setting(out, &f->threads, f->shapes.mode, f->shapes.v[0].v);
}

static void report(const struct cell *f, struct study_cell *out)
{
    double m[STUDY_SHAPES_MAX];

    for (int k = 0; k < f->n; k++)
        report_one(f, &f->entrants[k], out);
    report_cost(f, "ansor", "tuning_ansor_over_sandwich_paper", out);
    report_cost(f, "roller", "tuning_roller_over_sandwich_paper", out);
    for (int i = 0; i < f->shapes.n; i++)
        m[i] = (double)f->shapes.v[i].m;
    study_series(out, "m", "", m, (size_t)f->shapes.n);
    study_value(out, "n_shapes", f->shapes.n, NULL);
    note(f, out);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;

    TRY(check_policies(o->policies));
    TRY(study_threads_open(&f->threads, o->threads, o->cache_mb));
    TRY(study_shapes_make(&f->shapes, o->matrix, o->mode, o->ms, o->n_shapes, o->m_max,
                          o->seed));
    TRY(search(o, f, f->out));
    study_progress(f->out, 0.9, "measure again");
    TRY(again(o, f));
    report(f, f->out);
    return OK;
}

static void end(struct cell *f)
{
    opt_free(tune_opt_table, &f->tune);
    study_threads_close(&f->threads);
}

STUDY(policies, "tuning policies compared with the oracle: regret and cost");
