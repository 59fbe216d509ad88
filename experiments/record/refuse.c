#include "experiments/record/refuse.h"

#include "base/json.h"
#include "experiments/metrics/metrics.h"

void export_refuse(const char *name, json_t *number)
{
    const char *unit = json_str_at(number, "unit", "");
    json_t *v = json_object_get(number, "value");
    char why[96];

    if (!metrics_exceeds_bound(name, unit, json_number_value(v), why))
        return;
    json_object_del(number, "lo");
    json_object_del(number, "hi");
    json_object_set(number, "refused", v);
    json_object_set_new(number, "value", json_null());
    json_object_set_new(number, "why", json_string(why));
}
