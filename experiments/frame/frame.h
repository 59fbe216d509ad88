/* experiments/frame/frame.h - the frame of a study: from one list of options and one of results
 * come the structs, the option rows, the metrics and their docs, so that a name that is not
 * declared does not compile. What is measured in turn, closed and reported is the same for all.
 *
 *   #define OPTIONS(X) OPTION_MODEL(X)                                                   \
 *       X(INT, rounds, "9", "Rounds of both, in turn.", .min = 3, .max = 999)
 *   #define RESULTS(X)                                                                   \
 *       X(tok_s, "tok/s", HIGHER, "tokens per second, all threads")                      \
 *       X(gain, "x", HIGHER, "time with one thread / time with all")                     \
 *       X(wait_frac, "", LOWER | EACH, "share of a step that all threads' first one waits")
 *   FRAME_TYPES;
 *   struct threads_gain {
 *       FRAME_CELL;
 *       struct model_bench engine;
 *   };
 *   static int threads_gain_run(struct threads_gain *c) { ... }
 *   STUDY(threads_gain, "what threads gain in decode");
 *
 * A result is a plain double, which enters formulas: c->r->gbps = c->r->gb / c->r->s. Its
 * interval, the reason why it is missing, and the values of its rounds are kept by its address.
 * All that is set when the run returns OK is reported. A result that was never set fails the cell,
 * but for those that are SOME.   Threads: one. */
#ifndef FRAME_FRAME_H
#define FRAME_FRAME_H

#include "base/opt.h"
#include "experiments/load/study.h"
#include "measure/compare.h"

struct frame;

/* X(kind of an option, name, default, text, ...) makes a member of `struct opts` and its row, and
 * X(name, unit, flags, text) a member of `struct results` and its metric. */
enum frame_flag {
    HIGHER = 1, /* is better */
    LOWER = 2,
    EACH = 4, /* the values of its rounds are a series, too, of the same name */
    SOME = 8, /* not every cell has it */
    /* The evidence of the result, where it is not that of the job. */
    MODEL = 16,
    MEASURED = 32,
    SIMULATED = 64
};

#define FRAME_OF_BOOL                 bool
#define FRAME_OF_INT                  int64_t
#define FRAME_OF_F64                  double
#define FRAME_OF_STR                  char *
#define FRAME_OF_ENUM                 int
#define FRAME_OF_BYTES                int64_t
#define FRAME_OPTION(kind, name, ...) FRAME_OF_##kind name;
#define FRAME_ROW(kind, name, ...)    OPT_ROW(kind, name, __VA_ARGS__),
#define FRAME_RESULT(name, ...)       double name;
#define FRAME_METRIC(id, unit_, flags_, text_)                                           \
    {.name = #id,                                                                        \
     .unit = (unit_),                                                                    \
     .better = (flags_)&HIGHER  ? "higher"                                               \
               : (flags_)&LOWER ? "lower"                                                \
                                : "",                                                    \
     .text = (text_)},
#define FRAME_FLAGS(id, unit_, flags_, text_) (flags_),
#define OPT_OF                                struct opts

#define FRAME_TYPES                                                                      \
    struct opts {                                                                        \
        OPTIONS(FRAME_OPTION)                                                            \
    };                                                                                   \
    static const struct opt_row option_rows[] = {OPTIONS(FRAME_ROW){0}};                 \
    struct results {                                                                     \
        RESULTS(FRAME_RESULT)                                                            \
    };                                                                                   \
    static const struct study_metric metrics[] = {RESULTS(FRAME_METRIC){0}};             \
    static const int metric_flags[] = {RESULTS(FRAME_FLAGS)}

/* The first members of a cell, which run() finds set; all others are zero. */
#define FRAME_CELL                                                                       \
    const struct opts *o;                                                                \
    struct results *r;                                                                   \
    struct frame *f;                                                                     \
    struct study_cell *out

/* The entry at the end of a study, whose cell is `struct <stem>` and whose function is
 * int <stem>_run(struct <stem> *). */
#define STUDY(stem, text, ...) STUDY_NAMED(stem, stem, text, __VA_ARGS__)
/* The same of a study with another name, where a struct of that name is the engine's. */
#define STUDY_NAMED(name_, stem, text, ...)                                              \
    static int stem##_cell(void *context, const void *opts, struct study_cell *out)      \
    {                                                                                    \
        struct stem *c = context;                                                        \
        struct results results;                                                          \
        struct frame f;                                                                  \
                                                                                         \
        frame_open(&f, metrics, metric_flags, &results, out);                            \
        c->o = opts;                                                                     \
        c->r = &results;                                                                 \
        c->f = &f;                                                                       \
        c->out = out;                                                                    \
        return frame_end(&f, stem##_run(c));                                             \
    }                                                                                    \
    const struct study study_##name_ = {.name = #name_,                                  \
                                        .help = text,                                    \
                                        .opts = option_rows,                             \
                                        .opts_bytes = sizeof(struct opts),               \
                                        .context_bytes = sizeof(struct stem),            \
                                        .metrics = metrics,                              \
                                        .run = stem##_cell,                              \
                                        __VA_ARGS__}

