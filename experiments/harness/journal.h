/* experiments/harness/journal.h - what was measured, on disk while the experiment runs.
 *
 * results/<stem>/<stem>.journal is append-only: frames of {length u32, type u32, CRC-32C
 * u32, payload}, little-endian. After `kill -9` at any moment everything appended is
 * there, after a power cut at least everything older than the sync interval. A cell
 * counts as finished only when its end frame is whole; what follows the first bad frame
 * is cut off on reopening. Calls may wait for the disk: append what was measured after it
 * was measured. Threads: one owner. Processes: one; a second run on the same stem is
 * refused. */
#ifndef HARNESS_JOURNAL_H
#define HARNESS_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/harness/record.h"

struct journal;

#define JOURNAL_SYNC_S 1.0 /* default interval: what a power cut may cost */

/* Open results/<stem>'s journal in `dir` (made when absent), to begin or to resume.
 *   header  an object. Required: "experiment" (name), "truth" (measured, measured_small,
 *           model, simulated, emulated, unavailable), "utc", "job" (resolved object),
 *           "provenance" (provenance_json()). Usual: "claim", "expect", "about", "host",
 *           "environment", "hwloc_xml", "machine_card". Scalars become root attributes of
 *           the result, objects become /<name>_json. Its own copy is taken by reference.
 * An existing journal is resumed if experiment, job, provenance and host are equal; the
 * first run's header is then kept. A different one is renamed aside and a warning logged.
 * ERR_STATE: another process has it open.  ERR_ARG: the header lacks a required member.
 */
MUST int journal_open(struct journal **out, const char *dir, const char *stem,
                      const json_t *header, double sync_interval_s);
/* Sync and close; the file stays for resuming. NULL is fine. */
void journal_close(struct journal **j);

/* Was this cell finished, now or before the interruption? *state (may be NULL): how, by
 * its last attempt. A finished cell may be measured again; both attempts are then in the
 * record. */
bool journal_finished(const struct journal *j, const char *key, enum record_state *state);
size_t journal_n_finished(const struct journal *j);
size_t journal_n_attempts(const struct journal *j); /* finished cells, repeats counted */
const char *journal_path(const struct journal *j);

/* Once its record is safe: remove the file and close. */
MUST int journal_remove(struct journal **j);

/* One cell in pieces: begin, any number of rows, end. A begin without end is an
 * interrupted cell: it is counted, not recorded. After an error of writing (disk full)
 * the journal is cut back to its last whole frame and takes no more: every further call
 * gives ERR_STATE. */
MUST int journal_cell_begin(struct journal *j, const char *key);
MUST int journal_row(struct journal *j, const struct metrics_row *row);
/* State, attributes, values and series of `c` (its rows too, if rows are there); fsync.
 */
MUST int journal_cell_end(struct journal *j, const struct record_cell *c);
/* All three at once. */
MUST int journal_cell(struct journal *j, const struct record_cell *c);

/* Walk the finished cells of a journal in their order, with their rows and tokens: for a
 * headline over cells of earlier runs. `fn` returns OK to go on. May be used on an open
 * journal. *header (may be NULL): new reference. *n_interrupted may be NULL. */
typedef int (*journal_cell_fn)(void *ctx, const struct record_cell *c);
MUST int journal_read(const char *path, journal_cell_fn fn, void *ctx, json_t **header,
                      size_t *n_interrupted);

#endif
