/* README.md of the published records: what was found, and where to look. */
#include "experiments/report/report.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "experiments/record/head.h"

/* "[label](../../docs/x.md)", or the label alone where there is no such document here. */
static void put_document(struct text *out, const char *dir, const char *path,
                         const char *label)
{
    struct text link = {0};

    if (access(path, R_OK) == 0 && report_put_relative(&link, dir, path) == OK)
        report_put(out, MD("["), TEXT(label), MD("]("), URL_N(link.p, link.n), MD(")"));
    else
        report_put(out, TEXT(label));
    text_fini(&link);
}

/* The figure that is kept with the documents, where there is one: an item's, or alone. */
static void put_image(struct text *out, const char *dir, const char *stem,
                      const char *alt, const char *indent)
{
    struct text link = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "paper-figs/gallery/%s.svg", stem);
    if (access(path, R_OK) == 0 && report_put_relative(&link, dir, path) == OK)
        report_put(out, TEXT(*indent ? "\n" : ""), TEXT(indent), MD("!["), TEXT(alt),
                   MD("]("), URL_N(link.p, link.n), MD(")\n\n"));
    text_fini(&link);
}

/* The words of `line` as a paragraph. */
static void end_paragraph(struct text *out, struct text *line)
{
    report_put_wrapped(out, line, "");
    text_puts(out, "\n");
    if (line->rc != OK)
        out->rc = line->rc;
    text_fini(line);
}

static void put_introduction(struct text *out, const char *dir)
{
    struct text line = {0};

    text_puts(out, "# " REPORT_TITLE "\n\n");
    text_puts(&line,
              "What the records in this folder show; `make docs` makes this page of "
              "them. Brackets after a number hold its 95 % interval. Each sentence ends "
              "with what it rests on (measured; measured\\_small: on a reduced scale; "
              "simulated; model: arithmetic) and with its experiment. See also ");
    put_document(&line, dir, "results/README.md", "words and formats");
    text_puts(&line, " and ");
    put_document(&line, dir, "docs/claims.md", "every claim with its verdict");
    text_puts(&line, ".");
    end_paragraph(out, &line);
}

static void put_machines(struct text *out, const struct report *r)
{
    const json_t *host;
    size_t h;

    text_puts(out, "## Machines\n\n");
    json_array_foreach(r->hosts, h, host)
    {
        const size_t n = json_object_size(json_object_get(host, "records")),
                     n_measured = report_n_measured(host);
        const char *isa = json_str_at(host, "isa", "unknown");
        struct text line = {0};

        report_put(&line, MD("- "), TEXT(report_label(host)));
        if (!strstr(report_label(host), isa)) /* which a label has where two are alike */
            report_put(&line, MD(", "), TEXT(isa));
        report_put(&line, MD(": "), INT(n), MD(" experiment"), TEXT(n == 1 ? "" : "s"),
                   MD(", "), INT(n_measured), MD(" of them measured; newest record of "),
                   TEXT_N(json_str_at(host, "newest", "?"), 10));
        report_put_wrapped(out, &line, "  ");
        text_fini(&line);
    }
    text_puts(out, "\nWhat is simulated or computed is the same on every machine.\n\n");
}

static void put_verdicts(struct text *out, const struct report *r, const char *dir)
{
    struct text line = {0};

    text_puts(out, "## Verdicts by paper\n\n");
    text_puts(&line, "What the papers claim, compared with the newest record by a rule "
                     "for each claim (");
    put_document(&line, dir, "docs/claims.md", "all of them");
    text_puts(
        &line,
        "). \"In shape\": the order or the direction holds, not the size, or the "
        "machine is a simulated one. \"Consistent\": it holds, but chance passes the "
        "rule in over 20 % of draws. \"Undecided\": the interval allows both; \"no "
        "interval\": a measured number has none.");
    end_paragraph(out, &line);
    report_put_verdict_counts(out, r);
}

static void put_coverage(struct text *out, const struct report *r, const char *dir)
{
    struct text line = {0};

    text_puts(out, "## What of the papers is tested\n\n");
    text_puts(&line, "Every figure and table, and each section with a claim of its own; "
                     "`build/testbed coverage` lists them. \"Other\": the same question, "
                     "asked in another way.");
    end_paragraph(out, &line);
    report_put_coverage_counts(out, r);
    put_image(out, dir, "coverage", "What of each paper is tested", "");
}

static void put_experiment(struct text *out, const struct report *r,
                           const struct report_experiment *e, const char *dir)
{
    const char *figure = e->job ? e->job->claim.figure : NULL;
    struct text line = {0};

    text_puts(&line, "- ");
    report_put_link(&line, e->stem, true);
    report_put(&line, MD(" ("), TEXT(figure && *figure ? figure : ""),
               TEXT(figure && *figure ? ", " : ""),
               TEXT(report_evidence(report_checked(r, e))), MD("): "),
               TEXT(e->job ? e->job->head.about : ""));
    report_put_wrapped(out, &line, "  ");
    text_fini(&line);
    put_image(out, dir, e->stem, e->stem, "  ");
}

