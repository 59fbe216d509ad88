/* tests/support/fixture.h - cells and headers that the tests of journal, record and
 * export share. Everything follows from a number, so that a reader can check what a
 * writer put. */
#ifndef TESTS_SUPPORT_FIXTURE_H
#define TESTS_SUPPORT_FIXTURE_H

#include "tests/support/test.h"

#include <math.h>
#include <jansson.h>

#include "experiments/record/journal.h"

#define FIXTURE_ROWS_MAX 40

struct fixture_cell {
    struct record_cell cell;
    char key[32];
    struct metrics_row rows[FIXTURE_ROWS_MAX];
    int64_t token_ns[FIXTURE_ROWS_MAX * 8];
    struct metrics_value values[4];
    struct metrics_series series[1];
    double series_v[16];
};

/* Cell `i`: 3 + i % 5 requests of i % 8 tokens and more; a failed request; a NaN metric.
 */
void fixture_cell_make(struct fixture_cell *f, int i);
void fixture_cell_free(struct fixture_cell *f);
/* `got` holds what fixture_cell_make(i) made. */
void fixture_cell_check(const struct record_cell *got, int i);
/* The number in a key. */
int fixture_cell_number(const char *key);

/* A header with all required members. */
json_t *fixture_header(const char *utc);

/* A record as the JSON of its export, which names and describes everything. */
json_t *fixture_exported(const char *h5_path);

/* The path of a folder below test_dir(), not yet made. Lent; the last 4 stay valid. */
const char *fixture_dir(const char *name);

#endif
