/* What is on the page: machines, verdicts, what is tested, and then each experiment. */
#include "experiments/report/parts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "experiments/record/head.h"
#include "measure/card.h"

const char *report_evidence(const json_t *head)
{
    return json_str_at(json_object_get(head, "run"), "evidence", "unknown");
}

const char *report_label(const json_t *host)
{
    return json_str_at(host, "label", "?");
}

/* --- machines */

static void put_limit(struct text *out, const char *what, double value, const char *unit)
{
    if (isnan(value))
        report_put(out, "%s n/a", what);
    else
        report_put(out, "%s %.4g %s", what, value, unit);
}

static void put_machine(struct text *out, const json_t *host)
{
    const json_t *card = json_object_get(host, "card");
    const int all = INT_MAX; /* CPUs: more than were measured are as many as were */
    const char *name, *before = "";
    json_t *v;

    report_put(out, "| %s | %s | ", report_label(host),
               json_str_at(host, "isa", "unknown"));
    json_object_foreach(json_object_get(host, "names"), name, v)
    {
        report_put(out, "%s%s", before, name);
        before = ", ";
    }
    if (card) {
        put_limit(out, " | read", measure_card_read_gbps(card, all), "GB/s");
        put_limit(out, ", f32", measure_card_peak_gflops(card, "f32", "exact", all),
                  "GFLOP/s");
        put_limit(out, ", bf16", measure_card_peak_gflops(card, "bf16", "relaxed", all),
                  "GFLOP/s");
    } else {
        report_put(out, " | no machine card is recorded");
    }
    report_put(out, " | %zu | %.10s |\n",
               json_object_size(json_object_get(host, "records")),
               json_str_at(host, "newest", "?"));
}

static void put_machines(struct text *out, const struct report *r)
{
    const json_t *host;
    size_t h;

    report_put(out, "## Machines\n\n");
    if (json_array_size(r->hosts) == 0)
        report_put(out, "There is no record yet.\n");
    else
        report_put(out, "| machine | instruction sets | host name | measured limits | "
                        "experiments | newest record |\n|---|---|---|---|---|---|\n");
    json_array_foreach(r->hosts, h, host) put_machine(out, host);
    report_put(out, "\n");
}

/* --- verdicts */

/* The record of host h that decides a claim; NULL: there is none. */
static const json_t *record_of(const struct report *r, const struct claim *c, size_t h)
{
    const struct report_experiment *e =
        c->experiment ? report_find(r, c->experiment) : NULL;

    return e ? report_record_on(json_array_get(r->hosts, h), e) : NULL;
}

static const char *format_of(const struct claim *c, enum claim_verdict v)
{
    return claim_is_failure(c, v) || v == CLAIM_NOT_REPRODUCED ? REPORT_BAD
           : v == CLAIM_REPRODUCED                             ? REPORT_GOOD
           : v == CLAIM_IN_SHAPE                               ? REPORT_FAIR
                                                               : REPORT_DIM;
}

void report_put_verdict(struct text *out, const struct claim *c, const json_t *head)
{
    struct text found = {0};
    const enum claim_verdict v = claim_judge(c, head, &found);
    char word[96], evidence[96];

    claim_evidence(c, head, evidence);
    snprintf(word, sizeof(word), "%s%s", claim_verdict_name(v),
             claim_is_failure(c, v) ? ", but should hold on every machine" : "");
    report_put(out, format_of(c, v), word);
    if (v <= CLAIM_NOT_REPRODUCED)
        report_put(out, "%s (%s)", claim_is_noisy(c, head) ? ", from a noisy record" : "",
                   evidence);
    if (found.n > 0)
        report_put(out, "<br>%.*s", (int)found.n, found.p);
    text_fini(&found);
}

static void put_claim(struct text *out, const struct report *r, const struct claim *c)
{
    const size_t n_hosts = json_array_size(r->hosts);

    report_put(out, "| %s", c->name);
    if (c->experiment && report_find(r, c->experiment))
        report_put(out, "<br>[%s](#%s)", c->experiment, c->experiment);
    report_put(out, " | %s<br>%s, sec. %s%s%s", c->text, c->paper, c->section,
               c->figure ? ", " : "", c->figure ? c->figure : "");
    if (c->here)
        report_put(out, "<br>Here: %s", c->here);
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++) {
        report_put(out, " | ");
        report_put_verdict(out, c, record_of(r, c, h));
    }
    report_put(out, " |\n");
}

