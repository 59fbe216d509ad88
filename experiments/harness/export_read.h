/* experiments/harness/export_read.h - a result file read back. Private to export*.c.
 * Threads: one. */
#ifndef HARNESS_EXPORT_READ_H
#define HARNESS_EXPORT_READ_H

#include <stddef.h>
#include <stdint.h>
#include <hdf5.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/harness/record_fields.h"

struct export_result {
    hid_t file, cells;
    const char *path; /* lent: begins error lines */
    size_t n_cells;
};
/* ERR_NOTFOUND: no such file; ERR_FORMAT: it is not a result of this program. */
MUST int export_open(struct export_result *r, const char *path);
void export_close(struct export_result *r);

/* {"attributes": {scalars}, "summary": {name: {"value" (null: NaN), "unit", "why"}}}.
 * *out: new reference. */
MUST int export_cell(const struct export_result *r, size_t index, json_t **out);
/* The scalars of the root, and {name: {"value", "unit", "better", "why"}} of /headline.
 */
MUST int export_root(const struct export_result *r, json_t **attributes,
                     json_t **headline);

/* A cell's requests: column c of record_columns as read, NULL members where the cell
 * serves nothing. */
#define EXPORT_COLUMNS_MAX 24
struct export_requests {
    size_t n;
    void *column[EXPORT_COLUMNS_MAX]; /* int64_t, double, int8_t or char[error width] */
};
#define EXPORT_ERROR_WIDTH sizeof(((struct metrics_row *)0)->error)
MUST int export_requests(const struct export_result *r, size_t index,
                         struct export_requests *out);
void export_requests_free(struct export_requests *q);

#endif
