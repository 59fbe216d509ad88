/* How well a performance model predicts times that it was not fitted on: the file's rows and its
 * distinct points divided at random, each step left out in turn, and settings beyond the fitted
 * ones. A row whose repeats were fitted is hardly unseen.
 * Paper: Splitwise V-B. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/points.h"
#include "experiments/study/support/options.h"

#define SPLITS_MAX 1000
#define POINTS_MAX 64

static const char *perf_name(int i)
{
    return cluster_perfs[i] ? cluster_perfs[i]->name : NULL;
}

enum { ALL, ONE_BATCH };
#define OPTIONS(X)                                                                       \
    OPTION_POINTS_SOURCE(X, "form")                                                      \
    OPTION_POINTS_FILE(X)                                                                \
    X(STR, perf, "table", "Performance model.", .names = perf_name)                      \
    X(ENUM, keep, "all",                                                                 \
      "one_batch: without points whose outputs took over twice as long as their prompt " \
      "and tokens, so that the batch was not computed as one.",                          \
      .values = "all|one_batch")                                                         \
    X(F64, train_frac, "0.8", "Share that is fitted.", .min = 0.1, .max = 0.95)          \
    X(INT, n_splits, "200", "Random divisions.", .min = 2, .max = SPLITS_MAX)            \
    X(INT, seed, "1", "Seed of the divisions.", .min = 1, .max = 1 << 30)

#define ERRORS(X, stem, text)                                                            \
    X(stem##_prompt_mape, "%", LOWER, "mean absolute error of prompts, " text)           \
    X(stem##_token_mape, "%", LOWER, "mean absolute error of tokens, " text)
#define RESULTS(X)                                                                       \
    ERRORS(X, rows, "rows divided at random; mean of the divisions")                     \
    ERRORS(X, points, "distinct points divided at random; mean of the divisions")        \
    ERRORS(X, step,                                                                      \
           "each step left out in turn, with all points of its prompt and batch")        \
    ERRORS(X, inner, "the same, less steps at the end of a range")                       \
    X(rows_mape, "%", LOWER, "mean of rows_prompt_mape and rows_token_mape")             \
    X(points_mape, "%", LOWER, "mean of points_prompt_mape and points_token_mape")       \
    X(batch_prompt_mape, "%", LOWER,                                                     \
      "batches of prompts, fitted on single prompts: prompt x batch")                    \
    X(long_prompt_mape, "%", LOWER,                                                      \
      "single prompts of over 2,048 tokens, fitted on shorter ones")                     \
    X(batch_token_mape, "%", LOWER, "tokens of batches over 16, fitted on smaller ones") \
    X(context_token_mape, "%", LOWER,                                                    \
      "tokens after prompts of over 512 tokens, fitted on shorter ones")                 \
    X(beyond_mape, "%", LOWER, "mean of these four, where they are known")               \
    X(repeat_spread, "%", 0,                                                             \
      "median over the points of (largest - smallest) / median of the repeats, tokens")  \
    X(n_rows, "", 0, "rows")                                                             \
    X(n_points, "", 0, "distinct points")                                                \
    X(n_not_one_batch, "", 0, "points that keep = one_batch leaves out")

FRAME_TYPES;

struct perf_models {
    FRAME_CELL;
    const struct cluster_perf_kind *kind;
    struct cluster_point *rows, *points, *fitted; /* fitted: room for all rows */
    int n_rows, n_points;
    bool *unseen; /* [n_rows] */
};

/* Sums of absolute relative errors in %. */
struct errors {
    double sum[2];
    int n[2];
};
enum { PROMPT, TOKEN };

static double measured(const struct cluster_point *p, int what)
{
    return what == PROMPT ? p->prompt_ms : p->token_ms;
}

static double expected(const struct cluster_perf *perf, const struct cluster_point *p,
                       int what)
{
    return what == PROMPT ? study_points_prompt_ms(perf, p)
                          : study_points_token_ms(perf, p);
}

/* Fit to the points that are not unseen, add the errors of those that are. */
static int validate(struct errors *e, struct perf_models *c,
                    const struct cluster_point *p, int n)
{
    struct cluster_perf perf = {.kind = c->kind};
    int n_fitted = 0;

    for (int i = 0; i < n; i++)
        if (!c->unseen[i])
            c->fitted[n_fitted++] = p[i];
    cluster_points_join(c->fitted, &n_fitted);
    TRY(c->kind->fit(&perf, c->fitted, n_fitted));
    for (int i = 0; i < n; i++)
        for (int what = PROMPT; what <= TOKEN && c->unseen[i]; what++) {
            double ms = measured(&p[i], what);

            if (!(ms > 0))
                continue;
            e->sum[what] += 100 * fabs(expected(&perf, &p[i], what) / ms - 1);
            e->n[what]++;
        }
    return OK;
}

static double mape(const struct errors *e, int what)
{
    return e->n[what] ? e->sum[what] / e->n[what] : NAN;
}

/* --- random divisions */

