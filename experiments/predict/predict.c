#include "experiments/predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/predict/predictor.h"

/* A class with errors of fewer experiments takes those of a wider one. */
#define EXPERIMENTS_MIN 3
/* The level by whose width predictors are chosen: 80 %, as few experiments tell more of it than of
 * 95 %. */
#define CHOOSING 1

/* ---- what predictors see ---- */

bool predict_sees(const struct predict_view *v, const struct predict_number *x)
{
    return x->machine != v->hidden &&
           (x->machine != v->machine || x->experiment != v->experiment);
}

/* -1, 0 or 1, as by strcmp(): where the headline is, seen from x. */
static int side(const struct predict_view *v, const struct predict_number *x)
{
    return x->experiment != v->experiment ? x->experiment - v->experiment
                                          : strcmp(x->name, v->name);
}

void predict_others(const struct predict_view *v, const struct predict_number **begin,
                    size_t *n)
{
    const struct predict_data *d = v->data;
    size_t lo = 0, hi = d->n, end;

    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;

        if (side(v, &d->of[mid]) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (end = lo; end < d->n && side(v, &d->of[end]) == 0;)
        end++;
    *begin = &d->of[lo];
    *n = end - lo;
}

enum predict_unit predict_unit_of(const char *unit)
{
    static const char *const times[] = {"s", "ms", "us", "ns", "min", "h", NULL};

    return strstr(unit, "/s")             ? PREDICT_RATE
           : name_index(times, unit) >= 0 ? PREDICT_TIME
           : strcmp(unit, "x") == 0       ? PREDICT_FACTOR
           : *unit == 0                   ? PREDICT_SHARE
           : strcmp(unit, "%") == 0       ? PREDICT_PERCENT
                                          : PREDICT_AMOUNT;
}

/* Below it the scale is linear. */
static double linear_below(const char *unit)
{
    const enum predict_unit kind = predict_unit_of(unit);

    return kind == PREDICT_SHARE ? 0.01 : kind == PREDICT_PERCENT ? 1 : 1e-9;
}

double predict_scaled(double value, const char *unit)
{
    return asinh(value / linear_below(unit));
}

double predict_unscaled(double y, const char *unit)
{
    return sinh(y) * linear_below(unit);
}

/* A view whose evidence is that of another host's record, where there is one. */
static int see(struct predict_view *v)
{
    const struct predict_number *x;
    int n_seen = 0;
    size_t n;

    predict_others(v, &x, &n);
    for (size_t i = 0; i < n; i++)
        if (predict_sees(v, &x[i]) && n_seen++ == 0)
            v->is_timed = x[i].is_timed;
    return n_seen;
}

/* ---- errors ---- */

struct predict_errors {
    const struct predict_data *data;
    int hidden, n_predictors;
    struct predict_error {
        double size; /* NaN: the predictor does not know this number, or it is hidden */
        int class;
    } * of; /* [n_predictors][data->n] */
};

static int class_of(const struct predict_view *v)
{
    return (v->is_timed << 3) | (int)predict_unit_of(v->unit);
}

/* Is it of the class, as far as the pool tells them apart? */
static bool is_of_class(int a, int b, int pool)
{
    return pool == PREDICT_ALL || (pool == PREDICT_EVIDENCE ? a >> 3 == b >> 3 : a == b);
}

struct predict_view predict_view_of(const struct predict_errors *e, size_t k)
{
    const struct predict_data *d = e->data;
    const struct predict_number *x = &d->of[k];

    return (struct predict_view){.data = d,
                                 .name = x->name,
                                 .unit = x->unit,
                                 .experiment = x->experiment,
                                 .machine = x->machine,
                                 .hidden = e->hidden,
                                 .is_timed = x->job_is_timed,
                                 .card = d->cards[x->machine]};
}

struct predict_errors *predict_errors_new(const struct predict_data *d, int hidden)
{
    struct predict_errors *e = mem_new(MEM_HARNESS, 1, sizeof(*e));

    e->data = d;
    e->hidden = hidden;
    while (predictors[e->n_predictors])
        e->n_predictors++;
    e->of = mem_new(MEM_HARNESS, (size_t)e->n_predictors * d->n, sizeof(*e->of));
    for (int p = 0; p < e->n_predictors; p++)
        for (size_t k = 0; k < d->n; k++) {
            struct predict_error *to = &e->of[(size_t)p * d->n + k];
            struct predict_view v = predict_view_of(e, k);
            double value;

            see(&v);
            value = d->of[k].machine == hidden ? (double)NAN : predictors[p]->value(&v);
            to->class = class_of(&v);
            to->size = fabs(predict_scaled(d->of[k].value, v.unit) -
                            predict_scaled(value, v.unit));
        }
    return e;
}

void predict_errors_free(struct predict_errors **e)
{
    if (!*e)
        return;
    mem_free((*e)->of);
    mem_free(*e);
    *e = NULL;
}

/* ---- intervals ---- */

struct weighted {
    double size, weight;
    int experiment;
};

static int by_size(const void *a, const void *b)
{
    const struct weighted *x = a, *y = b;

    return (x->size > y->size) - (x->size < y->size);
}

/* Errors of a class, but of no record of the experiment, ordered by experiment as the data are.
 * *n_experiments: of how many. */
static size_t errors_of(struct weighted *w, int *n_experiments,
                        const struct predict_errors *e, int p, int class, int pool,
                        int experiment)
{
    const struct predict_data *d = e->data;
    size_t n = 0;

    *n_experiments = 0;
    for (size_t k = 0; k < d->n; k++) {
        const struct predict_error *x = &e->of[(size_t)p * d->n + k];

        if (isnan(x->size) || d->of[k].experiment == experiment ||
            !is_of_class(x->class, class, pool))
            continue;
        *n_experiments += n == 0 || w[n - 1].experiment != d->of[k].experiment;
        w[n++] = (struct weighted){.size = x->size, .experiment = d->of[k].experiment};
    }
    return n;
}

/* Each experiment counts once. */
static void weigh(struct weighted *w, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && w[end].experiment == w[i].experiment;)
            end++;
        for (size_t k = i; k < end; k++)
            w[k].weight = 1 / (double)(end - i);
    }
}

