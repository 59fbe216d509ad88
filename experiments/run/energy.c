#include "experiments/run/energy.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

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
    e->s[e->n] = 1e-9 * (double)(int64_t)(clock_ns() - e->start_ns);
    e->joules[e->n++] = joules;
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
