#include <stdlib.h>

#include "base/mem.h"
#include "experiments/cli/verb.h"
#include "experiments/record/export.h"
#include "experiments/run/figure.h"

struct draw_opts {
    char *record, *out;
};

#define OPT_OF struct draw_opts
static const struct opt_row table[] = {
    OPT_ROW(STR, record, NULL,
            "Record to draw. Default: the newest, results/NAME/latest.json.",
            .unit = "FILE"),
    OPT_ROW(STR, out, NULL,
            "Folder of the figure. Default: paper-figs/out of the checkout, or below the "
            "working directory.",
            .unit = "PATH"),
    {0},
};

/* Scripts trust a record: one that is damaged, or no file, ends here. */
static int check(const char *record)
{
    char *text;
    size_t n;
    int rc = export_text(record, EXPORT_JSON_FULL, &text, &n);

    mem_free(text);
    return rc;
}

static int draw(const struct verb_words *w)
{
    const struct draw_opts *o = w->opts;

    if (o->record && check(o->record) != OK)
        return verb_fail(VERB_INVALID);

    /* The newest record is found by the script, which then gets no second word either. */
    if (!o->record && o->out && setenv("FIGURES", o->out, 1) != 0)
        return verb_fail(VERB_INVALID);
    return run_figure(w->rest[0], o->record, o->out, false) == OK
               ? PROGRAM_OK
               : verb_fail(VERB_INVALID);
}

const struct verb verb_draw = {
    .name = "draw",
    .help = "Draw the figure of an experiment from its record.",
    .usage =
        {"testbed draw NAME [options]",
         "Draw the figure of an experiment as SVG, PNG and PDF from its newest "
         "record, with paper-figs/NAME.py. A record gives the same bytes whenever it "
         "is drawn.",
         "  testbed draw quickstart\n"
         "  testbed draw quickstart --record FILE.h5 --out figures\n"},
    .n_args = 1,
    .opts = {{table}},
    .opts_bytes = sizeof(struct draw_opts),
    .run = draw,
};
