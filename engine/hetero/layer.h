/* hetero/layer.h - an MLP whose hidden units are sliced between the CPU and an accelerator, run.
 *
 * The hidden units are in three slices, CC first, then CG, then GG. A slice's way through the layer
 * depends on no other: y = sum over slices of (silu(x G^T) * (x U^T)) D. The accelerator has two
 * staging buffers for what is sent, and matrices follow each other as in the paper's schedule:
 * gate, up, down, each launched, sent and computed while the ones before are under way. In a prompt
 * it also computes CC for the last n_accel_tok tokens, from the CPU's own bytes (CG').
 * Paper: ScheInfer III-B, III-C, IV-B.   Threads: one owner. */
#ifndef HETERO_LAYER_H
#define HETERO_LAYER_H

#include "hetero/accel.h"

/* f32, row-major: a row for each hidden unit. Lent. */
struct hetero_mlp {
    const float *gate, *up, *down; /* [hidden, dim] */
    int64_t dim, hidden;
};

/* y[n_tok, dim] of x[n_tok, dim]. s->cg and s->gg are shares of hidden, in whole units: ERR_ARG.
 *   seconds  when both are ready, by the accelerator's clock and the machine's CPU rate
 * Errors of the accelerator. */
MUST int hetero_mlp_run(float *y, double *seconds, const struct hetero_mlp *mlp,
                        const float *x, int64_t n_tok, const struct hetero_slices *s,
                        const struct accel_kind *kind, const struct hetero_machine *m);

/* ---- for accelerators that compute on the host ---- */

/* As struct accel_gemm has it. */
void hetero_product(float *y, const float *x, const float *w, int64_t n_tok,
                    int64_t n_units, int64_t dim, bool down);
void hetero_swiglu(float *gate, const float *up, int64_t n);

#endif
