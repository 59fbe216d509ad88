/* model/act.h - memory for activations: laid out by counting first, mapped at once, and touched by
 * the threads that use it.   Threads: the one that opens. */
#ifndef MODEL_ACT_H
#define MODEL_ACT_H

#include "model/state.h"

/* Allocates from one mapping; with base == NULL it only counts bytes. */
struct model_arena {
    char *base;
    size_t used;
};
/* Each allocation begins on a page, so that no two threads write to the same page. */
#define MODEL_PAGE 4096

static inline void *model_take(struct model_arena *a, int64_t n, size_t size)
{
    a->used = (a->used + MODEL_PAGE - 1) & ~(size_t)(MODEL_PAGE - 1);
    a->used += (size_t)n * size;
    return a->base ? a->base + a->used - (size_t)n * size : NULL;
}

/* Memory for activations, shared with forked processes if the model is shared. Free it
 * with mem_unmap(). */
MUST void *model_map(const struct model *m, size_t bytes);
/* Touch every page, so that it is allocated on this thread's memory node and no request
 * waits for the kernel to zero it. */
void model_touch(void *p, size_t bytes);

/* Allocate the threads' scratch buffers and the rotary tables. */
MUST int model_act_open(struct model *m);

#endif
