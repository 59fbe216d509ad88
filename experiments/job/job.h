/* experiments/job/job.h - an experiment as a file: what to run, and on what claim.
 *
 * Every key is a row of an option table, so an unknown one is an error that names the
 * nearest. An option given as a list makes an axis; the cells are the product of the
 * axes, in the file's order, times `repeats` (outermost, so that drift of the machine
 * hits all settings alike). Settings that change together have a name: `cases` (what is
 * served) and `variants` (what serves it) are lists of overlays, and axes as well: cases
 * outermost, variants innermost, so that what is compared runs one after the other, in turns that
 * change from repeat to repeat. The `smoke` section is merged over the rest for a quick run; --set
 * comes last. A job either serves requests (system, dataset, load, slo, seeds) or studies something
 * else (study: experiments/load/study.h). Threads: none of its own; a job is immutable once
 * read. */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

#include "base/err.h"
#include "base/opt.h"

/* What all variants, which are loaded at once, do one right after the other: nothing, each request,
 * each trial of their searches for the goodput, on one ladder of rates (load/ladder.h). */
enum job_pairing { JOB_UNPAIRED, JOB_PAIRED_REQUESTS, JOB_PAIRED_RATES };

struct job_head {
    char *about, *expect;
    char *published; /* "no: " and the reason; NULL: a record comes with the program */
    int evidence;    /* index into metrics_evidence[] */
    int64_t repeats;
    /* `repeats` is "auto", and here the most: a run ends earlier, when the interval of each
     * headline reaches at most repeats_precision_frac to each side. */
    bool repeats_auto;
    double repeats_precision_frac;
    int64_t repeats_min, repeats_max;
    int pairing; /* enum job_pairing */
    char *aa;    /* variant that runs a second time, as job->again; NULL: none */
};
struct job_claim {
    char *paper, *section, *figure, *text;
};
struct job_cost {
    double minutes, disk_mb;
};

struct job_overlay_kind;

struct job_axis {
    char *name;                /* "load.rate_rps"; "case", "variant" */
    const char *section, *key; /* lent by `name`'s option table and the job */
    json_t *values;            /* the list; no value twice */
    /* For an axis of named settings: its list, and the settings that each value lays over the
     * sections. `section` and `overlays` exclude each other; NULL where not given. */
    const struct job_overlay_kind *kind;
    json_t *overlays;
};

struct job_cell {
    char *key;      /* "load.rate_rps=2 repeat=0": names the cell in journal and record */
    char *label;    /* the same, short: "rate_rps=2" */
    int64_t repeat; /* from 0 */
    json_t *settings; /* {"system", "dataset", "load", "slo", "seeds"} or {"study"}, all
                         defaults in */
    json_t *axes;     /* {"load.rate_rps": 2} */
    bool is_search;   /* its section "search" asks for the goodput */
};

/* How the values of several settings become one; each setting's is the median over its
 * repeats. JOB_MEDIAN makes a headline of each setting. */
enum job_over { JOB_MEDIAN, JOB_GEOMEAN, JOB_MIN, JOB_MAX, JOB_MEAN, JOB_SUM, JOB_SHARE };

struct job_headline {
    char *name, *metric, *unit;
    int better;        /* 0 higher, 1 lower */
    int over;          /* enum job_over */
    bool needs_finite; /* leave out cells whose value is missing */
    json_t *where;     /* {"load.rate_rps": 2}, a list for any of several; full names */
    /* {"variant": "one_plan"}: the number is a ratio, of each cell to the one of the same
     * repeat that has these values and otherwise the same axes; over repeats their geometric
     * mean. NULL: not a ratio. */
    json_t *relative_to;
    /* An axis whose values are measurements independent of each other ("study.seed"): the
     * headline has a 95 % interval over them. NULL: none. */
    char *interval;
};

struct job_section;
struct study;

