/* experiments/study/support/schedules.h - schedules searched for one number of rows after
 * the other, as an engine's tuner does it: what was found for fewer rows of a matrix is
 * known to the next search, which begins there.   Threads: one caller; the bench's team works. */
#ifndef STUDY_SCHEDULES_H
#define STUDY_SCHEDULES_H

#include "base/text.h"
#include "experiments/study/support/gemm.h"
#include "tune/policy.h"

#define STUDY_MATRICES_MAX 64
#define STUDY_ROWS_MAX     64

/* The schedules found for each matrix; all zero at first. */
struct study_schedules {
    struct study_known {
        char key[160];
        struct tune_shape shapes[STUDY_ROWS_MAX]; /* ascending in m */
        struct kern_schedule s[STUDY_ROWS_MAX];
        int n;
    } all[STUDY_MATRICES_MAX];
    unsigned next;
};

/* Search the schedule of `shape` by o->policy, from what is known for fewer rows under the
 * same key, and keep it. *cost: of this search. Leaves the bench ready for the shape. */
MUST int study_schedules_search(struct study_schedules *k, struct tune_bench *b,
                                const char *key, const struct tune_opts *o, int n_threads,
                                const struct tune_shape *shape, struct kern_schedule *out,
                                struct tune_cost *cost);

/* Properties of the shape under its schedule that may be why another library is faster there:
 * "few rows: a micro-kernel takes 14; split along K in units of 64 rows".
 * *out, all zero: a text that ends with a NUL, empty where nothing is; text_fini(). */
void study_schedule_particulars(const struct tune_shape *shape, const struct kern_mat *w,
                                const struct kern_schedule *s, double seconds,
                                struct text *out);

#endif
