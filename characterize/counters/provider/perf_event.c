/* The kernel's counters without a library between: generic events, raw codes, and what
 * sysfs names. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "characterize/counters/perf_sys.h"

/* Counting less than this share of the time means that events of other
 * programs were multiplexed with these. Below 1 because the kernel enables a group's
 * members one after another. */
#define RUNNING_MIN 0.99
#define EVENTS_MAX  32
/* Events of one unit outside the core at once: the fewest registers such units have
 * (AMD's data fabric, Intel's memory channels). Their drivers take more, and then let
 * them take turns. */
#define UNIT_ROOM 4

struct one {
    char name[COUNTERS_NAME_MAX];
    int n_fd;
    struct {
        int fd;
        bool follows; /* starts and stops with the leader */
        /* Resetting clears a count, not its times: those of the last stop. */
        uint64_t enabled_ns, running_ns;
    } part[COUNTERS_PARTS_MAX];
    uint32_t unit; /* type of the unit outside the core it is counted by */
    bool outside;
};

struct group {
    struct one events[EVENTS_MAX];
    int n;
    int leader; /* of the events of this thread's core; -1: none yet */
};

static int group_open(void **out)
{
    struct group *g = mem_new(MEM_OTHER, 1, sizeof(*g));

    if (!g)
        return ERR_NOMEM;
    g->leader = -1;
    *out = g;
    return OK;
}

static void close_one(const struct one *e)
{
    for (int i = 0; i < e->n_fd; i++)
        counters_kernel_of()->close(e->part[i].fd);
}

/* A core's events must be counted together, so they are one group of the kernel: it runs
 * whole or not at all. Software events and other units have registers of their own. */
static bool joins(const struct counters_perf_event *e)
{
    return e->cpu < 0 && e->attr.type != PERF_TYPE_SOFTWARE;
}

static int open_part(struct group *g, struct one *e, struct counters_perf_event *p)
{
    const struct counters_kernel *k = counters_kernel_of();
    pid_t pid = p->cpu < 0 ? 0 : -1;
    int leader = joins(p) ? g->leader : -1, fd, alone;

    p->attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    p->attr.disabled = leader < 0;
    fd = k->open(&p->attr, pid, p->cpu, leader);
    if (fd < 0 && leader >= 0 && (errno == EINVAL || errno == ENOSPC)) {
        /* A full group and a wrong event give the same answer: ask for it alone. */
        p->attr.disabled = 1;
        alone = k->open(&p->attr, pid, p->cpu, -1);
        if (alone >= 0) {
            k->close(alone);
            return ERR_LIMIT;
        }
    }
    if (fd < 0)
        return ERR_IO;
    e->part[e->n_fd].fd = fd;
    e->part[e->n_fd++].follows = leader >= 0;
    if (joins(p) && g->leader < 0)
        g->leader = fd;
    return OK;
}

static bool unit_full(const struct group *g, const struct counters_perf_event *p)
{
    int n = 0;

    for (int i = 0; i < g->n; i++)
        n += g->events[i].outside && g->events[i].unit == p->attr.type;
    return p->cpu >= 0 && n >= UNIT_ROOM;
}

static int group_add(void *group, const char *event, struct counters_value *v)
{
    struct counters_perf_event parts[COUNTERS_PARTS_MAX];
    struct group *g = group;
    struct one *e = &g->events[g->n];
    int n, rc, leader = g->leader;

    if (g->n == EVENTS_MAX)
        return ERR_LIMIT;
    rc = counters_perf_parse(event, parts, &n, v);
    if (rc != OK)
        return rc;
    if (unit_full(g, &parts[0]))
        return ERR_LIMIT;
    memset(e, 0, sizeof(*e));
    e->outside = parts[0].cpu >= 0;
    e->unit = parts[0].attr.type;
    strncpy(e->name, event, sizeof(e->name) - 1);
    for (int i = 0; i < n && rc == OK; i++)
        rc = open_part(g, e, &parts[i]);
    if (rc == OK) {
        g->n++;
        return OK;
    }
    if (rc != ERR_LIMIT)
        counters_refused(v, event, errno);
    close_one(e);
    g->leader = leader;
    return rc;
}

/* `followers`: those too that do what the leader does. */
static int each(struct group *g, unsigned long request, bool followers)
{
    const struct counters_kernel *k = counters_kernel_of();

    for (int i = 0; i < g->n; i++)
        for (int j = 0; j < g->events[i].n_fd; j++)
            if ((followers || !g->events[i].part[j].follows) &&
                k->ioctl(g->events[i].part[j].fd, request) != 0)
                return err_set(ERR_IO, "%s: cannot be controlled: %m", g->events[i].name);
    return OK;
}

static int group_start(void *group)
{
    int rc = each(group, PERF_EVENT_IOC_RESET, true);

    return rc == OK ? each(group, PERF_EVENT_IOC_ENABLE, false) : rc;
}

struct reading {
    uint64_t value, enabled_ns, running_ns;
};

static void put_part(struct counters_value *v, struct one *e, int part,
                     const struct reading *r)
{
    v->part[part] = (double)r->value;
    v->n_parts = part + 1;
    v->value += (double)r->value;
    v->enabled_ns += r->enabled_ns - e->part[part].enabled_ns;
    v->running_ns += r->running_ns - e->part[part].running_ns;
    e->part[part].enabled_ns = r->enabled_ns;
    e->part[part].running_ns = r->running_ns;
    if (part + 1 < e->n_fd)
        return;
    if (v->running_ns == 0)
        counters_none(v, 0,
                      "%s: never ran: end what holds the PMU, or kernel.nmi_watchdog=0",
                      e->name);
    else if ((double)v->running_ns < RUNNING_MIN * (double)v->enabled_ns) {
        uint64_t enabled = v->enabled_ns, running = v->running_ns;

        counters_none(v, 0,
                      "%s: ran %.3g of the time: end what shares the PMU, or "
                      "kernel.nmi_watchdog=0",
                      e->name, (double)running / (double)enabled);
        v->enabled_ns = enabled;
        v->running_ns = running;
    }
}

static int group_stop(void *group, struct counters_value *v)
{
    struct group *g = group;
    int rc = each(g, PERF_EVENT_IOC_DISABLE, false);

    for (int i = 0; i < g->n && rc == OK; i++) {
        struct one *e = &g->events[i];

        v[i] = counters_zero();
        for (int j = 0; j < e->n_fd; j++) {
            struct reading r;
            ssize_t got = counters_kernel_of()->read(e->part[j].fd, &r, sizeof(r));

            if (got != (ssize_t)sizeof(r)) {
                counters_none(&v[i], got < 0 ? errno : 0,
                              "%s: cannot be read: %zd of %zu bytes", e->name, got,
                              sizeof(r));
                break;
            }
            put_part(&v[i], e, j, &r);
        }
    }
    return rc;
}

static void group_close(void *group)
{
    struct group *g = group;

    for (int i = g->n; i-- > 0;) /* the leader last */
        close_one(&g->events[i]);
    mem_free(g);
}

const struct counters_provider counters_perf_event = {
    .name = "perf_event",
    .help = "the kernel's counters: cycles, page-faults, r01d1, cpu/event=0xd0/",
    .open = group_open,
    .add = group_add,
    .start = group_start,
    .stop = group_stop,
    .close = group_close,
};