struct job {
    char *stem, *path;
    const struct study *study;          /* NULL: it serves */
    const struct job_section *sections; /* the settings of its kind */
    bool smoke;
    struct job_head head;
    char *again;          /* the name of that second variant; NULL: there is none */
    const char *evidence; /* of head.evidence, one of metrics_evidence[] */
    struct job_claim claim;
    struct job_cost cost;
    json_t *needs;   /* list of texts */
    json_t *prepare; /* list of {"run": [words], "creates": path} */
    double *slo_scale;
    int n_slo_scale;
    struct job_axis *axes;
    int n_axes;
    json_t *swept; /* names of the axes that --set made of single values */
    struct job_cell *cells;
    int n_cells;
    struct job_headline *headlines;
    int n_headlines;
    json_t *resolved; /* everything, all defaults in, lists kept: stands in the record */
};

struct job_read_opts {
    bool smoke;
    char *const *sets; /* "load.rate_rps=[1,2]" */
    int n_sets;
};

/* Read a file, or experiments/<name>.json when `path` has neither '/' nor '.'.
 * o may be NULL. *out: job_free(). */
MUST int job_read(struct job **out, const char *path, const struct job_read_opts *o);
/* The same from JSON in memory, which is left as it was; `where` begins error lines. */
MUST int job_from_json(struct job **out, const json_t *root, const char *stem,
                       const char *where, const struct job_read_opts *o);
void job_free(struct job **j);

/* The names of the experiments that come with the program, sorted: an array of texts, a new
 * reference, NULL on error. ERR_IO: their folder cannot be read. */
MUST int job_names(json_t **out);
/* The error for an experiment that does not exist: ERR_NOTFOUND, with the nearest name. */
MUST int job_no_name(const char *name);

/* Seconds that open-loop cells take by their own schedule; NaN when a cell is closed
 * loop. */
double job_scheduled_s(const struct job *j);

/* Is this the goodput of a sweep over load.rate_rps, which is found from the cells of all rates?
 * A cell that searches for its goodput (section "search") has it as its own metric. */
bool job_is_swept_goodput(const struct job *j, const char *metric);
/* The unit of a metric of this job. */
const char *job_metric_unit(const struct job *j, const char *metric);
/* The axis of the variants, which is the innermost; NULL: there are none. */
const struct job_axis *job_variant_axis(const struct job *j);
/* Is it a cell of the variant that runs a second time? */
bool job_is_again(const struct job *j, const struct job_cell *c);
/* The cells a headline speaks of: marks chosen[0..n_cells); returns how many. Those that run a
 * second time for the A/A are among them only where `where` names their variant. */
int job_headline_cells(const struct job *j, const struct job_headline *h, bool *chosen);
/* The cell that `cell` is divided by; -1: this run has none. */
int job_headline_reference(const struct job *j, const struct job_headline *h, int cell);
/* The first axis along which these cells differ, which a headline over JOB_MEDIAN may not
 * leave open (goodput takes all rates); NULL: none. */
const struct job_axis *job_headline_open_axis(const struct job *j,
                                              const struct job_headline *h,
                                              const bool *chosen);

/* Write a value of a job as a line's part; of a path (which has no blanks), when `brief`, only the
 * last part. */
void job_put_value(const json_t *v, bool brief, FILE *f);
/* Make the files that `prepare` names and that are absent. Commands run without a shell,
 * their output goes to standard error. report() is called with one line before each.
 * ERR_ARG, and none is run, where one is no program of this project and `trust` is false. */
MUST int job_prepare(const struct job *j, bool trust,
                     void (*report)(void *ctx, const char *line), void *ctx);

/* The job with every key, its value, unit, default and meaning. */
void job_describe(const struct job *j, FILE *f);
/* Every key any job can have, as Markdown. */
void job_docs(FILE *f);
/* The options of cells whose name, plug-in or meaning holds `pattern` (in any case), for
 * people. ERR_NOTFOUND: none does. */
MUST int job_find_keys(const char *pattern, FILE *f);

#endif
