/* experiments/report/appendix.h - `testbed artifact --appendix`: every claim with the command
 * that tests it, its minutes, its figure and the verdict of the newest record.
 *
 * Paper by paper, in the order of the list of claims; within a paper, experiment by experiment.
 * docs/claims.md is this text, made from the published records.   Threads: one. */
#ifndef REPORT_APPENDIX_H
#define REPORT_APPENDIX_H

#include "base/err.h"
#include "base/text.h"
#include "experiments/report/claims.h"

/* Append it as Markdown in lines of at most 100 columns, but for words that are longer. Records
 * are those of claim_record(). ERR_IO and others: an experiment or a record cannot be read. */
MUST int artifact_put_appendix(struct text *out, const struct claims *claims);

#endif
