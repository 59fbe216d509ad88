/* experiments/report/coverage.h - what of the papers is tested, one row for each figure, table and
 * section that results/reference/ has.
 *
 * results/coverage.json lists them; results/README.md describes its keys. Threads: any. */
#ifndef REPORT_COVERAGE_H
#define REPORT_COVERAGE_H

#include <jansson.h>

#include "base/err.h"

enum coverage_kind {
    COVERAGE_FULL,
    COVERAGE_PARTIAL, /* some of it, or on a smaller scale */
    COVERAGE_OTHER,   /* the same question, asked in another way */
    COVERAGE_NONE,
    COVERAGE_KINDS
};
extern const char *const coverage_kinds[COVERAGE_KINDS + 1]; /* ends in NULL */

struct coverage_row { /* texts and lists are lent by the list */
    const char *paper, *where;
    enum coverage_kind kind;
    const json_t *experiments; /* names; empty: COVERAGE_NONE */
    const json_t *evidence;    /* the kinds of evidence of their numbers */
    const char *why;           /* what is missing; NULL: nothing */
};

struct coverage {
    json_t *root;
    struct coverage_row *v; /* in the order of the file: paper by paper */
    size_t n;
};

/* Read a list. ERR_FORMAT: one line says which row and key are not as expected. *out:
 * coverage_fini(), also after an error. */
MUST int coverage_read(struct coverage *out, const char *path);
void coverage_fini(struct coverage *c);

/* The names of a row's experiments or kinds of evidence, joined by ", ". Cut to fit. */
void coverage_join(char *out, size_t size, const json_t *names);

#endif
