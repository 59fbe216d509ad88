/* datasets/fit.h - the shape of a trace: what is shipped instead of the trace itself.
 *
 * A fit holds quantiles of prompt and output length, their Spearman rank correlation, and
 * the rate and variation of arrivals. Lengths are drawn through a Gaussian copula: two
 * normal numbers with Pearson correlation 2 sin(pi rho / 6), whose rank correlation is
 * rho, are turned to probabilities and then to lengths by the inverse of each marginal,
 * interpolated between quantiles in the logarithm. Gaps between arrivals are gamma
 * distributed. Threads: a fit is immutable once open. */
#ifndef DATASETS_FIT_H
#define DATASETS_FIT_H

#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

#define DATASET_FITS_DIR   "datasets/fits"
#define DATASET_FIT_POINTS 128

struct dataset_fit {
    char name[64];
    char path[256];
    int n_points;
    double at[DATASET_FIT_POINTS];         /* probability, 0 ... 1, rising */
    double prompt_tok[DATASET_FIT_POINTS]; /* quantiles, >= 1, not falling */
    double output_tok[DATASET_FIT_POINTS];
    double spearman;   /* of prompt and output, in [-1, 1] */
    double pearson;    /* of the copula's normals, from it */
    double rate_per_s; /* of arrivals; 0: the trace has no times */
    double gap_cv;     /* standard deviation of a gap / its mean */
};

/* `name`: a fit of DATASET_FITS_DIR, looked for below the working directory, or a path
 * (has a '/' or ends in ".json"). *out is the caller's; NULL on error. ERR_NOTFOUND: no
 * such fit, with the nearest name. ERR_FORMAT: the file breaks a rule. */
MUST int dataset_fit_open(struct dataset_fit **out, const char *name);
void dataset_fit_close(struct dataset_fit **f);

/* One request's lengths in tokens, each at least 1. */
void dataset_fit_draw(const struct dataset_fit *f, struct rng *r, int64_t *n_prompt,
                      int64_t *n_output);
/* Seconds from one arrival to the next. Defined when rate_per_s > 0. */
double dataset_fit_gap_s(const struct dataset_fit *f, struct rng *r);

/* The length at probability p in [0, 1] of a marginal [f->n_points]. */
double dataset_fit_quantile(const struct dataset_fit *f, const double *marginal,
                            double p);

#endif
