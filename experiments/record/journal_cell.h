/* experiments/record/journal_cell.h - a cell as the JSON of its line, and back.
 * Numbers come back exactly: null is NaN or a time that never came, infinities are texts.
 * Private to journal*.c. Threads: none of its own. */
#ifndef RECORD_JOURNAL_CELL_H
#define RECORD_JOURNAL_CELL_H

#include "experiments/record/record.h"

/* What a record cannot hold is found out before the cell is written and before a journal is
 * resumed, not after the run. `where` begins the error line. ERR_ARG; ERR_NOMEM. */
MUST int journal_key_check(const char *key, const char *where);
MUST int journal_cell_check(const struct record_cell *c, const char *where);

/* New reference; NULL: ERR_NOMEM set. */
MUST json_t *journal_cell_json(const struct record_cell *c);

/* A cell read back, with the arrays that `cell` lends. */
struct journal_parsed {
    const char *where; /* begins its error lines */
    struct record_cell cell;
    struct metrics_row *rows;
    int64_t *token_ns;
    struct metrics_value *values;
    struct metrics_series *series;
};
/* `v` and `where`, the file, must outlive *out. ERR_FORMAT: not what journal_cell_json()
 * makes, or refused by journal_cell_check(). ERR_NOMEM. On error as on success:
 * journal_parsed_fini(). */
MUST int journal_cell_parse(struct journal_parsed *out, const json_t *v,
                            const char *where);
void journal_parsed_fini(struct journal_parsed *p);

#endif
