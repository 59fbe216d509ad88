/* experiments/record/rule.h - what must hold in every record: one file in rule/ that ends in one
 * `const struct record_rule record_rule_<stem>`. make lists the folder.
 *
 * A rule reads what verify.c has read of the file, and states each fault it finds. It must hold
 * in every record that `testbed run` makes, also of failed, canceled and rejected requests, of
 * overload and of a noisy machine: a fault is a number that cannot be true.
 * Threads: one, without memory as in base/child.h. */
#ifndef RECORD_RULE_H
#define RECORD_RULE_H

#include <stddef.h>
#include <jansson.h>

#include "experiments/metrics/metrics.h"

/* The file, and one of its cells. */
struct record_view {
    const json_t *run,
        *headline;      /* scalars of the root; {name: {"value", "unit", ...}} */
    const json_t *card; /* machine card; NULL: none */
    double cache_bytes; /* of the largest last-level cache; NaN: unknown */
    size_t n_cells;
    json_t *seen;   /* {key: number of cells before this one that have it} */
    json_t *trials; /* {key: {"attributes", "summary"}} of the trials before this cell */

    const char *where; /* "/cells/0003"; "": the file */
    /* Scalars, nested ones by dotted name; {name: {"value", ...}}; {name: {"v": [...], ...}}. A
     * number that is null was NaN, or above its bound: then "refused" has it. */
    const json_t *attributes, *summary, *series;
    /* Its requests (n_rows 0: it served none), the bounds and the objectives. Each row has as
     * many times of tokens as it says. */
    struct metrics_input in;
    json_t *faults; /* {place: {"line", "n"}} */
};

struct record_rule {
    const char *name, *text; /* what must hold, for --help */
    void (*of_file)(struct record_view *v);
    void (*of_cell)(struct record_view *v); /* either may be NULL */
};
extern const struct record_rule *const record_rules[]; /* written by make */

/* `place` is below v->where, "requests/n_tok[3]"; the text says "expected ..., found ...". Of
 * several elements of one array the first is printed, and how many there are. */
void record_fault(struct record_view *v, const char *place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of element i of "requests/<column>". */
void record_fault_row(struct record_view *v, const char *column, size_t i,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The value of a summary, a headline; NaN: missing. */
double record_value(const json_t *numbers, const char *name);
/* Are they the same number, or both missing? But for the last digits, which a compiler decides. */
bool record_same(double a, double b);

#endif
