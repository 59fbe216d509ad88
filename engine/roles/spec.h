/* roles/spec.h - which machines there are, and each kind's options: --roles.
 *
 *   prompt=1,token=2            how many of each kind
 *   prompt=1:threads=3,token=1:threads=1:kv_alloc=paged,mixed=1
 *                               an option of the engine, by its key, for all of a kind
 * Threads: pure functions. */
#ifndef ROLES_SPEC_H
#define ROLES_SPEC_H

#include "cluster/pools.h"
#include "serve/serve.h"

#define ROLES_MACHINES_MAX 16 /* of each kind */
#define ROLES_MACHINES_ALL (CLUSTER_N_POOLS * ROLES_MACHINES_MAX)

struct roles_spec {
    int n[CLUSTER_N_POOLS]; /* machines of each kind */
    struct serve_opts
        engine[CLUSTER_N_POOLS]; /* of each kind, with strings of their own */
};

/* *base: the options that no kind has of its own. ERR_ARG: what is wrong in `text`. The spec is
 * given back in any case. */
MUST int roles_spec_parse(struct roles_spec *out, const char *text,
                          const struct serve_opts *base);
void roles_spec_free(struct roles_spec *s);
/* Divide n_cpus CPUs among n machines: machine i gets [lo[i], lo[i + 1]). One with threads gets as
 * many, the others divide the rest in equal parts. false: there are too few, and all share all.
 *   threads [n] 0: not given     lo [n + 1] */
bool roles_divide_cpus(int *lo, const int64_t *threads, int n, int n_cpus);

#endif
