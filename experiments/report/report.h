/* experiments/report/report.h - all records below results/ as one page: what was found, machines,
 * verdicts on the papers' claims, what of the papers is tested, each experiment with its figure,
 * paper by paper. Also the page of what comes with the program, README.md.
 *
 * Records come from results/NAME/ of the working directory. Those of other machines count as
 * well: to compare machines, copy their records there. Only
 * their heads are read (experiments/record/head.h); one that is damaged is a line on the
 * page. The same records give the same page.   Threads: one. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"
#include "experiments/report/claims.h"
#include "experiments/report/coverage.h"
#include "experiments/report/findings.h"
#include "experiments/job/job.h"
#include "experiments/report/page.h"

struct report_experiment {
    const char *stem; /* lent by the report */
    struct job *job;  /* NULL: its file cannot be read */
    json_t *problems; /* texts of one line: what cannot be read or drawn */
    char figure[256]; /* its path from the folder of the page; "": none */
};

struct report {
    struct claims claims;
    struct coverage coverage;
    struct findings findings;
    json_t *names; /* of all experiments */
    struct report_experiment *v;
    size_t n;
    /* Kinds of machines that have records, the one with most experiments first:
     * [{"label", "isa", "names": {host: true}, "newest": UTC, "card",
     *   "records": {experiment: its newest head (export_head())}}] */
    json_t *hosts;
};

/* Read jobs, claims (NULL: those that come with the program) and records. Damaged ones are
 * problems of their experiment, not errors. *out: report_fini(), also after an error. */
MUST int report_read(struct report *out, const char *claims);
void report_fini(struct report *r);

/* The head of one host's record; NULL: it has none. Lent. */
const json_t *report_record_on(const json_t *host, const struct report_experiment *e);
/* The record of the first host that has one. */
const json_t *report_record(const struct report *r, const struct report_experiment *e);
/* The one that `testbed check` judges. */
const json_t *report_checked(const struct report *r, const struct report_experiment *e);
/* The experiment of that name; NULL: none. */
const struct report_experiment *report_find(const struct report *r, const char *stem);
void report_add_problem(struct report_experiment *e, const char *line);

/* Draw the figure of each record into `out`/figures, unless it is newer than the record and the
 * scripts. `draw` false: show the figures that are there. Drawings of several machines side by
 * side need no script and are always made. */
MUST int report_draw(struct report *r, const char *out, bool draw);

/* Write `out`/index.html and `out`/report.md. */
MUST int report_save(const struct report *r, const char *out);
/* The page as Markdown, for report_save(). `dir`: the folder that it is for. */
#define REPORT_TITLE "Results of Sandwich Testbed"
MUST int report_put_page(struct text *out, const struct report *r, const char *dir);

/* Write the page for those who browse the repository, in Markdown that is read as it is: the first
 * half of the other page, and a line for each experiment. The folder of `path` exists. */
MUST int report_save_readme(const struct report *r, const char *path);

/* ==== the parts of these pages that several files put together; for this module only ==== */

/* --- of a record */

/* The kind of evidence of a record. */
const char *report_evidence(const json_t *head);
const char *report_label(const json_t *host);

/* A headline as of export_head(): "1.02 (0.98 to 1.05)", "n/a (no PMU)". `h` NULL: the record
 * does not have it. */
void report_put_number(struct text *out, const json_t *h);
/* "a1bb4eb1c2 with changes, 2026-11-22" */
void report_put_origin(struct text *out, const json_t *head);
/* The same as of export_put_warnings(). */
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
