/* Temporaries go away with their process, however it ends. */
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_tmp.h"
#include "base/log.h"

/* Regression: an interrupted `model make` left gigabytes; a kill left temporaries of
 * `latest.json` for ever. */

static bool no_locks;

int flock(int fd, int operation)
{
    errno = ENOLCK;
    return no_locks ? -1 : (int)syscall(SYS_flock, fd, operation);
}

static int n_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = -2;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* A new folder of the test's, and a target in it. Lent. */
static const char *fresh_dir(const char *name, char target[400])
{
    static char dir[300];

    snprintf(dir, sizeof(dir), "%s/%s", test_dir(), name);
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(target, 400, "%s/target", dir);
    return dir;
}

static void begin(struct file_tmp *t, const char *target, bool folder)
{
    char inside[500];

    assert_ok(folder ? file_tmp_open_dir(t, target) : file_tmp_open(t, target));
    snprintf(inside, sizeof(inside), "%s/inside", t->path);
    if (folder)
        test_write(inside, "x", 1);
}

/* A process that begins a temporary and gets this signal. */
static void signalled(const char *target, bool folder, int sig)
{
    struct file_tmp t;
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        signal(sig, SIG_DFL);
        begin(&t, target, folder);
        raise(sig);
        for (;;)
            pause(); /* a sanitizer may deliver it here */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sig);
}

TEST(removed_on_signals)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    char target[400];
    const char *dir = fresh_dir("signals", target);

    for (int i = 0; i < 6; i++) {
        signalled(target, i >= 3, signals[i % 3]);
        assert_int_equal(n_entries(dir), 0);
    }
}

static volatile sig_atomic_t seen;

static void see(int sig)
{
    seen = sig;
}

/* Who has a handler, or ignores the signal, decides; the temporary stays his. */
TEST(handlers_of_others_stay)
{
    void (*const theirs[])(int) = {see, SIG_IGN};
    struct file_tmp t;
    char target[400];
    const char *dir = fresh_dir("handlers", target);

    for (int i = 0; i < 2; i++) {
        seen = 0;
        signal(SIGTERM, theirs[i]);
        assert_ok(file_tmp_open(&t, target));
        raise(SIGTERM);
        usleep(1000);
        assert_int_equal(seen, i == 0 ? SIGTERM : 0);
        assert_ok(file_tmp_publish(&t, target));
        file_tmp_close(&t);
        assert_int_equal(n_entries(dir), 1);
    }
    signal(SIGTERM, SIG_DFL);
}

/* A forked child that is ended leaves its parent's temporary alone. */
TEST(children_own_nothing)
{
    struct file_tmp t;
    char target[400];
    const char *dir = fresh_dir("children", target);
    int status = 0;
    pid_t pid;

    begin(&t, target, false);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        raise(SIGTERM);
        for (;;)
            pause();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(n_entries(dir), 1);
    assert_ok(file_tmp_publish(&t, target));
    file_tmp_close(&t);
    assert_int_equal(n_entries(dir), 1);
    assert_int_equal(access(target, F_OK), 0);
}

/* kill -9 leaves it; the next writer of the same target removes it, and nothing else. */
TEST(what_was_killed_is_removed)
{
    static const char *const others[] = {"target.tmp", "target.1.tmp", "target.1.2.tmp.x",
                                         "target.1.x.tmp", "targets.1.2.tmp"};
    struct file_tmp t, alive;
    char target[400], path[700];
    const char *dir = fresh_dir("killed", target);
    int n = (int)(sizeof(others) / sizeof(others[0]));

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, others[i]);
        test_write(path, "x", 1);
    }
    signalled(target, false, SIGKILL);
    signalled(target, true, SIGKILL);
    assert_int_equal(n_entries(dir), n + 1); /* the second removed the first */
    begin(&alive, target, false);
    assert_int_equal(n_entries(dir), n + 1);
    begin(&t, target, false);
    assert_int_equal(n_entries(dir), n + 2); /* a living one is locked */
    assert_ok(file_tmp_publish(&t, target));
    file_tmp_close(&t);
    assert_int_equal(n_entries(dir), n + 2);
    file_tmp_close(&alive);
    assert_int_equal(n_entries(dir), n + 1);
}

/* Another process, which had the same number, may have left the very name. */
TEST(names_in_use_are_passed_over)
{
    struct file_tmp t;
    char target[400], path[500];
    const char *dir = fresh_dir("names", target);

    no_locks = true; /* so that they stay */
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof(path), "%s.%d.%d.tmp", target, (int)getpid(), i);
        test_write(path, "x", 1);
    }
    assert_ok(file_tmp_open(&t, target));
    assert_int_equal(n_entries(dir), 1001);
    assert_ok(file_tmp_publish(&t, target));
    file_tmp_close(&t);
    assert_int_equal(n_entries(dir), 1001);
    no_locks = false;
    assert_ok(file_write(target, "x", 1));
    assert_int_equal(n_entries(dir), 1);
}

/* Regression: `model make` failed where its folder did not exist. */
TEST(folders_are_made)
{
    struct file_tmp t;
    char target[400], deep[500];

    fresh_dir("parents", target);
    snprintf(deep, sizeof(deep), "%s/a/b/c", target);
    assert_ok(file_write(deep, "x", 1));
    snprintf(deep, sizeof(deep), "%s/d/e/f/", target);
    begin(&t, deep, true);
    assert_ok(file_tmp_publish(&t, deep));
    file_tmp_close(&t);
    strcat(deep, "inside");
    assert_int_equal(access(deep, F_OK), 0);
}

TEST(many_at_a_time)
{
    struct file_tmp t[100];
    char target[400];
    const char *dir = fresh_dir("many", target);

    for (int i = 0; i < 100; i++)
        begin(&t[i], target, i % 2);
    assert_int_equal(n_entries(dir), 100);
    for (int i = 0; i < 100; i++)
        file_tmp_close(&t[i]);
    assert_int_equal(n_entries(dir), 0);
}

/* A file system without locks costs a warning, not the work. */
TEST(locks_may_be_missing)
{
    struct log_warning w[4];
    char target[400];
    int fd;

    fresh_dir("locks", target);
    log_set_level(LOG_ERROR);
    while (log_warnings_take(w, 4) > 0)
        ;
    no_locks = true;
    for (int i = 0; i < 2; i++) {
        assert_ok(file_lock_parent(&fd, target));
        assert_ok(file_lock(fd, target, false));
        close(fd);
    }
    no_locks = false;
    assert_int_equal(log_warnings_take(w, 4), 1);
    assert_string_equal(w[0].code, "no_file_lock");
    log_set_level(LOG_INFO);
}
