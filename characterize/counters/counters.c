/* Sets of events in passes, whatever counts them. */
#include "characterize/counters/counters.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "characterize/counters/perf_sys.h"

struct pass {
    void *group;
    int n; /* events in it */
    bool failed;
};

struct event {
    char name[COUNTERS_NAME_MAX];
    int pass, place; /* -1: cannot be counted */
    bool counted;
    struct counters_value v;
};

struct counters {
    const struct counters_provider *p;
    struct event *events;
    struct pass *passes;            /* [n_events], n_passes used */
    struct counters_value *stopped; /* [n_events] */
    int n_events, n_passes;
};

/* ---- values ---- */

struct counters_value counters_zero(void)
{
    return (struct counters_value){.value = 0};
}

void counters_none(struct counters_value *v, int error, const char *fmt, ...)
{
    va_list ap;

    *v = (struct counters_value){.value = NAN, .error = error};
    va_start(ap, fmt);
    vsnprintf(v->why, sizeof(v->why), fmt, ap);
    va_end(ap);
}

/* The kernel's level of perf_event_paranoid; false where it cannot be read. */
static bool read_paranoid(int *level)
{
    FILE *f = fopen(counters_kernel_of()->paranoid, "re");
    bool ok;

    if (!f)
        return false;
    ok = fscanf(f, "%d", level) == 1;
    fclose(f);
    return ok;
}

void counters_refused(struct counters_value *v, const char *event, int error)
{
    switch (error) {
    case EACCES:
    case EPERM: {
        int paranoid;

        if (read_paranoid(&paranoid))
            counters_none(v, error,
                          "%s: perf_event_paranoid is %d: sysctl "
                          "kernel.perf_event_paranoid=%d, or CAP_PERFMON",
                          event, paranoid, paranoid > 2 ? 2 : -1);
        else
            counters_none(
                v, error,
                "%s: not permitted: a container's seccomp filter, or no CAP_PERFMON",
                event);
        return;
    }
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case EOPNOTSUPP:
        counters_none(
            v, error,
            "%s: no such event here: no PMU (most virtual machines); run on the "
            "bare machine",
            event);
        return;
    case EINVAL:
        counters_none(
            v, error,
            "%s: the PMU refuses the event's settings: compare its format in sysfs",
            event);
        return;
    case ENOSYS:
        counters_none(v, error, "%s: kernel without perf events: CONFIG_PERF_EVENTS",
                      event);
        return;
    case EMFILE:
        counters_none(v, error, "%s: too many open files: raise ulimit -n", event);
        return;
    case EBUSY:
        counters_none(
            v, error,
            "%s: another program holds the PMU: end it, or kernel.nmi_watchdog=0", event);
        return;
    default:
        counters_none(v, error, "%s: %s", event, strerror(error));
    }
}

void counters_add(struct counters_value *v, const struct counters_value *more)
{
    int most = v->n_parts > more->n_parts ? v->n_parts : more->n_parts;

    if (!isnan(v->value) && isnan(more->value)) {
        v->error = more->error;
        memcpy(v->why, more->why, sizeof(v->why));
    }
    v->value += more->value;
    for (int i = 0; i < most; i++)
        v->part[i] =
            (i < v->n_parts ? v->part[i] : 0) + (i < more->n_parts ? more->part[i] : 0);
    v->n_parts = most;
    v->enabled_ns += more->enabled_ns;
    v->running_ns += more->running_ns;
}

/* ---- providers ---- */

int counters_provider_find(const char *name, const struct counters_provider **out)
{
    *out = name_find(counters_providers, name, "provider of counters");
    return *out ? OK : ERR_NOTFOUND;
}

/* ---- sets ---- */

/* The first group with room takes the event; one that finds none even in an empty group
 * cannot be counted here. */
