#include "experiments/job/job.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/child.h"
#include "base/file.h"
#include "base/mem.h"

static const char *creates(const json_t *p)
{
    return json_string_value(json_object_get(p, "creates"));
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

int job_n_to_prepare(const struct job *j)
{
    int n = 0;

    for (size_t i = 0; i < json_array_size(j->prepare); i++)
        n += !is_there(creates(json_array_get(j->prepare, i)));
    return n;
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

int job_prepare(const struct job *j, void (*report)(void *ctx, const char *line),
                void *ctx)
{
    int rc = OK;

    for (size_t i = 0; i < json_array_size(j->prepare) && rc == OK; i++) {
        const json_t *p = json_array_get(j->prepare, i);

        if (!is_there(creates(p)))
            rc = run_one(p, report, ctx);
    }
    return rc;
}
