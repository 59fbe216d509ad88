/* tune/space.h - the space of schedules that every policy chooses from.
 *
 * Extents are numbers clamped to a thread's part, so that two schedules with the same effect
 * are equal, and a slice stays the same for a larger M (where KERN_ALL would grow). Paper:
 * Sandwich 6. Threads: any; no state. */
#ifndef TUNE_SPACE_H
#define TUNE_SPACE_H

#include <stdbool.h>

#include "base/rng.h"
#include "tune/measure.h"

enum tune_dim { TUNE_M, TUNE_N, TUNE_K, TUNE_N_DIMS };

struct tune_mk {
    int mr, np;
};
#define TUNE_MKS_MAX (KERN_NP_MAX * 64)

/* The distinct micro-kernels for m rows. The driver cuts A into blocks of nearly equal
 * height, so all mr that give the same number of blocks are equivalent. The tallest
 * represents them, because it says most about a larger m. Ordered by sums in registers,
 * most first. Returns their number, at most TUNE_MKS_MAX. */
int tune_mks(const struct kern_variant *v, int64_t m, struct tune_mk *out);

struct tune_scheme {
    int pm, pn, pk;
};
#define TUNE_SCHEMES_MAX 270 /* the most ordered factorings of a number below 1025 */

/* All pm * pn * pk = n_threads; pk = 1 unless split_k. */
int tune_schemes(int n_threads, bool split_k, struct tune_scheme *out);
void tune_set_scheme(struct kern_schedule *s, struct tune_scheme x);

/* bm, bn or bk. */
int64_t *tune_extent(struct kern_schedule *s, enum tune_dim d);
/* One tile along d: mr rows, np panels, and along K some cache lines or whole units. */
int64_t tune_tile(const struct kern_schedule *s, const struct kern_mat *w,
                  enum tune_dim d);
/* The rows, panels and rows of K of the largest thread's part, in whole tiles' units. */
int64_t tune_part(const struct kern_schedule *s, const struct kern_mat *w, int64_t m,
                  enum tune_dim d);
/* Round every extent up to whole tiles of the driver and down to the part. */
void tune_clamp(struct kern_schedule *s, const struct kern_mat *w, int64_t m);
bool tune_same(const struct kern_schedule *a, const struct kern_schedule *b);

/* The largest slice that leaves n_threads tiles along every dimension: the paper's
 * literal rule, (128, 64, 64) with 2 threads gives (64, 32, 32). */
void tune_slice_limit(const int64_t dim[TUNE_N_DIMS], int n_threads,
                      int64_t limit[TUNE_N_DIMS]);
/* Does slice b leave enough tiles? literal: along every dimension; otherwise in the
 * product of M, N and, where K may be split, K, which also admits (64, 64, 64) there. */
bool tune_slice_parallel(const int64_t dim[TUNE_N_DIMS], const int64_t b[TUNE_N_DIMS],
                         int n_threads, bool literal, bool split_k);

/* Draw a schedule from the whole space, or change one choice of s. The result is clamped;
 * kern_schedule_check() may still refuse it. */
void tune_random(struct kern_schedule *s, const struct tune_shape *shape,
                 const struct kern_mat *w, int n_threads, bool split_k, struct rng *r);
void tune_mutate(struct kern_schedule *s, const struct tune_shape *shape,
                 const struct kern_mat *w, int n_threads, bool split_k, struct rng *r);

/* Bytes of the data caches one thread has: its own two levels and its share of the last
 * (common sizes where the CPU does not report them). */
void tune_caches(int n_threads, double bytes[3]);
double tune_flop(const struct tune_shape *s);
/* Bytes of an element of packed A, and of the weights. */
double tune_a_elem(const struct kern_variant *v);

#endif
