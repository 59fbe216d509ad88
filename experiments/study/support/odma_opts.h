/* study/support/odma_opts.h - options of the study odma_replay. Included by it alone. */
#ifndef STUDY_ODMA_OPTS_H
#define STUDY_ODMA_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

struct opts {
    char *alloc, *predictor, *stream, *tokenizer, *quantiles, *change, *devices;
    double sigma, alpha, tau, tells, keep_frac, large_pool_frac, overflow;
    int bounds, route, lengths;
    bool primed, co_batch, migrate, raw, paper, detect, least, own_bounds, over_time,
        over_never;
    int64_t constant_tok, n_requests, n_learn, folds, clients, max_tok, budget_seqs,
        align_tok, block_tok, n_buckets, n_fixed, n_first, window, every, half_life,
        calibrate, patience, max_age, seed;
};

enum { LENGTHS_TOTAL, LENGTHS_OUTPUT };

extern const struct opt_row study_odma_rows[];

/* The job's options with the changes that it asks for. *to is the caller's, to be given back with
 * opt_free(), also after an error. */
MUST int study_odma_change(struct opts *to, const struct opts *o);

#endif
