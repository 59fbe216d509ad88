/* Tuning policies over the same micro-kernels, on the same shapes: how far what they
 * choose is from the oracle's choice, and what it cost them. All begin alike (with the cost
 * model's schedule, or none of them), measure their fastest again by the same rule, and are
 * charged for that and for offline work. What they choose is at last run in turn on fresh
 * buffers, which no policy is charged for.
 * Paper: Sandwich 8.2, Fig. 8; 8.3 and B, Table 4. */
#include <math.h>
#include <string.h>

#include "base/name.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/tuning.h"
#include "tune/search.h"

#define OPTIONS(X)                                                                       \
    OPTIONS_SHAPES(X, "4")                                                               \
    X(STR, policies, NULL,                                                               \
      "Policies to compare. Default: all. Example: \"sandwich roller oracle\"")          \
    X(INT, sigma, "0",                                                                   \
      "Length of the sliding window in shapes. 0: the policies' default.", .min = 0,     \
      .max = 1000)                                                                       \
    X(INT, retest, "5",                                                                  \
      "Number of the fastest schedules that each policy that measures measures again "   \
      "before it chooses. 0: none does.",                                                \
      .min = 0, .max = TUNE_RETEST_MAX)                                                  \
    X(BOOL, start_default, NULL,                                                         \
      "Let each policy that measures begin with the cost model's schedule, too. "        \
      "Default: none does.")                                                             \
    OPTIONS_TUNING(X, "15")

/* The policies that a record has columns for; "default" is the cost model, which tunes
 * nothing. */
#define POLICIES(P, X)                                                                   \
    P(X, sandwich)                                                                       \
    P(X, sandwich_paper)                                                                 \
    P(X, roller)                                                                         \
    P(X, roller_topk) P(X, mikpoly) P(X, dietcode) P(X, ansor) P(X, oracle) P(X, default)
