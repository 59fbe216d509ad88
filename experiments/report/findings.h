/* experiments/report/findings.h - what the records show, in sentences that take their numbers from
 * them.
 *
 * results/findings.json lists the sentences; results/README.md describes its keys. A sentence has
 * a rule, and stands on a page only while the record bears it out.   Threads: any; one list, one
 * owner. */
#ifndef REPORT_FINDINGS_H
#define REPORT_FINDINGS_H

#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

struct finding { /* all texts are lent by the list */
    const char *paper, *experiment;
    /* "It finds {100*share %} of them in {s}": operands of a rule (claim_rule.h), and after a
     * blank their unit. */
    const char *text;
    const char *holds; /* rule: without it the sentence is not true */
    double tolerance;  /* of the rule */
};

struct findings {
    json_t *root;
    struct finding *v; /* the most interesting first */
    size_t n;
};

enum finding_state {
    FINDING_SHOWN,
    FINDING_NO_RECORD,
    FINDING_NO_NUMBER, /* one of its numbers is n/a, or not in the record */
    FINDING_NOT_SO,    /* the record says otherwise, or leaves it open */
    FINDING_STATES
};

/* Read a list. ERR_FORMAT: one line says which sentence and key are not as expected. *out:
 * findings_fini(), also after an error. */
MUST int findings_read(struct findings *out, const char *path);
void findings_fini(struct findings *f);

/* Append the sentence with the numbers of a record, as Markdown, if it is to be shown.
 *   head  as of export_head(); NULL: there is none */
enum finding_state finding_put(struct text *out, const struct finding *f,
                               const json_t *head);
/* The kinds of evidence of the numbers in the sentence, each once, joined by ", ". */
void finding_evidence(const struct finding *f, const json_t *head, char out[96]);

#endif
