/* A record is whole or absent, whatever disk, memory or process fails while it is written. */
#include "tests/record/toy_record.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/log.h"

/* --- the disk as the record sees it, in this process and in the one that runs HDF5: the
 * k-th of these calls fails, or all from then on */

static int *calls_left; /* shared with that process; below 0: none fails */
static int fail_errno;

__attribute__((constructor)) static void share_calls(void)
{
    calls_left = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *calls_left = -1;
}

static int refused(void)
{
    if (!calls_left || *calls_left < 0 || (*calls_left)-- > 0)
        return 0;
    *calls_left = 0;
    errno = fail_errno;
    return 1;
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd > 2 && refused()) {
        if (n > 1) /* part of it reaches the disk, then no more */
            return syscall(SYS_write, fd, p, n / 2);
        return -1;
    }
    return syscall(SYS_write, fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (refused()) {
        if (n > 1)
            return syscall(SYS_pwrite64, fd, p, n / 2, at);
        return -1;
    }
    return syscall(SYS_pwrite64, fd, p, n, at);
}

int ftruncate(int fd, off_t n)
{
    return refused() ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int fsync(int fd)
{
    (void)fd; /* what a sync costs is the disk's affair */
    return refused() ? -1 : 0;
}

int rename(const char *from, const char *to)
{
    return refused() ? -1 : (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

/* Each write, sync and rename fails in turn. Then either nothing new has a result's name,
 * and the journal can be finished later, or the result is whole. */
TEST(disk_fails)
{
    static const int errors[] = {ENOSPC, EIO};
    int k, rc;

    log_set_level(LOG_ERROR);
    for (size_t e = 0; e < 2; e++)
        for (k = 0;; k++) {
            char name[48];
            const char *dir;
            struct journal *j;
            char *path = NULL;

            snprintf(name, sizeof(name), "fails-%zu-%d", e, k);
            dir = fixture_dir(name);
            j = filled_with(dir, 2);
            fail_errno = errors[e];
            *calls_left = k;
            rc = record_finish(&j, headline, 2, false, &path);
            *calls_left = -1;
            if (rc == OK) {
                check_cells(path, 2);
                mem_free(path);
                break;
            }
            assert_int_equal(rc, ERR_IO);
            assert_non_null(j);
            assert_int_equal(n_files(dir, ".h5"), 0);
            assert_int_equal(n_files(dir, ".tmp"), 0);
            assert_true(n_files(dir, ".json") <= 1); /* latest.json, of a record before */
            journal_close(&j);
            mem_free(finished(dir));
            assert_true(k < 400);
        }
    log_set_level(LOG_INFO);
    /* HDF5's writes; of the head, the record and latest.json write, sync, rename, folder */
    assert_true(k >= 16);
}

TEST(file_size_limit)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    const char *dir = fixture_dir("limit");
    struct rlimit small = none;
    struct journal *j = filled(dir);

    signal(SIGXFSZ, SIG_IGN);
    small.rlim_cur = 20000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_err(record_finish(&j, headline, 2, false, NULL), ERR_IO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(n_files(dir, ".h5"), 0);
    assert_int_equal(n_files(dir, ".tmp"), 0);
    assert_ok(record_finish(&j, headline, 2, false, NULL));
}

enum { SHORT = 3 };

static void end_short(void)
{
    _exit(SHORT);
}

/* Regression: HDF5 leaked memory when it ran out of memory inside a record. The process that
 * writes the record ends where it is refused memory, as the harness does. */
TEST(memory_fails)
{
    log_set_level(LOG_ERROR);
    for (int once = 0; once < 2; once++) {
        const char *dir = fixture_dir(once ? "nomem1" : "nomem0");
        struct journal *j = filled_with(dir, 2);
        int status = SHORT << 8;

        for (long k = 0; WEXITSTATUS(status) == SHORT; k++) {
            pid_t pid = fork();

            if (pid == 0) {
                mem_when_short(end_short);
                mem_fail_after(k, once);
                _exit(record_finish(&j, headline, 2, false, NULL) == OK ? 0 : SHORT);
            }
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFEXITED(status) && k < 20000);
            /* A process that ends after the rename leaves a whole record, which the next one
             * makes again and finds there. */
            assert_true(n_files(dir, ".h5") <= 1);
        }
        assert_int_equal(WEXITSTATUS(status), 0);
        journal_close(&j);
        mem_free(finished(dir));
    }
    log_set_level(LOG_INFO);
}

TEST(killed_while_finishing)
{
    const char *dir = fixture_dir("killed");
    char path[600];
    struct rng r;

    rng_init(&r, test_seed(), "kill");
    log_set_level(LOG_ERROR);
    snprintf(path, sizeof(path), "%s/" STEM ".h5", dir);
    for (int round = 0; round < 12; round++) {
        int ready[2], status;
        char c;
        pid_t pid;

        unlink(path);
        assert_int_equal(pipe(ready), 0);
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            struct journal *j = filled(dir);
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
            _exit(record_finish(&j, headline, 2, false, NULL) == OK ? 0 : 2);
        }
        assert_true(pid > 0);
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        usleep((useconds_t)rng_below(&r, 15000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (access(path, F_OK) == 0)
            check_result(path);
        mem_free(finished(dir));
        check_result(path);
    }
    log_set_level(LOG_INFO);
}
