/* experiments/record/export.h - a result file in forms that other tools read.
 *
 * Nothing is computed here: numbers come from the stored columns and the stored summary,
 * so that a figure, a CSV and the terminal can never disagree. A NaN is an empty CSV
 * field, a null in JSON and "n/a (why)" in Markdown. A file from elsewhere can crash
 * HDF5, so it is read in a process of its own with limits (base/child.h), and everything
 * is read before anything is written. Threads: one. */
#ifndef RECORD_EXPORT_H
#define RECORD_EXPORT_H

#include <stdio.h>

#include "base/err.h"

enum export_format {
    EXPORT_CSV_REQUESTS, /* one line a request of every cell */
    EXPORT_CSV_CELLS,    /* one line a cell: its scalar attributes, then its summary; of a
                          * value with an interval also NAME_lo and NAME_hi */
    EXPORT_CSV_SERIES, /* one line an element of a cell's arrays, which are the columns; a
                          * shorter one's are empty */
    EXPORT_JSON,       /* one object a cell, in the key names of vLLM's benchmark */
    EXPORT_JSON_FULL, /* what the file holds: every request, token and series of every cell */
    EXPORT_MARKDOWN, /* one table row a cell, for reports */
};

/* "csv", "csv-cells", "csv-series", "json", "json-full", "markdown"; ERR_NOTFOUND names the
 * nearest. */
MUST int export_format_find(const char *name, enum export_format *out);

/* Write the result `h5_path`, FILE.h5 or FILE.h5.xz, to `f`.  ERR_NOTFOUND / ERR_FORMAT: no such
 * file, or not a result; ERR_IO: `f` cannot be written. */
MUST int export_print(const char *h5_path, enum export_format format, FILE *f);

/* The same as a text. *text: mem_free(), *n bytes and a NUL that is not counted. */
MUST int export_text(const char *h5_path, enum export_format format, char **text,
                     size_t *n);

/* Write it to the file `out`, which is replaced only by a whole export. ERR_ARG: `out` is
 * the result itself or not a regular file. */
MUST int export_save(const char *h5_path, enum export_format format, const char *out);

#endif
