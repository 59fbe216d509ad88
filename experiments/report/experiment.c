/* One experiment on the page. */
#include "experiments/report/parts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "experiments/record/export_notes.h"

#define FOLDED_ABOVE 16 /* numbers of an experiment that stand open */

static void open_row(struct report_page *p, const char *title)
{
    report_open(p, REPORT_ROW);
    report_cell(p, title);
    report_open(p, REPORT_CELL);
}

static void close_row(struct report_page *p)
{
    report_close(p, REPORT_CELL);
    report_close(p, REPORT_ROW);
}

/* --- numbers */

void report_put_number(struct text *out, const json_t *h)
{
    const json_t *v = json_object_get(h, "value"), *lo = json_object_get(h, "lo"),
                 *hi = json_object_get(h, "hi");
    const json_int_t n_left_out = json_integer_value(json_object_get(h, "n_left_out"));

    if (!json_is_number(v)) {
        text_puts(out, "n/a (");
        text_puts(out, h ? report_text_at(h, "why", "no reason is recorded")
                         : "not in the record");
        text_puts(out, ")");
        return;
    }
    text_printf(out, "%.4g", json_number_value(v));
    if (json_is_number(lo) && json_is_number(hi))
        text_printf(out, " (%.4g to %.4g)", json_number_value(lo), json_number_value(hi));
    if (n_left_out > 0)
        text_printf(out, ", %lld cells left out", (long long)n_left_out);
}

void report_put_origin(struct text *out, const json_t *head)
{
    const json_t *run = json_object_get(head, "run");

    text_printf(out, "%.10s%s, %.10s", report_text_at(run, "commit", "unknown"),
                json_is_true(json_object_get(run, "dirty")) ? " with changes" : "",
                report_text_at(run, "utc", "unknown"));
}

/* --- facts */

void report_put_command(struct report_page *p, const struct report_experiment *e)
{
    char line[300];

    snprintf(line, sizeof(line), "make experiment NAME=%s", e->stem);
    report_code(p, line);
    if (e->job)
        report_textf(p, ", %g minute%s", e->job->cost.minutes,
                     e->job->cost.minutes == 1 ? "" : "s");
}

static void put_figure(struct report_page *p, const struct report_experiment *e,
                       const char *out)
{
    static const char *const extensions[] = {"svg", "pdf", "png", "md", "tex", NULL};
    const char *before = "Files: ";
    char path[300], file[PATH_MAX];

    if (!e->figure[0])
        return;
    if (report_image(p, out, e->figure, e->job ? e->job->head.about : e->stem) != OK) {
        report_open(p, REPORT_PARAGRAPH);
        report_textf(p, "No figure: %s", err_msg());
        report_close(p, REPORT_PARAGRAPH);
        return;
    }
    report_open(p, REPORT_PARAGRAPH);
    for (int i = 0; extensions[i]; i++) {
        snprintf(path, sizeof(path), "%.*s%s", (int)(strlen(e->figure) - 3), e->figure,
                 extensions[i]);
        snprintf(file, sizeof(file), "%s/%s", out, path);
        if (access(file, R_OK) != 0)
            continue;
        report_text(p, before);
        report_link(p, path, extensions[i]);
        before = ", ";
    }
    report_close(p, REPORT_PARAGRAPH);
}

static void put_left_out(struct text *out, const json_t *head)
{
    const char *why, *before = "";
    json_t *n;

    json_object_foreach(json_object_get(head, "left_out"), why, n)
    {
        text_printf(out, "%s%lld not measured: ", before,
                    (long long)json_integer_value(n));
        text_puts(out, why);
        before = "; ";
    }
}

/* "measured: step_s, cdf; model: bound_s" */
static void put_series(struct text *out, const json_t *head)
{
    const char *kind, *name, *before = "";
    json_t *names, *v;

    json_object_foreach(json_object_get(head, "series"), kind, names)
    {
        text_puts(out, before);
        text_puts(out, kind);
        before = ": ";
        json_object_foreach(names, name, v)
        {
            text_puts(out, before);
            text_puts(out, name);
            before = ", ";
        }
        before = "; ";
    }
}

