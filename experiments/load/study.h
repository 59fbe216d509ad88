/* experiments/load/study.h - experiments that serve no requests: kernels, tuners, machines.
 *
 * A job with a "study" section in place of system, dataset, load and slo. The section's
 * "name" chooses a plug-in: `const struct study study_<name>`, in a file of that name in
 * experiments/study/ or in one with studies of the same question; its other keys are rows
 * of the plug-in's option table, lists make axes, and a cell is one combination, as with
 * serving. Journal, resume, record, export, headline and figures are the same as for every
 * other experiment.
 * Threads: the harness's one; a study may open its own team. */
#ifndef LOAD_STUDY_H
#define LOAD_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <jansson.h>

#include "base/opt.h"

struct study_cell; /* where a run leaves what it found */

/* Functions with which a run reports its results, in any order. A report that cannot be kept (a
 * name that is not in the study's metrics, one that is given twice, no memory) fails the cell: its
 * first error is kept and the harness checks for it once, after run(). No caller has to.
 *
 * A number; one that is not finite needs `why`, the reason why it is missing. */
void study_value(struct study_cell *c, const char *name, double value, const char *why);
/* The same with its 95 % interval [lo, hi]; ends that are not finite: it has none. */
void study_value_interval(struct study_cell *c, const char *name, double value, double lo,
                          double hi, const char *why);
/* A list (copied), with its unit. NULL is taken for ERR_NOMEM. */
void study_series(struct study_cell *c, const char *name, const char *unit,
                  const double *v, size_t n);
/* Set the evidence of numbers and lists where it differs from the job's `evidence`. kind: a word of
 * metrics_evidence[] (metrics.h). `names`: those of some numbers and lists of this cell, separated
 * by blanks; NULL: of all others. A name that the cell does not report fails it. */
void study_evidence(struct study_cell *c, const char *kind, const char *names);
/* An attribute of the cell. Steals `value`; NULL is taken for ERR_NOMEM. */
void study_note(struct study_cell *c, const char *key, json_t *value);
void study_note_text(struct study_cell *c, const char *key, const char *text);

/* A line on the terminal's progress display. */
void study_progress(struct study_cell *c, double fraction, const char *what);
/* The machine card of this run (read bandwidth, peaks); lent. NULL: there is none, or the
 * study does not say that it wants one. */
const json_t *study_machine(const struct study_cell *c);
/* Memory that is kept from cell to cell: struct study's kept_bytes, all zero in the first one. */
void *study_kept(struct study_cell *c);

struct study_metric {
    const char *name, *unit, *better; /* better: "higher", "lower" or "" */
    const char *text;                 /* ends with a NULL name */
};

/* A ratio that a study measures, and its A/A: the metric for which one of the two ran a second time
 * in the place of the other. What a headline makes of the ratio, it makes of the A/A as well. */
struct study_aa {
    const char *metric, *again; /* ends with a NULL metric */
};

struct study {
    const char *name, *help;
    const struct opt_row *opts;
    size_t opts_bytes;    /* the struct opts fills */
    size_t context_bytes; /* of a cell's state; 0: run() needs none */
    size_t kept_bytes;    /* what study_kept() lends; 0: nothing */
    const struct study_metric *metrics;
    const struct study_aa *aa; /* NULL: none */
    bool wants_machine;        /* have the machine card before the first cell */
    /* One cell, which closes what it opens. `context`: its state, all zero; `opts`: the
     * struct, all defaults in. ERR_NOTFOUND: not possible here (skipped, with the message
     * as the reason); another error: the cell failed. */
    int (*run)(void *context, const void *opts, struct study_cell *c);
    /* NULL, or: give back what run() kept; after the last cell. */
    void (*close)(void *kept);
};
extern const struct study *const studies[];

/* ERR_NOTFOUND names the nearest. */
MUST int study_find(const char *name, const struct study **out);
/* NULL, with ERR_NOTFOUND set and the nearest named: the study has no such metric. */
const struct study_metric *study_metric_find(const struct study *s, const char *name);
/* The A/A of this metric; NULL: it has none. */
const char *study_aa_find(const struct study *s, const char *metric);
/* The metrics of every study as Markdown. */
void study_docs(FILE *f);

#endif
