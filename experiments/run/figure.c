#include "experiments/run/figure.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/home.h"

#define FIGURE_PYTHON "/usr/bin/python3"

static bool find_script(char *script, size_t n, const char *stem)
{
    char name[256];

    snprintf(name, sizeof(name), "paper-figs/%s.py", stem);
    home_find(script, n, name);
    return access(script, R_OK) == 0;
}

int run_figure(const char *stem, const char *record, const char *dir, bool has_axes)
{
    char script[PATH_MAX], sweep[PATH_MAX];
    bool own = find_script(script, sizeof(script), stem);
    int why = errno, rc;
    bool generic = !own && has_axes && find_script(sweep, sizeof(sweep), "sweep");
    const struct child_program p = {
        .argv = (const char *const[]){FIGURE_PYTHON, generic ? sweep : script, record,
                                      dir, NULL},
        .fd = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}};
    pid_t pid;

    if (!own && !generic)
        return err_set(ERR_NOTFOUND, "%s: no figure is drawn: cannot read %s: %s", stem,
                       script, strerror(why));
    fflush(NULL);
    rc = child_start(&pid, &p);
    if (rc == OK)
        rc = child_wait(&pid, 0);
    return rc == OK ? OK
                    : err_set(rc,
                              "%s: no figure is drawn: %s; it needs python3-matplotlib "
                              "and python3-h5py",
                              p.argv[1], err_msg());
}
