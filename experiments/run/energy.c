#include "experiments/run/energy.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static double seconds_now(const struct run_energy *e)
{
    return 1e-9 * (double)(int64_t)(clock_ns() - e->start_ns);
}

void run_energy_read(struct run_energy *e)
{
    double joules;

    if (e->why[0])
        return;
    if (cpu_energy_read(&e->counters, &joules) != OK) {
        snprintf(e->why, sizeof(e->why), "%.95s", err_msg());
        return;
    }
    if (e->n == e->max) {
        e->max = 2 * e->max + 256;
        e->s = mem_resize(MEM_HARNESS, e->s, e->max, sizeof(*e->s));
        e->joules = mem_resize(MEM_HARNESS, e->joules, e->max, sizeof(*e->joules));
    }
    e->s[e->n] = seconds_now(e);
    e->joules[e->n++] = joules;
}

void run_energy_read_seldom(struct run_energy *e)
{
    if (e->n == 0 || seconds_now(e) - e->s[e->n - 1] >= 1)
        run_energy_read(e);
}

json_t *run_energy_json(const struct run_energy *e)
{
    if (e->why[0] || e->n < 2)
        return json_pack("{s:s}", "why", e->why[0] ? e->why : "read only once");
    return json_pack("{s:f, s:f}", "joules", e->joules[e->n - 1] - e->joules[0],
                     "seconds", e->s[e->n - 1] - e->s[0]);
}

void run_energy_open(struct run_energy *e)
{
    double joules;

    memset(e, 0, sizeof(*e));
    if (cpu_energy_read(&e->counters, &joules) != OK)
        snprintf(e->why, sizeof(e->why), "%.95s", err_msg());
}

void run_energy_fini(struct run_energy *e)
{
    mem_free(e->s);
    mem_free(e->joules);
    memset(e, 0, sizeof(*e));
}
