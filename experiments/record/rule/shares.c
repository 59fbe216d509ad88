/* Nothing takes more than there is of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/rule.h"
#include "measure/card.h"

static void check_numbers(struct record_view *v, const char *group, const json_t *numbers)
{
    const char *name;
    char place[128];
    json_t *number;

    json_object_foreach((json_t *)numbers, name, number)
    {
        const double refused = json_f64_at(number, "refused"),
                     value = json_f64_at(number, "value");

        snprintf(place, sizeof(place), "%s/%s", group, name);
        if (!isnan(refused))
            record_fault(v, place,
                         "expected a share of its bound of at most %g, found %g",
                         MEASURE_SHARE_MAX, refused);
        else if ((strstr(name, "attainment_frac") || strcmp(name, "error_frac") == 0) &&
                 (value < 0 || value > 1))
            record_fault(v, place, "expected a share from 0 to 1, found %g", value);
    }
}

static void check_series(struct record_view *v)
{
    const char *name;
    char place[128], why[96];
    json_t *series, *x;
    size_t i;

    json_object_foreach((json_t *)v->series, name, series)
    {
        json_array_foreach(json_object_get(series, "v"), i, x)
        {
            if (!metrics_exceeds_bound(name, json_str_at(series, "unit", ""),
                                       json_number_value(x), why))
                continue;
            snprintf(place, sizeof(place), "series/%s[%zu]", name, i);
            record_fault(v, place,
                         "expected a share of its bound of at most %g, found %g",
                         MEASURE_SHARE_MAX, json_number_value(x));
        }
    }
}

static void of_cell(struct record_view *v)
{
    check_numbers(v, "summary", v->summary);
    check_series(v);
}

static void of_file(struct record_view *v)
{
    check_numbers(v, "headline", v->headline);
}

const struct record_rule record_rule_shares = {
    .name = "shares",
    .text = "No share of bandwidth, peak or requests is above its bound.",
    .of_file = of_file,
    .of_cell = of_cell,
};
