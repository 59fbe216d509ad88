/* The logits of the wanted rows. */
#include <math.h>
#include <string.h>

#include "step/step.h"

/* Cap the logits that this thread computed: rows [r_lo, r_hi), columns [lo, hi). */
static void cap(struct model_thread_ctx *w, int64_t r_lo, int64_t r_hi, int64_t lo,
                int64_t hi)
{
    float most = w->m->c.logit_softcap, *x;

    for (int64_t r = r_lo; r < r_hi; r++)
        for (int64_t c = lo; c < hi; c++) {
            x = w->step->logits + r * w->m->c.vocab + c;
            *x = most * tanhf(*x / most);
        }
}

/* Whole panels are stored directly in the caller's logits. A last panel of fewer than 16
 * columns is computed in scratch and copied. kern_gemm_reduce() can store only whole
 * panels, so this product is never split along K. */
static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model *m = w->m;
    const struct model_rows in = {.x = w->x,
                                  .ld = m->ld_x,
                                  .k = m->c.dim,
                                  .n = w->n_rows,
                                  .norm_w = m->out_norm,
                                  .norm_b = m->out_norm_bias};
    struct kern_gemm_job j = model_job(w, MODEL_MAT_HEAD, &m->head);
    struct model_thread_slot at = w->phase->thread_slots[w->self->id];
    bool tail = m->head_tail.n != KERN_PANEL;
    int64_t lo, hi, n_blocks;

    (void)op;
    j.a_packed = model_pack(w, &j, &in);
    j.c = w->step->logits;
    j.ldc = m->c.vocab;
    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, at.rank * w->n + at.id);
    lo = j.p_lo * KERN_PANEL;
    hi = j.p_hi * KERN_PANEL < m->c.vocab ? j.p_hi * KERN_PANEL : m->c.vocab;
    tail = tail && j.p_hi == m->head.n_panels && j.p_hi > j.p_lo;
    j.p_hi -= tail;
    kern_gemm_run(&j);
    n_blocks = kern_a_blocks(j.m, j.s.mr);
    if (tail) {
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
    if (m->c.logit_softcap != 0)
        cap(w, kern_a_row(j.m, n_blocks, j.i_lo), kern_a_row(j.m, n_blocks, j.i_hi), lo,
            hi);
    model_lap(w, MODEL_T_HEAD);
}

const struct model_op_kind model_op_lm_head = {.name = "lm_head",
                                               .help =
                                                   "RMSNorm, logits of the wanted rows",
                                               .reads = MODEL_V_X | MODEL_V_WANTED,
                                               .ends = MODEL_V_X | MODEL_V_WANTED,
                                               .gives = MODEL_V_LOGITS,
                                               .run = run};
