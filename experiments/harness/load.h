/* experiments/harness/load.h - when requests are sent.
 *
 * A process is one file in load/ ending in one `const struct load_process
 * load_process_<stem>`. Open loop: the intended times are fixed before the run from the
 * arrival seed alone, so that no answer of the system can shift them. Closed loop: a
 * fixed number of requests is kept outstanding and a request is intended at the moment
 * its slot became free. Threads: pure functions. */
#ifndef HARNESS_LOAD_H
#define HARNESS_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"

enum load_order { LOAD_ORDER_DATASET, LOAD_ORDER_SHUFFLE };

struct load_opts {
    char *process;
    int64_t concurrency;
    double rate_rps;
    int64_t n_requests, warmup_requests;
    double timeout_s;
    int64_t max_requests_outstanding;
    int order; /* enum load_order */
    double lateness_warn_ms;
};
extern const struct opt_row load_opt_table[];

struct load_process {
    const char *name;
    const char *help;
    /* Fill arrival_s[0..n), non-decreasing, in seconds from the start. NULL: closed loop.
     */
    void (*arrivals)(const struct load_opts *o, uint64_t seed, double *arrival_s,
                     size_t n);
};
extern const struct load_process *const load_processes[]; /* written by make */

/* ERR_NOTFOUND names the nearest. */
MUST int load_process_find(const char *name, const struct load_process **out);
/* The options make sense together; `where` begins the error line. */
MUST int load_check(const struct load_opts *o, const char *where);

#endif
