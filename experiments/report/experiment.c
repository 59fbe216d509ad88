/* One experiment on the page. */
#include "experiments/report/report.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/record/head.h"
#include "experiments/record/prediction.h"

/* --- numbers */

void report_put_number(struct text *out, const json_t *h)
{
    const json_t *v = json_object_get(h, "value"), *lo = json_object_get(h, "lo"),
                 *hi = json_object_get(h, "hi");
    const json_int_t n_left_out = json_integer_value(json_object_get(h, "n_left_out"));
    char bound[RECORD_BOUND_BYTES];

    if (!json_is_number(v)) {
        report_put(out, TEXT(record_bound(h, bound) ? bound : "n/a"), MD(" ("),
                   TEXT(h ? json_str_at(h, "why", "no reason is recorded")
                          : "not in the record"),
                   MD(")"));
        return;
    }
    report_put(out, NUM(4, json_number_value(v)));
    if (json_is_number(lo) && json_is_number(hi))
        report_put(out, MD(" ("), NUM(4, json_number_value(lo)), MD(" to "),
                   NUM(4, json_number_value(hi)), MD(")"));
    if (n_left_out > 0)
        report_put(out, MD(", "), INT(n_left_out), MD(" cells left out"));
}

static enum report_mark mark_of(const struct claim *c, enum claim_verdict v)
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
    report_put(out, MARK(mark_of(c, v), word));
    if (v <= CLAIM_NOT_REPRODUCED)
        report_put(out, TEXT(claim_is_noisy(c, head) ? ", from a noisy record" : ""),
                   MD(" ("), TEXT(evidence), MD(")"));
    if (found.n > 0)
        report_put(out, MD("<br>"), TEXT_N(found.p, found.n));
    text_fini(&found);
}

void report_put_origin(struct text *out, const json_t *head)
{
    const json_t *run = json_object_get(head, "run");

    report_put(out, TEXT_N(json_str_at(run, "commit", "unknown"), 10),
               TEXT(json_is_true(json_object_get(run, "dirty")) ? " with changes" : ""),
               MD(", "), TEXT_N(json_str_at(run, "utc", "unknown"), 10));
}

void report_put_warnings(struct text *out, const json_t *head)
{
    struct text t = {0};

    export_put_warnings(&t, head);
    report_put(out, TEXT_N(t.n ? t.p : "", t.n));
    text_fini(&t);
}

/* --- facts */

void report_put_command(struct text *out, const struct report_experiment *e)
{
    report_put(out, MD("`make experiment NAME="), IN_CODE(e->stem), MD("`"));
    if (e->job)
        report_put(out, MD(", "), NUM(6, e->job->cost.minutes), MD(" minute"),
                   TEXT(e->job->cost.minutes == 1 ? "" : "s"));
}

/* The figure, which is a link to its file, and its other forms. */
static void put_figure(struct text *out, const struct report_experiment *e,
                       const char *dir)
{
    static const char *const extensions[] = {"svg", "pdf", "png", "md", "tex", NULL};
    const int stem = (int)strlen(e->figure) - 3;
    const char *before = "Files: ";
    char path[300], file[PATH_MAX];

    if (!e->figure[0])
        return;
    report_put(out, MD("[!["), TEXT(e->job ? e->job->head.about : e->stem), MD("]("),
               URL(e->figure), MD(")]("), URL(e->figure), MD(")\n\n"));
    for (int i = 0; extensions[i]; i++) {
        snprintf(path, sizeof(path), "%.*s%s", stem, e->figure, extensions[i]);
        snprintf(file, sizeof(file), "%s/%s", dir, path);
        if (access(file, R_OK) != 0)
            continue;
        report_put(out, TEXT(before));
        report_put(out, LINK(extensions[i], path));
        before = ", ";
    }
    text_puts(out, "\n\n");
}

/* "<br>series, measured: step_s, cdf; model: bound_s" */
static void put_series(struct text *out, const json_t *head)
{
    const char *kind, *name, *before = "<br>series, ";
    json_t *names, *v;

    json_object_foreach(json_object_get(head, "series"), kind, names)
    {
        text_puts(out, before);
        report_put(out, TEXT(kind));
        before = ": ";
        json_object_foreach(names, name, v)
        {
            report_put(out, TEXT(before), TEXT(name));
            before = ", ";
        }
        before = "; ";
    }
}

