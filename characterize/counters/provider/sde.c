/* Numbers that this program counts itself and publishes, read back through PAPI. */
#include <stdio.h>

#include "characterize/counters/papi_group.h"
#include "characterize/counters/publish.h"

/* PAPI accepts any name here and counts 0 for an unpublished one, so check first. */
static int add(void *group, const char *event, struct counters_value *v)
{
    char name[COUNTERS_NAME_MAX + sizeof("sde:::sandwich::")];

    if (!counters_published(event)) {
        counters_none(v, 0, "%s: this program does not publish this event", event);
        return ERR_NOTFOUND;
    }
    snprintf(name, sizeof(name), "sde:::sandwich::%s", event);
    return counters_papi_add(group, name, v);
}

const struct counters_provider counters_sde = {
    .name = "sde",
    .help = "the engine's own totals through PAPI: decode.kv_bytes",
    .open = counters_papi_open,
    .add = add,
    .start = counters_papi_start,
    .stop = counters_papi_stop,
    .close = counters_papi_close,
};
