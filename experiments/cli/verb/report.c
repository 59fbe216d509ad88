#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/cli/verb.h"

struct report_opts {
    bool draw;
    char *out, *tables, *readme, *claims;
};

#define OPT_OF struct report_opts
static const struct opt_row table[] = {
    OPT_ROW(STR, out, "results/report",
            "Folder of the page: index.html, report.md and figures/.", .unit = "DIR"),
    OPT_ROW(
        STR, tables, NULL,
        "Also replace what stands between \"<!-- testbed report: EXPERIMENT... -->\" "
        "and \"<!-- end of testbed report -->\" in this Markdown file by tables of the "
        "records; the flag may be repeated. Example: --tables README.md.",
        .unit = "FILE", .joins = ','),
    OPT_ROW(STR, readme, NULL,
            "Also write this Markdown file, a short page without figures for those who "
            "browse the repository. Example: --readme results/published/README.md.",
            .unit = "FILE"),
    OPT_ROW(BOOL, draw, "true",
            "Draw figures that are older than their record. Without it, those that are "
            "there are shown."),
    OPT_ROW(STR, claims, NULL,
            "List of claims. Default: results/claims.json, which comes with the program.",
            .unit = "FILE"),
    {0},
};

/* Each stands on the page as well. Returns how many there are. */
static size_t print_problems(const struct report *r)
{
    size_t n = 0, i;
    const json_t *line;

    for (size_t e = 0; e < r->n; e++)
        json_array_foreach(r->v[e].problems, i, line)
        {
            log_error("%s", json_string_value(line));
            n++;
        }
    return n;
}

static int save_tables(const struct report *r, const char *list)
{
    char *files = mem_strdup(MEM_HARNESS, list), *at = files, *file;
    int rc = OK, n_kept;

    while (rc == OK && (file = strsep(&at, ",")) != NULL) {
        rc = report_tables_save(file, r, &n_kept);
        if (rc == OK && n_kept)
            log_info("%s: %d block%s without any record stay%s as before", file, n_kept,
                     n_kept == 1 ? "" : "s", n_kept == 1 ? "s" : "");
    }
    mem_free(files);
    return rc;
}

static int report(const struct verb_words *w)
{
    const struct report_opts *o = w->opts;
    struct report r;
    size_t n_problems = 0;
    int rc = report_read(&r, o->claims);

    if (rc == OK && o->tables)
        rc = save_tables(&r, o->tables);
    if (rc == OK)
        rc = report_draw(&r, o->out, o->draw);
    if (rc == OK)
        rc = report_save(&r, o->out);
    if (rc == OK && o->readme)
        rc = report_save_readme(&r, o->readme);
    if (rc == OK) {
        n_problems = print_problems(&r);
        printf("%s/index.html\n%s/report.md\n", o->out, o->out);
    }
    report_fini(&r);
    if (rc != OK)
        return verb_fail(rc == ERR_IO || rc == ERR_NOMEM ? VERB_INVALID : PROGRAM_USAGE);
    return n_problems ? VERB_INVALID : PROGRAM_OK;
}

const struct verb verb_report = {
    .name = "report",
    .help = "Write one page about all records: verdicts, figures, numbers.",
    .usage =
        {"testbed report [options]",
         "Write what the records in results/ show as one page, in HTML (with the figures "
         "in it, without scripts) and in Markdown: what was found, machines, the "
         "verdicts "
         "of `testbed check`, what of the papers is tested, and for each experiment, "
         "paper "
         "by paper, its figure, claim, expectation, numbers, warnings, command and "
         "record. Records of several machines are shown side by "
         "side: copy theirs, FILE.h5 and FILE.json, into results/NAME/.",
         "  testbed report\n"
         "  testbed report --out page --no-draw\n"
         "  testbed report --tables README.md\n",
         "  0  success\n"
         "  2  wrong usage, or a file without the lines between which tables stand\n"
         "  3  a record is damaged or a figure cannot be drawn, which the page says, "
         "too; "
         "or the page cannot be written\n"},
    .opts = {{table}},
    .opts_bytes = sizeof(struct report_opts),
    .run = report,
};
