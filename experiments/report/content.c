/* The page: findings, machines, verdicts, coverage, and then each
 * experiment, paper by paper. */
#include "experiments/report/report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/head.h"
#include "measure/card.h"

/* --- machines */

size_t report_n_measured(const json_t *host)
{
    const char *stem;
    json_t *head;
    size_t n = 0;

    json_object_foreach(json_object_get(host, "records"), stem, head) n +=
        export_is_timed(report_evidence(head));
    return n;
}

static void put_limit(struct text *out, const char *what, double value, const char *unit)
{
    if (isnan(value))
        report_put(out, TEXT(what), MD(" n/a"));
    else
        report_put(out, TEXT(what), MD(" "), NUM(4, value), MD(" "), TEXT(unit));
}

static void put_machine(struct text *out, const json_t *host)
{
    const json_t *card = json_object_get(host, "card");
    const int all = INT_MAX; /* CPUs: more than were measured are as many as were */
    const char *name, *before = "";
    json_t *v;

    report_put(out, MD("| "), TEXT(report_label(host)), MD(" | "),
               TEXT(json_str_at(host, "isa", "unknown")), MD(" | "));
    json_object_foreach(json_object_get(host, "names"), name, v)
    {
        report_put(out, TEXT(before), TEXT(name));
        before = ", ";
    }
    text_puts(out, " | ");
    if (card) {
        put_limit(out, "read", measure_card_read_gbps(card, all), "GB/s");
        put_limit(out, ", f32", measure_card_peak_gflops(card, "f32", "exact", all),
                  "GFLOP/s");
        put_limit(out, ", bf16", measure_card_peak_gflops(card, "bf16", "relaxed", all),
                  "GFLOP/s");
    } else {
        text_puts(out, "no machine card is recorded");
    }
    report_put(out, MD(" | "), INT(json_object_size(json_object_get(host, "records"))),
               MD(", "), INT(report_n_measured(host)), MD(" of them measured | "),
               TEXT_N(json_str_at(host, "newest", "?"), 10), MD(" |\n"));
}

static void put_machines(struct text *out, const struct report *r)
{
    const json_t *host;
    size_t h;

    text_puts(out, "## Machines\n\n");
    if (json_array_size(r->hosts) == 0)
        text_puts(out, "There is no record yet.\n");
    else
        text_puts(out, "| machine | instruction sets | host name | measured limits | "
                       "experiments | newest record |\n|---|---|---|---|---|---|\n");
    json_array_foreach(r->hosts, h, host) put_machine(out, host);
    if (report_n_compared(r))
        report_put(out, MD("\n"), INT(report_n_compared(r)), MD(" experiment"),
                   TEXT(report_n_compared(r) == 1 ? " has records" : "s have records"),
                   MD(" of more than one machine: [side by side](#"),
                   ID("Machines side by side"), MD(").\n"));
    text_puts(out, "\n");
}

/* --- verdicts */

/* The record of host h that decides a claim; NULL: there is none. */
static const json_t *record_of(const struct report *r, const struct claim *c, size_t h)
{
    const struct report_experiment *e =
        c->experiment ? report_find(r, c->experiment) : NULL;

    return e ? report_record_on(json_array_get(r->hosts, h), e) : NULL;
}

/* The verdict of each host that has a record. */
static void put_claim(struct text *out, const struct report *r, const struct claim *c)
{
    const size_t n_hosts = json_array_size(r->hosts);
    const char *before = "";

    report_put(out, MD("| "), TEXT(c->name));
    if (c->experiment && report_find(r, c->experiment))
        report_put(out, MD("<br>"), ANCHOR(c->experiment, c->experiment));
    report_put(out, MD(" | "), TEXT(c->text), MD("<br>Sec. "), TEXT(c->section),
               TEXT(c->figure ? ", " : ""), TEXT(c->figure ? c->figure : ""));
    if (c->here)
        report_put(out, MD("<br>Here: "), TEXT(c->here));
    text_puts(out, " | ");
    for (size_t h = 0; h < n_hosts; h++) {
        const json_t *head = record_of(r, c, h);

        if (!head)
            continue;
        text_puts(out, before);
        if (n_hosts > 1)
            report_put(out, TEXT(report_label(json_array_get(r->hosts, h))), MD(": "));
        report_put_verdict(out, c, head);
        before = "<br>";
    }
    if (!*before)
        report_put_verdict(out, c, NULL);
    text_puts(out, " |\n");
}

static void put_verdicts(struct text *out, const struct report *r)
{
    json_t *papers = report_papers(r);
    const json_t *p;
    size_t i;

    text_puts(
        out,
        "## Verdicts by paper\n\nOf `testbed check`: what the papers claim, compared "
        "with the newest records by a rule for each claim. \"In shape\": the order or "
        "the direction holds, not the size, or the machine is a simulated one.\n\n");
    report_put_verdict_counts(out, r);
    json_array_foreach(papers, i, p)
    {
        size_t n = 0;

        for (size_t k = 0; k < r->claims.n; k++) {
            if (strcmp(r->claims.v[k].paper, json_string_value(p)) != 0)
                continue;
            if (n++ == 0)
                report_put(out, MD("<details><summary>Claims of "),
                           TEXT(json_string_value(p)),
                           MD("</summary>\n\n| claim, experiment | the paper | verdict "
                              "|\n|---|---|---|\n"));
            put_claim(out, r, &r->claims.v[k]);
        }
        text_puts(out, n ? "\n</details>\n\n" : "");
    }
    json_decref(papers);
}

