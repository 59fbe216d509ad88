/* base/opt_join.h - several tables of options as one: those of the parts of a struct.
 *
 * A row that has no place, or a name that occurs twice, is an error where the table is made: a row
 * that was dropped would be a key that nobody knows, without a word.   Threads: any. */
#ifndef BASE_OPT_JOIN_H
#define BASE_OPT_JOIN_H

#include "base/opt.h"

/* How a row of a part differs in the joined table. */
struct opt_change {
    const char *name; /* of the part's row; NULL ends a list */
    const char *as;   /* its name in the joined table; NULL: the same */
    const char *def;  /* its default there; NULL: the same */
};

struct opt_part {
    const struct opt_row *rows;       /* NULL ends a list of parts */
    size_t offset;                    /* of the part's struct in the joined one */
    const struct opt_change *changes; /* NULL: none */
};

/* rows[0..max): the rows of all parts in order, and the row that ends a table.
 * ERR_LIMIT: max is too small. ERR_ARG: two rows have the same name or letter, or a change names
 * no row of its part. */
MUST int opt_join(struct opt_row *rows, int max, const struct opt_part *parts);

/* The same before main(), for a table that others read through a constant pointer: an error is one
 * line on standard error and ends the program. */
void opt_join_at_start(struct opt_row *rows, int max, const struct opt_part *parts);

#endif
