/* baselines/gemm_child.h - one child of a GEMM library with one shape: what it must compute,
 * a run of it, and whether the result is right.
 * Threads: one caller. */
#ifndef GEMM_CHILD_H
#define GEMM_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "baselines/gemm_process.h"

#define GEMM_N_SAMPLES 96 /* of the result: one column in each of so many stripes */

struct gemm_case {
    char type[8]; /* of the weights: "f32" or "bf16" */
    bool bf16;
    int64_t m, n, k, n_copies;
    uint64_t seed;
    struct {
        int64_t row, column;
        double expected;
    } samples[GEMM_N_SAMPLES];
    double result_rms;
};
/* Fill in the samples; everything above them is the caller's. */
void gemm_case_sample(struct gemm_case *c);

struct gemm_child {
    struct gemm_process *process; /* NULL: none */
    int at;                       /* the setting */
    double error; /* RMS against float64, relative to the RMS of the result */
};

/* Have the child make the shape ready. ERR_UNSUPPORTED: it says why not. */
MUST int gemm_child_shape(struct gemm_child *t, const struct gemm_case *c,
                          double limit_s);
/* Compute once. A time that cannot be is ERR_FORMAT; errors of gemm_process_ask(). */
MUST int gemm_child_run(struct gemm_child *t, double limit_s, double *seconds);
/* Set the error of the last result. ERR_STATE: it is wrong. */
MUST int gemm_child_check(struct gemm_child *t, const struct gemm_case *c,
                          double limit_s);

#endif
