#include "experiments/report/appendix.h"

#include <string.h>

#include "base/json.h"
#include "experiments/job/job.h"
#include "experiments/report/page.h"

/* --- one claim */

/* n_of[verdict] is counted. */
static void put_claim(struct text *out, const struct claim *c, const json_t *record,
                      int n_of[])
{
    struct text found = {0}, line = {0};
    const enum claim_verdict v = claim_judge(c, record, &found);
    char evidence[96];

    n_of[v]++;
    report_put(&line, MD("- "),
               MARK(v <= CLAIM_NOT_REPRODUCED ? REPORT_GOOD : REPORT_DIM,
                    claim_verdict_name(v)));
    if (v <= CLAIM_NOT_REPRODUCED) {
        claim_evidence(c, record, evidence);
        report_put(&line, MD(" ("), TEXT(evidence),
                   TEXT(claim_is_noisy(c, record) ? ", from a noisy record" : ""),
                   MD(")"));
    }
    report_put(&line, MD(" "), CODE(c->name), MD(", sec. "), TEXT(c->section),
               TEXT(c->figure ? ", " : ""), TEXT(c->figure ? c->figure : ""), MD(": "),
               TEXT(c->text));
    if (v == CLAIM_NOT_TESTABLE && found.n)
        report_put(&line, MD(". Why not: "), TEXT_N(found.p, found.n));
    report_put_wrapped(out, &line, "  ");
    text_fini(&line);
    text_fini(&found);
}

/* --- one experiment */

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Is claim i the first of those with its paper, or with its paper and experiment? */
static bool is_first(const struct claims *claims, size_t i, bool of_experiment)
{
    const struct claim *c = &claims->v[i];

    for (size_t k = 0; k < i; k++)
        if (is_same(claims->v[k].paper, c->paper) &&
            (!of_experiment || is_same(claims->v[k].experiment, c->experiment)))
            return false;
    return true;
}

static void put_record(struct text *out, const json_t *record)
{
    const json_t *run = json_object_get(record, "run");

    if (!record)
        return;
    report_put(out, MD(" Record: "), TEXT(json_str_at(run, "evidence", "?")), MD(", "),
               TEXT_N(json_str_at(run, "utc", "?"), 10), MD(", commit "),
               TEXT_N(json_str_at(run, "commit", "?"), 7));
    if (json_object_get(record, "published"))
        report_put(out, MD(", in `results/published/"),
                   IN_CODE(json_str_at(record, "published", "?")), MD("/`"));
    text_puts(out, ".");
}

/* Put how to run the experiment, and the verdicts on its claims of that paper. */
static int put_experiment(struct text *out, const struct claims *claims, size_t first,
                          int n_of[])
{
    const char *paper = claims->v[first].paper, *name = claims->v[first].experiment;
    struct text line = {0};
    json_t *record = NULL;
    struct job *j = NULL;
    int rc = OK;

    if (name) {
        TRY(job_read(&j, name, NULL));
        rc = claim_record(&record, name);
        rc = rc == ERR_NOTFOUND ? OK : rc;
        report_put(&line, MD("`make experiment NAME="), IN_CODE(name), MD("` ("),
                   NUM(6, j->cost.minutes), MD(" min) draws `paper-figs/out/"),
                   IN_CODE(name), MD(".svg`."));
        put_record(&line, record);
        report_put_wrapped(out, &line, "");
        text_fini(&line);
    } else {
        text_puts(out, "Without an experiment:\n");
    }
    text_puts(out, "\n");
    for (size_t i = first; i < claims->n && rc == OK; i++)
        if (is_same(claims->v[i].paper, paper) && is_same(claims->v[i].experiment, name))
            put_claim(out, &claims->v[i], record, n_of);
    text_puts(out, "\n");
    json_decref(record);
    job_free(&j);
    return rc;
}

/* --- all of it */

/* "1 reproduced, 12 reproduced in shape, ...": those that there are. */
static void put_totals(struct text *out, const int n_of[])
{
    const char *before = "";
    struct text line = {0};

    for (int v = 0; v <= CLAIM_NO_RECORD; v++)
        if (n_of[v]) {
            report_put(&line, TEXT(before), INT(n_of[v]), MD(" "),
                       TEXT(claim_verdict_name((enum claim_verdict)v)));
            before = ", ";
        }
    text_puts(&line, ".");
    report_put_wrapped(out, &line, "");
    text_puts(out, "\n");
    text_fini(&line);
}

/* The claims of one paper, of which v[first] is the first one. */
static int put_paper(struct text *out, const struct claims *claims, size_t first)
{
    const char *paper = claims->v[first].paper;
    int n_of[CLAIM_NO_RECORD + 1] = {0}, rc = OK;
    struct text body = {0};

    for (size_t i = first; i < claims->n && rc == OK; i++)
        if (is_same(claims->v[i].paper, paper) && is_first(claims, i, true))
            rc = put_experiment(&body, claims, i, n_of);
    report_put(out, MD("## "), TEXT(paper), MD("\n\n"));
    put_totals(out, n_of);
    text_put(out, body.p, body.n);
    rc = rc == OK ? body.rc : rc;
    text_fini(&body);
    return rc;
}

int artifact_put_appendix(struct text *out, const struct claims *claims)
{
    text_puts(
        out,
        "# Claims, commands and verdicts\n\n`testbed artifact --appendix` prints this "
        "page; `make docs` renews the one in `docs/` from the\npublished records. "
        "`testbed check CLAIM` prints the numbers behind a verdict, "
        "and\n[results/README.md](../results/README.md) says how verdicts are made.\n\n");
    for (size_t i = 0; i < claims->n; i++)
        if (is_first(claims, i, false))
            TRY(put_paper(out, claims, i));
    if (out->rc == OK)
        out->n--; /* the blank line at the end */
    return out->rc;
}
