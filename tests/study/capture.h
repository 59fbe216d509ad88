/* tests/study/capture.h - stands in for the harness: what a study says of its cell is kept
 * here, so that a test can run a study by itself and look. Include it once in a test. */
#ifndef TESTS_STUDY_CAPTURE_H
#define TESTS_STUDY_CAPTURE_H

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/opt.h"
#include "experiments/load/study.h"
#include "tests/support/test.h"

#define CAPTURE_MAX 256

struct captured {
    char name[64];
    double value, lo, hi; /* NaN: it has no interval */
    char why[128];
};

struct captured_series {
    char name[64];
    double *v; /* [n] */
    size_t n;
};

static struct {
    const struct study *study;
    struct captured values[CAPTURE_MAX];
    struct captured_series series[CAPTURE_MAX];
    int n_values, n_series;
    json_t *notes, *evidence; /* evidence: {name, "" for all others: kind} */
    void *kept;
    json_t *card; /* what study_machine() lends */
} capture;

void study_value(struct study_cell *c, const char *name, double value, const char *why)
{
    struct captured *v = &capture.values[capture.n_values++];

    (void)c;
    assert_true(capture.n_values < CAPTURE_MAX);
    if (!study_metric_find(capture.study, name))
        fail_msg("%s", err_msg());
    for (int i = 0; i + 1 < capture.n_values; i++)
        if (strcmp(capture.values[i].name, name) == 0)
            fail_msg("%s is given twice", name);
    if (isnan(value) && (!why || !why[0]))
        fail_msg("%s is missing without a reason", name);
    snprintf(v->name, sizeof(v->name), "%s", name);
    v->value = value;
    v->lo = v->hi = NAN;
    snprintf(v->why, sizeof(v->why), "%s", isnan(value) ? why : "");
}

void study_value_interval(struct study_cell *c, const char *name, double value, double lo,
                          double hi, const char *why)
{
    study_value(c, name, value, why);
    capture.values[capture.n_values - 1].lo = lo;
    capture.values[capture.n_values - 1].hi = hi;
}

void study_series(struct study_cell *c, const char *name, const char *unit,
                  const double *v, size_t n)
{
    struct captured_series *s = &capture.series[capture.n_series++];

    (void)c, (void)unit;
    assert_true(capture.n_series < CAPTURE_MAX);
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->n = n;
    assert_non_null(s->v = calloc(n + 1, sizeof(*v)));
    memcpy(s->v, v, n * sizeof(*v));
}

void study_evidence(struct study_cell *c, const char *kind, const char *names)
{
    const char *at = names ? names : "";

    (void)c;
    do {
        size_t n = strcspn(at, " ");

        assert_int_equal(json_object_setn_new(capture.evidence, at, n, json_string(kind)),
                         0);
        at += n;
        at += strspn(at, " ");
    } while (*at);
}

void study_note(struct study_cell *c, const char *key, json_t *value)
{
    (void)c;
    assert_non_null(value);
    assert_int_equal(json_object_set_new(capture.notes, key, value), 0);
}

void study_note_text(struct study_cell *c, const char *key, const char *text)
{
    study_note(c, key, json_string(text));
}

void study_progress(struct study_cell *c, double fraction, const char *what)
{
    (void)c, (void)what;
    assert_true(fraction >= 0 && fraction <= 1);
}

const json_t *study_machine(const struct study_cell *c)
{
    (void)c;
    assert_true(capture.study->wants_machine); /* a run lends it to no other */
    return capture.card;
}

void *study_kept(struct study_cell *c)
{
    (void)c;
    return capture.kept;
}

static void capture_forget(void)
{
    for (int i = 0; i < capture.n_series; i++)
        free(capture.series[i].v);
    capture.n_values = capture.n_series = 0;
    json_decref(capture.notes);
    json_decref(capture.evidence);
    capture.notes = capture.evidence = NULL;
}

/* What the study kept between its cells is given back. */
static void capture_close(void)
{
    if (capture.kept && capture.study->close)
        capture.study->close(capture.kept);
    free(capture.kept);
    capture.kept = NULL;
}