static void put_left_out(struct text *out, const json_t *head)
{
    const char *why, *before = "<br>";
    json_t *n;

    json_object_foreach(json_object_get(head, "left_out"), why, n)
    {
        text_puts(out, before);
        report_put(out, INT(json_integer_value(n)), MD(" not measured: "), TEXT(why));
        before = "; ";
    }
}

/* Where the record is, of which evidence, and what speaks against it. */
static int put_record(struct text *out, const char *host, const json_t *head,
                      const char *dir)
{
    const char *path = json_str_at(head, "path", ""), *slash = strrchr(path, '/');
    struct text link = {0}, predicted = {0};
    int rc = report_put_relative(&link, dir, path);

    report_put(out, MD("| record | ["), TEXT(slash ? slash + 1 : path), MD("]("),
               URL_N(link.n ? link.p : "", link.n), MD("), "),
               TEXT(report_evidence(head)), MD(", "), TEXT(host), MD(", commit "));
    text_fini(&link);
    report_put_origin(out, head);
    put_series(out, head);
    put_left_out(out, head);
    prediction_put(&predicted, json_object_get(head, "run"));
    if (predicted.n > 0)
        report_put(out, MD("<br>prediction: "), TEXT_N(predicted.p, predicted.n));
    text_fini(&predicted);
    if (json_object_size(json_object_get(head, "warnings")) > 0) {
        report_put(out, MD("<br>"), MARK(REPORT_BAD, "warnings"), MD(": "));
        report_put_warnings(out, head);
    }
    text_puts(out, " |\n");
    return rc;
}

/* "Sandwich, sec. 3.3, Fig. 3a: ", as much of it as the job states. */
static void put_claim(struct text *out, const struct job_claim *c)
{
    const bool has_paper = c->paper && *c->paper;
    const char *section = has_paper && c->section ? c->section : "",
               *figure = has_paper && c->figure ? c->figure : "";

    report_put(out, MD("| claim | "), TEXT(has_paper ? c->paper : ""),
               TEXT(*section ? ", sec. " : ""), TEXT(section), TEXT(*figure ? ", " : ""),
               TEXT(figure), TEXT(has_paper ? ": " : ""), TEXT(c->text), MD(" |\n"));
}

/* Bytes of the first sentence; the job has the rest. */
static size_t first_sentence(const char *s)
{
    for (const char *p = s; (p = strchr(p, '.')) != NULL; p++)
        if (p[1] == ' ' && isupper((unsigned char)p[2]))
            return (size_t)(p - s) + 1;
    return strlen(s);
}

static int put_facts(struct text *out, const struct report *r,
                     const struct report_experiment *e, const char *dir)
{
    const struct job *j = e->job;
    const json_t *host;
    size_t h;

    text_puts(out, "| | |\n|---|---|\n");
    if (j && j->claim.text && *j->claim.text)
        put_claim(out, &j->claim);
    if (j && j->head.expect)
        report_put(out, MD("| expected | "),
                   TEXT_N(j->head.expect, first_sentence(j->head.expect)), MD(" |\n"));
    for (size_t i = 0; i < r->claims.n; i++) {
        const struct claim *c = &r->claims.v[i];

        if (!c->experiment || strcmp(c->experiment, e->stem) != 0)
            continue;
        report_put(out, MD("| verdict | "), TEXT(c->name), MD(": "));
        report_put_verdict(out, c, report_record(r, e));
        text_puts(out, " |\n");
    }
    json_array_foreach(r->hosts, h, host)
    {
        const json_t *head = report_record_on(host, e);

        if (head)
            TRY(put_record(out, report_label(host), head, dir));
    }
    text_puts(out, "| command | ");
    report_put_command(out, e);
    text_puts(out, " |\n\n");
    return OK;
}

int report_n_hosts(const struct report *r, const struct report_experiment *e)
{
    const json_t *host;
    size_t h;
    int n = 0;

    json_array_foreach(r->hosts, h, host) n += report_record_on(host, e) != NULL;
    return n;
}

