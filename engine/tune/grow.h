/* tune/grow.h - grows a computation slice by measurement: fast start and finetune.
 *
 * Fast start grows like TCP: a step along a dimension doubles with every success, and the
 * first step that does not help is rolled back and ends that dimension. It also ends
 * where a larger slice would leave too few tiles for all threads. Finetune continues with
 * single tiles along the dimension that helps most.   Paper: Sandwich 3.2, 6. */
#ifndef TUNE_GROW_H
#define TUNE_GROW_H

#include "tune/search.h"

/* The limit that leaves work for all threads; see tune_slice_parallel(). */
struct tune_bound {
    int64_t dim[TUNE_N_DIMS]; /* rows, panels, rows of K of the whole product */
    int n_threads;
    bool literal, split_k;
};

/* A shape like s with only as many columns as a trial of about ten milliseconds on one thread
 * needs, and always enough to grow a slice. */
void tune_trial_shape(const struct tune_shape *s, const struct kern_mat *w,
                      struct tune_shape *out);
/* A slice of one tile of the micro-kernel, on one thread. */
void tune_first_tile(const struct tune_search *q, struct tune_mk mk,
                     struct kern_schedule *s);

/* Improve s in place, on n_threads threads, for the shape on the bench. *seconds: its time at the
 * end, never above that of its start; infinite when the start is not legal. bound may be NULL.
 * constant_step: one tile a step (scale-up as Roller does it). */
MUST int tune_fast_start(struct tune_search *q, struct kern_schedule *s, int n_threads,
                         const struct tune_bound *bound, bool constant_step,
                         double *seconds);
MUST int tune_finetune(struct tune_search *q, struct kern_schedule *s, int n_threads,
                       double *seconds);

#endif
