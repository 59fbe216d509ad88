/* What is on the page, for both formats: machines, verdicts, and then each experiment. */
#include "experiments/report/parts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/record/export_notes.h"
#include "measure/card.h"

const char *report_text_at(const json_t *obj, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s && *s ? s : otherwise;
}

const char *report_evidence(const json_t *head)
{
    const json_t *run = json_object_get(head, "run");

    /* older records call it truth */
    return report_text_at(run, "evidence", report_text_at(run, "truth", "unknown"));
}

void report_put_made(struct report_page *p,
                     void (*put)(struct text *out, const json_t *json),
                     const json_t *json)
{
    struct text t = {0};

    put(&t, json);
    text_put(&t, "", 1);
    if (t.rc == OK)
        report_text(p, t.p);
    else
        p->text.rc = t.rc;
    text_fini(&t);
}

static void cell_made(struct report_page *p,
                      void (*put)(struct text *out, const json_t *json),
                      const json_t *json)
{
    report_open(p, REPORT_CELL);
    report_put_made(p, put, json);
    report_close(p, REPORT_CELL);
}

/* --- machines */

static void put_measured(struct text *out, const char *what, double value,
                         const char *unit)
{
    text_puts(out, what);
    if (isnan(value))
        text_puts(out, "n/a");
    else
        text_printf(out, "%.4g %s", value, unit);
}

static void put_limits(struct text *out, const json_t *host)
{
    const json_t *card = json_object_get(host, "card");
    const int all = INT_MAX; /* CPUs: more than were measured are as many as were */

    if (!card) {
        text_puts(out, "no machine card is recorded");
        return;
    }
    put_measured(out, "read ", measure_card_read_gbps(card, all), "GB/s");
    put_measured(out, ", f32 ", measure_card_peak_gflops(card, "f32", "exact", all),
                 "GFLOP/s");
    put_measured(out, ", bf16 ", measure_card_peak_gflops(card, "bf16", "relaxed", all),
                 "GFLOP/s");
}

static void put_names(struct text *out, const json_t *host)
{
    const char *name, *before = "";
    json_t *v;

    json_object_foreach(json_object_get(host, "names"), name, v)
    {
        text_puts(out, before);
        text_puts(out, name);
        before = ", ";
    }
}

static void put_machines(struct report_page *p, const struct report *r)
{
    static const char *const titles[] = {
        "machine",     "instruction sets", "host name", "measured limits",
        "experiments", "newest record",    NULL};
    const json_t *host;
    size_t i;

    report_heading(p, 2, "Machines");
    if (json_array_size(r->hosts) == 0) {
        report_open(p, REPORT_PARAGRAPH);
        report_text(p, "There is no record yet.");
        report_close(p, REPORT_PARAGRAPH);
        return;
    }
    report_open(p, REPORT_TABLE);
    report_open(p, REPORT_HEAD);
    for (i = 0; titles[i]; i++)
        report_cell(p, titles[i]);
    report_close(p, REPORT_HEAD);
    json_array_foreach(r->hosts, i, host)
    {
        report_open(p, REPORT_ROW);
        report_cell(p, report_text_at(host, "label", "?"));
        report_cell(p, report_text_at(host, "isa", "unknown"));
        cell_made(p, put_names, host);
        cell_made(p, put_limits, host);
        report_open(p, REPORT_CELL);
        report_textf(
            p, "%lld",
            (long long)json_integer_value(json_object_get(host, "n_experiments")));
        report_close(p, REPORT_CELL);
        report_open(p, REPORT_CELL);
        report_textf(p, "%.10s", report_text_at(host, "newest", "?"));
        report_close(p, REPORT_CELL);
        report_close(p, REPORT_ROW);
    }
    report_close(p, REPORT_TABLE);
}

/* --- verdicts */

