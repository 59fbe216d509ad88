/* experiments/record/verify.h - can the numbers of a record be true?
 *
 * The rules of rule/ and the chain of hashes (chain.h), over all cells. What it cannot see: numbers
 * of studies that were changed together with their hashes. So the head that is published has the
 * end of the chain as well.   Threads: one. */
#ifndef RECORD_VERIFY_H
#define RECORD_VERIFY_H

#include <stdio.h>
#include <jansson.h>

#include "base/err.h"

/* Verify FILE.h5, or FILE.h5.xz. *out: new reference, NULL on error.
 *   "faults"      [one line each: "FILE: /cells/0003/summary/little_l: expected ..., found ..."]
 *   "chained"     false: it is of a version that wrote no hashes
 *   "n_cells", "n_requests"
 *   "run", "headline"   as they are in the file, in the form of its head (head.h)
 * ERR_NOTFOUND; ERR_IO; ERR_FORMAT: damaged, not a record or not of this version. */
MUST int export_verify(json_t **out, const char *path);

/* Print the rules, one line each. */
void export_verify_docs(FILE *f);

#endif
