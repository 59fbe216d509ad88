/* datasets/csv.h - rows of a comma-separated file whose first line names the columns. Two counts
 * there are no names: such a file has the columns "prompt" and "output".
 *
 * Columns are found by name, whatever their order and letter case; fields may stand in
 * double quotes. A row with more or fewer fields than the header, or a field that is not a
 * number where one is wanted, is refused with file, line, column, and what was found.
 * Threads: one table, one owner. */
#ifndef DATASETS_CSV_H
#define DATASETS_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "datasets/input.h"

#define DATASET_CSV_COLUMNS 64 /* the widest public trace has 11 */

struct dataset_csv {
    struct dataset_input *in;
    char *header; /* owns the text of `names` */
    char *names[DATASET_CSV_COLUMNS];
    char *fields[DATASET_CSV_COLUMNS]; /* of the present row; lent until the next */
    int n_columns;
    bool first_is_row; /* there is no header, and the first row is in `fields` */
};

/* The caller's storage. Reads the header line. */
MUST int dataset_csv_init(struct dataset_csv *t, const char *path);
void dataset_csv_fini(struct dataset_csv *t);

/* ERR_FORMAT "path:line: column: expected ..., found ...". */
int dataset_csv_refuse(const struct dataset_csv *t, int column, const char *expected);

#endif
