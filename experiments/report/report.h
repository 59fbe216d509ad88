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
/* That of the first host that has one. */
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

#endif