static int place(struct counters *c, struct event *e)
{
    int rc;

    e->pass = -1;
    for (int i = 0; i <= c->n_passes; i++) {
        struct pass *p = &c->passes[i];

        if (i == c->n_passes) {
            rc = c->p->open(&p->group);
            if (rc != OK)
                return rc;
        }
        rc = c->p->add(p->group, e->name, &e->v);
        if (rc == OK) {
            e->pass = i;
            e->place = p->n++;
            c->n_passes += i == c->n_passes;
            return OK;
        }
        if (i == c->n_passes) {
            c->p->close(p->group);
            p->group = NULL;
        }
        if (rc == ERR_NOMEM)
            return rc;
        if (rc != ERR_LIMIT)
            return OK; /* e->v says why */
    }
    counters_none(&e->v, ENOSPC, "%s: does not fit even alone", e->name);
    return OK;
}

int counters_open(struct counters **out, const struct counters_provider *p,
                  const char *const *events, int n)
{
    struct counters *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    int rc = OK;

    *out = NULL;
    if (!c)
        return ERR_NOMEM;
    c->p = p;
    c->events = mem_new(MEM_OTHER, (size_t)n, sizeof(*c->events));
    c->passes = mem_new(MEM_OTHER, (size_t)n + 1, sizeof(*c->passes));
    c->stopped = mem_new(MEM_OTHER, (size_t)n, sizeof(*c->stopped));
    if (!c->events || !c->passes || !c->stopped)
        rc = ERR_NOMEM;
    for (int i = 0; i < n && rc == OK; i++) {
        struct event *e = &c->events[c->n_events++];

        e->v = counters_zero();
        if (strlen(events[i]) >= sizeof(e->name))
            rc = err_set(ERR_ARG, "event: expected at most %d letters, found \"%s\"",
                         COUNTERS_NAME_MAX - 1, events[i]);
        else if (!p->open)
            e->pass = -1, counters_none(&e->v, 0, "%s counts whole programs", p->name);
        else {
            memcpy(e->name, events[i], strlen(events[i]) + 1);
            rc = place(c, e);
        }
    }
    if (rc == OK)
        *out = c, c = NULL;
    counters_close(&c);
    return rc;
}

void counters_close(struct counters **cp)
{
    struct counters *c = *cp;

    *cp = NULL;
    if (!c)
        return;
    for (int i = 0; i < c->n_passes; i++)
        c->p->close(c->passes[i].group);
    mem_free(c->events);
    mem_free(c->passes);
    mem_free(c->stopped);
    mem_free(c);
}

int counters_passes(const struct counters *c)
{
    return c->n_passes;
}

int counters_countable(const struct counters *c, int i)
{
    return c->events[i].pass >= 0;
}

static void fail_pass(struct counters *c, int pass)
{
    for (int i = 0; i < c->n_events; i++) {
        struct event *e = &c->events[i];

        if (e->pass == pass && !isnan(e->v.value))
            counters_none(&e->v, 0, "%s", err_msg());
    }
}

void counters_start(struct counters *c, int pass)
{
    if (pass >= c->n_passes)
        return;
    c->passes[pass].failed = c->p->start(c->passes[pass].group) != OK;
    if (c->passes[pass].failed)
        fail_pass(c, pass);
}

void counters_stop(struct counters *c, int pass)
{
    if (pass >= c->n_passes || c->passes[pass].failed)
        return;
    memset(c->stopped, 0, (size_t)c->n_events * sizeof(*c->stopped));
    if (c->p->stop(c->passes[pass].group, c->stopped) != OK) {
        fail_pass(c, pass);
        return;
    }
    for (int i = 0; i < c->n_events; i++) {
        struct event *e = &c->events[i];

        if (e->pass != pass)
            continue;
        counters_add(&e->v, &c->stopped[e->place]);
        e->counted = true;
    }
}

void counters_read(const struct counters *c, struct counters_value *out)
{
    for (int i = 0; i < c->n_events; i++) {
        const struct event *e = &c->events[i];

        out[i] = e->v;
        if (!e->counted && !isnan(e->v.value))
            counters_none(&out[i], 0, "%s: no run was counted", e->name);
    }
}
