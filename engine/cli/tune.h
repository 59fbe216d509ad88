/* cli/tune.h - what `sandwich tune` and `sandwich plan --tune` tune, as jobs: the rows of one
 * matrix that one kernel variant computes. */
#ifndef ENGINE_MAIN_TUNE_H
#define ENGINE_MAIN_TUNE_H

#include "cli/cli.h"
#include "cpu/cpu.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "tune/policy.h"
#include "tune/schedule_cache.h"

#define CLI_TUNE_JOBS_MAX 64

struct cli_tune_ask {
    const char *model;       /* a model's file, or NULL */
    const char *shapes;      /* "5504x2048,2048x5504/64", or NULL */
    const char *weight_type; /* "file": as stored (f32 for shapes) */
    const char *rows;        /* "1,8,64", or NULL: a grid */
    enum kern_precision precision;
    const struct kern_variant
        *own; /* of a product, tuned next to the engine's; or NULL */
    int64_t m_max;
    bool every; /* number of rows up to m_max, not a grid */
    /* With `model`: the parts of matrices that each of n_ranks ranks computes alone, each shape
     * once, or the head only, which they compute together. 0: all matrices, of a model for
     * one rank. */
    int n_ranks;
    bool one_rank; /* the other phase has one, too (model_opts.one_rank) */
    bool head_only;
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

struct cli_tuning {
    char matrix[80]; /* the one in hand */
    int64_t m;       /* the rows just done */
    double done_work,
        all_work; /* in FLOP, with the fixed cost of a product of few rows */
    int64_t n_measurements;
    double measured_s, budget_s;     /* budget_s: 0: none */
    uint64_t t_start_ns, t_shown_ns; /* t_shown_ns: of the progress that was shown last */
};

struct cli_tuned {
    char matrix[80];
    int64_t n_shapes, n_found, n_known; /* asked for; found now; found before */
    int64_t n_measurements;
    double seconds;
    int64_t n_compared, n_taken_back;
    double log_speedup; /* sum over the compared of log(default / tuned) */
};
/* The closing table: a row a matrix, and all together. */
void cli_tune_report(const struct cli_tuned *rows, int n);

/* A search of the schedules of some jobs on one thread set. */
struct cli_tune_run {
    const struct tune_opts *tune; /* the policy, and the budget of the run; lent */
    const char *cache_path,
        *input; /* the file of schedules; NULL or one it must not be */
    int rounds; /* of the comparison with the default schedules; 0: none */
    bool pin;
    bool only_new; /* compare no schedule that an earlier run found */
    int cpus[CPU_MAX], n_threads;
    struct cli_tune_jobs jobs; /* the caller's cli_tune_jobs() */
    /* After the run: */
    struct tune_cache *cache; /* with all schedules of the file */
    struct cli_tuned tuned[CLI_TUNE_JOBS_MAX];
    /* The run's own. */
    struct par_team *team;
    struct tune_bench *bench;
    const struct tune_policy *policy;
    struct cli_tuning progress;
    uint64_t saved_ns;
    const struct cli_tune_job *job; /* the one in hand */
    struct cli_tuned *now;
    struct kern_schedule *known; /* [job->n_shapes] what the file had; mr = 0: nothing */
};
/* Search what the file does not have yet, and save it. ERR_CANCELED: cli_interrupted was set;
 * what was found until then is saved. cli_tune_run_close() follows in any case. */
MUST int cli_tune_run(struct cli_tune_run *r);
void cli_tune_run_close(struct cli_tune_run *r);

#endif
