#include "characterize/counters/papi_group.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <papi.h>

#include "base/clock.h"
#include "base/mem.h"

#define EVENTS_MAX 32

struct group {
    int set; /* PAPI's number */
    int n;
    char names[EVENTS_MAX][COUNTERS_NAME_MAX];
    uint64_t t0_ns;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int init_rc;

static void init(void)
{
    init_rc = PAPI_library_init(PAPI_VER_CURRENT);
    if (init_rc == PAPI_VER_CURRENT)
        init_rc = PAPI_thread_init(pthread_self);
    else if (init_rc >= 0)
        init_rc = PAPI_EINVAL; /* another version's library */
}

int counters_papi_open(void **out)
{
    struct group *g;
    int rc;

    pthread_once(&once, init);
    g = mem_new(MEM_OTHER, 1, sizeof(*g));
    if (!g)
        return ERR_NOMEM;
    g->set = PAPI_NULL;
    rc = init_rc == PAPI_OK ? PAPI_create_eventset(&g->set) : init_rc;
    if (rc != PAPI_OK)
        g->set = PAPI_NULL; /* each event says so */
    *out = g;
    return OK;
}

/* Why PAPI has this component switched off: the reason behind most refusals. */
static const char *disabled(int code)
{
    int cidx = PAPI_get_event_component(code);
    const PAPI_component_info_t *c = cidx < 0 ? NULL : PAPI_get_component_info(cidx);

    return c && c->disabled ? c->disabled_reason : NULL;
}

static int refused(struct counters_value *v, const char *event, int code, int rc)
{
    const char *why = code ? disabled(code) : NULL;

    if (!why && rc == PAPI_ENOEVNT) { /* natives of a component that is off are unknown */
        const PAPI_component_info_t *c = PAPI_get_component_info(0);

        why = c && c->disabled ? c->disabled_reason : NULL;
    }
    if (rc == PAPI_EPERM)
        counters_refused(v, event, 1);
    else
        counters_none(v, 0, "%s: PAPI: %s%s%s%s", event, PAPI_strerror(rc),
                      why ? ": " : "", why ? why : "",
                      why ? " (no PMU: most virtual machines; or a processor that this "
                            "PAPI does not know)"
                          : "");
    return ERR_UNSUPPORTED;
}

int counters_papi_add(void *group, const char *event, struct counters_value *v)
{
    struct group *g = group;
    int code = 0, rc;

    if (init_rc != PAPI_OK || g->set == PAPI_NULL) {
        counters_none(v, 0, "%s: PAPI cannot start: %s", event, PAPI_strerror(init_rc));
        return ERR_UNSUPPORTED;
    }
    if (g->n == EVENTS_MAX)
        return ERR_LIMIT;
    rc = PAPI_event_name_to_code(event, &code);
    if (rc != PAPI_OK)
        return refused(v, event, 0, rc);
    rc = PAPI_add_event(g->set, code);
    /* Full, or of another component than the set's: the next set may take it. */
    if (g->n > 0 && (rc == PAPI_ECNFLCT || rc == PAPI_ECOUNT || rc == PAPI_EINVAL))
        return ERR_LIMIT;
    if (rc != PAPI_OK)
        return refused(v, event, code, rc);
    snprintf(g->names[g->n++], COUNTERS_NAME_MAX, "%s", event);
    return OK;
}

int counters_papi_start(void *group)
{
    struct group *g = group;
    int rc = PAPI_start(g->set);

    g->t0_ns = clock_ns();
    if (rc != PAPI_OK)
        return err_set(ERR_IO, "%s: PAPI does not start: %s", g->names[0],
                       PAPI_strerror(rc));
    return OK;
}

/* Sets are never multiplexed, so that they run all the time they are wanted. */
int counters_papi_stop(void *group, struct counters_value *v)
{
    struct group *g = group;
    long long counts[EVENTS_MAX];
    uint64_t ns = clock_ns() - g->t0_ns;
    int rc = PAPI_stop(g->set, counts);

    if (rc != PAPI_OK)
        return err_set(ERR_IO, "%s: PAPI does not stop: %s", g->names[0],
                       PAPI_strerror(rc));
    for (int i = 0; i < g->n; i++) {
        v[i] = (struct counters_value){.value = (double)counts[i],
                                       .n_parts = 1,
                                       .part = {(double)counts[i]},
                                       .enabled_ns = ns,
                                       .running_ns = ns};
        if (counts[i] < 0)
            counters_none(&v[i], 0, "%s: PAPI says %lld, which no counter can",
                          g->names[i], counts[i]);
    }
    return OK;
}

void counters_papi_close(void *group)
{
    struct group *g = group;

    if (g->set != PAPI_NULL) {
        PAPI_cleanup_eventset(g->set);
        PAPI_destroy_eventset(&g->set);
    }
    mem_free(g);
}
