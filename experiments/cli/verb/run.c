#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/process.h"
#include "experiments/run/figure.h"
#include "experiments/run/resume.h"
#include "experiments/cli/verb.h"
#include "experiments/cli/verb_run.h"
#include "measure/card.h"

#define STATUS_NO_DATA 4

struct run_opts {
    bool smoke, dry_run, quiet, fresh, draw, trust_prepare;
    int64_t retries;
    char *limit, *tag, *out, *prediction;
};

#define OPT_OF struct run_opts
static const struct opt_row table[] = {
    VERB_SMOKE_ROW,
    OPT_ROW(BOOL, dry_run, "false",
            "Print the cells, the expected time and disk, and run nothing."),
    OPT_ROW(BOOL, quiet, "false", "Print no progress."),
    OPT_ROW(BOOL, fresh, "false",
            "Discard what a run of this job that was interrupted, or of which cells "
            "failed, has "
            "left, and start over."),
    OPT_ROW(BOOL, trust_prepare, "false",
            "Run also such commands of the experiment's `prepare` as are no program of "
            "this project. `testbed describe NAME` prints them."),
    OPT_ROW(
        INT, retries, "0",
        "Measure a cell, or a trial of a search, again, up to N times, if other programs "
        "or virtual machines used the CPUs meanwhile. A wait of 0.5 to 4 s comes before "
        "it. The last attempt counts, all are in the record. No more than 3 and a "
        "quarter of all are measured again, since a machine that is never quiet stays "
        "so, and none that would let the run take more than ten times the minutes that "
        "the experiment states.",
        .unit = "N", .min = 0, .max = 100),
    OPT_ROW(
        STR, limit, NULL,
        "Begin no cell after this time: the record then says of each that is left why "
        "it is missing. Examples: 90s, 30m. Default: none.",
        .unit = "TIME"),
    OPT_ROW(
        STR, prediction, NULL,
        "Score the run by this file of `testbed predict`. One of other settings or of "
        "another machine, one that was changed, and one that is made or given after "
        "the first cell is refused. An interrupted run keeps it. Default: none.",
        .unit = "FILE"),
    OPT_ROW(BOOL, draw, "false",
            "Draw the experiment's figure from the record, with paper-figs/NAME.py: into "
            "paper-figs/out, or next to the record if that is not kept in results/NAME."),
    OPT_ROW(STR, tag, NULL,
            "Keep the record in results/NAME/TAG. Default: results/NAME for the "
            "experiment as its file states it, and a folder in there, named after the "
            "changes, with --smoke or --set.",
            .unit = "TAG"),
    OPT_ROW(STR, out, NULL, "Keep the record in this folder. Default: as with --tag.",
            .unit = "PATH"),
    {0},
};

static int status_of(const struct run_outcome *o)
{
    if (o->n_failed || o->n_skipped)
        fprintf(stderr, "testbed: %d cells failed, %d skipped%s\n", o->n_failed,
                o->n_skipped,
                o->n_failed ? "; the same command measures those that failed again" : "");
    return o->n_failed || o->n_invalid ? VERB_INVALID : PROGRAM_OK;
}

/* The last line of a run of which half of the cells or more have no data. */
static int status_of_absent(const struct run_outcome *o, int status)
{
    if (o->n_absent == 0 || 2 * o->n_absent < o->n_cells)
        return status;
    fprintf(stderr,
            "testbed: %d of %d cells were skipped, because their data are not here: "
            "datasets/data.md says where to get them\n",
            o->n_absent, o->n_cells);
    return status == PROGRAM_OK ? STATUS_NO_DATA : status;
}

void verb_ran_fini(struct verb_ran *r)
{
    mem_free(r->outcome.path);
    mem_free(r->dir.path);
}

int verb_draw_ran(const struct job *j, const struct verb_ran *r)
{
    return run_figure(j->stem, r->outcome.path, r->dir.is_separate ? r->dir.path : NULL,
                      j->n_axes > 0);
}

int verb_run_job(struct verb_ran *out, const struct job *j,
                 const struct job_read_opts *read, const struct verb_run_opts *o)
{
    struct run_options run = {.machine_dir = MEASURE_CARD_DIR,
                              .fresh = o->fresh,
                              .trust_prepare = o->trust_prepare,
                              .prediction = o->prediction,
                              .retries = o->retries,
                              .limit_s = o->limit_s,
                              .progress = o->quiet                ? PROGRESS_QUIET
                                          : isatty(STDERR_FILENO) ? PROGRESS_LIVE
                                                                  : PROGRESS_MINUTE,
                              .live = stderr,
                              .report = stdout};

    *out = (struct verb_ran){0};
    if (run_dir_of(&out->dir, j->stem, o->out, o->tag, read) != OK)
        return verb_fail(PROGRAM_USAGE);
    run.out_dir = out->dir.path;
    return run_experiment(&out->outcome, j, &run) == OK ? status_of(&out->outcome)
                                                        : verb_fail(VERB_INVALID);
}

static int run(const struct verb_words *w)
{
    const struct run_opts *o = w->opts;
    const struct job_read_opts read = {o->smoke, w->sets, w->n_sets};
    struct verb_run_opts how = {.fresh = o->fresh,
                                .quiet = o->quiet,
                                .trust_prepare = o->trust_prepare,
                                .prediction = o->prediction,
                                .retries = (int)o->retries,
                                .out = o->out,
                                .tag = o->tag};
    struct job *j = NULL;
    struct verb_ran ran;
    int status = PROGRAM_OK;

    if (o->limit)
        TRY(opt_seconds(&how.limit_s, o->limit, "--limit"));
    if (job_read(&j, w->rest[0], &read) != OK)
        return verb_fail(PROGRAM_USAGE);
    if (o->dry_run)
        run_plan_print(j, stdout);
    else {
        process_at_signal(run_resume_report);
        status = verb_run_job(&ran, j, &read, &how);
        /* A sweep was asked for on the command line to be looked at. */
        if ((o->draw || json_array_size(j->swept) > 0) && ran.outcome.path &&
            verb_draw_ran(j, &ran) != OK)
            status = verb_fail(o->draw ? VERB_INVALID : status);
        status = status_of_absent(&ran.outcome, status);
        verb_ran_fini(&ran);
    }
    job_free(&j);
    return status;
}

const struct verb verb_run = {
    .name = "run",
    .help = "Run an experiment, or resume an interrupted run.",
    .usage =
        {"testbed run NAME|FILE [--set KEY=VALUE]... [options]",
         "Run an experiment: a name in experiments/ or a JSON file. The record is one "
         "HDF5 "
         "file. An interrupted run continues when the same command is given again. --set "
         "changes one setting and may be repeated; a list as value makes an axis.",
         "  testbed run quickstart --smoke\n"
         "  testbed run quickstart --set load.n_requests=10 --set "
         "'system.threads=[1,2]'\n",
         VERB_EXIT_STATUS "  4  half of the cells or more were skipped, because their "
                          "data are not here\n"},
    .n_args = 1,
    .takes_set = true,
    .opts = {{table}},
    .opts_bytes = sizeof(struct run_opts),
    .run = run,
};
