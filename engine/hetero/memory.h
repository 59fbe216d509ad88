/* hetero/memory.h - which share of which layer stays on the accelerator, within a budget.
 *
 * A layer has a time for each number of units that stay there. Greedily, the change that saves most
 * time per byte comes first, until none that saves fits (Eq. 14). Time is not convex in the
 * share, since an empty slice saves a launch, so the greedy assignment can miss the best one, which
 * the exact search finds.   Paper: ScheInfer IV-A4.   Threads: pure functions. */
#ifndef HETERO_MEMORY_H
#define HETERO_MEMORY_H

#include <stdint.h>

#include "base/err.h"

struct hetero_share {
    int64_t unit_bytes;
    const double *layer_s; /* [n_units + 1] the layer's time by units that stay */
};

/* units[j]: of layer j; *sum_s: of the layers' times. budget_bytes >= 0. ERR_NOMEM. */
MUST int hetero_assign_greedy(int *units, double *sum_s,
                              const struct hetero_share *layers, int n_layers,
                              int n_units, int64_t budget_bytes);
/* Whole layers only, in their order, as many as fit and save time. */
MUST int hetero_assign_whole(int *units, double *sum_s, const struct hetero_share *layers,
                             int n_layers, int n_units, int64_t budget_bytes);
/* The least sum there is. Time and memory in proportion to the budget in units of the smallest
 * unit_bytes, of which each other has to be a multiple: ERR_ARG. */
MUST int hetero_assign_exact(int *units, double *sum_s, const struct hetero_share *layers,
                             int n_layers, int n_units, int64_t budget_bytes);

#endif
