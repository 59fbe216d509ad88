#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/job/job.h"
#include "experiments/metrics/metrics.h"
#include "experiments/load/study.h"
#include "experiments/cli/verb.h"
#include "plan/plan.h"

#define PLAN_BYTES (64 << 20)

struct describe_opts {
    bool smoke;
};

#define OPT_OF struct describe_opts
static const struct opt_row table[] = {VERB_SMOKE_ROW, {0}};

/* Does the file look like a plan, valid or not: does it have the keys of both phases? */
static bool is_plan(const char *path)
{
    json_t *root = NULL;
    bool yes = access(path, R_OK) == 0 && json_read_file(&root, path, PLAN_BYTES) == OK &&
               json_object_get(root, "prefill") && json_object_get(root, "decode");

    json_decref(root);
    return yes;
}

static int describe_plan(const char *path)
{
    static struct plan
        p; /* it has every CPU of a large machine: too much for the stack */
    char *text = NULL;
    bool ok = plan_read(&p, path) == OK && plan_text(&p, &text) == OK;

    plan_fini(&p);
    if (!ok)
        return verb_fail(PROGRAM_USAGE);
    fputs(text, stdout);
    mem_free(text);
    return PROGRAM_OK;
}

static int describe_keys(const char *pattern)
{
    if (pattern)
        return job_find_keys(pattern, stdout) == OK ? PROGRAM_OK
                                                    : verb_fail(PROGRAM_USAGE);
    job_docs(stdout);
    return PROGRAM_OK;
}

static int describe(const struct verb_words *w)
{
    const struct describe_opts *opts = w->opts;
    const struct job_read_opts o = {opts->smoke, w->sets, w->n_sets};
    struct job *j = NULL;

    if (strcmp(w->rest[0], "metrics") == 0) {
        metrics_docs(stdout);
        study_docs(stdout);
        return PROGRAM_OK;
    }
    if (strcmp(w->rest[0], "keys") == 0)
        return describe_keys(w->n_rest > 1 ? w->rest[1] : NULL);
    if (w->n_rest > 1) {
        err_set(
            ERR_ARG,
            "describe: unexpected argument \"%s\"; only `describe keys` takes a second "
            "one",
            w->rest[1]);
        return verb_fail(PROGRAM_USAGE);
    }
    if (is_plan(w->rest[0]))
        return describe_plan(w->rest[0]);
    if (job_read(&j, w->rest[0], &o) != OK)
        return verb_fail(PROGRAM_USAGE);
    job_describe(j, stdout);
    job_free(&j);
    return PROGRAM_OK;
}

const struct verb verb_describe = {
    .name = "describe",
    .help = "Describe an experiment, a plan, all metrics or all keys.",
    .usage =
        {"testbed describe NAME|FILE|metrics|keys [PATTERN] [--set KEY=VALUE]... "
         "[options]",
         "Describe an experiment (its claim, needs, cost and every setting) or a plan "
         "file. "
         "`metrics` lists all metrics, `keys` all keys of an experiment, `keys PATTERN` "
         "those whose name or meaning holds PATTERN.",
         "  testbed describe quickstart\n"
         "  testbed describe keys rate\n"},
    .n_args = 1,
    .n_optional = 1,
    .takes_set = true,
    .opts = {{table}},
    .opts_bytes = sizeof(struct describe_opts),
    .run = describe,
};
