/* model/choose.h - the choice of GEMM variants by number of rows.
 *
 * Under KERN_RELAXED several variants qualify and none is always the fastest: the BF16 dot
 * product runs at full rate on one processor and at half the f32 rate on another, and a
 * variant that does work once for all rows needs enough rows. So they are timed. The engine
 * when it opens a model, `sandwich tune`, the evaluators of plans and the studies all use
 * this function with the same arguments, so what is tuned is what runs. Threads: one caller. */
#ifndef MODEL_CHOOSE_H
#define MODEL_CHOOSE_H

#include "kernels/kern.h"

struct model_variants {
    /* Fewer than small_m_rows rows are multiplied by small_m, others by large_m. 0: the two
     * are one. */
    const struct kern_variant *small_m, *large_m;
    int64_t small_m_rows;
    char note[160]; /* what was measured, for people; "" where nothing was */
};

/* For matrices of this type, timed by one thread on one of n columns and k rows: for a
 * model, its QKV as model_shapes() gives it. The variant of kern_table_choose() stays
 * where no other one is surely faster; it is the answer under KERN_EXACT and where this
 * CPU has plain C only. ERR_NOMEM. */
MUST int model_variants_choose(struct model_variants *out, enum kern_type type,
                               enum kern_precision precision, int64_t n, int64_t k);

static inline const struct kern_variant *model_variants_at(const struct model_variants *v,
                                                           int64_t rows)
{
    return rows < v->small_m_rows ? v->small_m : v->large_m;
}

#endif
