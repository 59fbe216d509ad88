/* model/weights_fill.h - the weights' mapping filled with what the file holds, once, by the team. */
#ifndef MODEL_WEIGHTS_FILL_H
#define MODEL_WEIGHTS_FILL_H

#include "model/impl.h"

struct format_filling {
    struct model *m; /* laid out, its pages bound */
    const struct format_file *f;
    const struct model_opts *o;
    int64_t done_bytes, all_bytes; /* thread 0 writes */
};
/* For par_team_run() of the whole team; arg: the struct. Each thread packs its share of
 * what the owners on its node own, or nothing (struct model_helper). */
void model_weights_fill(void *arg, struct par_self *self);

#endif
