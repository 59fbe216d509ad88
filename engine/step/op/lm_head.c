/* The logits of the wanted rows. */
#include <string.h>

#include "step/step.h"

/* Whole panels are stored directly in the caller's logits. A last panel of fewer than 16
 * columns is computed in scratch and copied. kern_gemm_reduce() can store only whole
 * panels, so this product is never split along K. */
static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model *m = w->m;
    const struct model_rows in = {
        .x = w->x, .ld = m->ld_x, .k = m->c.dim, .n = w->n_rows, .norm_w = m->out_norm};
    struct kern_gemm_job j = model_job(w, MODEL_MAT_HEAD, &m->head);
    struct model_thread_slot at = w->phase->thread_slots[w->self->id];
    bool tail = m->head_tail.n != KERN_PANEL;

    (void)op;
    j.a_packed = model_pack(w, &j, &in);
    j.c = w->step->logits;
    j.ldc = m->c.vocab;
    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, at.rank * w->n + at.id);
    tail = tail && j.p_hi == m->head.n_panels && j.p_hi > j.p_lo;
    j.p_hi -= tail;
    kern_gemm_run(&j);
    if (tail) {
        int64_t n_blocks = kern_a_blocks(j.m, j.s.mr);

        j.w = &m->head_tail;
        j.p_lo = 0, j.p_hi = 1;
        j.c = w->own->tail;
        j.ldc = KERN_PANEL;
        kern_gemm_run(&j);
        for (int64_t r = kern_a_row(j.m, n_blocks, j.i_lo);
             r < kern_a_row(j.m, n_blocks, j.i_hi); r++)
            memcpy(w->step->logits + (r + 1) * m->c.vocab - m->head_tail.n,
                   w->own->tail + r * KERN_PANEL, (size_t)m->head_tail.n * sizeof(float));
    }
    model_lap(w, MODEL_T_HEAD);
}

const struct model_op_kind model_op_lm_head = {.name = "lm_head",
                                               .help =
                                                   "RMSNorm, logits of the wanted rows",
                                               .reads = MODEL_V_X | MODEL_V_WANTED,
                                               .ends = MODEL_V_X | MODEL_V_WANTED,
                                               .gives = MODEL_V_LOGITS,
                                               .run = run};
