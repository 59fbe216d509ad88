/* experiments/load/load.h - when requests are sent.
 *
 * A process is one file in load/process/ ending in one `const struct load_process
 * load_process_<stem>`. Open loop: the intended times are fixed before the run from the
 * arrival seed alone, so that no answer of the system can shift them. Closed loop: a
 * fixed number of requests is kept outstanding and a request is intended at the moment
 * its slot became free. Threads: pure functions. */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"

/* Open loop: the lowest rate, one request in 11 days, and the latest arrival, a year after
 * the start. Nanoseconds of any arrival then fit 64 bits a hundred times over. */
#define LOAD_RATE_MIN_RPS  1e-6
#define LOAD_ARRIVAL_MAX_S (366 * 86400.0)

enum load_order { LOAD_ORDER_DATASET, LOAD_ORDER_SHUFFLE };
enum load_saturation { LOAD_SATURATION_OFF, LOAD_SATURATION_MARK, LOAD_SATURATION_END };

struct load_opts {
    char *process, *stages;
    int64_t concurrency;
    double rate_rps, burstiness, time_scale;
    int64_t n_requests, warmup_requests;
    double timeout_s, think_s;
    int64_t max_requests_outstanding;
    int order; /* enum load_order */
    double lateness_warn_ms;
    int saturation; /* enum load_saturation */
};
extern const struct opt_row load_opt_table[];

/* The section "seeds" of a job. */
struct load_seeds {
    int64_t arrival, sample, order, output;
};
extern const struct opt_row load_seeds_opt_table[];

/* When the requests of a data set arrived. */
struct load_trace {
    const double *arrival_s; /* [n], non-decreasing, from the first on; NULL: unknown */
    size_t n;
};

struct load_process {
    const char *name;
    const char *help;
    /* The options that this process reads, of those that not all do: words of
     * "concurrency rate_rps burstiness time_scale stages". */
    const char *reads;
    bool wants_trace;
    /* How many arrivals there are, where the options say so; NULL: as many as are wanted. */
    size_t (*count)(const struct load_opts *o, uint64_t seed);
    /* Fill arrival_s[0..n), non-decreasing, in seconds from the start. `trace` has times
     * where wants_trace. NULL: closed loop. */
    void (*arrivals)(const struct load_opts *o, uint64_t seed,
                     const struct load_trace *trace, double *arrival_s, size_t n);
};
extern const struct load_process *const load_processes[]; /* written by make */

/* ERR_NOTFOUND names the nearest. */
MUST int load_process_find(const char *name, const struct load_process **out);
/* The arrival times of n requests of an open loop, as of p->arrivals. ERR_LIMIT: the last
 * one is later than LOAD_ARRIVAL_MAX_S. ERR_ARG: the process wants a trace and there is
 * none. */
MUST int load_arrivals(const struct load_process *p, const struct load_opts *o,
                       uint64_t seed, const struct load_trace *trace, double *arrival_s,
                       size_t n);
/* Does this process read that option, of those that not all do? */
bool load_process_reads(const struct load_process *p, const char *option);
/* The options make sense together; `where` begins the error line. */
MUST int load_check(const struct load_opts *o, const char *where);

#endif