#define RESULTS_OF(X, p)                                                                 \
    X(regret_##p, "", LOWER | SOME,                                                      \
      "geometric mean of (time of " #p " / time of oracle) - 1")                         \
    X(vs_ansor_##p, "x", HIGHER | SOME,                                                  \
      "geometric mean of (time of ansor / time of " #p "): the paper's measure")         \
    X(measurements_##p, "", LOWER | SOME, "schedules that " #p " measured")              \
    X(runs_##p, "", SOME, "GEMMs computed for these measurements")                       \
    X(tuning_s_##p, "s", LOWER | SOME, "time " #p " spent measuring")                    \
    X(tuning_wall_s_##p, "s", SOME, "wall time of " #p ", its own computation included") \
    X(speedup_##p, "x", HIGHER | SOME,                                                   \
      "geometric mean of (time of the cost model's schedule / time of " #p "'s)")        \
    X(gflops_##p, "GFLOP/s", SOME, "rate, geometric mean over the shapes, measured again")
#define RESULTS(X)                                                                       \
    POLICIES(RESULTS_OF, X)                                                              \
    X(tuning_ansor_over_sandwich_paper, "x", HIGHER,                                     \
      "measuring time of ansor over that of sandwich_paper")                             \
    X(tuning_roller_over_sandwich_paper, "x", HIGHER,                                    \
      "measuring time of roller over that of sandwich_paper")                            \
    X(n_shapes, "", 0, "number of shapes of this matrix")

FRAME_TYPES;

#define NAME(X, p) #p,
static const char *const names[] = {POLICIES(NAME, ) NULL};
#define MAX_POLICIES ((int)(sizeof(names) / sizeof(names[0]) - 1))

struct candidate {
    const char *name;
    struct study_tuned tuned;
    double s[STUDY_SHAPES_MAX]; /* measured again */
};

struct policies {
    FRAME_CELL;
    struct study_threads threads;
    struct study_shapes shapes;
    struct tune_opts tune;
    struct candidate candidates[MAX_POLICIES];
    int n;
};

static void free_tune_opts(struct tune_opts *o)
{
    opt_free(tune_opt_table, o);
}

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

static int search(struct policies *c)
{
    const struct opts *o = c->o;
    const struct tune_policy *p;

    TRY(opt_init(tune_opt_table, &c->tune));
    c->tune.sigma = o->sigma ? o->sigma : c->tune.sigma;
    c->tune.retest = o->retest;
    c->tune.start_default = o->start_default;
    c->tune.trials = o->trials ? o->trials : c->tune.trials;
    c->tune.budget_s = o->budget_s;
    c->tune.seed = o->seed;
    for (int i = 0; names[i]; i++) {
        struct candidate *e = &c->candidates[c->n];
        int rc;

        if (o->policies ? !has_word(o->policies, names[i])
                        : tune_policy_find(names[i], &p) != OK)
            continue;
        study_progress(c->out, 0.05 + 0.85 * i / MAX_POLICIES, names[i]);
        e->name = names[i];
        c->n++;
        rc = study_tune(names[i], &c->tune, &c->threads, &c->shapes, &e->tuned);
        if (rc != OK)
            return err_prefix(rc, "%s", names[i]);
    }
    return OK;
}

static int again(struct policies *c)
{
    const struct study_tuned *all[MAX_POLICIES];
    double s[STUDY_SHAPES_MAX * MAX_POLICIES];

    for (int k = 0; k < c->n; k++)
        all[k] = &c->candidates[k].tuned;
    TRY(study_remeasure(&c->threads, &c->shapes, all, c->n, (int)c->o->rounds,
                        c->o->seed + 1, s));
    for (int i = 0; i < c->shapes.n; i++)
        for (int k = 0; k < c->n; k++)
            c->candidates[k].s[i] = s[i * c->n + k];
    return OK;
}

/* NULL: it did not run. */
static const struct candidate *candidate_of(const struct policies *c, const char *name)
{
    for (int k = 0; k < c->n; k++)
        if (strcmp(c->candidates[k].name, name) == 0)
            return &c->candidates[k];
    return NULL;
}

/* The geometric mean over the shapes of the time of a over that of b; either may be NULL. */
static double time_ratio(const struct policies *c, const struct candidate *a,
                         const struct candidate *b)
{
    double ratio[STUDY_SHAPES_MAX];

    for (int i = 0; i < c->shapes.n && a && b; i++)
        ratio[i] = a->s[i] / b->s[i];
    return a && b ? stats_geomean(ratio, (size_t)c->shapes.n) : NAN;
}

static double gflops_of(const struct policies *c, const struct candidate *e)
{
    double gflops[STUDY_SHAPES_MAX];

    for (int i = 0; i < c->shapes.n; i++)
        gflops[i] = study_gflops(&c->shapes.v[i], e->s[i]);
    return stats_geomean(gflops, (size_t)c->shapes.n);
}

/* The result PREFIX_POLICY of a candidate. */
static void put(struct policies *c, const char *prefix, const struct candidate *e,
                double value, const char *why)
{
    double *x = frame_named(c->f, "%s_%s", prefix, e->name);

    *x = value;
    frame_why(c->f, x, why);
}

static void report_one(struct policies *c, const struct candidate *e)
{
    char name[64];

    put(c, "regret", e, time_ratio(c, e, candidate_of(c, "oracle")) - 1,
        "the oracle was not asked");
    put(c, "vs_ansor", e, time_ratio(c, candidate_of(c, "ansor"), e),
        "ansor was not asked");
    put(c, "speedup", e, time_ratio(c, candidate_of(c, "default"), e),
        "default was not asked");
    put(c, "measurements", e, (double)e->tuned.cost.n_measurements, "");
    put(c, "runs", e, (double)e->tuned.cost.n_runs, "");
    put(c, "tuning_s", e, e->tuned.cost.seconds, "");
    put(c, "tuning_wall_s", e, e->tuned.wall_s, "");
    put(c, "gflops", e, gflops_of(c, e), "");
    snprintf(name, sizeof(name), "s_%s", e->name);
    study_series(c->out, name, "s", e->s, (size_t)c->shapes.n);
}

/* How much longer `name` measured than the paper's algorithm. */
static double cost_ratio(const struct policies *c, const char *name)
{
    const struct candidate *a = candidate_of(c, name),
                           *b = candidate_of(c, "sandwich_paper");

    return a && b && b->tuned.cost.seconds > 0
               ? a->tuned.cost.seconds / b->tuned.cost.seconds
               : NAN;
}

static void note(const struct policies *c)
{
    json_t *all = json_object();
    char text[128];

    for (int k = 0; k < c->n; k++) {
        json_t *list = json_array();

        for (int i = 0; i < c->shapes.n; i++) {
            kern_schedule_print(&c->candidates[k].tuned.schedule[i], text, sizeof(text));
            json_array_append_new(list, json_string(text));
        }
        json_object_set_new(all, c->candidates[k].name, list);
    }
    study_note(c->out, "schedules", all);
    study_note_setting(c->out, &c->threads, c->shapes.mode, c->shapes.v[0].v);
}

static int policies_run(struct policies *c)
{
    const struct opts *o = c->o;
    struct results *r = c->r;
    double m[STUDY_SHAPES_MAX];

    FRAME_CLOSE(c->f, study_threads_close, &c->threads);
    FRAME_CLOSE(c->f, free_tune_opts, &c->tune);
    TRY(check_policies(o->policies));
    TRY(study_threads_open(&c->threads, o->threads, o->cache_mb));
    TRY(study_shapes_make(&c->shapes, o->matrix, o->mode, o->ms, o->n_shapes, o->m_max,
                          o->seed));
    TRY(search(c));
    study_progress(c->out, 0.9, "measure again");
    TRY(again(c));
    for (int k = 0; k < c->n; k++)
        report_one(c, &c->candidates[k]);
    frame_why(c->f, NULL, "one of them was not asked, or measured nothing");
    r->tuning_ansor_over_sandwich_paper = cost_ratio(c, "ansor");
    r->tuning_roller_over_sandwich_paper = cost_ratio(c, "roller");
    r->n_shapes = c->shapes.n;
    for (int i = 0; i < c->shapes.n; i++)
        m[i] = (double)c->shapes.v[i].m;
    study_series(c->out, "m", "", m, (size_t)c->shapes.n);
    note(c);
    return OK;
}

STUDY(policies, "tuning policies compared with the oracle: regret and cost");
