/* Each number by itself: a missing one has a reason, an interval holds its value. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/rule.h"

static void check_number(struct record_view *v, const char *place, const json_t *number)
{
    const double value = json_f64_at(number, "value"), lo = json_f64_at(number, "lo"),
                 hi = json_f64_at(number, "hi");

    if (isnan(value) && !json_str_at(number, "why", NULL))
        record_fault(v, place, "expected a reason with a missing number, found none");
    if (lo > hi || value < lo - 1e-9 * fabs(lo) || value > hi + 1e-9 * fabs(hi))
        record_fault(v, place, "expected an interval around it, found %g in %g to %g",
                     value, lo, hi);
}

/* A distribution's percentiles do not fall. */
static void check_order(struct record_view *v, const char *of, const json_t *summary)
{
    static const char *const statistics[] = {"min_", "p50_",   "p90_", "p95_",
                                             "p99_", "p99.9_", "max_", NULL};
    double before = -INFINITY, value;
    char name[128], place[144];

    for (int i = 0; statistics[i]; i++) {
        snprintf(name, sizeof(name), "%s%.100s", statistics[i], of);
        value = record_value(summary, name);
        if (isnan(value))
            continue;
        snprintf(place, sizeof(place), "summary/%s", name);
        if (value < before)
            record_fault(v, place,
                         "expected at least %.9g, a lower percentile, found %.9g", before,
                         value);
        before = value;
    }
}

static void check_numbers(struct record_view *v, const char *group, const json_t *numbers,
                          bool served)
{
    const char *name;
    char place[128];
    json_t *number;

    json_object_foreach((json_t *)numbers, name, number)
    {
        const char *evidence = json_str_at(number, "evidence", "measured"), *unit;

        snprintf(place, sizeof(place), "%s/%.100s", group, name);
        check_number(v, place, number);
        unit = served ? metrics_unit(name) : "";
        if (*unit && strcmp(unit, json_str_at(number, "unit", "")) != 0)
            record_fault(v, place, "expected the unit %s, found \"%.15s\"", unit,
                         json_str_at(number, "unit", ""));
        if (strncmp(name, "p50_", 4) == 0 && served)
            check_order(v, name + 4, numbers);
        if (!strchr(evidence, ',') && !metrics_evidence_find(evidence))
            record_fault(v, place, "expected a kind of evidence, found \"%.30s\"",
                         evidence);
    }
}

static void of_cell(struct record_view *v)
{
    check_numbers(v, "summary", v->summary,
                  !json_object_get(v->attributes, "study.name"));
}

static void of_file(struct record_view *v)
{
    check_numbers(v, "headline", v->headline, false);
}

const struct record_rule record_rule_numbers = {
    .name = "numbers",
    .text = "A missing number has a reason; intervals, percentiles and units fit.",
    .of_file = of_file,
    .of_cell = of_cell,
};
