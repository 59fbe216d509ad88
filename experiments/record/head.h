/* experiments/record/head.h - what a reader of a record looks at first, as one JSON text.
 *
 * It stands next to the record, FILE.json of FILE.h5, and that of the newest record is also
 * latest.json: verdicts and pages are made from heads alone.
 *   "file"      the record, in the same folder
 *   "utc", "commit", "evidence"   of the run, as in "run"
 *   "run"       scalars of the record's root
 *   "headline"  {name: {"value" (null: missing), "unit", "better", "why", "lo", "hi",
 *               "evidence", "n_left_out", "detectable_frac", "detectable_why"}}; a missing
 *               value may have a bound, "at_least" or "at_most", which "why" explains
 *   "cells"     {state: number of cells}; a cell that was measured again, as after a failure,
 *               counts once, here and below, by its last attempt
 *   "left_out"  {reason: number of failed and skipped cells}
 *   "warnings"  {code: {"n_cells", "observed", "threshold", "text"}}, the value that is
 *               farthest from its threshold
 *   "series"    {kind of evidence: {name: true}}, of arrays that name theirs
 *   "cpu"       {"family", "model"}, from the topology
 *   "machine_card"   where there is one
 * Threads: any. */
#ifndef RECORD_HEAD_H
#define RECORD_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"
#include "experiments/record/record.h"

/* For record.c, without memory as in base/child.h: begin one, add each attempt at a cell,
 * then what the whole run is. "file" is left to the caller. */
json_t *record_head_new(void);
void record_head_cell(json_t *head, const struct record_cell *c);
void record_head_end(json_t *head, const json_t *header, size_t n_attempts,
                     size_t n_interrupted, const struct record_headline *headline,
                     size_t n_headline);

/* The bound of a headline or a cell's number that has no value, "> 46" or "< 0.25": true, or false
 * and "" where it has none. By its JSON, or by its ends, of which one is finite. */
#define RECORD_BOUND_BYTES 32
bool record_bound(const json_t *number, char out[RECORD_BOUND_BYTES]);
bool record_bound_text(double least, double most, char out[RECORD_BOUND_BYTES]);

/* Read the head of a record, named by either of the two: results/NAME/latest.json, FILE.h5
 * (or FILE.h5.xz, record/published.h).
 * "path" is then the path of the record, and a headline above its bound is refused
 * (export_refuse()), which "warnings" says too. So are all of a record with a fault (verify.h), or
 * with other headlines than its head: "fault" is then the line that says it. A head without its
 * record is taken as it is. A new reference, NULL on error.
 * ERR_NOTFOUND: there is none. ERR_FORMAT: damaged, or of another version. */
MUST int export_head(json_t **out, const char *path);

/* The paths of the records in a folder as an array, a new reference, in the order of their names,
 * which begin with the time of the run. Empty where there is no such folder. ERR_IO: it cannot
 * be read; *out is NULL. */
MUST int export_list(json_t **out, const char *dir);

/* "steal in 3 of 5 cells (0.08, threshold 0.02), lateness in ..."; nothing where the run had no
 * warning. */
void export_put_warnings(struct text *out, const json_t *head);
/* Is it of measured times, and did something else use the machine meanwhile? */
bool export_is_noisy(const json_t *head);
/* Can noise of the machine change numbers of this kind of evidence? */
bool export_is_timed(const char *evidence);
/* Did something else use the machine during the run? */
bool export_was_disturbed(const json_t *head);

/* "AMD EPYC (family 25, model 17), 2 CPUs" */
void export_put_machine(struct text *out, const json_t *head);

#endif
