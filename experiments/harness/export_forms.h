/* experiments/harness/export_forms.h - one function a format. Private to export*.c.
 * Writing errors are found by the caller (ferror). Threads: one. */
#ifndef HARNESS_EXPORT_FORMS_H
#define HARNESS_EXPORT_FORMS_H

#include <stdio.h>

#include "experiments/harness/export_read.h"

MUST int export_csv_requests(const struct export_result *r, FILE *f);
MUST int export_csv_cells(const struct export_result *r, FILE *f);
MUST int export_json(const struct export_result *r, FILE *f);
MUST int export_markdown(const struct export_result *r, FILE *f);

/* All cells as an array of export_cell(). *out: new reference. */
MUST int export_cells(const struct export_result *r, json_t **out);

#endif
