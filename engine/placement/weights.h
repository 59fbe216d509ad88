/* placement/weights.h - packs the tensors of a file into one mapping, by all threads of the
 * team.   Threads: see below. */
#ifndef PLACEMENT_WEIGHTS_H
#define PLACEMENT_WEIGHTS_H

#include <stdatomic.h>

#include "format/fill.h"
#include "model/state.h"
#include "placement/open.h"

/* The tensors that the layer's i-th matrix is packed from; returns how many. 0: it has none. */
int model_mat_tensors(const struct model *m, const struct format_file *f, int layer,
                      int i, const struct format_tensor *out[3]);

/* The first of two or more vectors of a layer that are packed as they are, in their order behind
 * the biases of Q, K and V: where their address is in the layer. FORMAT_N_ROLES ends the list. */
extern const struct model_layer_vector {
    enum format_role role;
    size_t at;
} model_layer_vectors[];
static inline float **model_layer_vector(struct model_layer *l, int i)
{
    return (float **)((char *)l + model_layer_vectors[i].at);
}

struct format_filling {
    struct model *m; /* laid out, its pages bound */
    const struct format_file *f;
    const struct model_opts *o;
    /* Thread 0 writes. ahead: the next matrix that is not asked for, in the order of packing, and
     * the file's bytes that are asked for and not packed. */
    int64_t done_bytes, all_bytes, ahead, ahead_bytes;
    atomic_llong read_ns, pack_ns; /* of all threads */
};
/* For par_team_run() of the whole team; arg: the struct. Each thread packs its share of
 * the weights whose owners are on its node, or nothing (struct model_helper). */
void model_weights_fill(void *arg, struct par_self *self);

#endif
