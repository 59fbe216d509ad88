/* The first part of a page of results: findings, and the papers in numbers. */
#include "experiments/report/report.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/head.h"

/* --- of a record */

const char *report_evidence(const json_t *head)
{
    return json_str_at(json_object_get(head, "run"), "evidence", "unknown");
}

const char *report_label(const json_t *host)
{
    return json_str_at(host, "label", "?");
}

/* --- papers */

static bool has_text(const json_t *list, const char *text)
{
    const json_t *v;
    size_t i;

    json_array_foreach(list, i,
                       v) if (strcmp(json_string_value(v), text) == 0) return true;
    return false;
}

static void add_paper(json_t *papers, const char *name)
{
    if (!has_text(papers, name))
        json_array_append_new(papers, json_string(name));
}

json_t *report_papers(const struct report *r)
{
    json_t *papers = json_array();

    for (size_t i = 0; i < r->claims.n; i++)
        add_paper(papers, r->claims.v[i].paper);
    for (size_t i = 0; i < r->coverage.n; i++)
        add_paper(papers, r->coverage.v[i].paper);
    return papers;
}

const char *report_paper_of(const struct report *r, const struct report_experiment *e)
{
    const char *own = e->job ? e->job->claim.paper : NULL;

    for (size_t i = 0; i < r->claims.n; i++)
        if (own && strcmp(r->claims.v[i].paper, own) == 0)
            return r->claims.v[i].paper;
    for (size_t i = 0; i < r->coverage.n; i++)
        if (has_text(r->coverage.v[i].experiments, e->stem))
            return r->coverage.v[i].paper;
    return REPORT_NO_PAPER;
}

/* --- what was found */

void report_put_link(struct text *out, const char *stem, bool readme)
{
    if (readme)
        report_put(out, MD("["), TEXT(stem), MD("]"));
    else
        report_put(out, ANCHOR(stem, stem));
}

/* The source of a sentence: "measured on AMD EPYC ..., 2 CPUs; [levers](#levers)". */
static void put_source(struct text *out, const struct finding *f, const json_t *head,
                       bool readme)
{
    struct text machine = {0};
    char evidence[96];

    finding_evidence(f, head, evidence);
    report_put(out, MD(" _"), TEXT(evidence));
    if (export_is_timed(report_evidence(head))) {
        export_put_machine(&machine, head);
        report_put(out, MD(" on "), TEXT_N(machine.n ? machine.p : "", machine.n));
        text_fini(&machine);
    }
    report_put(out, TEXT(export_is_noisy(head) ? ", from a noisy record" : ""), MD("; "));
    report_put_link(out, f->experiment, readme);
    text_puts(out, "_");
}

/* Why sentences are not there: n[state] of them, of the experiments in names[state]. */
static void put_left_out(struct text *out, const size_t n[], const struct text names[],
                         size_t n_all)
{
    static const char *const reasons[] = {
        [FINDING_NO_RECORD] = "no record of",
        [FINDING_NO_NUMBER] = "a number is missing in the record of",
        [FINDING_NOT_SO] = "not borne out by the record of"};
    const size_t n_shown = n[FINDING_SHOWN];
    const char *before = ":";
    struct text line = {0};

    if (n_shown == n_all)
        return;
    report_put(&line, INT(n_all - n_shown), MD(" of "), INT(n_all), MD(" sentences "),
               TEXT(n_all - n_shown == 1 ? "is" : "are"), MD(" left out"));
    for (int s = FINDING_SHOWN + 1; s < FINDING_STATES; s++)
        if (n[s]) {
            report_put(&line, TEXT(before), MD(" "), TEXT(reasons[s]), MD(" "));
            report_put_text(&line, &names[s]);
            before = ";";
        }
    text_puts(&line, ".");
    report_put_wrapped(out, &line, "");
    text_puts(out, "\n");
    text_fini(&line);
}

void report_put_findings(struct text *out, const struct report *r, bool readme)
{
    struct text names[FINDING_STATES] = {0};
    size_t n[FINDING_STATES] = {0};

    text_puts(out, "## What was found\n\n");
    for (size_t i = 0; i < r->findings.n; i++) {
        const struct finding *f = &r->findings.v[i];
        const struct report_experiment *e = report_find(r, f->experiment);
        const json_t *head = e ? report_checked(r, e) : NULL;
        struct text sentence = {0}, line = {0};
        const enum finding_state state = finding_put(&sentence, f, head);

        if (state == FINDING_SHOWN) {
            report_put(&line, INT(n[state] + 1), MD(". "), TEXT(f->paper), MD(": "));
            report_put_text(&line, &sentence);
            put_source(&line, f, head, readme);
            report_put_wrapped(out, &line, "   ");
        } else {
            report_put(&names[state], TEXT(n[state] ? ", " : ""), TEXT(f->experiment));
        }
        n[state]++;
        text_fini(&line);
        text_fini(&sentence);
    }
    text_puts(out, n[FINDING_SHOWN] ? "\n" : "");
    put_left_out(out, n, names, r->findings.n);
    for (int s = 0; s < FINDING_STATES; s++)
        text_fini(&names[s]);
}