json_t *report_headline_names(const struct report *r, const struct report_experiment *e)
{
    json_t *names = json_object(), *host, *h;
    const char *name;
    size_t i;

    json_array_foreach(r->hosts, i, host) json_object_foreach(
        json_object_get(report_record_on(host, e), "headline"), name, h)
        json_object_set_new(names, name, json_string(json_str_at(h, "unit", "")));
    return names;
}

static double value_of(const json_t *head, const char *name)
{
    return json_f64_at(json_object_get(json_object_get(head, "headline"), name), "value");
}

/* A number on each host, and how the other hosts compare with the first. */
static void put_headline(struct text *out, const struct report *r,
                         const struct report_experiment *e, const char *name,
                         const char *unit)
{
    const json_t *host, *first = report_record(r, e);
    const char *better = "";
    size_t h;

    report_put(out, MD("| "), CODE(name), MD(" | "), TEXT(unit), MD(" | "));
    json_array_foreach(r->hosts, h, host)
    {
        const json_t *head = report_record_on(host, e);
        const json_t *number = json_object_get(json_object_get(head, "headline"), name);
        const char *evidence = json_str_at(number, "evidence", NULL);
        const double ratio = value_of(head, name) / value_of(first, name);

        if (!head)
            continue;
        report_put_number(out, number);
        if (evidence && strcmp(evidence, report_evidence(head)) != 0)
            report_put(out, MD(" \\["), TEXT(evidence), MD("\\]"));
        if (head != first && isfinite(ratio))
            report_put(out, MD(", "), NUM(3, ratio), MD(" times the first"));
        text_puts(out, " | ");
        better = *better ? better : json_str_at(number, "better", "");
    }
    report_put(out, TEXT(better), MD(" |\n"));
}

void report_put_table_head(struct text *out, const struct report *r,
                           const struct report_experiment *e, const char *before,
                           const char *after)
{
    const json_t *host;
    int n_columns = 0;
    size_t h;

    text_puts(out, before);
    json_array_foreach(r->hosts, h, host) if (report_record_on(host, e))
    {
        report_put(out, MD(" "), TEXT(report_label(host)), MD(" |"));
        n_columns++;
    }
    text_puts(out, after);
    for (const char *c = before + 1; *c; c++)
        n_columns += *c == '|';
    for (const char *c = after; *c; c++)
        n_columns += *c == '|';
    text_puts(out, "\n|");
    while (n_columns-- > 0)
        text_puts(out, "---|");
    text_puts(out, "\n");
}

void report_put_numbers(struct text *out, const struct report *r,
                        const struct report_experiment *e)
{
    json_t *names = report_headline_names(r, e), *unit;
    const size_t n = json_object_size(names);
    const char *name;

    if (n > 0) {
        report_put(out, MD("<details><summary>"), INT(n), MD(" number"),
                   TEXT(n == 1 ? "" : "s"), MD("</summary>\n\n"));
        report_put_table_head(out, r, e, "| found (95 % interval) | unit |", " better |");
    }
    json_object_foreach(names, name, unit)
        put_headline(out, r, e, name, json_string_value(unit));
    text_puts(out, n > 0 ? "\n</details>\n\n" : "");
    json_decref(names);
}

int report_put_experiment(struct text *out, const struct report *r,
                          const struct report_experiment *e, const char *dir)
{
    const json_t *line;
    size_t i;

    report_put(out, MD("#### "), TEXT(e->stem), MD("\n\n"),
               TEXT(e->job ? e->job->head.about : ""), MD("\n\n"));
    json_array_foreach(e->problems, i, line)
        report_put(out, MD("- "), MARK(REPORT_BAD, json_string_value(line)), MD("\n"));
    text_puts(out, i ? "\n" : "");
    if (!report_record(r, e)) {
        report_put(out, MARK(REPORT_DIM, "no record"), MD("; run: "));
        report_put_command(out, e);
        text_puts(out, "\n\n");
        return OK;
    }
    put_figure(out, e, dir);
    TRY(put_facts(out, r, e, dir));
    if (report_n_hosts(r, e) > 1)
        report_put(out, MD("[Numbers of "), INT(report_n_hosts(r, e)),
                   MD(" machines side by side](#"), ID("Machines side by side"),
                   MD(")\n\n"));
    else
        report_put_numbers(out, r, e);
    return OK;
}
