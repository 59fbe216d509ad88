#include "experiments/harness/job.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

extern char **environ;

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

static int spawn(char *const *argv)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, e;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    e = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (e != 0)
        return err_set(ERR_IO, "prepare: %s: cannot start: %s", argv[0], strerror(e));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(ERR_IO, "prepare: %s: cannot wait for it: %m", argv[0]);
    if (WIFSIGNALED(status))
        return err_set(ERR_IO, "prepare: %s: killed by signal %d", argv[0],
                       WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return err_set(ERR_IO, "prepare: %s: exit status %d", argv[0],
                       WEXITSTATUS(status));
    return OK;
}

static int run_one(const json_t *p, void (*report)(void *ctx, const char *line),
                   void *ctx)
{
    const json_t *run = json_object_get(p, "run");
    size_t n = json_array_size(run), len = 0;
    char **argv = mem_new(MEM_HARNESS, n + 1, sizeof(*argv));
    char line[512];
    int rc = argv ? file_make_parents(creates(p)) : ERR_NOMEM; /* not all programs do */

    for (size_t i = 0; i < n && rc == OK; i++) {
        argv[i] = (char *)json_string_value(json_array_get(run, i));
        if (len < sizeof(line))
            len += (size_t)snprintf(line + len, sizeof(line) - len, "%s%s", i ? " " : "",
                                    argv[i]);
    }
    if (rc == OK) {
        report(ctx, line);
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
