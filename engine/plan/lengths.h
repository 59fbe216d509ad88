/* plan/lengths.h - the lengths of a trace's requests, from a file.   Threads: any. */
#ifndef PLAN_LENGTHS_H
#define PLAN_LENGTHS_H

#include "plan/trace.h"

/* A line a request: tokens of its prompt, a comma, tokens of its output. A first line
 * that does not begin with a digit is a header; empty lines are skipped.
 *   out  its arrays are owned by the caller, plan_lengths_free()
 * ERR_FORMAT: the file, the line, what was found. ERR_NOTFOUND, ERR_IO. */
MUST int plan_lengths_read(struct plan_lengths *out, const char *path);
void plan_lengths_free(struct plan_lengths *l); /* twice is fine */

#endif