/* The page about the paper, docs/ID.md. */
static void put_paper_page(struct text *out, const char *paper, const char *dir)
{
    struct text path = {0}, line = {0};

    text_puts(&path, "docs/");
    report_put_id(&path, paper);
    text_put(&path, ".md", sizeof(".md"));
    if (path.rc == OK && access(path.p, R_OK) == 0) {
        put_document(&line, dir, path.p,
                     "What it says, what was built, what came out, where we disagree");
        text_puts(&line, ".");
        end_paragraph(out, &line);
    }
    text_fini(&path);
}

/* An item for an experiment without a record. */
static void put_missing(struct text *out, const struct report_experiment *e)
{
    const char *why = e->job ? e->job->head.published : NULL;
    struct text line = {0};

    report_put(&line, MD("- "), CODE(e->stem), TEXT(why ? why + strlen("no") : ""));
    report_put_wrapped(out, &line, "  ");
    text_fini(&line);
}

static void put_paper(struct text *out, const struct report *r, const char *paper,
                      const char *dir)
{
    struct text with = {0}, without = {0};

    for (size_t i = 0; i < r->n; i++) {
        const struct report_experiment *e = &r->v[i];

        if (strcmp(report_paper_of(r, e), paper) != 0)
            continue;
        if (report_record(r, e))
            put_experiment(&with, r, e, dir);
        else if (strcmp(paper, REPORT_NO_PAPER) != 0)
            put_missing(&without, e);
    }
    if (with.n + without.n > 0) {
        report_put(out, MD("### "), TEXT(paper), MD("\n\n"));
        put_paper_page(out, paper, dir);
        report_put_text(out, &with);
        text_puts(out, with.n ? "\n" : "");
    }
    if (without.n > 0) {
        text_puts(out, "No record yet:\n\n");
        report_put_text(out, &without);
        text_puts(out, "\n");
    }
    text_fini(&without);
    text_fini(&with);
}

static void put_papers(struct text *out, const struct report *r, const char *dir)
{
    json_t *papers = report_papers(r);
    struct text line = {0};
    const json_t *p;
    size_t i;

    text_puts(out, "## Figures by paper\n\n");
    text_puts(&line,
              "`make figures` draws those of all records, and `make figures NAME=levers` "
              "one, into `paper-figs/out/`; `make report` writes one page with all "
              "figures and numbers; `make experiment NAME=levers` measures again.");
    end_paragraph(out, &line);
    json_array_append_new(papers, json_string(REPORT_NO_PAPER));
    json_array_foreach(papers, i, p) put_paper(out, r, json_string_value(p), dir);
    json_decref(papers);
}

/* "[levers]: amd-epyc-.../levers": where the links to experiments lead. */
static int put_definitions(struct text *out, const struct report *r, const char *dir)
{
    for (size_t i = 0; i < r->n; i++) {
        const json_t *head = report_checked(r, &r->v[i]);
        struct text line = {0};
        char folder[PATH_MAX];
        int rc;

        if (!head)
            continue;
        snprintf(folder, sizeof(folder), "%s", json_str_at(head, "path", ""));
        if (strrchr(folder, '/'))
            *strrchr(folder, '/') = '\0';
        report_put(&line, MD("["), TEXT(r->v[i].stem), MD("]: "));
        rc = report_put_relative(&line, dir, folder);
        report_put_wrapped(out, &line, "  ");
        text_fini(&line);
        TRY(rc);
    }
    return OK;
}

static int put_readme(struct text *out, const struct report *r, const char *dir)
{
    put_introduction(out, dir);
    report_put_findings(out, r, true);
    put_machines(out, r);
    put_verdicts(out, r, dir);
    put_coverage(out, r, dir);
    put_papers(out, r, dir);
    report_put_side_by_side(out, r, true);
    return put_definitions(out, r, dir);
}

int report_save_readme(const struct report *r, const char *path)
{
    struct text t = {0};
    char dir[PATH_MAX];
    int rc = file_check_target(path, NULL);

    snprintf(dir, sizeof(dir), "%s", path);
    if (strrchr(dir, '/'))
        *strrchr(dir, '/') = '\0';
    else
        snprintf(dir, sizeof(dir), ".");
    if (rc == OK)
        rc = put_readme(&t, r, dir);
    if (rc == OK)
        rc = t.rc;
    if (rc == OK)
        rc = file_write(path, t.p, t.n);
    text_fini(&t);
    return rc;
}
