/* experiments/harness/verb_run.h - what `testbed run` does with a job, for verbs that run one
 * as well. Private to verb/.   Threads: one. */
#ifndef HARNESS_VERB_RUN_H
#define HARNESS_VERB_RUN_H

#include "experiments/harness/job.h"
#include "experiments/harness/run_dir.h"
#include "experiments/harness/run_experiment.h"

struct verb_run_opts {
    bool fresh, quiet;
    const char *out, *tag; /* as of run_dir_of() */
};

/* What a run has left. */
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
