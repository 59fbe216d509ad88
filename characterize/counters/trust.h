/* characterize/counters/trust.h - which events can be trusted: work whose count is known
 * from arithmetic, compared with what the counter reports.
 *
 * Threads: the caller's one; no other work should run meanwhile. */
#ifndef COUNTERS_TRUST_H
#define COUNTERS_TRUST_H

#include <jansson.h>

#include "characterize/counters/counters.h"

enum counters_verdict {
    COUNTERS_TRUSTED,
    COUNTERS_OFF,        /* counted, and not what arithmetic says */
    COUNTERS_UNAVAILABLE /* not counted: `why` */
};

struct counters_trust {
    char provider[16], event[COUNTERS_NAME_MAX];
    const char *work; /* "read 256 MiB in order" */
    /* ratio = counted / expected is trusted in [low, high]. */
    double expected, counted, ratio, low, high;
    enum counters_verdict verdict;
    char why[192]; /* unavailable: reason and remedy */
};

#define COUNTERS_TRUST_MAX 32

/* Run every check; *n rows of `out`. ERR_NOMEM: the work needs some 256 MiB. */
MUST int counters_trust_run(struct counters_trust out[COUNTERS_TRUST_MAX], int *n);
/* For records: {"n_trusted": .., "n_off": .., "n_unavailable": .., "events":
 * [{...}]}; a missing number is null. A new reference. */
MUST int counters_trust_json(const struct counters_trust *t, int n, json_t **out);

#endif