/* --- what is tested */

static void put_coverage_row(struct text *out, const struct report *r,
                             const struct coverage_row *c)
{
    const json_t *e;
    char evidence[128];
    size_t i;

    report_put(out, MD("| "), TEXT(c->where), MD(" | "));
    report_put(out, MARK(c->kind == COVERAGE_FULL   ? REPORT_GOOD
                         : c->kind == COVERAGE_NONE ? REPORT_DIM
                                                    : REPORT_FAIR,
                         coverage_kinds[c->kind]));
    text_puts(out, " | ");
    json_array_foreach(c->experiments, i, e)
    {
        const char *name = json_string_value(e);

        report_put(out, TEXT(i ? ", " : ""));
        if (report_find(r, name))
            report_put(out, ANCHOR(name, name));
        else
            report_put(out, TEXT(name));
    }
    coverage_join(evidence, sizeof(evidence), c->evidence);
    report_put(out, MD(" | "), TEXT(evidence), MD(" | "), TEXT(c->why ? c->why : ""),
               MD(" |\n"));
}

static void put_coverage(struct text *out, const struct report *r)
{
    text_puts(out, "## What of the papers is tested\n\nEvery figure and table, and each "
                   "section with a claim of its own. \"Other\": the same question, asked "
                   "in another way.\n\n");
    report_put_coverage_counts(out, r);
    for (size_t i = 0; i < r->coverage.n;) {
        const char *paper = r->coverage.v[i].paper;

        report_put(out, MD("<details><summary>Figures, tables and sections of "),
                   TEXT(paper),
                   MD("</summary>\n\n| where | covers | experiments | evidence | what is "
                      "missing |\n|---|---|---|---|---|\n"));
        for (; i < r->coverage.n && strcmp(r->coverage.v[i].paper, paper) == 0; i++)
            put_coverage_row(out, r, &r->coverage.v[i]);
        text_puts(out, "\n</details>\n\n");
    }
}

/* --- the page */

/* Put a paper's experiments that have a record or a problem, or the others. */
static int put_experiments(struct text *out, const struct report *r, const char *paper,
                           bool recorded, const char *dir, int *n)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct report_experiment *e = &r->v[i];

        if (strcmp(report_paper_of(r, e), paper) != 0 ||
            recorded != (report_record(r, e) || json_array_size(e->problems) > 0))
            continue;
        ++*n;
        TRY(report_put_experiment(out, r, e, dir));
    }
    return OK;
}

static int put_paper(struct text *out, const struct report *r, const char *paper,
                     const char *dir)
{
    struct text with = {0}, without = {0};
    int n_with = 0, n_without = 0,
        rc = put_experiments(&with, r, paper, true, dir, &n_with);

    if (rc == OK)
        rc = put_experiments(&without, r, paper, false, dir, &n_without);
    if (n_with + n_without > 0)
        report_put(out, MD("### "), TEXT(paper), MD("\n\n"));
    report_put_text(out, &with);
    if (n_without > 0)
        report_put(out, MD("<details><summary>"), INT(n_without),
                   MD(" without a record</summary>\n\n"));
    report_put_text(out, &without);
    text_puts(out, n_without > 0 ? "</details>\n\n" : "");
    text_fini(&with);
    text_fini(&without);
    return rc;
}

static int put_figures(struct text *out, const struct report *r, const char *dir)
{
    json_t *papers = report_papers(r);
    const json_t *p;
    int rc = OK;
    size_t i;

    json_array_append_new(papers, json_string(REPORT_NO_PAPER));
    text_puts(out, "## Figures by paper\n\n");
    json_array_foreach(papers, i, p) if (rc == OK) rc =
        put_paper(out, r, json_string_value(p), dir);
    json_decref(papers);
    return rc;
}

int report_put_page(struct text *out, const struct report *r, const char *dir)
{
    text_puts(out,
              "# " REPORT_TITLE
              "\n\nEverything here comes from the records that are linked: no result was "
              "typed. An interval is the 95 % one. A number that is missing is n/a, with "
              "its reason. Evidence is measured, measured\\_small (on a reduced scale), "
              "model (arithmetic), simulated, emulated (correctness, no timing), or "
              "published (read from a file of others).\n\n");
    report_put_findings(out, r, false);
    put_machines(out, r);
    put_verdicts(out, r);
    put_coverage(out, r);
    TRY(put_figures(out, r, dir));
    report_put_side_by_side(out, r, false);
    return out->rc;
}
