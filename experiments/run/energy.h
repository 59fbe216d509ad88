/* experiments/run/energy.h - reads the energy counters of this machine now and then while a cell
 * runs (cpu/energy.h): for joules by token and phase of a served cell, and for the joules of any.
 * Threads: one for each struct. */
#ifndef RUN_ENERGY_H
#define RUN_ENERGY_H

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "cpu/energy.h"

/* Between two readings, some 20 us each. A phase of a request begins and ends between two of them,
 * on a line. */
#define RUN_ENERGY_NS 20000000

struct run_energy {
    double *s,
        *joules; /* [n]: seconds from the start of the cell; since the first reading */
    size_t n, max;
    char why[96]; /* why there are no readings, or no more; "" */
    uint64_t start_ns;
    struct cpu_energy counters;
};

/* Find the counters. Then the caller sets start_ns and reads, the first time soon. */
void run_energy_open(struct run_energy *e);
void run_energy_read(struct run_energy *e); /* nothing where `why` is set */
/* The same, once a second at most: a counter starts over after some minutes. */
void run_energy_read_seldom(struct run_energy *e);
/* Between the first reading and the last: {"joules", "seconds"}, or {"why"}. New reference. */
json_t *run_energy_json(const struct run_energy *e);
void run_energy_fini(struct run_energy *e);

#endif