static enum report_mark mark_of(enum claim_verdict v)
{
    return v == CLAIM_REPRODUCED       ? REPORT_GOOD
           : v == CLAIM_IN_SHAPE       ? REPORT_FAIR
           : v == CLAIM_NOT_REPRODUCED ? REPORT_BAD
                                       : REPORT_DIM;
}

enum claim_verdict report_put_verdict(struct report_page *p, const struct claim *c,
                                      const json_t *head)
{
    struct text found = {0};
    enum claim_verdict v = CLAIM_NO_RECORD;
    char word[96];
    int rc = claim_judge(&v, c, head, &found);

    text_put(&found, "", 1);
    if (rc == OK)
        rc = found.rc;
    snprintf(word, sizeof(word), "%s%s", claim_verdict_name(v),
             claim_is_failure(c, v) ? ", but should hold on every machine" : "");
    report_mark(p, claim_is_failure(c, v) ? REPORT_BAD : mark_of(v), word);
    if (v <= CLAIM_NOT_REPRODUCED && export_is_noisy(head))
        report_text(p, ", from a noisy record");
    if (v <= CLAIM_NOT_REPRODUCED)
        report_textf(p, " (%s)", report_evidence(head));
    if (rc == OK && found.n > 1) {
        report_break(p);
        report_text(p, found.p);
    }
    p->text.rc = p->text.rc != OK ? p->text.rc : rc;
    text_fini(&found);
    return v;
}

static void put_source(struct report_page *p, const struct claim *c)
{
    report_text(p, c->text);
    report_break(p);
    report_text(p, c->paper);
    report_text(p, ", sec. ");
    report_text(p, c->section);
    if (c->figure) {
        report_text(p, ", ");
        report_text(p, c->figure);
    }
    if (c->here) {
        report_break(p);
        report_text(p, "Here: ");
        report_text(p, c->here);
    }
}

static void put_claim(struct report_page *p, const struct report *r,
                      const struct claim *c)
{
    const struct report_experiment *e =
        c->experiment ? report_find(r, c->experiment) : NULL;
    const size_t n_hosts = json_array_size(r->hosts);
    char href[300];

    report_open(p, REPORT_ROW);
    report_open(p, REPORT_CELL);
    report_text(p, c->name);
    if (e) {
        report_break(p);
        snprintf(href, sizeof(href), "#%s", e->stem);
        report_link(p, href, e->stem);
    }
    report_close(p, REPORT_CELL);
    report_open(p, REPORT_CELL);
    put_source(p, c);
    report_close(p, REPORT_CELL);
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++) {
        const json_t *head = e ? json_array_get(e->records, h) : NULL;

        report_open(p, REPORT_CELL);
        report_put_verdict(p, c, json_is_object(head) ? head : NULL);
        report_close(p, REPORT_CELL);
    }
    report_close(p, REPORT_ROW);
}

/* How the verdicts of host h come out. */
static void put_totals(struct report_page *p, const struct report *r, size_t h)
{
    int n[CLAIM_NO_RECORD + 1] = {0}, n_failed = 0;
    struct report_page unseen = {.format = p->format};

    for (size_t i = 0; i < r->claims.n; i++) {
        const struct claim *c = &r->claims.v[i];
        const struct report_experiment *e =
            c->experiment ? report_find(r, c->experiment) : NULL;
        const json_t *head = e ? json_array_get(e->records, h) : NULL;
        enum claim_verdict v =
            report_put_verdict(&unseen, c, json_is_object(head) ? head : NULL);

        n[v]++;
        n_failed += claim_is_failure(c, v);
    }
    text_fini(&unseen.text);
    report_open(p, REPORT_PARAGRAPH);
    if (json_array_size(r->hosts) > 1)
        report_textf(p,
                     "%s: ", report_text_at(json_array_get(r->hosts, h), "label", "?"));
    for (int v = 0; v <= CLAIM_NO_RECORD; v++)
        report_textf(p, "%s%d %s", v ? ", " : "", n[v],
                     claim_verdict_name((enum claim_verdict)v));
    report_text(p, ". ");
    if (n_failed)
        report_textf(p, "%d that should hold on every machine %s not.", n_failed,
                     n_failed == 1 ? "does" : "do");
    else
        report_text(p, "None that should hold on every machine fails.");
    report_close(p, REPORT_PARAGRAPH);
}