/* How the verdicts of host h come out. */
static void put_totals(struct text *out, const struct report *r, size_t h)
{
    int n[CLAIM_NO_RECORD + 1] = {0}, n_failed = 0;

    for (size_t i = 0; i < r->claims.n; i++) {
        struct text found = {0};
        enum claim_verdict v =
            claim_judge(&r->claims.v[i], record_of(r, &r->claims.v[i], h), &found);

        text_fini(&found);
        n[v]++;
        n_failed += claim_is_failure(&r->claims.v[i], v);
    }
    if (json_array_size(r->hosts) > 1)
        report_put(out, "%s: ", report_label(json_array_get(r->hosts, h)));
    for (int v = 0; v <= CLAIM_NO_RECORD; v++)
        report_put(out, "%s%d %s", v ? ", " : "", n[v],
                   claim_verdict_name((enum claim_verdict)v));
    if (n_failed)
        report_put(out, ". %d that should hold on every machine %s not.\n\n", n_failed,
                   n_failed == 1 ? "does" : "do");
    else
        report_put(out, ". None that should hold on every machine fails.\n\n");
}

static void put_verdicts(struct text *out, const struct report *r)
{
    const size_t n_hosts = json_array_size(r->hosts);

    report_put(out, "## Verdicts\n\nOf `testbed check`: what the papers claim, compared "
                    "with the newest records by a rule for each claim. \"In shape\": the "
                    "order or the direction holds, not the size, or the machine is a "
                    "simulated one.\n\n");
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++)
        put_totals(out, r, h);
    report_put(out, "| claim, experiment | the paper |");
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++)
        report_put(out, " %s |",
                   n_hosts > 1 ? report_label(json_array_get(r->hosts, h)) : "verdict");
    report_put(out, "\n|---|---|");
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++)
        report_put(out, "---|");
    report_put(out, "\n");
    for (size_t i = 0; i < r->claims.n; i++)
        put_claim(out, r, &r->claims.v[i]);
    report_put(out, "\n");
}

/* --- what is tested */

static void put_coverage_row(struct text *out, const struct report *r,
                             const struct coverage_row *c)
{
    const json_t *e;
    char evidence[128];
    size_t i;

    report_put(out, "| %s, %s | ", c->paper, c->where);
    report_put(out,
               c->kind == COVERAGE_FULL   ? REPORT_GOOD
               : c->kind == COVERAGE_NONE ? REPORT_DIM
                                          : REPORT_FAIR,
               coverage_kinds[c->kind]);
    report_put(out, " | ");
    json_array_foreach(c->experiments, i, e)
    {
        const char *name = json_string_value(e);

        report_put(out, "%s", i ? ", " : "");
        if (report_find(r, name))
            report_put(out, "[%s](#%s)", name, name);
        else
            report_put(out, "%s", name);
    }
    coverage_join(evidence, sizeof(evidence), c->evidence);
    report_put(out, " | %s | %s |\n", evidence, c->why ? c->why : "");
}

static void put_coverage(struct text *out, const struct report *r)
{
    report_put(out,
               "## What of the papers is tested\n\nEvery figure and table, and each "
               "section with a claim of its own. \"Other\": the same question, asked "
               "in another way.\n\n| where | covers | experiments | evidence | what is "
               "missing |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < r->coverage.n; i++)
        put_coverage_row(out, r, &r->coverage.v[i]);
    report_put(out, "\n");
}

/* --- the page */

static void put_contents(struct text *out, const struct report *r)
{
    report_put(out, "## Experiments\n\n| experiment | what | evidence | minutes |\n"
                    "|---|---|---|---|\n");
    for (size_t i = 0; i < r->n; i++) {
        const struct report_experiment *e = &r->v[i];
        const json_t *head = report_record(r, e);

        report_put(out, "| [%s](#%s) | %s | ", e->stem, e->stem,
                   e->job ? e->job->head.about : "");
        report_put(out,
                   json_array_size(e->problems) > 0 ? REPORT_BAD
                   : head                           ? "%s"
                                                    : REPORT_DIM,
                   json_array_size(e->problems) > 0 ? "see there"
                   : head                           ? report_evidence(head)
                                                    : "no record");
        if (e->job)
            report_put(out, " | %g |\n", e->job->cost.minutes);
        else
            report_put(out, " | |\n");
    }
    report_put(out, "\n");
}

int report_put_page(struct text *out, const struct report *r, const char *dir)
{
    report_put(out, "# " REPORT_TITLE
                    "\n\nEverything here comes from the records that are linked: no "
                    "number was typed. A number that is missing is n/a, with its reason. "
                    "Evidence is measured, measured\\_small (on a reduced scale), model "
                    "(arithmetic), simulated, or emulated (correctness, no timing).\n\n");
    put_machines(out, r);
    put_verdicts(out, r);
    put_coverage(out, r);
    put_contents(out, r);
    for (size_t i = 0; i < r->n; i++)
        TRY(report_put_experiment(out, r, &r->v[i], dir));
    return out->rc;
}
