/* experiments/record/export_read.h - a result file as JSON and plain arrays.
 *
 * The file may come from anywhere: of everything read, type, rank and extent are checked
 * before, and memory is taken only for what the file has bytes for. Only in a process of
 * its own (base/child.h), which an error ends. Private to export*.c and verify.c. Threads: one. */
#ifndef RECORD_EXPORT_READ_H
#define RECORD_EXPORT_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <hdf5.h>
#include <jansson.h>

#include "experiments/record/fields.h"

struct export_result {
    const char *path; /* lent: begins error lines */
    hsize_t file_bytes;
    hid_t file, cells;
    size_t n_cells;
    json_t *root; /* scalar attributes */
    /* {name: {"value" (null: NaN), "unit", "meaning", "better", "why", "evidence"}} */
    json_t *headline;
};
/* `bytes`: the n bytes of the file, which outlive *r; NULL: they are in it. `path` begins error
 * lines. */
void export_read(struct export_result *r, const char *path, void *bytes, size_t n);
/* A text of the root: mem_free(); NULL: it is not there. */
char *export_read_document(const struct export_result *r, const char *name);
/* The group or dataset `name` below the group `path` ("/": the root itself): H5Oclose(); -1: it
 * is not there. text: its attribute `attribute` of 64 bytes; "": it has none. */
hid_t export_open_object(const struct export_result *r, const char *path,
                         const char *name, const char *attribute, char text[65]);

/* {"attributes": {scalars, nested ones by dotted name}, "summary": like headline}; on request
 * also its named arrays, "series": {name: {"v": [numbers, null: NaN], "unit", "meaning",
 * "evidence"}}. New reference. */
json_t *export_read_cell(const struct export_result *r, size_t index, bool with_series);
/* An array of all cells, without these. New reference. */
json_t *export_read_cells(const struct export_result *r);

/* A cell's requests: column c of record_columns as stored; n = 0 where it serves nothing.
 */
#define EXPORT_COLUMNS_MAX 24
struct export_requests {
    size_t n;
    void *column[EXPORT_COLUMNS_MAX]; /* int64_t, double, int8_t, char[error bytes] */
    /* Request i has the times token_ns[token_offset[i]] .. [token_offset[i + 1]). */
    int64_t *token_ns, *token_offset; /* NULL without tokens */
};
void export_read_requests(const struct export_result *r, size_t index, bool with_tokens,
                          struct export_requests *out);
void export_requests_free(struct export_requests *q);

#endif
