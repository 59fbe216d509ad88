/* experiments/record/record.h - one experiment's result as one HDF5 file.
 *
 * The file is made once, at the end, from the journal (journal.h), which is what survives
 * a crash. HDF5 writes it as <stem>.h5.tmp, then it is synced and renamed: a file named
 * .h5 is whole. HDF5 runs in a process of its own (base/child.h), because after a failed
 * write it crashes at exit. One table of fields gives every dataset its `unit` and
 * `meaning` attribute and is printed as results/schema.json. A missing number is NaN with
 * a `why`, never 0. Threads: one; nothing else may be measured meanwhile. */
#ifndef RECORD_RECORD_H
#define RECORD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/metrics/metrics.h"

struct journal;

/* How a cell ended. All of them are kept; journal_finished() lets a resumed run decide.
 */
enum record_state {
    RECORD_DONE,    /* measured */
    RECORD_FAILED,  /* it ran and failed: attributes.error says why */
    RECORD_SKIPPED, /* not possible here: attributes.error says why */
};
extern const char *const record_states[]; /* "done", "failed", "skipped"; NULL ends it */

/* One cell: a point of the axes and a repeat. Everything is lent by the caller. */
struct record_cell {
    const char
        *key; /* stable printable UTF-8 of the resolved axis values and the repeat */
    enum record_state state;
    /* An object of whatever describes the cell: axis values, settings, seeds, the
     * system's description, warnings, memory, load. */
    const json_t *attributes;
    const struct metrics_row *rows; /* with the times of their tokens */
    size_t n_rows;
    struct metrics_value *values; /* summary */
    size_t n_values;
    const struct metrics_series *series; /* also of experiments that serve nothing */
    size_t n_series;
    /* The evidence of values and series that do not name their own: a word of metrics_evidence[].
     * NULL: unknown. */
    const char *evidence;
};

/* In heads and HDF5, the bounds of a number without a value (record/head.h). */
#define RECORD_AT_LEAST "at_least"
#define RECORD_AT_MOST  "at_most"

/* A scalar that stands for the experiment, in its head (head.h). */
struct record_headline {
    const char *name, *unit;
    const char *better; /* "higher" or "lower" */
    double value;
    const char *why;   /* why `value` is NaN, else NULL */
    size_t n_left_out; /* cells it is not over, because theirs is missing */
    bool
        has_interval; /* 95 % of confidence that it is in [lo, hi]; of a `value` that is NaN these
                          are bounds, as of a metrics_value */
    double lo, hi;
    /* The evidence of the values it is made from, kinds joined by ", "; NULL: unknown. */
    const char *evidence;
    /* For a ratio in a job with an A/A: the smallest difference from 1 that could have been seen
     * (metrics/compare.h), or why it is not known. All zero: there is no A/A. */
    bool has_detectable;
    double detectable_frac;
    const char *detectable_why;
};

/* Turn the journal into results/<stem>/<utc>-<commit>.h5 with its head (head.h), which is
 * then also latest.json, and close the journal (*j = NULL). On error the journal stays,
 * open and whole, and no new .h5 exists.
 *   keep_journal  do not remove it: the next run measures again only what failed
 *   path  of the result, owned by the caller, mem_free(); may be NULL
 * ERR_IO: disk.  ERR_NOMEM.  ERR_FORMAT: the journal was damaged meanwhile. */
MUST int record_finish(struct journal **j, const struct record_headline *headline,
                       size_t n_headline, bool keep_journal, char **path);

/* The table of fields as JSON (results/schema.json). New reference; NULL: ERR_NOMEM set.
 */
MUST json_t *record_schema(void);

#endif
