/* experiments/cli/compare_folders.h - what verbs that compare share: the folders of a comparison
 * that was run in rounds, and its table.   Threads: one. */
#ifndef CLI_COMPARE_FOLDERS_H
#define CLI_COMPARE_FOLDERS_H

#include <stdint.h>
#include <stdio.h>

#include "experiments/report/compare_report.h"

/* A file in the folder of records whose rounds ended by what they showed, as many as were
 * needed. */
#define COMPARE_ROUNDS_FILE "rounds.json"

/* Where the records of a comparison of jobs are. */
struct compare_folders {
    char dir[1024], a[1040], b[1040], aa[1040], rounds[1060];
};
/* All others from f->dir. */
void compare_folders_fill(struct compare_folders *f);
/* Kept from the first round on: an interval of the records must allow for the repeated checks.
 *   precision  NaN: the rounds ended by a verdict */
MUST int compare_folders_keep(const struct compare_folders *f, int64_t n,
                              double precision, const char *stopped);

/* compare_report() of records, or of folders with several. `again`: the records of A again;
 * NULL: there are none. Errors as of compare_read() and compare_report(). */
MUST int compare_paths_report(struct compare_totals *t, const char *a, const char *b,
                              const char *again, const struct compare_report_opts *o,
                              FILE *f);

/* The share in "5%" or "0.05", 0 to 1; `flag` begins the error line. ERR_ARG. */
MUST int compare_share(double *out, const char *text, const char *flag);

#endif
