/* experiments/study/support/card.h - a full machine card as numbers and curves of a cell,
 * and what root would see in addition.   Threads: one. */
#ifndef STUDY_CARD_H
#define STUDY_CARD_H

#include "cpu/cpu.h"
#include "experiments/load/study.h"
#include "topo/machine.h"

/* Curves: bandwidth by threads, latency by working set, blocks, collectives, pairs of CPUs,
 * pairs of memory nodes. What the card lacks is NaN in the curve. */
MUST int study_card_curves(struct study_cell *c, const json_t *card,
                           const struct cpu_budget *b, const struct topo_machine *m);

/* "hardware counters (kernel.perf_event_paranoid is 3); ..." of this machine now. */
void study_card_root(char *out, size_t n);

#endif
