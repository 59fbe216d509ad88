#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* Limits on what foreign input may cost: a fixed part, and a part for each byte. Our own records
 * need a tenth of it, even where columns of one repeated value compress well. */
#define MEMORY_BYTES    ((size_t)512 << 20)
#define TEXT_BYTES      ((size_t)64 << 20)
#define BYTES_PER_BYTE  64
#define CPU_S           4
#define SHORT_TEXT      4096
#define WAIT_S          30 /* it may wait for a pipe that a damaged file names */
#define IDLE_S          0.001
#define BYTES_PER_CPU_S ((size_t)1 << 20)

static FILE *to_parent; /* in the child; an error is a NUL and its message */

void child_follow(pid_t parent)
{
    /* A parent that was killed before the first call is seen by the second. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(127);
}

void child_leave_signals(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

void child_exit(int rc)
{
    if (rc != OK)
        fprintf(to_parent, "%c%s", 0, err_msg());
    if (fflush(to_parent) != 0)
        _exit(127);
    _exit(-rc);
}

static void limit(int resource, size_t n)
{
    struct rlimit r;

    getrlimit((__rlimit_resource_t)resource, &r);
    r.rlim_cur = n < r.rlim_max ? n : r.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &r) != 0)
        child_exit(err_set(ERR_IO, "cannot limit a child process: %m"));
}

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A child that has used CPU time since the last alarm goes on, however slow the machine is. One
 * that has not waits for something that never comes. */
static void end_if_idle(int alarmed)
{
    static double before;
    struct timespec t;
    double now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    now = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    if (now - before < IDLE_S) {
        signal(alarmed, SIG_DFL);
        raise(alarmed);
    }
    before = now;
    alarm(WAIT_S);
}

static void confine(size_t foreign_bytes, size_t memory_bytes)
{
    size_t now = address_space(), fixed = memory_bytes ? memory_bytes : MEMORY_BYTES;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null >= 0)
        dup2(null, STDERR_FILENO); /* "free(): invalid pointer" and the like */
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CPU_S + foreign_bytes / BYTES_PER_CPU_S);
    signal(SIGALRM, end_if_idle);
    alarm(WAIT_S);
    if (now)
        limit(RLIMIT_AS, now + fixed + BYTES_PER_BYTE * foreign_bytes);
}

/* The parent's handlers are for its own faults: one that jumps back to a loop of the parent
 * would go on there, as a second parent. */
static void default_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL,  SIGFPE,
                                 SIGABRT, SIGSYS, SIGTRAP, SIGPIPE};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        signal(faults[i], SIG_DFL);
}

/* The parent gets the error, and decides. */
static void exit_short_of_memory(void)
{
    child_exit(ERR_NOMEM);
}

static _Noreturn void be_child(const struct child *c, pid_t parent, int fd)
{
    child_follow(parent);
    child_leave_signals();
    default_faults();
    to_parent = fdopen(fd, "w");
    if (!to_parent)
        _exit(127);
    if (c->foreign_bytes)
        confine(c->foreign_bytes, c->memory_bytes);
    mem_when_short(exit_short_of_memory);
    child_exit(c->fn(c->ctx, to_parent));
}

/* All that comes, and a NUL behind it; *text has SHORT_TEXT bytes and grows. */
static int receive(const struct child *c, int fd, char **text, size_t *n)
{
    size_t most = TEXT_BYTES + BYTES_PER_BYTE * c->foreign_bytes, cap = SHORT_TEXT;

    for (;;) {
        ssize_t got;

        if (*n + 1 >= cap) {
            char *grown = mem_resize(MEM_OTHER, *text, 2 * cap, 1);

            if (!grown)
                return ERR_NOMEM;
            *text = grown;
            cap *= 2;
        }
        got = read(fd, *text + *n, cap - *n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(ERR_IO, "%s: cannot read from a child process: %m", c->where);
        if (got == 0)
            return OK;
        *n += (size_t)got;
        if (c->foreign_bytes && *n > most)
            return err_set(ERR_FORMAT, "%s: more than %zu bytes came of it: %s", c->where,
                           most, c->if_crash);
    }
}

/* How the child ended: its own error, or a crash. */
static int judge(const struct child *c, int status, const char *text, size_t n)
{
    const char *mark = memrchr(text, 0, n);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    if (WIFEXITED(status) && code == 0)
        return OK;
    if (code > 0 && code <= -ERR_CANCELED && mark)
        return err_set(-code, "%s", mark + 1);
    if (WIFSIGNALED(status))
        return err_set(ERR_FORMAT, "%s: the process working on it ended with \"%s\": %s",
                       c->where, strsignal(WTERMSIG(status)), c->if_crash);
    return err_set(ERR_FORMAT, "%s: the process working on it ended with status %d: %s",
                   c->where, code, c->if_crash);
}

int child_run(const struct child *c, char **text, size_t *n)
{
    pid_t self = getpid(), pid;
    int ends[2], status = 0, rc;
    char *all;

    *text = NULL;
    *n = 0;
    /* Taken before it starts: work whose answer is short never ends half-way for it. */
    all = mem_new(MEM_OTHER, SHORT_TEXT, 1);
    if (!all)
        return ERR_NOMEM;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        mem_free(all);
        return err_set(ERR_IO, "%s: cannot make a pipe: %m", c->where);
    }
    pid = fork();
    if (pid == 0)
        be_child(c, self, ends[1]);
    rc = pid < 0 ? err_set(ERR_IO, "%s: cannot start a process: %m", c->where) : OK;
    close(ends[1]);
    if (rc == OK)
        rc = receive(c, ends[0], &all, n);
    close(ends[0]);
    if (rc != OK && pid > 0)
        kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == OK)
        rc = judge(c, status, all, *n);
    if (rc == OK)
        *text = all;
    else
        mem_free(all);
    return rc;
}
