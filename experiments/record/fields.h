/* experiments/record/fields.h - the table of what a result file holds: the
 * journal, the writer, the reader and results/schema.json come from it. Private to
 * journal*.c, record*.c and export*.c. */
#ifndef RECORD_FIELDS_H
#define RECORD_FIELDS_H

#include <stddef.h>

#include "experiments/metrics/metrics.h"

/* 1 had the scalars of attributes_json as attributes of the cell too, and its key, state and
 * attempt only there. Version 1 is read as well. */
#define RECORD_SCHEMA_VERSION 2
#define RECORD_ERROR_BYTES    sizeof(((struct metrics_row *)0)->error)

/* A column of /cells/NNNN/requests: a member of struct metrics_row. */
enum record_column_kind {
    RECORD_COLUMN_I64,
    RECORD_COLUMN_F64,
    RECORD_COLUMN_BOOL,
    RECORD_COLUMN_STATUS, /* enum metrics_status, stored as i8 */
    RECORD_COLUMN_ERROR,  /* char[RECORD_ERROR_BYTES] */
};
struct record_column {
    const char *name;
    enum record_column_kind kind;
    size_t offset;
    const char *unit, *meaning;
};
extern const struct record_column record_columns[]; /* ends with a NULL name */

/* The meaning of a JSON document of the root ("/job_json"); "" for one the table does not know.
 */
const char *record_field_meaning(const char *path);
/* The meaning of a summary metric, by its definition; its own name where none is known. study:
 * whose metric it is, NULL: of serving. *better: "higher", "lower" or "". */
struct study;
const char *record_metric_meaning(const char *name, const struct study *study,
                                  const char **better);

#endif
