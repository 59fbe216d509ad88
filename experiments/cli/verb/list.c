#include <stdio.h>

#include "experiments/job/job.h"
#include "experiments/cli/verb.h"

static int list(const struct verb_words *w)
{
    int status = PROGRAM_OK;
    json_t *names, *name;
    size_t i;

    (void)w;
    if (job_names(&names) != OK)
        return verb_fail(PROGRAM_USAGE);
    json_array_foreach(names, i, name)
    {
        struct job *j = NULL;

        if (job_read(&j, json_string_value(name), NULL) == OK)
            printf("%-24s %4g min %6g MB  %s\n", j->stem, j->cost.minutes,
                   j->cost.disk_mb, j->head.about);
        else
            status = verb_fail(PROGRAM_USAGE);
        job_free(&j);
    }
    json_decref(names);
    return status;
}

const struct verb verb_list = {
    .name = "list",
    .help = "List the experiments with their cost.",
    .usage = {"testbed list",
              "List the experiments in experiments/: name, minutes, disk, purpose.",
              "  testbed list\n"
              "  testbed list | grep simulated\n"},
    .run = list,
};
