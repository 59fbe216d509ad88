/* hetero/slices.h - the best slices of a layer.
 *
 * h is cut at multiples of h / n_units, since a slice holds whole panels and quantisation blocks.
 * As more is sent, the accelerator never finishes earlier and the CPU never later, apart from
 * jumps where a slice becomes empty. So the best share is one of both ends or next to where
 * both finish together, which bisection finds. That is the paper's search among edge points
 * (Eq. 13), without its three cases and exact for shares that can be had. Where CPU and link slow
 * each other, sending more can end earlier or later, so that all numbers are tried.
 * Paper: ScheInfer IV-A3, IV-B.   Threads: pure functions. */
#ifndef HETERO_SLICES_H
#define HETERO_SLICES_H

#include "hetero/times.h"

struct hetero_layer {
    struct hetero_machine machine;
    struct hetero_gemm gemm;
    int n_gemms;
    int n_units;     /* at least 1 */
    bool as_printed; /* hetero_times_of() */
};

double hetero_layer_s(const struct hetero_layer *l, int cg_units, int gg_units,
                      int64_t n_accel_tok);
/* The best number of units of CG, with gg_units of GG and no token taken over, in *cg_units: the
 * least of equally good ones. Returns the layer's time. */
double hetero_best_cg(const struct hetero_layer *l, int gg_units, int *cg_units);
/* The best number of tokens that the accelerator takes over from CC, with given slices. */
double hetero_best_tokens(const struct hetero_layer *l, int cg_units, int gg_units,
                          int64_t *n_accel_tok);

#endif
