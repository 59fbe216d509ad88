/* experiments/record/journal.h - what was measured, on disk while the experiment runs.
 *
 * results/<stem>/<stem>.journal is append-only text, a JSON object a line, for jq:
 *   {"crc":"a1b2c3d4","header":{...}}             the first line: what runs, where
 *   {"crc":"...","begin":"rate=2/repeat=0"}       a cell is going to be measured
 *   {"crc":"...","cell":{"key":..., "state":"done", "attributes":..., "values":...,
 *                        "series":..., "requests":...}}           it was measured
 *   {"crc":"...","resume":{"utc":...}}            the run goes on after an interruption
 *   {"crc":"...","note":{"stopped":...}}          what the header of the record says as well
 * "crc" is the CRC-32 (that of gzip) of the bytes between the comma behind it and the end
 * of the line. A cell is synced before journal_cell() returns, so `kill -9` or a power
 * cut at any moment costs at most the cell that was being measured. The first line that
 * is not whole ends the journal, and what follows is cut off on reopening.
 * Threads: one owner. Processes: one; a second run on the same stem is refused. */
#ifndef RECORD_JOURNAL_H
#define RECORD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/record/record.h"

struct journal;

/* Open results/<stem>'s journal in `dir` (made when absent), to begin or to resume.
 *   header  an object. Required: "experiment" (name), "evidence" (a word of
 *           metrics_evidence), "utc", "job" (resolved object), "provenance"
 *           (provenance_json()). Usual: "claim", "expect", "about", "host",
 *           "environment", "hwloc_xml", "machine_card". Scalars become root attributes of
 *           the result, objects become /<name>_json. Its own copy is taken by reference.
 *   fresh   begin in any case: what an interrupted run left is forgotten
 * An existing journal is resumed if experiment, job, provenance and host are equal; the
 * first run's header is then kept. A different one is renamed aside and a warning logged.
 * ERR_STATE: another process has it open.  ERR_ARG: the header lacks a required member.
 */
MUST int journal_open(struct journal **out, const char *dir, const char *stem,
                      const json_t *header, bool fresh);
/* The file stays for resuming. NULL is fine. */
void journal_close(struct journal **j);

/* Was this cell finished, now or before the interruption? *state (may be NULL): how, by
 * its last attempt. A finished cell may be measured again; both attempts are then in the
 * record. */
bool journal_finished(const struct journal *j, const char *key, enum record_state *state);
size_t journal_n_finished(const struct journal *j);
size_t journal_n_attempts(const struct journal *j); /* finished cells, repeats counted */
bool journal_has_failed(const struct journal *j);   /* the last attempt at any cell */
const char *journal_path(const struct journal *j);

/* Once its record is safe: remove the file and close. */
MUST int journal_remove(struct journal **j);

/* Before a cell is measured: one that never ends is counted as interrupted. */
MUST int journal_begin(struct journal *j, const char *key);
/* A measured cell. After an error of writing (disk full) the journal is cut back to its
 * last whole line and takes no more: every further call gives ERR_STATE. */
MUST int journal_cell(struct journal *j, const struct record_cell *c);

/* Members that the header of the record gets besides those of journal_open(): what is known at
 * the end only. Of the same member the last counts. `note`: an object, its reference is taken. */
MUST int journal_note(struct journal *j, json_t *note);

/* Walk the finished cells of a journal in their order: for a headline over cells of
 * earlier runs. `fn` returns OK to go on. May be used on an open journal.
 *   header         may be NULL; new reference, with "resumes": what the resume lines say
 *   n_interrupted  may be NULL */
typedef int (*journal_cell_fn)(void *ctx, const struct record_cell *c);
MUST int journal_read(const char *path, journal_cell_fn fn, void *ctx, json_t **header,
                      size_t *n_interrupted);

#endif
