/* baselines/gemm_case.h - one product that a GEMM library must compute, and whether its result
 * is right. Threads: none of its own. */
#ifndef GEMM_CASE_H
#define GEMM_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"

#define GEMM_N_SAMPLES 96 /* of the result: one column in each of this many stripes */

struct gemm_case {
    char type[8]; /* of the weights: "f32" or "bf16" */
    bool bf16;
    int64_t m, n, k, n_copies, seed;
    struct {
        int64_t row, column;
        double expected;
    } samples[GEMM_N_SAMPLES];
    double result_rms;
};

/* Fill in the samples; everything above them is the caller's. */
void gemm_case_sample(struct gemm_case *c);
/* The request to the library's program (gemm/support/child.h). New reference. */
json_t *gemm_case_json(const struct gemm_case *c);
/* Compare the sampled elements with `values`. *error: RMS against float64, relative to the RMS
 * of the result. ERR_STATE: it is too large, or an element was not written (null).
 * ERR_FORMAT: not one number for each sample. */
MUST int gemm_case_check(const struct gemm_case *c, const json_t *values, double *error);

#endif
