/* experiments/report/tables.h - tables of measured numbers in a Markdown document, made of
 * records.
 *
 * A document says where and what:
 *     <!-- testbed report: quickstart:ttft_p50,tpot_p50 fig07_gemm_vs_vendors:geomean_* -->
 *     ... tables, which are replaced ...
 *     <!-- end of testbed report -->
 * Each word between is an experiment, and after a colon those of its headlines that are wanted,
 * in this order; without them all. * at the end of a headline stands for any text, ~ for a
 * blank. What is outside of the two lines stays byte for byte, and so does a block of whose
 * experiments none has a record.   Threads: one. */
#ifndef REPORT_TABLES_H
#define REPORT_TABLES_H

#include "experiments/report/report.h"

/* Append `text` with its blocks made again to `out`.
 *   where    begins error lines, which name the line
 *   n_kept   gets how many blocks stay as they are for want of records
 * ERR_FORMAT: no block, one that is not closed, an end without a beginning, no experiment in
 * it. ERR_NOTFOUND: no experiment of that name. */
MUST int report_tables_text(struct text *out, const char *text, size_t n,
                            const struct report *r, const char *where, int *n_kept);
/* The same for the file `path`, which is replaced as a whole where it changes. */
MUST int report_tables_save(const char *path, const struct report *r, int *n_kept);

#endif
