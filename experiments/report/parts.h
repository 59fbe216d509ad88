/* experiments/report/parts.h - parts of the page that several files put together. Private
 * to content.c, experiment.c and tables.c.   Threads: one. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include "experiments/report/report.h"

/* The kind of evidence of a record. */
const char *report_evidence(const json_t *head);
const char *report_label(const json_t *host);

/* A headline as of export_head(): "1.02 (0.98 to 1.05)", "n/a (no PMU)". `h` NULL: the record
 * does not have it. */
void report_put_number(struct text *out, const json_t *h);
/* "a1bb4eb1c2 with changes, 2026-11-22" */
void report_put_origin(struct text *out, const json_t *head);
/* As of export_put_warnings(). */
void report_put_warnings(struct text *out, const json_t *head);
/* The verdict of one record, with what was found. `head` NULL: no record. */
void report_put_verdict(struct text *out, const struct claim *c, const json_t *head);
/* "make experiment NAME=x, 5 minutes" */
void report_put_command(struct text *out, const struct report_experiment *e);
/* {name: unit} of the headlines of its records, a new reference. */
json_t *report_headline_names(const struct report *r, const struct report_experiment *e);
/* The first row of a table and the line below it: `before`, "| a | b |", the hosts that have a
 * record of the experiment, and `after`, " c |" or "". */
void report_put_table_head(struct text *out, const struct report *r,
                           const struct report_experiment *e, const char *before,
                           const char *after);
/* All of one experiment. `dir`: the folder of the page. */
MUST int report_put_experiment(struct text *out, const struct report *r,
                               const struct report_experiment *e, const char *dir);

#endif