/* Run a cell of `s` with options as in a job's study section, printed like printf() does. */
__attribute__((format(printf, 2, 3))) static int capture_run(const struct study *s,
                                                             const char *format, ...)
{
    char options[2048];
    json_error_t e;
    json_t *given;
    void *opts = calloc(1, s->opts_bytes), *context = calloc(1, s->context_bytes + 1);
    va_list args;
    int rc;

    va_start(args, format);
    assert_true((size_t)vsnprintf(options, sizeof(options), format, args) <
                sizeof(options));
    va_end(args);
    assert_non_null(given = json_loads(options, JSON_REJECT_DUPLICATES, &e));
    assert_true(opts && context);
    if (capture.study != s)
        capture_close();
    capture.study = s;
    if (!capture.kept && s->kept_bytes)
        assert_non_null(capture.kept = calloc(1, s->kept_bytes));
    capture_forget();
    capture.notes = json_object();
    capture.evidence = json_object();
    assert_ok(opt_init(s->opts, opts));
    assert_ok(opt_from_json(s->opts, opts, given, "study"));
    rc = s->run(context, opts, NULL);
    opt_free(s->opts, opts);
    free(opts);
    free(context);
    json_decref(given);
    return rc;
}

static const struct captured *captured(const char *name)
{
    for (int i = 0; i < capture.n_values; i++)
        if (strcmp(capture.values[i].name, name) == 0)
            return &capture.values[i];
    fail_msg("%s was not said", name);
    return NULL;
}

static inline double value_of(const char *name)
{
    return captured(name)->value;
}

static inline const struct captured_series *series_of(const char *name)
{
    static const struct captured_series none;

    for (int i = 0; i < capture.n_series; i++)
        if (strcmp(capture.series[i].name, name) == 0)
            return &capture.series[i];
    return &none;
}

static inline int length_of(const char *series)
{
    return (int)series_of(series)->n;
}

static inline double series_at(const char *name, int i)
{
    const struct captured_series *s = series_of(name);

    if ((size_t)i >= s->n)
        fail_msg("%s has %zu elements, not %d", name, s->n, i + 1);
    return s->v[i];
}

/* --- statistics of a series, by their definitions and not by the code of the studies */

static inline double series_min(const char *name)
{
    const struct captured_series *s = series_of(name);
    double x = INFINITY;

    for (size_t i = 0; i < s->n; i++)
        x = fmin(x, s->v[i]);
    return x;
}

static inline double series_max(const char *name)
{
    const struct captured_series *s = series_of(name);
    double x = -INFINITY;

    for (size_t i = 0; i < s->n; i++)
        x = fmax(x, s->v[i]);
    return x;
}

/* Half of the values are below it: the middle one, or the mean of the two. NaN is unknown. */
static inline double middle_of(const double *v, size_t n_all)
{
    double below = NAN, above = NAN;
    size_t n = 0;

    for (size_t i = 0; i < n_all; i++)
        n += !isnan(v[i]);
    for (size_t i = 0; i < n_all; i++) {
        size_t less = 0, equal = 0;

        for (size_t k = 0; k < n_all; k++) {
            less += v[k] < v[i];
            equal += v[k] == v[i];
        }
        if (less <= (n - 1) / 2 && (n - 1) / 2 < less + equal)
            below = v[i];
        if (less <= n / 2 && n / 2 < less + equal)
            above = v[i];
    }
    return (below + above) / 2;
}

static inline double series_middle(const char *name)
{
    return middle_of(series_of(name)->v, series_of(name)->n);
}

/* The median of a's value over b's of the same place. */
static inline double ratio_middle(const char *a, const char *b)
{
    const struct captured_series *x = series_of(a), *y = series_of(b);
    double ratio[1024];

    assert_true(x->n == y->n && x->n > 0 && x->n <= 1024);
    for (size_t i = 0; i < x->n; i++)
        ratio[i] = x->v[i] / y->v[i];
    return middle_of(ratio, x->n);
}

/* Their geometric mean. */
static inline double ratio_geomean(const char *a, const char *b)
{
    const struct captured_series *x = series_of(a), *y = series_of(b);
    double product = 1;

    assert_true(x->n == y->n && x->n > 0);
    for (size_t i = 0; i < x->n; i++)
        product *= x->v[i] / y->v[i];
    return pow(product, 1 / (double)x->n);
}

/* A value is what the test worked out, but for rounding. */
static inline void assert_value(const char *name, double want)
{
    double got = value_of(name);

    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%s: the study has %.17g, its series give %.17g", name, got, want);
}

/* What was stated of this number or list; "": of the whole cell. */
static inline const char *evidence_of(const char *name)
{
    const char *kind = json_string_value(json_object_get(capture.evidence, name));

    return kind ? kind : "";
}

static inline const char *note_of(const char *key)
{
    const char *text = json_string_value(json_object_get(capture.notes, key));

    return text ? text : "";
}

/* The group's teardown. */
static int capture_end(void **state)
{
    (void)state;
    capture_close();
    capture_forget();
    return 0;
}

#endif
