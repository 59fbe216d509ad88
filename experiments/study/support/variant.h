/* experiments/study/support/variant.h - the GEMM variant that the engine would take.
 *
 * Where nothing may be rounded there is one; relaxed, those that qualify are timed, as the
 * engine does when it opens a model.   Threads: one caller; the bench's team works. */
#ifndef STUDY_VARIANT_H
#define STUDY_VARIANT_H

#include "experiments/study/support/gemm.h"

/* The variant the engine takes where nothing may be rounded. */
const struct kern_variant *study_variant_exact(int mode);

/* What the engine takes for `mode`: `small_m` below small_m_rows rows, else `many`. */
struct study_variants {
    const struct kern_variant *small_m, *many;
    int64_t small_m_rows;
};
/* Where several qualify they are timed on the matrix of s with 4, 16 and 64 rows, as the
 * engine does when it opens a model; otherwise the bench, which may be NULL, is left as it
 * is. */
MUST int study_variants_choose(struct study_variants *out, struct tune_bench *b, int mode,
                               int n_threads, const struct tune_shape *s);
const struct kern_variant *study_variant_at(const struct study_variants *v, int64_t m);

/* Choices that were made, by mode and matrix; all zero at first. */
#define STUDY_CHOICES_MAX 64
struct study_choices {
    struct study_choice {
        char key[160];
        struct study_variants v;
    } all[STUDY_CHOICES_MAX];
    unsigned next;
};
/* That for (mode, matrix), made now if it was not made before. Sets s->v for s->m and
 * leaves the bench ready for s. */
MUST int study_choices_apply(struct study_choices *c, struct tune_bench *b, int mode,
                             const char *matrix, int n_threads, struct tune_shape *s);

#endif
