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

/* A text or number of the record's header as text, "?" where it is not stated. */
const char *compare_header(const struct compare_records *r, size_t record,
                           const char *name, char *out, size_t n);

/* Did the records of both sides begin in turn, one of each in every pair, the pairs one
 * behind the other? */
bool compare_in_turn(const struct compare_records *a, const struct compare_records *b);

#endif
