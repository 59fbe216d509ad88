#include <limits.h>
#include <stdio.h>

#include "base/json.h"
#include "experiments/cli/verb.h"
#include "experiments/record/verify.h"

#define STATUS_FAULT 4

struct verify_opts {
    bool rules;
};

#define OPT_OF struct verify_opts
static const struct opt_row table[] = {
    OPT_ROW(BOOL, rules, "false", "Print what must hold, and end."),
    {0},
};

static int verify_one(const char *path)
{
    json_t *found, *line;
    size_t i, n;

    if (export_verify(&found, path) != OK)
        return verb_fail(VERB_INVALID);
    json_array_foreach(json_object_get(found, "faults"), i, line)
        printf("%s\n", json_string_value(line));
    n = json_array_size(json_object_get(found, "faults"));
    if (n == 0)
        printf("%s: no fault in %lld cells and %lld requests%s\n", path,
               (long long)json_int_at(found, "n_cells"),
               (long long)json_int_at(found, "n_requests"),
               json_is_true(json_object_get(found, "chained"))
                   ? ""
                   : "; of a version that wrote no hashes");
    json_decref(found);
    return n ? STATUS_FAULT : PROGRAM_OK;
}

static int verify(const struct verb_words *w)
{
    const struct verify_opts *o = w->opts;
    int status = PROGRAM_OK, one;

    if (o->rules) {
        export_verify_docs(stdout);
        return PROGRAM_OK;
    }
    if (w->n_rest == 0) {
        err_set(ERR_ARG, "verify: expected FILE.h5, found nothing (usage: testbed verify "
                         "FILE.h5...)");
        return verb_fail(PROGRAM_USAGE);
    }
    for (int i = 0; i < w->n_rest; i++) {
        one = verify_one(w->rest[i]);
        status = one > status ? one : status;
    }
    return status;
}

const struct verb verb_verify = {
    .name = "verify",
    .help = "Check whether the numbers of records can be true.",
    .usage = {"testbed verify FILE.h5... [options]",
              "Look for what cannot be true in records, FILE.h5 or FILE.h5.xz: shares "
              "above their "
              "bound, tokens faster than bytes / bandwidth, times out of order, counts "
              "that do not "
              "add up, summaries that the raw columns do not give, and data that was "
              "changed after "
              "the run (by the chain of hashes in it). Each fault is one line: file, "
              "place, what was "
              "expected and what was found. `testbed check` and `testbed report` take no "
              "number from "
              "a record with a fault, and `testbed publish` refuses it.",
              "  testbed verify results/quickstart/*.h5\n"
              "  testbed verify --rules\n",
              VERB_EXIT_STATUS "  4  a record has a fault\n"},
    .n_optional = INT_MAX,
    .opts = {{table}},
    .opts_bytes = sizeof(struct verify_opts),
    .run = verify,
};
