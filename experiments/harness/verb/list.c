#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "experiments/harness/job.h"
#include "experiments/harness/verb.h"

struct list_opts {
    bool help;
};

#define OPT_OF struct list_opts
static const struct opt_row table[] = {OPT_HELP_ROW, {0}};

static int is_job(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return d->d_name[0] != '.' && dot && strcmp(dot, ".json") == 0;
}

static int list(const struct verb_words *w)
{
    char dir[PATH_MAX];
    struct dirent **found = NULL;
    int n = scandir(home_find(dir, sizeof(dir), "experiments"), &found, is_job,
                    alphasort),
        status = VERB_OK;
    struct job *j;

    (void)w;
    if (n < 0) {
        err_set(ERR_IO,
                "%s: cannot read the folder: %s; it is neither near this program nor "
                "here: set " HOME_ENV,
                dir, strerror(errno));
        return verb_fail(VERB_USAGE);
    }
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 256];

        snprintf(path, sizeof(path), "%s/%s", dir, found[i]->d_name);
        if (job_read(&j, path, NULL) == OK) {
            printf("%-24s %4g min %6g MB  %s\n", j->stem, j->cost.minutes,
                   j->cost.disk_mb, j->head.about);
            job_free(&j);
        } else {
            status = verb_fail(VERB_USAGE);
        }
        free(found[i]);
    }
    free(found);
    return status;
}

const struct verb verb_list = {
    .name = "list",
    .help = "List the experiments with their cost.",
    .usage = {"testbed list",
              "List the experiments in experiments/: name, minutes, disk, purpose.",
              "  testbed list\n"
              "  testbed list | grep simulated\n",
              VERB_EXIT_STATUS},
    .opts = table,
    .opts_bytes = sizeof(struct list_opts),
    .run = list,
};
