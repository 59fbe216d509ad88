/* experiments/study/support/points.h - measured points of steps, for performance models, by the
 * name of where they come from:
 *
 *   MODEL:HARDWARE:N    of a published file: N is the degree of tensor parallelism
 *   printed:HARDWARE    what the paper prints (cluster/perf.h)
 *   form                made by DistServe's form at the published file's settings; a test of the
 *                       method, since that model fits them exactly
 *   FILE.csv            a profile: what the study step_profile measured, by
 *                       `testbed export --format csv-series`
 * Threads: one. */
#ifndef STUDY_POINTS_H
#define STUDY_POINTS_H

#include "cluster/perf.h"

#define STUDY_POINTS_FILE "splitwise_perf/perf_model.csv"
#define OPTION_POINTS_SOURCE(X, default_)                                                \
    X(STR, source, default_,                                                             \
      "Measured points: MODEL:HARDWARE:TP of the published file, printed:a100, "         \
      "printed:h100, form, or a FILE.csv.")
#define OPTION_POINTS_FILE(X)                                                            \
    X(STR, points, STUDY_POINTS_FILE, "The published file, also below $SANDWICH_DATA.",  \
      .unit = "FILE")

/* All rows of a source, repeats as they are.   *out  [n]; mem_free().
 * ERR_NOTFOUND: the file is not here, or does not have it. */
MUST int study_points_read(struct cluster_point **out, int *n, const char *source,
                           const char *file);
/* The kind of evidence of such points: "published", "model" or "measured". */
const char *study_points_evidence(const char *source);

/* The times of a point by a model. */
double study_points_prompt_ms(const struct cluster_perf *p,
                              const struct cluster_point *at);
double study_points_token_ms(const struct cluster_perf *p,
                             const struct cluster_point *at);

#endif
