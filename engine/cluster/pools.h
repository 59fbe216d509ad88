/* cluster/pools.h - which machine of the three pools gets a task, and when a machine returns.
 *
 * A prompt goes to the machine of the prompt pool that the router chooses, tokens to one of the
 * token pool. Where that machine's load is above the threshold, the task goes to one of the mixed
 * pool by the same rule; where that is not possible either, one of the opposite pool gets it and
 * moves to the mixed pool. Where everything is above its threshold, the lesser of both.
 * The simulator and real machines (roles/) run this file.
 * Paper: Splitwise IV-A.   Threads: one owner. */
#ifndef CLUSTER_POOLS_H
#define CLUSTER_POOLS_H

#include <stdbool.h>

#include "cluster/router.h"

enum cluster_pool { CLUSTER_PROMPT, CLUSTER_TOKEN, CLUSTER_MIXED, CLUSTER_N_POOLS };
extern const char *const cluster_pool_names[]; /* NULL-terminated */

/* A machine as the scheduler sees it. Loads are those of the kind of the task. */
struct cluster_candidate {
    enum cluster_pool pool;
    int64_t known, actual;
    bool queued; /* requests wait on it */
};

struct cluster_pools {
    int n; /* machines */
    const struct cluster_router *router;
    struct rng rng;
    uint64_t n_choices[CLUSTER_N_POOLS];
    int *ids;                 /* [n] of the machines of a choice */
    int64_t *loads, *actual;  /* [n] theirs */
    struct cluster_choice of; /* the last choice; lent to who watches */
};

struct cluster_task {
    enum cluster_pool kind; /* CLUSTER_PROMPT or CLUSTER_TOKEN */
    int64_t threshold;
    bool needs_queue; /* above the threshold there is still room, unless requests wait */
};

struct cluster_chosen {
    int machine;
    int index; /* of the machine in the last choice */
    enum cluster_pool
        pool;           /* where it was found: in the opposite one it is to be moved */
    int64_t own_load;   /* of the machine chosen in the own pool; -1: it is empty */
    int64_t mixed_load; /* the same of the mixed pool, where it was tried */
};

MUST int cluster_pools_open(struct cluster_pools *out, int n_machines,
                            const struct cluster_router *router, uint64_t seed);
void cluster_pools_close(struct cluster_pools *p); /* also after an error of open */
/* m [n].   ERR_STATE: no machine is in a pool. */
MUST int cluster_pools_choose(struct cluster_pools *p, struct cluster_chosen *out,
                              const struct cluster_candidate *m,
                              const struct cluster_task *task);
/* A machine in the mixed pool that is of another kind returns when it has no task of the opposite
 * kind; when_idle: none at all.   n_tasks [2] by kind. */
bool cluster_pools_returns(enum cluster_pool home, enum cluster_pool pool,
                           const int64_t *n_tasks, bool when_idle);
enum cluster_pool cluster_pools_opposite(enum cluster_pool kind);

#endif
