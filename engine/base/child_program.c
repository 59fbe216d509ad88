/* Other programs as children. vfork(): a large process would spend milliseconds on copying
 * its page tables, and fault on each page that it writes afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/utf8.h"

#define TAIL_BYTES  4096
#define POLL_MIN_NS 200000
#define POLL_MAX_NS 20000000

/* Why a child could not become the program. */
struct failure {
    int e;
    bool cpus; /* it may not run on them */
};

static bool take_cpus(const cpu_set_t *cpus)
{
    cpu_set_t now;

    return sched_setaffinity(0, sizeof(*cpus), cpus) == 0 &&
           sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, cpus);
}

/* Runs in the parent's memory: nothing but system calls, and no variable of the parent's. */
static _Noreturn void exec_program(const struct child_program *p, const cpu_set_t *cpus,
                                   pid_t parent, int null, int report)
{
    struct failure f = {0};
    sigset_t none;
    ssize_t put;

    child_follow(parent);
    signal(SIGPIPE, SIG_DFL);
    if (p->own_group)
        setpgid(0, 0);
    f.cpus = p->n_cpus && !take_cpus(cpus);
    for (int i = 0; i < 3 && !f.cpus; i++)
        if (dup2(p->fd[i] < 0 ? null : p->fd[i], i) < 0)
            goto failed;
    if (!f.cpus) {
        close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        /* execvpe() would have a shell run a damaged program */
        (strchr(p->argv[0], '/') ? execve : execvpe)(p->argv[0], (char *const *)p->argv,
                                                     p->env ? p->env : environ);
    }
failed:
    f.e = errno;
    put = write(report, &f, sizeof(f));
    _exit(put == sizeof(f) ? 127 : 126);
}

static int set_of(cpu_set_t *set, const struct child_program *p)
{
    CPU_ZERO(set);
    for (int i = 0; i < p->n_cpus; i++) {
        if (p->cpus[i] < 0 || p->cpus[i] >= CPU_SETSIZE)
            return err_set(ERR_ARG, "CPU %d, expected 0 to %d", p->cpus[i],
                           CPU_SETSIZE - 1);
        CPU_SET(p->cpus[i], set);
    }
    return OK;
}

/* With all signals blocked: a handler of ours must not run in the child, either. */
static pid_t start(const struct child_program *p, const cpu_set_t *cpus, int null,
                   int report)
{
    const pid_t self = getpid();
    sigset_t all, before;
    pid_t pid;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = vfork();
    if (pid == 0)
        exec_program(p, cpus, self, null, report);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* execvpe() reports EACCES for a name that is nowhere, if a folder of $PATH may not be
 * searched. */
static bool is_nowhere(const char *name)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];

    if (strchr(name, '/') || !path)
        return false;
    for (size_t n; *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, name);
        if (access(file, F_OK) == 0)
            return false;
    }
    return true;
}

int child_start(pid_t *pid, const struct child_program *p)
{
    struct failure f = {0};
    int ends[2], null, rc;
    cpu_set_t cpus;

    *pid = 0;
    rc = set_of(&cpus, p);
    if (rc != OK)
        return rc;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(ERR_IO, "%s: cannot start: %m", p->argv[0]);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    *pid = start(p, &cpus, null, ends[1]);
    f.e = *pid < 0 ? errno : 0;
    close(ends[1]);
    if (*pid > 0 && read(ends[0], &f, sizeof(f)) == sizeof(f))
        child_kill(pid);
    close(ends[0]);
    if (null >= 0)
        close(null);
    if (*pid > 0)
        return OK;
    *pid = 0;
    if (f.cpus)
        return err_set(ERR_IO, "%s: not all of its CPUs may be used here", p->argv[0]);
    if (f.e == EACCES && is_nowhere(p->argv[0]))
        f.e = ENOENT;
    return err_set(f.e == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot start: %s",
                   p->argv[0], strerror(f.e));
}

/* waitpid() until `end_ns`; 0: it still runs. */
static pid_t wait_until(pid_t pid, int *status, uint64_t end_ns)
{
    uint64_t pause_ns = POLL_MIN_NS, now;
    pid_t got;

    while ((got = waitpid(pid, status, end_ns == UINT64_MAX ? 0 : WNOHANG)) == 0 ||
           (got < 0 && errno == EINTR)) {
        now = clock_ns();
        if (now >= end_ns)
            break;
        if (got == 0)
            clock_sleep_until_ns(now + pause_ns, 0);
        pause_ns = pause_ns < POLL_MAX_NS ? 2 * pause_ns : POLL_MAX_NS;
    }
    return got;
}

int child_wait(pid_t *pid, double limit_s)
{
    uint64_t end_ns = limit_s > 0 && limit_s < 1e9
                          ? clock_ns() + (uint64_t)(limit_s * 1e9)
                          : UINT64_MAX;
    int status = 0;
    pid_t got = wait_until(*pid, &status, end_ns);

    if (got == 0)
        return err_set(ERR_LIMIT, "still runs after %.3g s", limit_s);
    *pid = 0;
    if (got < 0)
        return err_set(ERR_IO, "has ended, and its status is lost: %m");
    if (WIFSIGNALED(status))
        return err_set(ERR_IO, "ended by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return err_set(ERR_IO, "exited with status %d", WEXITSTATUS(status));
    return OK;
}

void child_last_line(int fd, char *out, size_t n)
{
    char tail[TAIL_BYTES + 1], *line;
    struct stat file;
    off_t from = fstat(fd, &file) == 0 && file.st_size > TAIL_BYTES
                     ? file.st_size - TAIL_BYTES
                     : 0;
    ssize_t got = pread(fd, tail, TAIL_BYTES, from);

    for (ssize_t i = 0; i < got; i++)
        if (tail[i] == '\0')
            tail[i] = ' ';
    while (got > 0 && strchr("\n\r \t", tail[got - 1]))
        got--;
    tail[got > 0 ? got : 0] = '\0';
    line = strrchr(tail, '\n');
    utf8_show(out, n, line ? line + 1 : tail);
}

void child_kill(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
}
