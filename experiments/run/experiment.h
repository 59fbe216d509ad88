/* experiments/run/experiment.h - a whole job: prepare, run every cell that the
 * journal does not hold yet, judge, report, write the record.
 * Threads: one. */
#ifndef RUN_EXPERIMENT_H
#define RUN_EXPERIMENT_H

#include <stdio.h>

#include "base/err.h"
#include "experiments/job/job.h"
#include "experiments/run/progress.h"

struct run_options {
    const char *out_dir;     /* results/<stem> */
    const char *machine_dir; /* where the machine card is */
    const char
        *prediction;    /* file that the record scores; NULL: that with which it began */
    bool fresh;         /* forget what an interrupted run left */
    bool trust_prepare; /* of job_prepare() */
    double limit_s;     /* no cell begins later; 0: any time */
    int retries;        /* measure a disturbed cell again, up to so often (run_retry()) */
    enum progress_mode progress;
    FILE *live;   /* progress and log lines */
    FILE *report; /* the table at the end */
};

struct run_outcome {
    char *path; /* of the result; mem_free() */
    int n_resumed, n_done, n_failed, n_skipped, n_invalid;
    int n_cells, n_absent; /* all; skipped because data are not here, also before */
};

/* ERR_IO and others: the run could not be carried out; the journal stays and the same
 * command resumes it. A run with failed or invalid cells is OK and counted. */
MUST int run_experiment(struct run_outcome *out, const struct job *j,
                        const struct run_options *o);

/* Print the plan of a dry run: cells, time, disk. */
void run_plan_print(const struct job *j, FILE *f);

#endif