/* ---- what is opened ---- */

#define FRAME_CLOSES_MAX 64

/* Call fn(p) when the cell ends, also after an error, latest first. So what callbacks use is
 * registered before what calls them. fn takes one pointer. */
#define FRAME_CLOSE(f, fn, p)                                                            \
    ((void)sizeof(((fn)(p)), 0), frame_close(f, (void (*)(void *))(fn), p))
/* n objects of `size` bytes, zeroed, until the cell ends. */
void *frame_new(struct frame *f, size_t n, size_t size);

/* ---- results ---- */

/* The result of this name, where it is made at run time. A name that is not declared fails the
 * cell. */
double *frame_named(struct frame *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* *x = value, which, where it is not a finite number, is missing for the reason `why`. */
void frame_set(struct frame *f, double *x, double value, const char *why);
/* The reason why a result is missing, if it is not a finite number. x NULL: of all that are missing
 * now, or will be at the end, and have no reason. */
void frame_why(struct frame *f, const double *x, const char *why);
/* The ends of its 95 % interval; not finite: it has none. */
void frame_interval(struct frame *f, const double *x, double lo, double hi);

/* ---- rounds ---- */

/* Run alternatives 0 .. n - 1 in turn by trial(arg): `rounds` rounds, or with frame_rounds_by()
 * as `how` says. `doing`: on the progress display, from f->progress on.
 * Fails as measure_compare() and the trials do. */
MUST int frame_rounds(struct frame *f, const char *doing, int n, int64_t rounds,
                      measure_fn trial, void *arg);
MUST int frame_rounds_by(struct frame *f, const char *doing, int n,
                         const struct measure_opts *how, measure_fn trial, void *arg);
/* The same of a single alternative within a trial: *seconds is its estimate. */
MUST int frame_rounds_within(struct frame *f, const struct measure_opts *how,
                             measure_fn trial, void *arg, double *seconds);

/* Within a trial: a further number of it. When the rounds end, *x is their median. `x` may be any
 * double, such as an element of an array that has one for each alternative; each belongs to one
 * alternative, and is put in all of its trials. A ratio of each round is put within the round, as a
 * ratio of medians is not the median of ratios. */
void frame_put(struct frame *f, double *x, double value);
/* The values put in each round, without rounds that warm up: [f->n_rounds]. */
const double *frame_each(const struct frame *f, const double *x);
/* The same as a series of the cell; with EACH it is one of the result's name without a call. */
void frame_series(struct frame *f, const char *name, const char *unit, const double *x);

/* The estimate of the time of alternative i in the last rounds, and its times. */
double frame_seconds(const struct frame *f, int i);
/* *x is the amount that alternative i does in a second, with the interval of its time. */
void frame_rate(struct frame *f, double *x, double amount, int i);
const double *frame_times(const struct frame *f, int i); /* [f->n_rounds] */
/* Its times as a series of the cell. */
void frame_times_series(struct frame *f, const char *name, int i);
/* *x is the time of a over the time of b, less `less`, with its 95 % interval, by the rounds in
 * which both ran: how many times as fast b is, or with 1 its gain. */
void frame_ratio(struct frame *f, double *x, int a, int b, double less);
/* The choice among the alternatives of the last rounds, as measure_choose() makes it. */
int frame_choose(const struct frame *f, const int64_t *complexity);
/* The A/A of alternative a, which ran in each round as alternative `again` as well. The times of
 * that are s_again<suffix>, their ratio is ratio_again<suffix>, and detectable_frac<suffix> is
 * the smallest difference from another that it could have seen. */
void frame_again(struct frame *f, const char *suffix, int again, int a);

struct frame {
    struct study_cell *cell;
    int n_rounds;    /* of the last rounds */
    int round;       /* of the running trial; 0 warms up */
    double progress; /* at which the next rounds begin, 0 to 1 */
    /* Private. */
    const struct study_metric *metrics;
    const int *flags; /* [n] of the metrics */
    double *results, unknown;
    struct frame_about *about; /* [n] of the results */
    int n;
    char why[160];
    int rc;
    struct frame_var *vars; /* what was put */
    int n_vars, n_turns;
    struct frame_turns {
        struct measure *measure;
        const char *doing;
        measure_fn trial;
        void *arg;
        int id, n, max_rounds, running, *n_trials;
    } turns;
    struct {
        void (*fn)(void *);
        void *p;
    } closes[FRAME_CLOSES_MAX];
    int n_closes;
};

/* Called by the macros only. */
void frame_open(struct frame *f, const struct study_metric *metrics, const int *flags,
                void *results, struct study_cell *cell);
MUST int frame_end(struct frame *f, int rc); /* of the run; returns that of the cell */
void frame_close(struct frame *f, void (*fn)(void *), void *p);
void frame_rounds_close(struct frame *f); /* at the end of frame_end() */

#endif
