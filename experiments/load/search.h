/* experiments/load/search.h - the highest arrival rate at which the objectives hold.
 *
 * Goodput is the highest rate at which at least `target_frac` of the requests meet the
 * objectives (DistServe's definition, and that of Sandwich 8.3). A trial measures that share
 * at one rate with one seed. From all trials so far a pure function names the next one, so
 * that the experiment, `testbed bench` and the tests take the same decisions:
 *   1. bracket: the rate grows until the objectives fail, or falls until they hold;
 *   2. bisection of the bracket, in the logarithm, until it is narrow enough;
 *   3. verification: both ends of the bracket are measured `n_verify` times. A rate holds if
 *      the share over the requests of all its trials reaches the target. An end that does
 *      not keep its verdict opens the bracket again.
 * Attainment need not fall with the rate on a real machine. The lowest rate that fails bounds
 * the answer, whatever holds above it. Seeds are searched one after the other, each from where
 * the one before it ended. Threads: pure functions. */
#ifndef LOAD_SEARCH_H
#define LOAD_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"
#include "experiments/load/load.h"

#define LOAD_SEARCH_SEEDS_MAX 64 /* more would only cost time */

/* The section "search" of a job. */
struct load_search_opts {
    bool goodput;
    double min_rps, max_rps, precision_frac, trial_s;
    int64_t seeds, verify, requests, max_trials;
};
extern const struct opt_row load_search_opt_table[];

/* The options fit this load: its process has a rate, and that is within the search's limits.
 * `where` begins the error line. */
MUST int load_search_check(const struct load_search_opts *s, const struct load_opts *load,
                           const char *where);

struct load_search {
    double first_rps;        /* where the first seed begins */
    double min_rps, max_rps; /* no rate outside is tried */
    double target_frac;
    double precision_frac; /* (high - low) / low at which the bisection ends */
    int n_seeds, n_verify, max_trials;
    int n_least; /* requests on which a rung of a ladder is decided (ladder.h) */
};

struct load_trial {
    double rate_rps;
    int seed;           /* from 0 */
    double within_frac; /* of its requests; NaN counts as 0 */
    double n_requests;  /* its weight */
    bool ended_early;   /* saturated (load.saturation = end): none counts as within */
    int entry;          /* of a ladder: whose */
};

/* Does this rate hold with this seed? Share over all its trials; NaN: it has none. */
double load_search_share(const struct load_trial *t, size_t n, double rate_rps, int seed);

enum load_search_state {
    LOAD_SEARCH_OPEN,   /* the search has not ended, or ran out of trials */
    LOAD_SEARCH_CLOSED, /* low holds, high fails, both are verified */
    LOAD_SEARCH_AT_MAX, /* max_rps holds: the goodput is at least low */
    LOAD_SEARCH_AT_MIN, /* min_rps fails: the goodput is below high */
};
struct load_bracket {
    double low_rps, high_rps; /* NaN: none */
    enum load_search_state state;
};
/* The bracket that the trials of one seed give. */
struct load_bracket load_search_bracket(const struct load_search *s,
                                        const struct load_trial *t, size_t n, int seed);

/* The next trial's rate and seed; false: the search has ended. */
bool load_search_next(const struct load_search *s, const struct load_trial *t, size_t n,
                      struct load_trial *next);

/* The result of the search. */
struct load_goodput {
    double rps; /* median over the seeds of the highest rate that holds */
    double low_rps,
        high_rps; /* the lowest rate that holds and the highest that fails, over
                                 the ends of all seeds' brackets; NaN: unknown */
    int seed;     /* whose rate `rps` is; of an even number the lower median */
    double
        trial_rps; /* the rate whose first trial of that seed stands for all: rps, or the
                         lowest that fails */
    int n_at_max, n_at_min, n_open; /* seeds in each of these states */
    char why[96];                   /* why rps is NaN, else "" */
};
void load_search_result(struct load_goodput *out, const struct load_search *s,
                        const struct load_trial *t, size_t n);

#endif