/* A row for each host: where its record is, of which evidence, and what speaks against it. */
static int put_records(struct report_page *p, const struct report *r,
                       const struct report_experiment *e, const char *out)
{
    const json_t *head;
    size_t h;

    json_array_foreach(e->records, h, head)
    {
        const char *path = report_text_at(head, "path", "");
        struct text link = {0};
        int rc;

        if (!json_is_object(head))
            continue;
        rc = report_put_relative(&link, out, path);
        text_put(&link, "", 1);
        if (rc != OK || link.rc != OK) {
            text_fini(&link);
            return rc != OK ? rc : link.rc;
        }
        open_row(p, "record");
        report_link(p, link.p, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
        text_fini(&link);
        report_text(p, ", ");
        report_text(p, report_evidence(head));
        report_text(p, ", ");
        report_text(p, report_text_at(json_array_get(r->hosts, h), "label", "?"));
        report_text(p, ", commit ");
        report_put_made(p, report_put_origin, head);
        if (json_object_size(json_object_get(head, "series")) > 0) {
            report_break(p);
            report_text(p, "series, ");
            report_put_made(p, put_series, head);
        }
        if (json_object_size(json_object_get(head, "left_out")) > 0) {
            report_break(p);
            report_put_made(p, put_left_out, head);
        }
        if (json_object_size(json_object_get(head, "warnings")) > 0) {
            report_break(p);
            report_mark(p, REPORT_BAD, "warnings");
            report_text(p, ": ");
            report_put_made(p, export_put_warnings, head);
        }
        close_row(p);
    }
    return OK;
}

static void put_claims_of(struct report_page *p, const struct report *r,
                          const struct report_experiment *e)
{
    const json_t *head = report_record(e);

    for (size_t i = 0; i < r->claims.n; i++) {
        const struct claim *c = &r->claims.v[i];

        if (!c->experiment || strcmp(c->experiment, e->stem) != 0)
            continue;
        open_row(p, "verdict");
        report_text(p, c->name);
        report_text(p, ": ");
        report_put_verdict(p, c, head);
        close_row(p);
    }
}

/* "Sandwich, sec. 3.3, Fig. 3a: ", as much of it as the job states. */
static void put_place(struct report_page *p, const struct job_claim *c)
{
    const char *const words[] = {c->paper, c->section, c->figure}, *const before[] = {
                                                                       "", ", sec. ",
                                                                       ", "};

    for (int i = 0; i < 3; i++)
        if (c->paper && *c->paper && words[i] && *words[i]) {
            report_text(p, before[i]);
            report_text(p, words[i]);
        }
    report_text(p, c->paper && *c->paper ? ": " : "");
}

static int put_facts(struct report_page *p, const struct report *r,
                     const struct report_experiment *e, const char *out)
{
    const struct job *j = e->job;
    int rc;

    report_open(p, REPORT_TABLE);
    if (p->format == REPORT_MARKDOWN) { /* a table needs a head there */
        report_open(p, REPORT_HEAD);
        report_cell(p, "");
        report_cell(p, "");
        report_close(p, REPORT_HEAD);
    }
    if (j && j->claim.text && *j->claim.text) {
        open_row(p, "claim");
        put_place(p, &j->claim);
        report_text(p, j->claim.text);
        close_row(p);
    }
    if (j && j->head.expect) {
        open_row(p, "expected");
        report_text(p, j->head.expect);
        close_row(p);
    }
    put_claims_of(p, r, e);
    rc = put_records(p, r, e, out);
    open_row(p, "command");
    report_put_command(p, e);
    close_row(p);
    report_close(p, REPORT_TABLE);
    return rc;
}

json_t *report_headline_names(const struct report_experiment *e)
{
    json_t *names = json_object(), *head, *h;
    const char *name;
    bool whole = names != NULL;
    size_t i;

    json_array_foreach(e->records, i, head)
        json_object_foreach(json_object_get(head, "headline"), name, h) whole =
            whole && json_object_set_new(names, name,
                                         json_string(report_text_at(h, "unit", ""))) == 0;
    if (whole)
        return names;
    json_decref(names);
    err_set(ERR_NOMEM, "%s: out of memory listing its numbers", e->stem);
    return NULL;
}

static double value_of(const json_t *head, const char *name)
{
    const json_t *h = json_object_get(json_object_get(head, "headline"), name);
    const json_t *v = json_object_get(h, "value");

    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* A number on each host, and how the other hosts compare with the first. */
static void put_headline(struct report_page *p, const struct report_experiment *e,
                         const char *name)
{
    const json_t *head, *first = report_record(e), *any = NULL;
    size_t h;

    json_array_foreach(e->records, h, head)
    {
        any = any ? any : json_object_get(json_object_get(head, "headline"), name);
    }
    report_open(p, REPORT_ROW);
    report_open(p, REPORT_CELL);
    report_code(p, name);
    report_close(p, REPORT_CELL);
    report_cell(p, report_text_at(any, "unit", ""));
    json_array_foreach(e->records, h, head)
    {
        const json_t *number = json_object_get(json_object_get(head, "headline"), name);
        const char *evidence = report_text_at(number, "evidence", NULL);
        const double ratio = value_of(head, name) / value_of(first, name);

        if (!json_is_object(head))
            continue;
        report_open(p, REPORT_CELL);
        report_put_made(p, report_put_number, number);
        if (evidence && strcmp(evidence, report_evidence(head)) != 0)
            report_textf(p, " [%s]", evidence);
        if (head != first && isfinite(ratio))
            report_textf(p, ", %.3g times the first", ratio);
        report_close(p, REPORT_CELL);
    }
    report_cell(p, report_text_at(any, "better", ""));
    report_close(p, REPORT_ROW);
}

static void put_numbers(struct report_page *p, const struct report *r,
                        const struct report_experiment *e)
{
    json_t *names = report_headline_names(e), *v;
    const bool folded = json_object_size(names) > FOLDED_ABOVE;
    const json_t *head;
    const char *name;
    char summary[64];
    size_t h;

    if (!names)
        p->text.rc = ERR_NOMEM;
    if (json_object_size(names) > 0) {
        snprintf(summary, sizeof(summary), "%zu numbers", json_object_size(names));
        if (folded)
            report_fold(p, summary);
        report_open(p, REPORT_TABLE);
        report_open(p, REPORT_HEAD);
        report_cell(p, "found (95 % interval)");
        report_cell(p, "unit");
        json_array_foreach(e->records, h, head) if (json_is_object(head))
            report_cell(p, report_text_at(json_array_get(r->hosts, h), "label", "?"));
        report_cell(p, "better");
        report_close(p, REPORT_HEAD);
        json_object_foreach(names, name, v) put_headline(p, e, name);
        report_close(p, REPORT_TABLE);
        if (folded)
            report_unfold(p);
    }
    json_decref(names);
}

static void put_problems(struct report_page *p, const struct report_experiment *e)
{
    const json_t *line;
    size_t i;

    if (json_array_size(e->problems) == 0)
        return;
    report_open(p, REPORT_LIST);
    json_array_foreach(e->problems, i, line)
    {
        report_open(p, REPORT_ITEM);
        report_mark(p, REPORT_BAD, json_string_value(line));
        report_close(p, REPORT_ITEM);
    }
    report_close(p, REPORT_LIST);
}

int report_put_experiment(struct report_page *p, const struct report *r,
                          const struct report_experiment *e, const char *out)
{
    int rc;

    report_heading(p, 3, e->stem);
    if (e->job) {
        report_open(p, REPORT_PARAGRAPH);
        report_text(p, e->job->head.about);
        report_close(p, REPORT_PARAGRAPH);
    }
    put_problems(p, e);
    if (!report_record(e)) {
        report_open(p, REPORT_PARAGRAPH);
        report_mark(p, REPORT_DIM, "no record");
        report_text(p, "; run: ");
        report_put_command(p, e);
        report_close(p, REPORT_PARAGRAPH);
        return OK;
    }
    put_figure(p, e, out);
    rc = put_facts(p, r, e, out);
    put_numbers(p, r, e);
    return rc;
}
