/* What process_start() establishes, whatever a process has inherited, and what process_end()
 * reports. Each case is a process
 * of its own, whose exit status is the number of the line that failed. */
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

#define EXPECT(cond)                                                                     \
    do {                                                                                 \
        if (!(cond))                                                                     \
            _exit(__LINE__ % 250 + 1);                                                   \
    } while (0)

static bool is_null_device(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 1 &&
           minor(st.st_rdev) == 3;
}

/* Bit i of `closed`: descriptor i is. */
static void starts_without(int closed)
{
    int ends[2], fd;
    char c = 'x';

    EXPECT(pipe(ends) == 0);
    for (fd = 0; fd <= 2; fd++) {
        if (closed >> fd & 1)
            close(fd);
        else
            dup2(ends[fd > 0], fd);
    }
    EXPECT(process_start() == OK);
    for (fd = 0; fd <= 2; fd++)
        EXPECT(is_null_device(fd) == (closed >> fd & 1));
    EXPECT(write(2, &c, 1) == 1);
    EXPECT(write(1, &c, 1) == (closed & 2 ? -1 : 1));
    EXPECT(closed & 2 ? errno == EBADF : true);
    if (closed & 1)
        EXPECT(read(0, &c, 1) == -1 && errno == EBADF);
    fd = open("/dev/null", O_RDONLY);
    EXPECT(fd > 2);
    _exit(0);
}

static void waits_for_its_child(int ignored)
{
    int status = 0;
    pid_t child;

    signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
    EXPECT(process_start() == OK);
    child = fork();
    if (child == 0)
        _exit(7);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    _exit(0);
}

static void in_a_process(void (*fn)(int arg), int arg)
{
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        fn(arg);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("case %d: status %#x: line %d", arg, status, WEXITSTATUS(status) - 1);
}

TEST(closed_descriptors_become_the_null_device)
{
    for (int closed = 0; closed < 8; closed++)
        in_a_process(starts_without, closed);
}

static void loses_its_output(int closed_early)
{
    int full = open("/dev/full", O_WRONLY);

    EXPECT(full >= 0 && dup2(full, 1) == 1);
    setvbuf(stdout, NULL, _IOFBF, 100);
    EXPECT(putchar('x') == 'x');
    if (closed_early) {
        EXPECT(fflush(stdout) != 0); /* the buffer is empty from here on */
        EXPECT(process_end() == ERR_IO && strstr(err_msg(), "a part could not"));
    } else {
        EXPECT(process_end() == ERR_IO && strstr(err_msg(), "No space left"));
    }
    _exit(0);
}

static void prints_nothing(int closed)
{
    if (closed)
        close(1);
    EXPECT(process_start() == OK);
    EXPECT(process_end() == OK);
    _exit(0);
}

/* Regression: a program whose output was lost to a full device exited with 0. */
TEST(lost_output_is_an_error)
{
    for (int i = 0; i < 2; i++) {
        in_a_process(loses_its_output, i);
        in_a_process(prints_nothing, i);
    }
}

TEST(children_are_waited_for)
{
    in_a_process(waits_for_its_child, 0);
    in_a_process(waits_for_its_child, 1);
}
