/* experiments/cli/verb_run.h - what `testbed run` does with a job, for verbs that run one
 * as well. Private to verb/.   Threads: one. */
#ifndef CLI_VERB_RUN_H
#define CLI_VERB_RUN_H

#include "experiments/job/job.h"
#include "experiments/run/dir.h"
#include "experiments/run/experiment.h"

struct verb_run_opts {
    bool fresh, quiet, trust_prepare;
    int retries; /* as in struct run_options */
    double limit_s;
    const char *out, *tag;  /* as of run_dir_of() */
    const char *prediction; /* as in struct run_options */
};

/* The result of a run. */
struct verb_ran {
    struct run_dir dir;
    struct run_outcome outcome;
};

/* *out: verb_ran_fini(), also after an error. Returns the exit status; errors are printed. */
int verb_run_job(struct verb_ran *out, const struct job *j,
                 const struct job_read_opts *read, const struct verb_run_opts *o);
MUST int verb_draw_ran(const struct job *j, const struct verb_ran *r);
void verb_ran_fini(struct verb_ran *r);

#endif
