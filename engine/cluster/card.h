/* cluster/card.h - a kind of machine: what it costs, draws, holds and sends.
 *
 * One file in cluster/machines/ is one machine, with the source of each number; `assumed` lists the
 * keys that no source states. Power is relative to a DGX-A100, as in Table V.
 * Paper: Splitwise, Tables I and V.   Threads: any. */
#ifndef CLUSTER_CARD_H
#define CLUSTER_CARD_H

#include "base/err.h"

#define CLUSTER_MACHINES_DIR "engine/cluster/machines"

struct cluster_card {
    char name[32];
    char hardware[32]; /* its name in the CSV of cluster_points_read() */
    char printed[16];  /* its name in cluster_points_printed() */
    double cost_per_hour_usd, power;
    double memory_gib; /* of all GPUs */
    double link_gbps, link_alpha_ms;
    double prompt_time_factor, token_time_factor; /* over the hardware's times */
};

/* `name`: of a file in CLUSTER_MACHINES_DIR, or a path (has a '/'). ERR_NOTFOUND: there is none.
 * ERR_FORMAT: file, key, what was expected and found. */
MUST int cluster_card_read(struct cluster_card *out, const char *name);

#endif
