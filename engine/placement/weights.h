/* placement/weights.h - packs the tensors of a file into one mapping, by all threads of the
 * team.   Threads: see below. */
#ifndef PLACEMENT_WEIGHTS_H
#define PLACEMENT_WEIGHTS_H

#include "model/state.h"
#include "placement/open.h"

/* The tensors that the layer's i-th matrix is packed from; returns how many. 0: it has none. */
int model_mat_tensors(const struct model *m, const struct format_file *f, int layer,
                      int i, const struct format_tensor *out[3]);

struct format_filling {
    struct model *m; /* laid out, its pages bound */
    const struct format_file *f;
    const struct model_opts *o;
    int64_t done_bytes, all_bytes; /* thread 0 writes */
};
/* For par_team_run() of the whole team; arg: the struct. Each thread packs its share of
 * the weights whose owners are on its node, or nothing (struct model_helper). */
void model_weights_fill(void *arg, struct par_self *self);

#endif
