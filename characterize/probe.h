/* characterize/probe.h - measurements of the machine itself, and the card that keeps
 * them.
 *
 * A probe is one file in characterize/probe/ ending in one `const struct probe
 * probe_<stem>`. It measures with the same team, clock and memory as the engine, compares as the
 * engine does (measure/compare.h), and reports estimate and interval. The card
 * (results/machine/<host>.json, and another under a mask of instruction sets) holds every probe's
 * values with the CPU's identity, and is the bound of every number; a card of another CPU,
 * microcode or thread set is measured again, never reused. Threads: the caller's; no other work
 * may run meanwhile. */
#ifndef CHARACTERIZE_PROBE_H
#define CHARACTERIZE_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "measure/card.h"

struct par_team;

struct probe_ctx {
    struct par_team *team; /* all CPUs of the budget */
    int n_threads_max;
    int n_threads_min; /* fewer are not measured; 0 and 1: from one thread on */
    bool full; /* for the full card: every thread count and pair worth a measurement */
    double budget_s; /* time this probe may take */
    size_t
        buffer_bytes; /* memory read or written; 0: several times the last-level cache */
    struct measure_card_row *values;
    int n_values, max_values;
};

struct probe {
    const char *name;
    const char *help;
    bool full;  /* of the full card only; the quick one is what every run needs */
    bool bound; /* its values bound results: they must not spread, and are checked */
    int (*run)(struct probe_ctx *c);
};
extern const struct probe *const probes[];

/* The present state of the machine: the values of probe `name`, as it reports them for `how`, whose
 * `values` are not used; without a team, of all CPUs of the budget. *out: what measure/card.h
 * answers from, of this probe's values alone and not sealed; new reference, NULL on error.
 * ERR_NOTFOUND: no such probe. */
MUST int probe_now(json_t **out, const struct probe_ctx *how, const char *name);

struct machine_card_opts {
    const char *dir; /* of the cards; created when absent */
    bool full;  /* every probe, for a person's first look at a machine: about a minute.
                        Kept next to the quick card, which it does not replace, as
                        <host>-full.json */
    bool force; /* measure now, even if a card is kept */
    bool check; /* before a kept card is used, measure its bounds for some 2 s */
    bool any;   /* else use it, also one with bounds that are not trusted */
    bool accept_noise;   /* trust bounds whatever else the machine did */
    double budget_s;     /* of all probes; 0: 12, full 50 */
    size_t buffer_bytes; /* as in struct probe_ctx */
};

/* The machine card: the file that is kept, if it is of this machine, or measured now. A
 * bound is not trusted (measure_card_doubt()) where its trials spread by more than
 * MEASURE_CARD_SPREAD_MAX or other programs had most of the CPUs. A kept card with such a
 * bound, or whose check finds another value, is measured again, once, with a warning that
 * says why. *out: new reference. */
MUST int machine_card_get(json_t **out, const struct machine_card_opts *o);

#endif
