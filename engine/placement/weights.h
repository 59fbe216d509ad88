/* placement/weights.h - packs the tensors of a file into one mapping, by all threads of the
 * team.   Threads: see below. */
#ifndef PLACEMENT_WEIGHTS_H
#define PLACEMENT_WEIGHTS_H

#include "model/state.h"
#include "placement/open.h"

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
