/* hetero/layer.h - MLPs whose hidden units are sliced between the CPU and an accelerator, run.
 *
 * The hidden units are in three slices, CC first, then CG, then GG. A slice's way through the layer
 * depends on no other: y = sum over slices of (silu(x G^T) * (x U^T)) D. A slice is whole units of
 * D, contiguous bytes of the packed matrices, as a rank's share is. The accelerator has two staging
 * buffers for what is sent, and three products of equal size follow each other as in the paper's
 * schedule: half of gate and up, which are packed together, the other half, down; each launched,
 * sent and computed while the ones before are under way. In a prompt it also computes CC for the
 * last n_accel_tok tokens, from the CPU's own bytes (CG').
 * Paper: ScheInfer III-B, III-C, IV-B.   Threads: one owner. */
#ifndef HETERO_LAYER_H
#define HETERO_LAYER_H

#include "hetero/accel.h"
#include "par/team.h"

#define HETERO_N_GEMMS 3

/* gate_up: pairs of panels, [2 hidden, dim]; down: [dim, hidden], split in units along hidden.
 * Lent. */
struct hetero_mlp {
    struct kern_mat gate_up, down;
};
static inline int hetero_mlp_units(const struct hetero_mlp *m)
{
    return (int)m->down.n_units;
}
/* Units [lo, hi), as a layer of its own. lo < hi. */
void hetero_mlp_slice(struct hetero_mlp *out, const struct hetero_mlp *m, int lo, int hi);

/* The units of an MLP that are in CG and in GG; CC has those that are left. */
struct hetero_units {
    int cg, gg;
};

/* All MLPs of a model on one accelerator: one of each layer, or its experts. They are called
 * layers here, since each runs as one. */
struct hetero_device;
struct hetero_device_opts {
    const struct accel_kind *kind;
    struct accel_opts accel;
    const struct hetero_mlp *layers;  /* [n_layers], lent until the device is closed */
    const struct hetero_units *units; /* [n_layers], lent for the call */
    int n_layers;
    int64_t max_tok, ld; /* of a layer; floats from a row of x and of y to the next */
    int64_t max_rows; /* of x and y in a step, which several layers divide; 0: max_tok */
};
/* Copies GG. ERR_ARG: a layer has fewer units. Errors of the accelerator. */
MUST int hetero_device_open(struct hetero_device **out,
                            const struct hetero_device_opts *o);
void hetero_device_close(struct hetero_device **d);
/* Does the accelerator compute anything of the layer for n_accel_tok tokens? */
bool hetero_device_has(const struct hetero_device *d, int layer, int64_t n_accel_tok);
/* Send x[n_rows, ld], which stays as it is until hetero_device_end()
 * or hetero_device_take(). */
MUST int hetero_device_send(struct hetero_device *d, const float *x, int64_t n_rows);
/* Rows of x and y that a layer has, of which the accelerator takes the last n_accel over from
 * CC. */
struct hetero_rows {
    int64_t first, n, n_accel;
};
/* Give the accelerator its slices of the layer. Returns while it works; layers may follow each
 * other. */
MUST int hetero_device_begin(struct hetero_device *d, int layer, struct hetero_rows r);
/* The first of a layer's rows for which the accelerator computes anything. */
int64_t hetero_device_from(const struct hetero_device *d, int layer,
                           struct hetero_rows r);
/* The results that the accelerator computed since it was given the first layer: *y [rows, ld], of
 * which those that a layer has a part of are set; lent until the next call. *seconds: of
 * accel_kind.finish(), with the way back of the result. */
MUST int hetero_device_take(struct hetero_device *d, const float **y, double *seconds);
/* Add it to y[rows, ld] where one layer was given. */
MUST int hetero_device_end(struct hetero_device *d, float *y, double *seconds);
/* Wait for all that was given. */
MUST int hetero_device_wait(struct hetero_device *d, double *seconds);

/* How a layer ran. Without real time the CPU's is that of the machine's model. */
struct hetero_run {
    double seconds; /* when both are ready; x is there before, y stays where it is */
    double accel_s, cpu_s; /* when each is */
};
/* y[n_tok, ld] of x[n_tok, ld] for one layer, on a device opened for it alone. The CPU's slices are
 * computed by the team's first n_threads threads; NULL: by the caller.
 * Errors as above; ERR_ARG: more units or tokens than there are. */
MUST int hetero_mlp_run(float *y, struct hetero_run *out,
                        const struct hetero_device_opts *o, const float *x, int64_t n_tok,
                        int64_t n_accel_tok, struct par_team *team, int n_threads);

#endif