static void put_verdicts(struct report_page *p, const struct report *r)
{
    const size_t n_hosts = json_array_size(r->hosts);

    report_heading(p, 2, "Verdicts");
    report_open(p, REPORT_PARAGRAPH);
    report_text(p, "Of ");
    report_code(p, "testbed check");
    report_text(p, ": what the papers claim, compared with the newest records by a rule "
                   "for each claim. \"In shape\": the order or the direction holds, not "
                   "the size, or the machine is a simulated one.");
    report_close(p, REPORT_PARAGRAPH);
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++)
        put_totals(p, r, h);
    report_open(p, REPORT_TABLE);
    report_open(p, REPORT_HEAD);
    report_cell(p, "claim, experiment");
    report_cell(p, "the paper");
    for (size_t h = 0; h < (n_hosts ? n_hosts : 1); h++)
        report_cell(p, n_hosts > 1
                           ? report_text_at(json_array_get(r->hosts, h), "label", "?")
                           : "verdict");
    report_close(p, REPORT_HEAD);
    for (size_t i = 0; i < r->claims.n; i++)
        put_claim(p, r, &r->claims.v[i]);
    report_close(p, REPORT_TABLE);
}

/* --- the page */

static void put_contents(struct report_page *p, const struct report *r)
{
    static const char *const titles[] = {"experiment", "what", "evidence", "minutes",
                                         NULL};
    char href[300];

    report_open(p, REPORT_TABLE);
    report_open(p, REPORT_HEAD);
    for (int i = 0; titles[i]; i++)
        report_cell(p, titles[i]);
    report_close(p, REPORT_HEAD);
    for (size_t i = 0; i < r->n; i++) {
        const struct report_experiment *e = &r->v[i];
        const json_t *head = report_record(e);

        snprintf(href, sizeof(href), "#%s", e->stem);
        report_open(p, REPORT_ROW);
        report_open(p, REPORT_CELL);
        report_link(p, href, e->stem);
        report_close(p, REPORT_CELL);
        report_cell(p, e->job ? e->job->head.about : "");
        report_open(p, REPORT_CELL);
        if (json_array_size(e->problems) > 0)
            report_mark(p, REPORT_BAD, "see there");
        else if (head)
            report_text(p, report_evidence(head));
        else
            report_mark(p, REPORT_DIM, "no record");
        report_close(p, REPORT_CELL);
        report_open(p, REPORT_CELL);
        if (e->job)
            report_textf(p, "%g", e->job->cost.minutes);
        report_close(p, REPORT_CELL);
        report_close(p, REPORT_ROW);
    }
    report_close(p, REPORT_TABLE);
}

int report_put_page(struct report_page *p, const struct report *r, const char *out)
{
    static const char title[] = "Results of Sandwich Testbed";

    report_begin(p, title);
    report_heading(p, 1, title);
    report_open(p, REPORT_PARAGRAPH);
    report_text(p,
                "Everything here comes from the records that are linked: no number was "
                "typed. A number that is missing is n/a, with its reason. Evidence is "
                "measured, measured_small (on a reduced scale), model (arithmetic), "
                "simulated, or emulated (correctness, no timing).");
    report_close(p, REPORT_PARAGRAPH);
    put_machines(p, r);
    put_verdicts(p, r);
    report_heading(p, 2, "Experiments");
    put_contents(p, r);
    for (size_t i = 0; i < r->n; i++)
        TRY(report_put_experiment(p, r, &r->v[i], out));
    report_end(p);
    return p->text.rc;
}
