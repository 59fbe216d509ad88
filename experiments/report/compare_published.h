/* experiments/report/compare_published.h - your records and those that come with the program, by
 * their headline numbers.
 *
 * Two values of a number agree where their 95 % intervals have a value in common, or where they
 * differ by less than a share: of what depends on the machine the caller's margin, of the rest
 * what a rounding may change. A number depends on the machine where its evidence is measured, where
 * its run has used a machine card, or where it is computed (model) in a record that also measures:
 * it may be computed of that. One that is missing in both agrees.   Threads: one. */
#ifndef REPORT_COMPARE_PUBLISHED_H
#define REPORT_COMPARE_PUBLISHED_H

#include <stdio.h>
#include <jansson.h>

#include "base/err.h"

enum compare_repeat {
    COMPARE_REPEAT_SAME, /* every number agrees */
    COMPARE_REPEAT_DIFFERS,
    /* As many of them as do not agree depend on the machine, and the published record is of
     * another kind of machine. */
    COMPARE_REPEAT_OTHER_MACHINE,
};
const char *compare_repeat_name(enum compare_repeat v);

struct compare_heads {
    enum compare_repeat verdict;
    int n_agree, n_differ;
    char
        farthest[240]; /* the number that differs most, with both values; "": none does */
};
/* Two heads as export_head() reads them, `published` as export_published_head() does. Numbers that
 * only one has do not count; without any in common they differ. */
void compare_heads(struct compare_heads *out, const json_t *own, const json_t *published,
                   double margin_frac);

struct compare_published_totals {
    int n[COMPARE_REPEAT_OTHER_MACHINE + 1]; /* experiments of each verdict */
    int n_unpublished, n_without_own, n_unreadable;
};
/* A table of these experiments (an array), one line for each that has a record of its own below
 * results/ of the working directory, or cannot be read. ERR_IO: `f` cannot be written. */
MUST int compare_published(struct compare_published_totals *out, const json_t *names,
                           double margin_frac, FILE *f);

#endif
