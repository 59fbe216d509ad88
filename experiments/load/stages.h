/* experiments/load/stages.h - a load whose rate changes: stages one after the other, each at one
 * rate or on a ramp. Written as "1@60s,1-4@30s,4@60s": 60 s at one request a second, then in 30 s
 * from one to four, then 60 s at four.   Threads: pure functions. */
#ifndef LOAD_STAGES_H
#define LOAD_STAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define LOAD_STAGES_MAX 64

struct load_stage {
    double from_rps, to_rps; /* at its beginning and at its end */
    double begin_s, end_s;   /* from the start of the load */
};

/* Read `text`; `where` begins the error line. ERR_ARG: it is not such a list, a rate is below 0 or
 * above 1e6, a stage has no duration, or no request would come. ERR_LIMIT: too many stages, or
 * they end after LOAD_ARRIVAL_MAX_S. */
MUST int load_stages_read(struct load_stage out[LOAD_STAGES_MAX], int *n,
                          const char *text, const char *where);
/* The expected number of arrivals before t_s. */
double load_stages_expected(const struct load_stage *v, int n, double t_s);
/* Poisson arrivals of these rates, from the seed: the time of each, in arrival_s[0..max), and how
 * many come before the end of the last stage, which may be more than max. Those after the end come
 * at its last rate, or at its mean rate if that is 0. */
size_t load_stages_arrivals(const struct load_stage *v, int n, uint64_t seed,
                            double *arrival_s, size_t max);

#endif