static void divide(struct rng *rng, bool *unseen, int n, double train_frac)
{
    int n_unseen = n - (int)lround(train_frac * n);

    for (int i = 0; i < n; i++) { /* each set of that size is equally likely */
        unseen[i] = (int)rng_below(rng, (uint64_t)(n - i)) < n_unseen;
        n_unseen -= unseen[i];
    }
}

static void random_divisions(struct perf_models *c, const char *stem,
                             const struct cluster_point *p, int n)
{
    static double v[2][SPLITS_MAX];
    char name[48], why[200] = "no division could be fitted";
    int n_done = 0;
    struct rng rng;
    double sum = 0;

    rng_init(&rng, (uint64_t)c->o->seed, stem);
    for (int i = 0; i < c->o->n_splits; i++) {
        struct errors e = {0};

        divide(&rng, c->unseen, n, c->o->train_frac);
        if (validate(&e, c, p, n) != OK) {
            snprintf(why, sizeof(why), "%s", err_msg());
            continue;
        }
        v[PROMPT][n_done] = mape(&e, PROMPT);
        v[TOKEN][n_done++] = mape(&e, TOKEN);
    }
    for (int what = PROMPT; what <= TOKEN; what++) {
        snprintf(name, sizeof(name), "%s_%s_mape", stem,
                 what == PROMPT ? "prompt" : "token");
        frame_set(c->f, frame_named(c->f, "%s", name),
                  stats_mean(v[what], (size_t)n_done), why);
        sum += stats_mean(v[what], (size_t)n_done) / 2;
        study_series(c->out, name, "%", v[what], (size_t)n_done);
    }
    snprintf(name, sizeof(name), "%s_mape", stem);
    frame_set(c->f, frame_named(c->f, "%s", name), sum, why);
}

/* --- each step in turn: points that differ in the number of outputs only are of one step */

static bool is_one_step(const struct cluster_point *a, const struct cluster_point *b)
{
    return a->prompt_tok == b->prompt_tok && a->batch == b->batch;
}

/* Has another point a longer prompt, another a shorter one, and another a larger batch? */
static bool is_inner(const struct perf_models *c, int i)
{
    const struct cluster_point *p = c->points;
    bool shorter = false, longer = false, larger = false;

    for (int k = 0; k < c->n_points; k++) {
        shorter |= p[k].prompt_tok < p[i].prompt_tok;
        longer |= p[k].prompt_tok > p[i].prompt_tok;
        larger |= p[k].batch > p[i].batch;
    }
    return shorter && longer && larger;
}

static void one_out(struct perf_models *c)
{
    static const char *const names[2][2] = {{"step_prompt_mape", "step_token_mape"},
                                            {"inner_prompt_mape", "inner_token_mape"}};
    double error[2][POINTS_MAX];
    struct errors all[2] = {0}; /* of all steps; of the inner ones */

    for (int i = 0; i < c->n_points; i++) {
        struct errors e = {0};
        bool first = true;

        for (int k = 0; k < c->n_points; k++) {
            c->unseen[k] = is_one_step(&c->points[k], &c->points[i]);
            first &= k >= i || !c->unseen[k];
        }
        error[PROMPT][i] = error[TOKEN][i] = NAN;
        if (validate(&e, c, c->points, c->n_points) != OK)
            continue;
        for (int what = PROMPT; what <= TOKEN; what++) {
            error[what][i] = mape(&e, what);
            for (int inner = 0; e.n[what] && first && inner <= is_inner(c, i); inner++) {
                all[inner].sum[what] += mape(&e, what);
                all[inner].n[what]++;
            }
        }
    }
    for (int inner = 0; inner < 2; inner++)
        for (int what = PROMPT; what <= TOKEN; what++)
            frame_set(c->f, frame_named(c->f, "%s", names[inner][what]),
                      mape(&all[inner], what), "no such step, or too few others to fit");
    study_series(c->out, "prompt_error", "%", error[PROMPT], (size_t)c->n_points);
    study_series(c->out, "token_error", "%", error[TOKEN], (size_t)c->n_points);
}

/* --- beyond what was fitted */

enum beyond { BATCHES, LONG_PROMPTS, LARGE_BATCHES, CONTEXTS, N_BEYOND };

/* 0: not part of it, 1: fitted, 2: unseen. */
static int role(enum beyond which, const struct cluster_point *p)
{
    switch (which) {
    case BATCHES:
        return 1 + (p->batch > 1);
    case LONG_PROMPTS:
        return p->batch > 1 ? 0 : 1 + (p->prompt_tok > 2048);
    case LARGE_BATCHES:
        return 1 + (p->batch > 16);
    default:
        return 1 + (p->prompt_tok > 512);
    }
}

