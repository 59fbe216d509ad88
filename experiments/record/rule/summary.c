/* Summaries are what the raw columns give. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/rule.h"

/* Timed waits before the cell are in no column. */
static bool has_no_column(const char *name)
{
    return strstr(name, "timer_error_us") != NULL;
}

static void check_value(struct record_view *v, const struct metrics_value *want)
{
    const json_t *number = json_object_get(v->summary, want->name);
    const double found = json_f64_at(number, "value");
    char place[96], why[96];

    if (!number || has_no_column(want->name) || record_same(found, want->value))
        return;
    /* One above its bound was refused when it was written. */
    if (isnan(found) && metrics_exceeds_bound(want->name, want->unit, want->value, why))
        return;
    snprintf(place, sizeof(place), "summary/%s", want->name);
    record_fault(v, place, "expected %.9g by the raw columns, found %.9g", want->value,
                 isnan(found) ? json_f64_at(number, "refused") : found);
}

static void check_series(struct record_view *v, const struct metrics_series *want)
{
    const json_t *found = json_object_get(json_object_get(v->series, want->name), "v");
    char place[96];

    for (size_t i = 0; i < want->n; i++) {
        const json_t *x = json_array_get(found, i);
        const double value = json_is_number(x) ? json_number_value(x) : NAN;

        if (record_same(value, want->v[i]))
            continue;
        snprintf(place, sizeof(place), "series/%s[%zu]", want->name, i);
        record_fault(v, place, "expected %.9g by the raw columns, found %.9g", want->v[i],
                     value);
    }
}

static void of_cell(struct record_view *v)
{
    struct metrics m;

    if (v->in.n_rows == 0 || json_object_get(v->attributes, "study.name"))
        return;
    metrics_compute(&m, &v->in);
    for (size_t i = 0; i < m.n_values; i++)
        check_value(v, &m.values[i]);
    for (size_t i = 0; i < m.n_series; i++)
        check_series(v, &m.series[i]);
    metrics_fini(&m);
}

const struct record_rule record_rule_summary = {
    .name = "summary",
    .text = "Each number of a served cell is what its raw columns give, computed again.",
    .of_cell = of_cell,
};
