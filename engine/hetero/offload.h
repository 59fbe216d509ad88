/* hetero/offload.h - a model's MLPs or experts in slices on the CPU and an accelerator, in the
 * engine's step (step/offload.h).
 *
 * What an accelerator that is not there would compute is computed here, and no time of it. So the
 * clock on the wall is wrong for those; hetero_offload_unreal_s() says by how much.
 * Paper: ScheInfer III, IV-B.   Threads: the model's owner. */
#ifndef HETERO_OFFLOAD_H
#define HETERO_OFFLOAD_H

#include "hetero/layer.h"
#include "hetero/times.h"
#include "ranks/phase.h"

struct hetero_offload;
struct hetero_offload_opts {
    const struct accel_kind *kind;
    struct accel_opts accel;
    /* [n_units] of each layer's hetero_n_mlps() MLPs, lent for the call */
    const struct hetero_units *units;
    int n_units;
    /* By its model the accelerator takes tokens of a prompt over; machines for one token and for
     * many. Lent for the call. */
    const struct hetero_machine *machines; /* [2] */
    bool no_takeover;
};
/* The MLPs of a layer: one, or those of its experts and, behind them, that of a shared expert. */
static inline int hetero_n_mlps(const struct model_config *c)
{
    return c->n_experts > 0 ? c->n_experts + (c->hidden > 0) : 1;
}
/* From now on steps of the phases compute so. Close it before the phases. ERR_UNSUPPORTED: a
 * phase has several ranks, or the model is deterministic. Errors of the accelerator. */
MUST int hetero_offload_open(struct hetero_offload **out, struct model *m,
                             struct model_phase **phases, int n_phases,
                             const struct hetero_offload_opts *o);
void hetero_offload_close(struct hetero_offload **o);
/* Seconds on the wall since it was opened that are not of a run with a real accelerator, less those
 * that such a run takes and this one did not. */
double hetero_offload_unreal_s(const struct hetero_offload *o);
/* The tokens that the accelerator took over in the last step in which an MLP of the first layer had
 * n_tok of them. */
int64_t hetero_offload_tokens(const struct hetero_offload *o, int64_t n_tok);

#endif
