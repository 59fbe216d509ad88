/* experiments/study/support/variant.h - the GEMM variant that the engine would take.
 *
 * Where nothing may be rounded there is one; relaxed, those that qualify are timed, as the
 * engine does when it opens a model.   Threads: one caller. */
#ifndef STUDY_VARIANT_H
#define STUDY_VARIANT_H

#include "experiments/study/support/gemm.h"
#include "model/choose.h"

/* The variant the engine takes where nothing may be rounded. */
const struct kern_variant *study_variant_exact(int mode);

/* Set s->v to what the engine takes for `mode` and the matrix and rows of s. */
MUST int study_variant_choose(struct tune_shape *s, int mode);

/* Choices that were made, by mode and matrix; all zero at first. */
#define STUDY_CHOICES_MAX 64
struct study_choices {
    struct study_choice {
        char key[160];
        struct model_variants v;
    } all[STUDY_CHOICES_MAX];
    unsigned next;
};
/* That for (mode, matrix), made now if it was not made before. Sets s->v for s->m and
 * leaves the bench ready for s. */
MUST int study_choices_apply(struct study_choices *c, struct tune_bench *b, int mode,
                             const char *matrix, struct tune_shape *s);

#endif
