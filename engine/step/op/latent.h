/* step/op/latent.h - the products of single heads, of latent attention.   Threads: see step.h. */
#ifndef STEP_OP_LATENT_H
#define STEP_OP_LATENT_H

#include "step/step.h"

/* c [n_rows, ldc] = in * the columns of head h, the rank's h-th, of a matrix that has one head's
 * behind another's. The calling thread computes all of it. */
static inline void latent_head(struct model_thread_ctx *w, enum model_mat which,
                               int layer, int h, const struct model_rows *in, float *c,
                               int64_t ldc)
{
    const struct kern_mat *all = &w->rank->layers[layer].mats[which];
    int64_t panels = all->n_panels / (w->rank->shard.q_hi - w->rank->shard.q_lo);
    struct kern_gemm_job j;
    struct kern_mat head;
    int64_t n_blocks;
    void *packed = w->rank->head_packed + (size_t)w->id * w->rank->head_packed_bytes;

    model_panels_of(&head, all, h * panels, (h + 1) * panels);
    j = model_job_of(w, which, &head, in->n);
    j.s.pm = j.s.pk = j.s.pn = 1;
    j.scratch = w->own->gemm;
    n_blocks = kern_a_blocks(in->n, j.s.mr);
    for (int64_t b = 0; b < n_blocks; b++)
        model_pack_block(w, &j, packed, in, b, n_blocks);
    j.a_packed = packed;
    j.c = c;
    j.ldc = ldc;
    kern_gemm_part(&j, 1, 0);
    kern_gemm_run(&j);
}

#endif
