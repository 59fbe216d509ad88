/* model/choose.h - the choice of GEMM variants by number of rows.
 *
 * Where several variants qualify none is always the fastest: the BF16 dot product runs at full
 * rate on one processor and at half the f32 rate on another, and a variant that does work once for
 * all rows, or multiplies tiles of 16, needs enough rows. So they are timed, for three ranges of
 * rows. The engine when it opens a model, `sandwich tune`, the evaluators of plans and the studies
 * all use this function with the same arguments, so what is tuned is what runs.
 * Threads: one caller. */
#ifndef MODEL_CHOOSE_H
#define MODEL_CHOOSE_H

#include "kernels/kern.h"

#define MODEL_RANGES 3
/* Range i is of fewer rows than this, and of no fewer than the range before it ends with. */
static const int64_t model_range_end[MODEL_RANGES] = {8, 64, INT64_MAX};

struct model_variants {
    const struct kern_variant *v[MODEL_RANGES]; /* those of neighbours may be one */
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
    int i = 0;

    while (rows >= model_range_end[i] && i < MODEL_RANGES - 1)
        i++;
    return v->v[i];
}

#endif
