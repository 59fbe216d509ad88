#include "experiments/job/job.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"

static int is_job(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return d->d_name[0] != '.' && dot && strcmp(dot, ".json") == 0;
}

int job_names(json_t **out)
{
    char dir[PATH_MAX];
    struct dirent **found = NULL;
    int n = scandir(home_find(dir, sizeof(dir), "experiments"), &found, is_job,
                    alphasort),
        rc = OK;

    *out = NULL;
    if (n < 0)
        return err_set(ERR_IO,
                       "%s: cannot read the folder: %s; it is neither near this program "
                       "nor here: set " HOME_ENV,
                       dir, strerror(errno));
    *out = json_array();
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name;

        if (json_array_append_new(*out, json_stringn_lossy(name, strlen(name) - 5)) != 0)
            rc = err_set(ERR_NOMEM, "%s: out of memory", dir);
        free(found[i]);
    }
    free(found);
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int job_no_name(const char *name)
{
    const char **words;
    json_t *names, *e;
    size_t i;
    int rc;

    TRY(job_names(&names));
    words = mem_new(MEM_HARNESS, json_array_size(names) + 1, sizeof(*words));
    json_array_foreach(names, i, e) words[i] = json_string_value(e);
    rc = name_unknown(ERR_NOTFOUND, name, words,
                      "no experiment \"%.80s\" in experiments/ (testbed list)", name);
    mem_free(words);
    json_decref(names);
    return rc;
}
