/* experiments/report/parts.h - parts of the pages that several files put together. Private
 * to this module.   Threads: one. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include "experiments/report/report.h"

/* --- of a record */

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

/* --- of an experiment */

/* {name: unit} of the headlines of its records, a new reference. */
json_t *report_headline_names(const struct report *r, const struct report_experiment *e);
/* The first row of a table and the line below it: `before`, "| a | b |", the hosts that have a
 * record of the experiment, and `after`, " c |" or "". */
void report_put_table_head(struct text *out, const struct report *r,
                           const struct report_experiment *e, const char *before,
                           const char *after);
/* All numbers of its records, a column for each host; the table opens on demand. */
void report_put_numbers(struct text *out, const struct report *r,
                        const struct report_experiment *e);
/* All of one experiment. `dir`: the folder of the page. */
MUST int report_put_experiment(struct text *out, const struct report *r,
                               const struct report_experiment *e, const char *dir);

/* --- of all (summary.c, machines.c). `readme`: for README.md, which is read as it is; its links to
 * experiments are defined at its end. */

#define REPORT_NO_PAPER "Other experiments"
/* The papers that claims and coverage name, in this order: texts, a new reference. */
json_t *report_papers(const struct report *r);
/* One of them, or REPORT_NO_PAPER. */
const char *report_paper_of(const struct report *r, const struct report_experiment *e);
void report_put_link(struct text *out, const char *stem, bool readme);
void report_put_findings(struct text *out, const struct report *r, bool readme);
/* Tables of numbers by paper, and what follows from them in a line. */
void report_put_verdict_counts(struct text *out, const struct report *r);
void report_put_coverage_counts(struct text *out, const struct report *r);

/* How many experiments a host has measured records of. */
size_t report_n_measured(const json_t *host);
/* How many kinds of machines have a record of it. */
int report_n_hosts(const struct report *r, const struct report_experiment *e);
/* How many experiments have records of more than one kind. */
int report_n_compared(const struct report *r);
/* Experiments with records of more than one kind of machine; nothing where there is none. */
void report_put_side_by_side(struct text *out, const struct report *r, bool readme);
/* Write the drawings that it shows into `out`/figures. */
MUST int report_draw_side_by_side(const struct report *r, const char *out);

#endif
