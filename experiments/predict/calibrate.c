#include "experiments/predict/predict.h"

#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "experiments/predict/predictor.h"

#define Z_95 1.959963984540054

/* What came of a number that was predicted. */
struct outcome {
    int experiment, machine;
    bool inside[PREDICTION_LEVELS], is_narrow;
};

struct calibrating {
    const struct predict_data *data;
    const struct predict_options *o;
    bool is_seen;
    int control;
    struct outcome *of;              /* [n] */
    double *half[PREDICTION_LEVELS]; /* [n] */
    size_t n;
};

static void halve(struct predict_interval *i)
{
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        const double half = prediction_half_frac(i->lo[l], i->hi[l], i->value) / 2;
        const double factor = i->value > 0 ? 1 + half : 1;

        i->lo[l] = i->value > 0 ? i->value / factor : (i->value + i->lo[l]) / 2;
        i->hi[l] = i->value > 0 ? i->value * factor : (i->value + i->hi[l]) / 2;
    }
}

/* The number of the next headline of the record of number k; of the last one, of the first. */
static double exchanged(const struct predict_data *d, size_t k)
{
    const struct predict_number *x = d->of;
    size_t i = k;

    do
        i = (i + 1) % d->n;
    while (x[i].experiment != x[k].experiment || x[i].machine != x[k].machine);
    return x[i].value;
}

static void score(struct calibrating *c, const struct predict_interval *i, size_t k)
{
    const struct predict_number *x = &c->data->of[k];
    const double value =
        c->control == PREDICT_EXCHANGED ? exchanged(c->data, k) : x->value;
    struct outcome *to = &c->of[c->n];

    *to = (struct outcome){.experiment = x->experiment, .machine = x->machine};
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        to->inside[l] = value >= i->lo[l] && value <= i->hi[l];
        c->half[l][c->n] = prediction_half_frac(i->lo[l], i->hi[l], i->value);
    }
    to->is_narrow = c->half[PREDICTION_LEVELS - 1][c->n] <= PREDICTION_NARROW_FRAC;
    c->n++;
}

/* All numbers of a machine. */
static void predict_machine(struct calibrating *c, int machine)
{
    const struct predict_data *d = c->data;
    struct predict_errors *e = predict_errors_new(d, c->o->is_known ? -1 : machine);

    for (size_t k = 0; k < d->n; k++) {
        struct predict_view v;
        struct predict_interval i;

        if (d->of[k].machine != machine)
            continue;
        v = predict_view_of(e, k);
        predict_one(&i, e, &v, c->o);
        if (!i.predictor || (c->is_seen && i.n_hosts == 0))
            continue;
        if (c->control == PREDICT_HALVED)
            halve(&i);
        score(c, &i, k);
    }
    predict_errors_free(&e);
}

/* Of outcomes but those of an experiment (-1: of all), the share inside `level`, or that is narrow
 * (PREDICTION_LEVELS). NaN: of none. */
static double share_without(const struct calibrating *c, int level, int experiment)
{
    double sum = 0, n = 0;

    for (size_t i = 0; i < c->n; i++)
        if (c->of[i].experiment != experiment) {
            sum +=
                level < PREDICTION_LEVELS ? c->of[i].inside[level] : c->of[i].is_narrow;
            n++;
        }
    return sum / n;
}

/* Headlines of an experiment hold or fail together, so that intervals are those of experiments. */
static struct predict_share share_of(const struct calibrating *c, int level)
{
    const size_t n_experiments = json_object_size(c->data->experiments);
    struct predict_share s = {.value = share_without(c, level, -1)};
    double sum = 0, squares = 0, n = 0, half;

    for (size_t j = 0; j < n_experiments; j++) {
        const double without = share_without(c, level, (int)j) - s.value;
        bool has = false;

        for (size_t i = 0; i < c->n && !has; i++)
            has = c->of[i].experiment == (int)j;
        if (!has || isnan(without))
            continue;
        n++;
        sum += without;
        squares += without * without;
    }
    half = Z_95 * sqrt((n - 1) / n * (squares - sum * sum / n));
    s.lo = fmax(s.value - half, 0);
    s.hi = fmin(s.value + half, 1);
    return s;
}

static void count(struct predict_calibration *out, const struct calibrating *c)
{
    bool machines[PREDICT_MACHINES_MAX] = {false};

    for (size_t j = 0; j < json_object_size(c->data->experiments); j++) {
        bool has[PREDICT_MACHINES_MAX] = {false};
        int n = 0;

        for (size_t i = 0; i < c->n; i++)
            if (c->of[i].experiment == (int)j)
                has[c->of[i].machine] = machines[c->of[i].machine] = true;
        for (int m = 0; m < PREDICT_MACHINES_MAX; m++)
            n += has[m];
        out->n_experiments += n > 0;
        out->n_two += n > 1;
    }
    for (int m = 0; m < PREDICT_MACHINES_MAX; m++)
        out->n_machines += machines[m];
}

void predict_calibrate(struct predict_calibration *out, const struct predict_data *d,
                       const struct predict_options *o, bool is_seen, int control)
{
    struct calibrating c = {.data = d, .o = o, .is_seen = is_seen, .control = control};

    *out = (struct predict_calibration){0};
    c.of = mem_new(MEM_HARNESS, d->n + 1, sizeof(*c.of));
    for (int l = 0; l < PREDICTION_LEVELS; l++)
        c.half[l] = mem_new(MEM_HARNESS, d->n + 1, sizeof(double));
    for (size_t m = 0; m < json_object_size(d->machines); m++)
        predict_machine(&c, (int)m);
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        out->inside[l] = share_of(&c, l);
        out->half_frac[l] = stats_median(c.half[l], c.n);
        mem_free(c.half[l]);
    }
    out->narrow = share_of(&c, PREDICTION_LEVELS);
    out->n = c.n;
    count(out, &c);
    mem_free(c.of);
}

/* ---- predictions that were made before a run ---- */

void predict_scored_add(struct predict_scored *s, const json_t *head)
{
    const json_t *run = json_object_get(head, "run");
    const char *hash = json_str_at(run, "prediction_sha256", "");
    struct prediction_score one;

    if (!prediction_score_of(&one, run) || json_object_get(s->seen, hash))
        return;
    if (!s->seen)
        s->seen = json_object();
    json_object_set_new(s->seen, hash, json_true());
    for (int i = 0; i < PREDICTION_COUNTS; i++)
        s->score.n[i] += one.n[i];
}
