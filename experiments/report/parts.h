/* experiments/report/parts.h - parts of the page that several files put together. Private
 * to report*.c.   Threads: one. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include "experiments/report/report.h"

/* A member that is a text and not empty; `otherwise` for any other. */
const char *report_text_at(const json_t *obj, const char *key, const char *otherwise);
/* The kind of evidence of a record. */
const char *report_evidence(const json_t *head);

/* Print what `put` appends to a text. */
void report_put_made(struct report_page *p,
                     void (*put)(struct text *out, const json_t *json),
                     const json_t *json);
/* The verdict of one record, with what was found; returns it. `head` NULL: no record. */
enum claim_verdict report_put_verdict(struct report_page *p, const struct claim *c,
                                      const json_t *head);
/* "make experiment NAME=x, 5 minutes" */
void report_put_command(struct report_page *p, const struct report_experiment *e);
/* {name: unit} of the headlines of all records, a new reference; NULL: ERR_NOMEM is set. */
json_t *report_headline_names(const struct report_experiment *e);
/* All of one experiment. `out`: the folder of the page. */
MUST int report_put_experiment(struct report_page *p, const struct report *r,
                               const struct report_experiment *e, const char *out);

#endif