/* The error that a share of all, and of one more, is not above; the largest, where that one could
 * be above all. */
static void quantiles(double half[PREDICTION_LEVELS], struct weighted *w, size_t n)
{
    double total = 1, below = 0;
    int level = 0;

    qsort(w, n, sizeof(*w), by_size);
    for (size_t i = 0; i < n; i++)
        total += w[i].weight;
    for (size_t i = 0; i < n; i++) {
        below += w[i].weight;
        for (; level < PREDICTION_LEVELS &&
               (i == n - 1 || below >= total * prediction_levels[level] / 100);
             level++)
            half[level] = w[i].size;
    }
}

/* Of the last digits, which a compiler decides. */
#define HALF_MIN 1e-9

static bool by_predictor(struct predict_interval *out, const struct predict_errors *e,
                         const struct predict_view *v, const struct predict_options *o,
                         int p, struct weighted *w)
{
    const double value = predictors[p]->value(v), y = predict_scaled(value, v->unit);
    const int class = class_of(v);
    double half[PREDICTION_LEVELS];
    int n_experiments = 0, pool = o->pool + 1;
    size_t n = 0;

    if (isnan(value))
        return false;
    while (pool > PREDICT_ALL && n_experiments < EXPERIMENTS_MIN)
        n = errors_of(w, &n_experiments, e, p, class, --pool, v->experiment);
    if (n == 0)
        return false;
    weigh(w, n);
    quantiles(half, w, n);
    out->predictor = predictors[p]->name;
    out->value = value;
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        out->lo[l] = predict_unscaled(y - fmax(half[l], HALF_MIN), v->unit);
        out->hi[l] = predict_unscaled(y + fmax(half[l], HALF_MIN), v->unit);
    }
    return true;
}

void predict_one(struct predict_interval *out, const struct predict_errors *e,
                 const struct predict_view *v, const struct predict_options *o)
{
    struct weighted *w = mem_new(MEM_HARNESS, e->data->n + 1, sizeof(*w));
    struct predict_view seen = *v;
    double narrowest = INFINITY;

    *out = (struct predict_interval){.value = NAN, .n_hosts = see(&seen)};
    for (int p = 0; p < e->n_predictors; p++) {
        struct predict_interval one = *out;
        double width;

        if ((o->predictor && strcmp(predictors[p]->name, o->predictor) != 0) ||
            !by_predictor(&one, e, &seen, o, p, w))
            continue;
        width = predict_scaled(one.hi[CHOOSING], v->unit) -
                predict_scaled(one.lo[CHOOSING], v->unit);
        if (!out->predictor || width < narrowest)
            *out = one, narrowest = width;
    }
    mem_free(w);
}

json_t *predict_json(const struct predict_interval *i, const char *unit)
{
    json_t *one;

    if (!i->predictor)
        return json_pack("{s:s s:s}", "unit", unit, "why",
                         "no published record has such a headline");
    one = json_pack("{s:f s:s s:s s:i}", "value", i->value, "unit", unit, "model",
                    i->predictor, "n_hosts", i->n_hosts);
    for (int l = 0; l < PREDICTION_LEVELS; l++)
        json_object_set_new(one, prediction_level_names[l],
                            json_pack("[f, f]", i->lo[l], i->hi[l]));
    return one;
}
