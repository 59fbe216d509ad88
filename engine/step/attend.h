/* step/attend.h - what the operator attention_by calls in place of the engine's attention, so that
 * studies can time other ways to compute it. Threads: see below. */
#ifndef STEP_ATTEND_H
#define STEP_ATTEND_H

#include "model/model.h"

/* The attention of a layer, computed in another way than by the engine's operator. */
struct model_attend_args {
    const struct model_chunk
        *chunk; /* the step's only one; its keys and values are stored */
    int layer, n_heads, group, head_dim; /* `group`: query heads per KV head */
    const float *q; /* rotated: head h of token i at q + i q_stride + h / group q_unit +
                       h % group head_dim */
    float *out; /* to be written: head h of token i at out + i out_stride + h head_dim */
    int64_t q_stride, q_unit, out_stride;
    float scale; /* of the scores */
};
/* All threads of the phase call it at once; they may meet at par_barrier(). */
typedef void (*model_attend_fn)(void *ctx, const struct model_attend_args *a,
                                struct par_self *self);
/* The ctx of an operator attention_by (step/op.h). */
struct model_attend_by {
    model_attend_fn fn;
    void *ctx;
};

#endif
