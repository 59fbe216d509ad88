/* experiments/study/support/tuning.h - runs policies on the shapes of one matrix, and
 * measures their choices again on fresh buffers, in turn. No policy is charged for that.
 * Threads: one caller; the team works. */
#ifndef STUDY_TUNING_H
#define STUDY_TUNING_H

#include "experiments/study/support/gemm.h"
#include "tune/policy.h"

#define STUDY_SHAPES_MAX 512

/* The shapes of a cell: one matrix, ascending m. */
struct study_shapes {
    struct tune_shape v[STUDY_SHAPES_MAX];
    int n;
    int mode;
};
/* matrix: text of study_matrix_parse(); ms: text of study_numbers_parse(), or NULL: n
 * drawn ones. The variant is that of the largest. */
MUST int study_shapes_make(struct study_shapes *out, const char *matrix, int mode,
                           const char *ms, int64_t n, int64_t m_max, int64_t seed);

/* v[n], ascending: different numbers of rows from 1 to m_max, as likely in each octave, drawn
 * with `seed` for the matrix `name`. ERR_LIMIT: there are not n, or n is above
 * STUDY_SHAPES_MAX. */
MUST int study_rows_draw(int64_t *v, int64_t n, int64_t m_max, int64_t seed,
                         const char *name);

/* The result of a policy. */
struct study_tuned {
    struct kern_schedule schedule[STUDY_SHAPES_MAX];
    struct tune_cost cost;
    double wall_s; /* of the policy's run(), its own thinking included */
};
MUST int study_tune(const char *policy, const struct tune_opts *o,
                    struct study_threads *t, const struct study_shapes *shapes,
                    struct study_tuned *out);
/* The same on a bench that is there already; shapes ascending in m. */
MUST int study_tune_on(struct tune_bench *b, const char *policy,
                       const struct tune_opts *o, int n_threads,
                       const struct tune_shape *shapes, int n, struct kern_schedule *out);

/* Time n candidates' schedules for every shape in turn, on buffers of their own:
 * seconds[i * n + k] is the median of candidate k for shape i. */
MUST int study_remeasure(struct study_threads *t, const struct study_shapes *shapes,
                         const struct study_tuned *const *candidates, int n, int rounds,
                         int64_t seed, double *seconds);

#endif
