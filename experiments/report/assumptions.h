/* experiments/report/assumptions.h - what the papers leave open, and which verdicts depend on it.
 *
 * results/assumptions.json lists the open parameters of each paper with the values that were
 * tried, named sets of values, and for each claim the settings in which it was tested; its keys
 * are described in results/README.md. A setting says in which record its numbers are and under
 * which names, so that the claim's own rule judges all of them.   Threads: any. */
#ifndef REPORT_ASSUMPTIONS_H
#define REPORT_ASSUMPTIONS_H

#include <jansson.h>

#include "base/err.h"
#include "base/text.h"
#include "experiments/report/claims.h"

/* Read a list. ERR_FORMAT: one line says which paper, claim or parameter is not as expected.
 * *out: json_decref(). */
MUST int assumptions_read(json_t **out, const char *path, const struct claims *claims);

/* Judge each claim of a sound list in each of its settings.
 *   record  lends the record of an experiment, as of claim_record(); NULL: there is none
 * Returns a new reference:
 *   [{"paper", "parameters", "sets": as in the list, "settings": [{parameter: value}],
 *     "claims": [{"name", "verdicts": [text for each setting; null: not tried],
 *                 "sets": {set: text}, "turned_by": {parameter that alone does it: true}}]}] */
json_t *assumptions_judge(const json_t *list, const struct claims *claims,
                          claim_record_fn *record, void *ctx);
/* The matrix as a page of text. */
void assumptions_print(struct text *out, const json_t *matrix);

/* The name of a headline at a setting: in `name` each "from" is replaced by its "to", once, and one
 * that ends in $ only at the end of the name. */
void assumptions_headline(char *out, size_t size, const json_t *setting,
                          const char *name);

#endif