/* --- papers in numbers */

/* "| paper | a | b | all |": how many of each of the n kinds a paper has. A paper with a line of
 * its own on the page is a link to it. */
static void put_counts(struct text *out, const char *paper, bool linked,
                       const int count[], int n)
{
    int all = 0;

    if (linked)
        report_put(out, MD("| "), ANCHOR(paper, paper));
    else
        report_put(out, MD("| "), TEXT(paper));
    for (int k = 0; k < n; k++) {
        report_put(out, MD(" | "), INT(count[k]));
        all += count[k];
    }
    report_put(out, MD(" | "), INT(all), MD(" |\n"));
}

static void put_counts_head(struct text *out, const char *(*name)(int), int n)
{
    text_puts(out, "| paper");
    for (int k = 0; k < n; k++)
        report_put(out, MD(" | "), TEXT(name(k)));
    text_puts(out, " | all |\n|---|---|");
    for (int k = 0; k < n; k++)
        text_puts(out, "---|");
    text_puts(out, "\n");
}

/* Has a paper an experiment, and so a heading? */
static bool has_heading(const struct report *r, const char *paper)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(report_paper_of(r, &r->v[i]), paper) == 0)
            return true;
    return false;
}

/* As of claim_verdict_name(), short enough for nine columns. */
static const char *name_of_verdict(int v)
{
    static const char *const names[] = {
        [CLAIM_REPRODUCED] = "reproduced",   [CLAIM_IN_SHAPE] = "in shape",
        [CLAIM_CONSISTENT] = "consistent",   [CLAIM_UNDECIDED] = "undecided",
        [CLAIM_NO_INTERVAL] = "no interval", [CLAIM_NOT_REPRODUCED] = "fails",
        [CLAIM_NOT_TESTABLE] = "no test",    [CLAIM_NO_RECORD] = "no record"};

    return names[v];
}

/* Claims of a paper by their verdict, added to count[]; returns how many there are. */
static int count_verdicts(const struct report *r, const char *paper, int count[],
                          int *n_failed)
{
    int n = 0;

    for (size_t i = 0; i < r->claims.n; i++) {
        const struct claim *c = &r->claims.v[i];
        const struct report_experiment *e =
            c->experiment ? report_find(r, c->experiment) : NULL;
        struct text found = {0};
        enum claim_verdict v;

        if (strcmp(c->paper, paper) != 0)
            continue;
        v = claim_judge(c, e ? report_checked(r, e) : NULL, &found);
        text_fini(&found);
        count[v]++;
        *n_failed += claim_is_failure(c, v);
        n++;
    }
    return n;
}

void report_put_verdict_counts(struct text *out, const struct report *r)
{
    json_t *papers = report_papers(r);
    int total[CLAIM_NO_RECORD + 1] = {0}, n_failed = 0;
    const json_t *p;
    size_t i;

    put_counts_head(out, name_of_verdict, CLAIM_NO_RECORD + 1);
    json_array_foreach(papers, i, p)
    {
        int count[CLAIM_NO_RECORD + 1] = {0};

        if (!count_verdicts(r, json_string_value(p), count, &n_failed))
            continue;
        put_counts(out, json_string_value(p), has_heading(r, json_string_value(p)), count,
                   CLAIM_NO_RECORD + 1);
        for (int v = 0; v <= CLAIM_NO_RECORD; v++)
            total[v] += count[v];
    }
    put_counts(out, "all", false, total, CLAIM_NO_RECORD + 1);
    if (n_failed)
        report_put(out, MD("\nOf those that should hold on every machine, "),
                   INT(n_failed), MD(" "), TEXT(n_failed == 1 ? "does" : "do"),
                   MD(" not.\n\n"));
    else
        text_puts(out, "\nNone that should hold on every machine fails.\n\n");
    json_decref(papers);
}

static const char *name_of_coverage(int kind)
{
    return coverage_kinds[kind];
}

void report_put_coverage_counts(struct text *out, const struct report *r)
{
    json_t *papers = report_papers(r);
    int total[COVERAGE_KINDS] = {0};
    const json_t *p;
    size_t i;

    put_counts_head(out, name_of_coverage, COVERAGE_KINDS);
    json_array_foreach(papers, i, p)
    {
        int count[COVERAGE_KINDS] = {0}, n = 0;

        for (size_t k = 0; k < r->coverage.n; k++)
            if (strcmp(r->coverage.v[k].paper, json_string_value(p)) == 0) {
                count[r->coverage.v[k].kind]++;
                total[r->coverage.v[k].kind]++;
                n++;
            }
        if (n)
            put_counts(out, json_string_value(p), has_heading(r, json_string_value(p)),
                       count, COVERAGE_KINDS);
    }
    put_counts(out, "all", false, total, COVERAGE_KINDS);
    text_puts(out, "\n");
    json_decref(papers);
}
