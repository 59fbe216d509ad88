/* A mapped file that shrinks is an error that names it, not a signal. */
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_map.h"

/* Regression: a model file that shrank while it was loaded ended the program by
 * SIGBUS. */

#define PAGES 8

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* A file of PAGES pages and 10 bytes of 'x'. Lent. */
static const char *file(const char *name)
{
    static char path[300];
    size_t n = PAGES * page() + 10;
    char *bytes = mem_new(MEM_TEST, n, 1);

    snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
    memset(bytes, 'x', n);
    test_write(path, bytes, n);
    mem_free(bytes);
    return path;
}

TEST(what_is_gone_reads_as_zeros)
{
    const char *path = file("gone");
    struct file_map m, other;
    size_t at;

    assert_ok(file_map_open(&m, path));
    assert_ok(file_map_open(&other, "/proc/self/exe"));
    assert_int_equal(m.bytes, PAGES * page() + 10);
    for (size_t i = 0; i < m.bytes; i++)
        assert_int_equal(m.base[i], 'x');
    assert_ok(file_map_check());
    assert_int_equal(truncate(path, (off_t)(2 * page() + 1)), 0);
    assert_int_equal(m.base[2 * page()], 'x');
    assert_ok(file_map_check()); /* nothing that is gone was read */
    for (at = m.bytes; at-- > 3 * page();)
        if (m.base[at] != 0)
            fail_msg("byte %zu is %d", at, m.base[at]);
    assert_err(file_map_check(), ERR_IO, path);
    file_map_drop(m.base, m.bytes);
    file_map_will_need(m.base, m.bytes); /* also beyond its end now */
    file_map_will_need(m.base + 100, 0);
    file_map_will_need(NULL, 100);
    assert_int_equal(m.base[0], 'x');
    assert_err(file_map_check(), ERR_IO, path);
    file_map_close(&m);
    assert_ok(file_map_check());
    file_map_close(&other);
    file_map_close(&other);
}

/* How a process ends that maps a file and then runs fn. */
static int end_of(void (*fn)(const char *path), const char *path)
{
    struct file_map m;
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL); /* the test's own would print */
        if (file_map_open(&m, path) == OK)
            fn(path);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void send(const char *path)
{
    (void)path;
    raise(SIGBUS);
}

static void read_elsewhere(const char *path)
{
    int fd = open(path, O_RDWR);
    volatile char *p = mmap(NULL, 2 * page(), PROT_READ, MAP_SHARED, fd, 0);

    if (ftruncate(fd, 10) == 0)
        (void)p[page()];
}

/* Another cause of the signal than a file of this module's ends the process, as before. */
TEST(other_causes_end_the_process)
{
    assert_int_equal(end_of(send, file("sent")), SIGBUS);
    assert_int_equal(end_of(read_elsewhere, file("elsewhere")), SIGBUS);
}

TEST(bad_files)
{
    struct file_map m;
    char path[300];

    snprintf(path, sizeof(path), "%s/none", test_dir());
    assert_err(file_map_open(&m, path), ERR_NOTFOUND, "cannot open");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_err(file_map_open(&m, path), ERR_IO, "found a pipe");
    assert_err(file_map_open(&m, test_dir()), ERR_IO, "found a folder");
    assert_err(file_map_open(&m, "/dev/null"), ERR_IO, "found a device");
    assert_null(m.base);
    snprintf(path, sizeof(path), "%s/empty", test_dir());
    test_write(path, "", 0);
    assert_err(file_map_open(&m, path), ERR_FORMAT, "0 bytes");
}
