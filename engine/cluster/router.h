/* cluster/router.h - which of several machines gets a request.
 *
 * One file in cluster/router/ ends in one `const struct cluster_router cluster_router_<stem>`. A
 * router sees what the cluster's scheduler knows: loads as they were last reported, plus what it
 * has assigned since. Only `oracle` reads the machines' present state.
 * Paper: Splitwise IV-A.   Threads: stateless but for the choice's own counters. */
#ifndef CLUSTER_ROUTER_H
#define CLUSTER_ROUTER_H

#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

/* A machine's load, in one of these. */
enum cluster_load_kind {
    CLUSTER_LOAD_REQUESTS,      /* not finished */
    CLUSTER_LOAD_PROMPT_TOK,    /* prompt tokens not yet computed */
    CLUSTER_LOAD_SEQUENCES,     /* that it decodes, or will */
    CLUSTER_LOAD_REMAINING_TOK, /* tokens that these will still generate */
    CLUSTER_LOAD_KV_TOK,        /* tokens of memory for keys and values in use */
    CLUSTER_LOAD_PENDING_TOK, /* prompt_tok + sequences: each of these has one pending */
    CLUSTER_N_LOADS
};

struct cluster_choice {
    int n;                 /* candidates, at least 1 */
    const int *machines;   /* [n] ascending */
    const int64_t *loads;  /* [n] as known to the scheduler */
    const int64_t *actual; /* [n] at this moment */
    struct rng *rng;
    uint64_t *n_choices; /* the router's count, increased by it where it wants */
};

struct cluster_router {
    const char *name, *help;
    int (*choose)(const struct cluster_choice *c); /* an index below n */
};
extern const struct cluster_router *const cluster_routers[];
MUST int cluster_router_find(const char *name, const struct cluster_router **out);

#endif