static void beyond(struct perf_models *c)
{
    static const struct {
        const char *name;
        int what;
    } all[] = {[BATCHES] = {"batch_prompt_mape", PROMPT},
               [LONG_PROMPTS] = {"long_prompt_mape", PROMPT},
               [LARGE_BATCHES] = {"batch_token_mape", TOKEN},
               [CONTEXTS] = {"context_token_mape", TOKEN}};
    struct cluster_point *part = mem_new(MEM_OTHER, (size_t)c->n_points, sizeof(*part));
    double known[N_BEYOND];
    size_t n_known = 0;

    for (int which = 0; which < N_BEYOND; which++) {
        struct errors e = {0};
        int n = 0, rc;
        double v;

        for (int i = 0; i < c->n_points; i++) {
            int r = role((enum beyond)which, &c->points[i]);

            c->unseen[n] = r == 2;
            if (r)
                part[n++] = c->points[i];
        }
        rc = validate(&e, c, part, n);
        v = rc == OK ? mape(&e, all[which].what) : NAN;
        frame_set(c->f, frame_named(c->f, "%s", all[which].name), v,
                  rc == OK ? "no point is beyond those fitted" : err_msg());
        if (!isnan(v))
            known[n_known++] = v;
    }
    frame_set(c->f, &c->r->beyond_mape, stats_mean(known, n_known),
              "no point is beyond those fitted");
    mem_free(part);
}

/* --- the cell */

static bool is_one_batch(const struct cluster_point *p)
{
    return !(p->e2e_ms > 2 * (p->prompt_ms + (double)p->output_tok * p->token_ms));
}

static double spread(const struct perf_models *c)
{
    double *v = mem_new(MEM_OTHER, (size_t)c->n_points, sizeof(*v)), median;

    for (int i = 0; i < c->n_points; i++) {
        const struct cluster_point *p = &c->points[i];
        double least = INFINITY, most = 0;

        for (int k = 0; k < c->n_rows; k++)
            if (c->rows[k].prompt_tok == p->prompt_tok && c->rows[k].batch == p->batch &&
                c->rows[k].output_tok == p->output_tok) {
                least = fmin(least, c->rows[k].token_ms);
                most = fmax(most, c->rows[k].token_ms);
            }
        v[i] = 100 * (most - least) / p->token_ms;
    }
    median = stats_median(v, (size_t)c->n_points);
    mem_free(v);
    return median;
}

static int read_points(struct perf_models *c)
{
    int n_all;

    TRY(study_points_read(&c->rows, &c->n_rows, c->o->source, c->o->points));
    FRAME_CLOSE(c->f, mem_free, c->rows);
    n_all = c->n_rows;
    c->n_rows = 0;
    for (int i = 0; i < n_all; i++)
        if (c->o->keep == ALL || is_one_batch(&c->rows[i]))
            c->rows[c->n_rows++] = c->rows[i];
    c->points = frame_new(c->f, (size_t)n_all, sizeof(*c->points));
    c->fitted = frame_new(c->f, (size_t)n_all, sizeof(*c->fitted));
    c->unseen = frame_new(c->f, (size_t)n_all, sizeof(*c->unseen));
    c->n_points = c->n_rows;
    memcpy(c->points, c->rows, (size_t)c->n_rows * sizeof(*c->points));
    cluster_points_join(c->points, &c->n_points);
    return c->n_points <= POINTS_MAX
               ? OK
               : err_set(ERR_LIMIT, "%s: more than %d points", c->o->source, POINTS_MAX);
}

static void report_points(struct perf_models *c)
{
    double v[5][POINTS_MAX];
    int n = c->n_points, n_not = 0;

    for (int i = 0; i < n; i++) {
        const struct cluster_point *p = &c->points[i];

        v[0][i] = (double)p->prompt_tok;
        v[1][i] = (double)p->batch;
        v[2][i] = (double)p->output_tok;
        v[3][i] = p->prompt_ms;
        v[4][i] = p->token_ms;
        n_not += !is_one_batch(p);
    }
    study_series(c->out, "prompt_tok", "tok", v[0], (size_t)n);
    study_series(c->out, "batch", "", v[1], (size_t)n);
    study_series(c->out, "output_tok", "tok", v[2], (size_t)n);
    study_series(c->out, "prompt_ms", "ms", v[3], (size_t)n);
    study_series(c->out, "token_ms", "ms", v[4], (size_t)n);
    c->r->n_rows = c->n_rows;
    c->r->n_points = c->n_points;
    c->r->n_not_one_batch = n_not;
    frame_set(c->f, &c->r->repeat_spread, spread(c), "no tokens");
    study_evidence(c->out, study_points_evidence(c->o->source),
                   "prompt_tok batch output_tok prompt_ms token_ms n_rows n_points "
                   "n_not_one_batch repeat_spread");
}

static int perf_models_run(struct perf_models *c)
{
    TRY(cluster_perf_find(c->o->perf, &c->kind));
    TRY(read_points(c));
    report_points(c);
    random_divisions(c, "rows", c->rows, c->n_rows);
    random_divisions(c, "points", c->points, c->n_points);
    one_out(c);
    beyond(c);
    return OK;
}

STUDY(perf_models,
      "how well performance models predict points that they were not fitted on");
