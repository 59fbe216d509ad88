#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/cli/verb.h"
#include "experiments/job/job.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"

#define STATUS_REFUSED 4

struct publish_opts {
};

#define OPT_OF struct publish_opts
static const struct opt_row table[] = {{0}};

/* The newest record of an experiment in results/; "": it has none. */
static int newest(char path[PATH_MAX], const char *experiment)
{
    char latest[PATH_MAX];
    json_t *head;
    int rc;

    path[0] = 0;
    snprintf(latest, sizeof(latest), "results/%.200s/latest.json", experiment);
    rc = export_head(&head, latest);
    if (rc == OK)
        snprintf(path, PATH_MAX, "results/%.200s/%.200s", experiment,
                 json_str_at(head, "file", ""));
    json_decref(head);
    return rc;
}

static int publish_path(const char *path)
{
    char *to;
    int rc = export_publish(&to, path);

    if (rc == OK)
        printf("%s: %s\n", path, to);
    else
        printf("%s: not published: %s\n", path, err_msg());
    mem_free(to);
    return rc == OK ? PROGRAM_OK : rc == ERR_STATE ? STATUS_REFUSED : VERB_INVALID;
}

static int publish_word(const char *word)
{
    size_t n = strlen(word);
    char path[PATH_MAX];

    if (n > 3 && strcmp(word + n - 3, ".h5") == 0)
        return publish_path(word);
    if (newest(path, word) != OK)
        return verb_fail(PROGRAM_USAGE);
    return publish_path(path);
}

/* All that have a record. */
static int publish_all(void)
{
    json_t *names, *name;
    int status = PROGRAM_OK, one;
    char path[PATH_MAX];
    size_t i;

    if (job_names(&names) != OK)
        return verb_fail(PROGRAM_USAGE);
    json_array_foreach(names, i, name)
    {
        int rc = newest(path, json_string_value(name));

        if (rc == ERR_NOTFOUND) {
            err_clear();
            continue;
        }
        one = rc == OK ? publish_path(path) : verb_fail(VERB_INVALID);
        status = one != PROGRAM_OK ? one : status;
    }
    json_decref(names);
    return status;
}

static int publish(const struct verb_words *w)
{
    int status = PROGRAM_OK;

    if (w->n_rest == 0)
        return publish_all();
    for (int i = 0; i < w->n_rest; i++) {
        int one = publish_word(w->rest[i]);

        status = one != PROGRAM_OK ? one : status;
    }
    return status;
}

const struct verb verb_publish = {
    .name = "publish",
    .help = "Copy records to those that come with the program.",
    .usage =
        {"testbed publish [NAME...|FILE.h5...]",
         "Copy the newest records of experiments, or of all, to results/published/, from "
         "where `make figures`, `testbed check` and `testbed report` take them where "
         "you have none of your own. Refused: records with a fault (testbed verify), "
         "smoke "
         "runs, other settings than the "
         "experiment's, local changes, cells that failed, a machine that was busy with "
         "something else, and more than 1.5 MB when compressed. The copy takes the place "
         "of an older one "
         "of the same kind of machine.",
         "  testbed publish\n"
         "  testbed publish quickstart splitwise_faults\n",
         VERB_EXIT_STATUS "  4  a record was refused\n"},
    .n_optional = INT_MAX,
    .opts = {{table}},
    .opts_bytes = sizeof(struct publish_opts),
    .run = publish,
};
