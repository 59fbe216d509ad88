#include "experiments/record/export.h"

#include "experiments/cli/verb.h"

struct export_opts {
    char *format, *out;
};

#define OPT_OF struct export_opts
static const struct opt_row table[] = {
    OPT_ROW(STR, format, "csv",
            "csv (one line per request), csv-cells (one line per cell), csv-series "
            "(one line per element of a cell's arrays), json, json-full "
            "(with every request and token) or markdown.",
            .unit = "FORMAT"),
    OPT_ROW(STR, out, NULL,
            "File to write, completely or not at all. Default: standard output.",
            .unit = "PATH"),
    {0},
};

static int export(const struct verb_words *w)
{
    const struct export_opts *o = w->opts;
    enum export_format format;

    if (export_format_find(o->format, &format) != OK)
        return verb_fail(PROGRAM_USAGE);
    return verb_end(o->out ? export_save(w->rest[0], format, o->out)
                           : export_print(w->rest[0], format, stdout));
}

const struct verb verb_export = {
    .name = "export",
    .help = "Convert a result to CSV, JSON or Markdown.",
    .usage = {"testbed export FILE.h5 [options]", "Convert a result to another format.",
              "  testbed export results/quickstart/RUN.h5 --format markdown\n"
              "  testbed export results/quickstart/RUN.h5 --format csv --out "
              "requests.csv\n"},
    .n_args = 1,
    .opts = {{table}},
    .opts_bytes = sizeof(struct export_opts),
    .run = export,
};
