#include "experiments/frame/frame.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define NAME_CHARS 96

/* The interval of a result, and the reason where the result is missing. */
struct frame_about {
    double lo, hi; /* NaN: no interval */
    char why[160]; /* why it is missing */
};

/* A NaN that no arithmetic makes: the result was never set. */
static const uint64_t never_set = UINT64_C(0x7ff8f0a3e0000000);

static bool is_set(const double *x)
{
    return memcmp(x, &never_set, sizeof(*x)) != 0;
}

void frame_open(struct frame *f, const struct study_metric *metrics, const int *flags,
                void *results, struct study_cell *cell)
{
    *f = (struct frame){
        .cell = cell, .metrics = metrics, .flags = flags, .results = results};
    while (metrics[f->n].name)
        f->n++;
    f->about = mem_new(MEM_HARNESS, (size_t)f->n, sizeof(*f->about));
    for (int i = 0; i < f->n; i++) {
        memcpy(&f->results[i], &never_set, sizeof(never_set));
        f->about[i].lo = f->about[i].hi = NAN;
    }
}

/* ---- what is opened ---- */

void frame_close(struct frame *f, void (*fn)(void *), void *p)
{
    if (f->n_closes == FRAME_CLOSES_MAX) {
        fn(p);
        f->rc = err_set(ERR_LIMIT, "a study opens more than %d things", FRAME_CLOSES_MAX);
        return;
    }
    f->closes[f->n_closes].fn = fn;
    f->closes[f->n_closes++].p = p;
}

void *frame_new(struct frame *f, size_t n, size_t size)
{
    void *p = mem_new(MEM_HARNESS, n, size);

    FRAME_CLOSE(f, mem_free, p);
    return p;
}

/* ---- results ---- */

/* The place of *x among the results; -1: it is another variable. */
static int result_of(const struct frame *f, const double *x)
{
    ptrdiff_t i = x - f->results;

    return i >= 0 && i < f->n ? (int)i : -1;
}

double *frame_named(struct frame *f, const char *format, ...)
{
    char name[NAME_CHARS];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->metrics[i].name, name) == 0)
            return &f->results[i];
    f->rc = err_set(ERR_ARG, "the study has no result \"%s\"", name);
    return &f->unknown;
}

void frame_why(struct frame *f, const double *x, const char *why)
{
    for (int i = 0; i < f->n; i++) {
        char *to = f->about[i].why;

        if (x ? x == &f->results[i]
              : is_set(&f->results[i]) && !isfinite(f->results[i]) && !*to)
            snprintf(to, sizeof(f->about[i].why), "%s", why);
    }
    if (!x)
        snprintf(f->why, sizeof(f->why), "%s", why);
}

void frame_set(struct frame *f, double *x, double value, const char *why)
{
    *x = value;
    frame_why(f, x, why);
}

void frame_interval(struct frame *f, const double *x, double lo, double hi)
{
    int i = result_of(f, x);

    if (i >= 0) {
        f->about[i].lo = lo;
        f->about[i].hi = hi;
    }
}

static int report(struct frame *f, int i)
{
    static const struct {
        int flag;
        const char *kind;
    } evidence[] = {{MODEL, "model"}, {MEASURED, "measured"}, {SIMULATED, "simulated"}};
    const struct study_metric *m = &f->metrics[i];
    const struct frame_about *a = &f->about[i];

    if (!is_set(&f->results[i]))
        return f->flags[i] & SOME ? OK
                                  : err_set(ERR_STATE, "result %s was not set", m->name);
    study_value_interval(f->cell, m->name, f->results[i], a->lo, a->hi,
                         *a->why ? a->why : f->why);
    if (f->flags[i] & EACH)
        frame_series(f, m->name, m->unit, &f->results[i]);
    for (int k = 0; k < 3; k++)
        if (f->flags[i] & evidence[k].flag)
            study_evidence(f->cell, evidence[k].kind, m->name);
    return OK;
}

int frame_end(struct frame *f, int rc)
{
    if (rc == OK)
        rc = f->rc;
    for (int i = 0; i < f->n && rc == OK; i++)
        rc = report(f, i);
    while (f->n_closes > 0) {
        f->n_closes--;
        f->closes[f->n_closes].fn(f->closes[f->n_closes].p);
    }
    frame_rounds_close(f);
    mem_free(f->about);
    return rc;
}
