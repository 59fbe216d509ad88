#include "experiments/job/job.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/child.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/name.h"

static const char *creates(const json_t *p)
{
    return json_string_value(json_object_get(p, "creates"));
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static int spawn(const char *const *argv)
{
    const struct child_program p = {.argv = argv,
                                    .fd = {STDIN_FILENO, STDERR_FILENO, STDERR_FILENO}};
    pid_t pid;
    int rc = child_start(&pid, &p);

    if (rc != OK)
        return err_prefix(ERR_IO, "prepare");
    rc = child_wait(&pid, 0);
    return rc == OK ? OK : err_prefix(rc, "prepare: %s", argv[0]);
}

/* A job may come from a stranger, and what it names runs with the rights of the user. */
static int check_trust(const json_t *p)
{
    static const char *const own[] = {"sandwich", "testbed", NULL};
    const char *name = json_string_value(json_array_get(json_object_get(p, "run"), 0));
    char program[PATH_MAX];

    /* next to this program, not in $PATH */
    if (name_index(own, name) >= 0 &&
        home_program(program, sizeof(program), name)[0] == '/')
        return OK;
    return err_set(ERR_ARG,
                   "prepare: expected sandwich or testbed, found \"%s\"; --trust-prepare "
                   "runs what `testbed describe` prints",
                   name);
}

static int run_one(const json_t *p, void (*report)(void *ctx, const char *line),
                   void *ctx)
{
    const json_t *run = json_object_get(p, "run");
    size_t n = json_array_size(run), len = 0;
    const char **argv = mem_new(MEM_HARNESS, n + 1, sizeof(*argv));
    char line[512], program[PATH_MAX];
    int rc = argv ? file_make_parents(creates(p)) : ERR_NOMEM; /* not all programs do */

    for (size_t i = 0; i < n && rc == OK; i++) {
        argv[i] = json_string_value(json_array_get(run, i));
        if (len < sizeof(line))
            len += (size_t)snprintf(line + len, sizeof(line) - len, "%s%s", i ? " " : "",
                                    argv[i]);
    }
    if (rc == OK) {
        report(ctx, line);
        argv[0] = home_program(program, sizeof(program), argv[0]);
        rc = spawn(argv);
    }
    if (rc == OK && !is_there(creates(p)))
        rc = err_set(ERR_IO, "prepare: %s: did not create %s", argv[0], creates(p));
    mem_free(argv);
    return rc;
}

int job_prepare(const struct job *j, bool trust,
                void (*report)(void *ctx, const char *line), void *ctx)
{
    const size_t n = json_array_size(j->prepare);
    int rc = OK;

    for (size_t i = 0; i < n && rc == OK && !trust; i++)
        rc = check_trust(json_array_get(j->prepare, i));
    for (size_t i = 0; i < n && rc == OK; i++) {
        const json_t *p = json_array_get(j->prepare, i);

        if (!is_there(creates(p)))
            rc = run_one(p, report, ctx);
    }
    return rc;
}
