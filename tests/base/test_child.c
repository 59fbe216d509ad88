#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"

static int run(int (*fn)(void *ctx, FILE *out), void *ctx, size_t foreign_bytes,
               char **text, size_t *n)
{
    const struct child c = {fn, ctx, "FILE", "it is damaged", foreign_bytes, 0};

    return child_run(&c, text, n);
}

static int n_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int print(void *ctx, FILE *out)
{
    for (int i = 0; i < *(int *)ctx; i++)
        fprintf(out, "%07d\n", i);
    return OK;
}

TEST(text_comes_back)
{
    static int sizes[] = {0, 1, 511, 512, 513, 300000};
    int before = n_open();
    char *text;
    size_t n;

    for (int i = 0; i < 6; i++) {
        assert_ok(run(print, &sizes[i], i % 2 ? 1000 : 0, &text, &n));
        assert_int_equal(n, 8 * sizes[i]);
        assert_int_equal(strlen(text), n);
        if (n)
            assert_int_equal(atoi(text + n - 8), sizes[i] - 1);
        mem_free(text);
    }
    assert_int_equal(n_open(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
}

static int refuse(void *ctx, FILE *out)
{
    fputs("half an answer", out);
    return err_set(*(int *)ctx, "expected this, found that");
}

static int leave(void *ctx, FILE *out)
{
    (void)out;
    child_exit(err_set(*(int *)ctx, "deep inside"));
}

TEST(errors_come_back)
{
    char *text;
    size_t n;

    for (int code = ERR_ARG; code >= ERR_CANCELED; code--) {
        assert_err(run(refuse, &code, 0, &text, &n), code, "expected this, found that");
        assert_null(text);
        assert_err(run(leave, &code, 9, &text, &n), code, "deep inside");
    }
}

/* --- crashes and limits: one line that begins with the file */

static int crash(void *ctx, FILE *out)
{
    fputs("half an answer", out);
    fflush(out);
    raise(*(int *)ctx);
    return OK;
}

static int leave_oddly(void *ctx, FILE *out)
{
    (void)ctx;
    (void)out;
    _exit(3);
}

static int spin(void *ctx, FILE *out)
{
    (void)ctx;
    for (volatile unsigned i = 0; out; i++)
        ;
    return OK;
}

/* The alarm comes three times, with or without work in between. */
static int is_alarmed(void *ctx, FILE *out)
{
    const bool *works = ctx;

    for (int i = 0; i < 3; i++) {
        for (clock_t begin = clock();
             (i == 0 || *works) && clock() < begin + CLOCKS_PER_SEC / 50;)
            ;
        raise(SIGALRM);
    }
    fputs("all", out);
    return OK;
}

static int eat(void *ctx, FILE *out)
{
    (void)ctx;
    (void)out;
    for (int i = 0; i < 64; i++)
        if (mmap(NULL, (size_t)1 << 28, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            return err_set(ERR_NOMEM, "no more than %d", i);
    return OK;
}

static int talk(void *ctx, FILE *out)
{
    (void)ctx;
    while (fputs("0123456789abcdef0123456789abcdef0123456789abcdef\n", out) >= 0)
        ;
    return OK;
}

static void go_on(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* A handler of the parent, such as a test runner's, is not the child's. */
TEST(faults_are_not_handled)
{
    static int fault = SIGSEGV;
    void (*before)(int) = signal(SIGSEGV, go_on);
    char *text;
    size_t n;

    assert_err(run(crash, &fault, 0, &text, &n), ERR_FORMAT, "FILE: ");
    signal(SIGSEGV, before);
}

TEST(crashes_are_errors)
{
    static int signals[] = {SIGSEGV, SIGABRT, SIGKILL, SIGBUS};
    char *text;
    size_t n;

    for (int i = 0; i < 4; i++) {
        assert_err(run(crash, &signals[i], 9, &text, &n), ERR_FORMAT, "FILE: ");
        assert_non_null(strstr(err_msg(), "it is damaged"));
        assert_null(text);
    }
    assert_err(run(leave_oddly, NULL, 9, &text, &n), ERR_FORMAT, "status 3");
}

TEST(foreign_input_has_limits)
{
    char *text;
    size_t n;

    assert_err(run(talk, NULL, 9, &text, &n), ERR_FORMAT, "FILE: more than");
    assert_err(run(eat, NULL, 9, &text, &n), ERR_NOMEM, "no more than");
    assert_err(run(spin, NULL, 9, &text, &n), ERR_FORMAT, "ended with \"");
}

/* Regression: on a busy machine a sound record was called faulty, since it had taken 30 s. */
TEST(a_child_that_computes_may_take_long)
{
    static bool works = true, waits = false;
    char *text;
    size_t n;

    assert_ok(run(is_alarmed, &works, 9, &text, &n));
    assert_string_equal(text, "all");
    mem_free(text);
    assert_err(run(is_alarmed, &waits, 9, &text, &n), ERR_FORMAT, "Alarm clock");
}

TEST(memory_fails)
{
    static int size = 3000;
    char *text;
    size_t n;

    for (long k = 0;; k++) {
        int rc;

        mem_fail_after(k, 0);
        rc = run(print, &size, 0, &text, &n);
        mem_fail_after(-1, 0);
        mem_free(text);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_true(k < 100);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* --- other programs */

static int start(pid_t *pid, const char *const *argv, int out)
{
    return child_start(pid, &(struct child_program){.argv = argv, .fd = {-1, out, -1}});
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Start it, wait, return what it wrote. Lent until the next call. */
static const char *output(const struct child_program *of)
{
    static char text[600];
    struct child_program p = *of;
    int ends[2];
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    p.fd[1] = ends[1];
    assert_ok(child_start(&pid, &p));
    assert_ok(child_wait(&pid, 20));
    assert_int_equal(pid, 0);
    close(ends[1]);
    n = read(ends[0], text, sizeof(text) - 1);
    assert_true(n >= 0);
    text[n] = 0;
    close(ends[0]);
    return text;
}

TEST(programs_run)
{
    static char *env[] = {"PATH=/bin:/usr/bin", "A=b c", NULL};
    struct child_program p = {.fd = {-1, -1, -1}};
    int before = n_open(), kept = open("/dev/null", O_RDONLY); /* for all, on purpose */
    char fds[100];

    p.argv = WORDS("echo", "two words", "$x");
    assert_string_equal(output(&p), "two words $x\n");
    p.env = env;
    p.argv = WORDS("sh", "-c", "echo $A-${HOME-unset}");
    assert_string_equal(output(&p), "b c-unset\n");
    snprintf(fds, sizeof(fds),
             "[ -e /proc/$$/fd/%d ] && echo open; readlink /proc/$$/fd/0", kept);
    p.argv = WORDS("sh", "-c", fds);
    assert_string_equal(output(&p), "/dev/null\n");
    p.argv = WORDS("sh", "-c", "cut -d' ' -f5 /proc/$$/stat");
    assert_int_equal(atoi(output(&p)), getpgrp());
    p.own_group = true;
    assert_int_not_equal(atoi(output(&p)), getpgrp());
    close(kept);
    assert_int_equal(n_open(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(programs_on_cpus)
{
    const char *list = "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status";
    int cpu = sched_getcpu(), none = CPU_SETSIZE - 1, outside = CPU_SETSIZE;
    struct child_program p = {
        .argv = WORDS("sh", "-c", list), .fd = {-1, -1, -1}, .cpus = &cpu, .n_cpus = 1};
    cpu_set_t ours, now;
    pid_t pid;

    assert_int_equal(sched_getaffinity(0, sizeof(ours), &ours), 0);
    assert_int_equal(atoi(output(&p)), cpu);
    p.cpus = &none;
    assert_err(child_start(&pid, &p), ERR_IO, "sh: not all of its CPUs");
    assert_int_equal(pid, 0);
    p.cpus = &outside;
    assert_err(child_start(&pid, &p), ERR_ARG, "CPU 1024, expected 0 to 1023");
    assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
    assert_true(CPU_EQUAL(&ours, &now));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* A name that is nowhere is not found, even if not every folder of $PATH may be searched (as
 * root every folder may). */
static void folder_of_path_is_closed(void)
{
    char closed[300], path[4096], *before = strdup(getenv("PATH"));
    pid_t pid;

    assert_non_null(before);
    snprintf(closed, sizeof(closed), "%s/closed", test_dir());
    assert_int_equal(mkdir(closed, 0), 0);
    snprintf(path, sizeof(path), "%s:%s", closed, before);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_err(start(&pid, WORDS("no-such-program-here"), -1), ERR_NOTFOUND,
               "no-such-program-here: cannot start: No such file");
    assert_int_equal(setenv("PATH", before, 1), 0);
    free(before);
}

TEST(programs_end)
{
    char folder[300];
    pid_t pid;

    assert_err(start(&pid, WORDS("no-such-program-here"), -1), ERR_NOTFOUND,
               "no-such-program-here: cannot start: No such file");
    assert_int_equal(pid, 0);
    folder_of_path_is_closed();
    snprintf(folder, sizeof(folder), "%s/", test_dir());
    assert_err(start(&pid, WORDS(folder), -1), ERR_IO, "cannot start");
    assert_ok(start(&pid, WORDS("sh", "-c", "exit 3"), -1));
    assert_err(child_wait(&pid, 20), ERR_IO, "exited with status 3");
    assert_ok(start(&pid, WORDS("sh", "-c", "kill -SEGV $$"), -1));
    assert_err(child_wait(&pid, 0), ERR_IO, "ended by signal 11 (Segmentation fault)");
    assert_int_equal(pid, 0);
    assert_ok(start(&pid, WORDS("sleep", "1000"), -1));
    assert_err(child_wait(&pid, 0.01), ERR_LIMIT, "still runs");
    assert_true(pid > 0);
    child_kill(&pid);
    assert_int_equal(pid, 0);
    child_kill(&pid);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* A program, and a function's process, whose parent is killed by a signal that cannot be
 * caught: they hold the pipe, so its end is their end. */
static int hold(void *ctx, FILE *out)
{
    int *tell = ctx;

    fputs("started", out);
    if (write(*tell, "s", 1) == 1)
        pause();
    return OK;
}

static _Noreturn void parent_to_be_killed(int tell, bool program)
{
    char *text;
    pid_t pid;
    size_t n;

    if (program && start(&pid, WORDS("sh", "-c", "echo; exec sleep 1000"), tell) == OK)
        pause();
    if (!program && run(hold, &tell, 0, &text, &n) == OK)
        pause();
    _exit(1);
}

TEST(nothing_outlives_its_parent)
{
    for (int program = 0; program < 2; program++) {
        int ends[2], status;
        pid_t parent;
        char c;

        assert_int_equal(pipe(ends), 0);
        parent = fork();
        if (parent == 0)
            parent_to_be_killed(ends[1], program);
        close(ends[1]);
        assert_int_equal(read(ends[0], &c, 1), 1); /* it runs */
        kill(parent, SIGKILL);
        waitpid(parent, &status, 0);
        assert_true(WIFSIGNALED(status));
        alarm(60);
        assert_int_equal(read(ends[0], &c, 1), 0); /* everyone who had it has ended */
        alarm(0);
        close(ends[0]);
    }
}

/* A child that is started too late: its parent has ended before it asked for the signal. */
TEST(parent_ended_before)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        child_follow(getppid() + 1); /* not its parent any more */
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 127);
}
