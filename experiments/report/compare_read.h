/* experiments/report/compare_read.h - the records of one side of a comparison.
 *
 * A side is a record, or a folder with several of one job: its restarts. They must come from
 * one build, one machine and one set of settings.   Threads: one. */
#ifndef REPORT_COMPARE_READ_H
#define REPORT_COMPARE_READ_H

#include <jansson.h>

#include "experiments/metrics/compare.h"

/* A cell of a record that was measured. */
struct compare_cell {
    char *setting; /* its key without the repeat: cells with the same are compared */
    size_t restart;
    const json_t *attributes, *summary; /* of the record */
    struct metrics_row *rows;           /* [n_rows]; NULL: it served no requests */
    int64_t *token_ns;                  /* of the rows */
    size_t n_rows;
    struct metrics_slo slo;
};

struct compare_records {
    char *path;    /* as it was given */
    json_t **docs; /* [n] one for each record, oldest first */
    size_t n;
    struct compare_cell *cells; /* [n_cells] of all records, in their order */
    size_t n_cells, n_left_out; /* cells that failed or were skipped */
};

/* ERR_NOTFOUND: no record there. ERR_FORMAT: not a record. ERR_ARG: the records of a folder
 * are not of one build, machine and job; the message names what differs. */
MUST int compare_read(struct compare_records *out, const char *path);
void compare_records_fini(struct compare_records *r);

/* A text, number or truth of a record as text; "none" where it is not stated. Returns `out`. */
#define COMPARE_TEXT_BYTES 160
const char *compare_text(const json_t *v, char out[COMPARE_TEXT_BYTES]);
/* The header of a record. */
const json_t *compare_header(const struct compare_records *r, size_t record);
/* The first of names[*i...] (NULL ends them) in which two headers differ, with both texts; *i is
 * its index. NULL: they differ in none. */
const char *compare_difference(const char *const *names, int *i, const json_t *a,
                               const json_t *b, char x[COMPARE_TEXT_BYTES],
                               char y[COMPARE_TEXT_BYTES]);

/* Did the records of both sides begin in turn, one of each in every pair, the pairs one
 * behind the other? */
bool compare_in_turn(const struct compare_records *a, const struct compare_records *b);

#endif
