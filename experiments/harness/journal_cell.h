/* experiments/harness/journal_cell.h - how a cell's parts become payloads and come back.
 * Private to journal*.c. Threads: none of its own. */
#ifndef HARNESS_JOURNAL_CELL_H
#define HARNESS_JOURNAL_CELL_H

#include "experiments/harness/journal_frame.h"
#include "experiments/harness/record.h"

/* Append to the payload begun in `b`; errors stay in b->rc. */
void journal_encode_row(struct journal_buf *b, const struct metrics_row *row);
void journal_encode_value(struct journal_buf *b, const struct metrics_value *v);
void journal_encode_series(struct journal_buf *b, const struct metrics_series *s);
/* State, counts and attributes; n_rows as appended since the cell began. */
void journal_encode_end(struct journal_buf *b, const struct record_cell *c,
                        size_t n_rows);

/* What the END frame alone says. *attributes may be NULL: not wanted; else a new
 * reference. */
struct journal_end {
    enum record_state state;
    size_t n_rows, n_values, n_series;
};
MUST int journal_decode_end(const struct journal_frame *f, struct journal_end *out,
                            json_t **attributes);

/* A cell being put together from its frames. Zero to begin, journal_parts_clear() between
 * cells (keeps memory), journal_parts_fini() at the end. */
struct journal_parts {
    char *key;
    struct metrics_row *rows;
    size_t n_rows, cap_rows;
    int64_t *token_ns;
    size_t n_token, cap_token;
    struct metrics_value *values;
    size_t n_values, cap_values;
    struct metrics_series *series;
    size_t n_series, cap_series;
};
MUST int journal_parts_begin(struct journal_parts *p, const struct journal_frame *f);
/* A ROW, VALUE or SERIES frame. ERR_FORMAT, ERR_NOMEM. */
MUST int journal_parts_add(struct journal_parts *p, const struct journal_frame *f);
/* Point the rows at their tokens, once all have come. */
void journal_parts_link(struct journal_parts *p);
void journal_parts_fini(struct journal_parts *p);

#endif
