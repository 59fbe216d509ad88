/* cli/tune.h - what `sandwich tune` is asked to tune, as jobs: the rows of one
 * matrix that one kernel variant computes. */
#ifndef ENGINE_MAIN_TUNE_H
#define ENGINE_MAIN_TUNE_H

#include "model/model.h"
#include "tune/measure.h"

#define CLI_TUNE_JOBS_MAX 64

struct cli_tune_ask {
    const char *model;       /* a model's file, or NULL */
    const char *shapes;      /* "5504x2048,2048x5504/64", or NULL */
    const char *weight_type; /* "file": as stored (f32 for shapes) */
    const char *rows;        /* "1,8,64", or NULL: a grid */
    enum kern_precision precision;
    int64_t m_max;
    bool every; /* number of rows up to m_max, not a grid */
};

struct cli_tune_job {
    char name[80];             /* "down 2048x5504/64 avx512" */
    bool split_k;              /* may be; the engine never splits the head */
    struct tune_shape *shapes; /* ascending rows */
    int n_shapes;
};

struct cli_tune_jobs {
    struct cli_tune_job v[CLI_TUNE_JOBS_MAX];
    int n;
};
/* With the variants that the engine chooses, see model/choose.h. out:
 * cli_tune_jobs_free(), also after an error. */
MUST int cli_tune_jobs(struct cli_tune_jobs *out, const struct cli_tune_ask *ask);
void cli_tune_jobs_free(struct cli_tune_jobs *jobs);

#endif
