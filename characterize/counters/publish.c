#include "characterize/counters/publish.h"

#include <stdio.h>
#include <string.h>
#include <sde_lib.h>

#include "characterize/counters/counters.h"

/* PAPI 7.0 does not survive an event that is unregistered and registered again, so a name once
 * registered stays, and only the address of its number changes. */
static struct slot {
    char name[COUNTERS_NAME_MAX];
    const int64_t *total; /* NULL: withdrawn */
} slots[COUNTERS_PUBLISHED_MAX];
static int n_slots;
static papi_handle_t handle;

static long long read_slot(void *arg)
{
    const struct slot *s = arg;

    return s->total ? (long long)*s->total : 0;
}

static struct slot *slot_of(const char *name)
{
    for (int i = 0; i < n_slots; i++)
        if (strcmp(slots[i].name, name) == 0)
            return &slots[i];
    return NULL;
}

int counters_published(const char *name)
{
    const struct slot *s = slot_of(name);

    return s && s->total;
}

static int new_slot(const char *name, struct slot **out)
{
    struct slot *s = &slots[n_slots];
    int rc;

    if (strlen(name) + sizeof("sde:::sandwich::") > COUNTERS_NAME_MAX)
        return err_set(ERR_ARG, "event %s: the name is too long", name);
    if (n_slots == COUNTERS_PUBLISHED_MAX)
        return err_set(ERR_LIMIT, "event %s: more than %d published", name,
                       COUNTERS_PUBLISHED_MAX);
    if (!handle)
        handle = papi_sde_init("sandwich");
    if (!handle)
        return err_set(ERR_NOMEM, "PAPI cannot publish events");
    memcpy(s->name, name, strlen(name) + 1);
    rc = papi_sde_register_counter_cb(handle, s->name, PAPI_SDE_RO | PAPI_SDE_DELTA,
                                      PAPI_SDE_long_long, read_slot, s);
    if (rc != 0)
        return err_set(ERR_NOMEM, "event %s: PAPI cannot publish it: %d", name, rc);
    n_slots++;
    *out = s;
    return OK;
}

int counters_publish(const char *name, const int64_t *total)
{
    struct slot *s = slot_of(name);
    int rc = OK;

    if (!s)
        rc = new_slot(name, &s);
    else if (s->total)
        rc = err_set(ERR_ARG, "event %s is published already", name);
    if (rc == OK)
        s->total = total;
    return rc;
}

void counters_withdraw(const char *name)
{
    for (int i = 0; i < n_slots; i++)
        if (!name || strcmp(slots[i].name, name) == 0)
            slots[i].total = NULL;
}
