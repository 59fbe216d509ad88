/* Journals that are cut, damaged, or written to a disk, a memory or a process that ends. */
#include "tests/record/toy_journal.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not over the file that is there: cutting one to nothing can make a disk sync it. */
static void put_file(const char *path, const void *data, size_t n)
{
    unlink(path);
    test_write(path, data, n);
}

static int count_cell(void *ctx, const struct record_cell *c)
{
    (void)c;
    ++*(int *)ctx;
    return OK;
}

/* Truncated at any byte: the finished cells before it are there, unharmed, and the
 * journal can be gone on with. */
TEST(truncated_anywhere)
{
    const char *dir = fixture_dir("cut");
    char path[600];
    struct journal *j = open_toy(dir);
    size_t ends[3], n, step;
    uint8_t *whole;

    snprintf(path, sizeof(path), "%s", journal_path(j));
    for (int i = 0; i < 3; i++) {
        struct stat st;
        assert_ok(append_fixture(j, i));
        assert_int_equal(stat(path, &st), 0);
        ends[i] = (size_t)st.st_size;
    }
    journal_close(&j);
    whole = test_read(path, &n);
    log_set_level(LOG_ERROR);
    for (size_t cut = 0; cut <= n; cut += step) {
        int want = 0;

        step = 1;
        for (int i = 0; i < 3; i++)
            want += cut >= ends[i];
        put_file(path, whole, cut);
        j = open_toy(dir);
        if (journal_n_finished(j) != (size_t)want || read_checked(path) != want)
            fail_msg("cut at %zu: %zu finished, wanted %d", cut, journal_n_finished(j),
                     want);
        assert_ok(append_fixture(j, 5));
        if (read_checked(path) != want + 1)
            fail_msg("cut at %zu: nothing can follow", cut);
        journal_close(&j);
    }
    log_set_level(LOG_INFO);
    mem_free(whole);
}

/* A flipped bit anywhere behind the header ends the journal before it, never within it,
 * and whoever goes on is told what it costs. */
TEST(flipped_anywhere)
{
    const char *dir = fixture_dir("flip");
    char path[600];
    struct journal *j = open_toy(dir);
    struct stat st;
    struct log_warning w;
    size_t n, head;
    uint8_t *whole;

    snprintf(path, sizeof(path), "%s", journal_path(j));
    assert_int_equal(stat(path, &st), 0);
    head = (size_t)st.st_size;
    for (int i = 0; i < 2; i++)
        assert_ok(append_fixture(j, i));
    journal_close(&j);
    whole = test_read(path, &n);
    for (size_t at = head; at < n; at++) {
        whole[at] ^= (uint8_t)(1 << (at % 8));
        put_file(path, whole, n);
        assert_true(read_checked(path) < 2);
        whole[at] ^= (uint8_t)(1 << (at % 8));
    }
    whole[head + 100] ^= 1; /* in the first of two cells */
    test_write(path, whole, n);
    while (log_warnings_take(&w, 1) > 0)
        ;
    log_set_sink(ignore_line, NULL);
    j = open_toy(dir);
    log_set_sink(NULL, NULL);
    assert_int_equal(log_warnings_take(&w, 1), 1);
    assert_string_equal(w.code, "journal_damaged");
    assert_int_equal(journal_n_finished(j), 0);
    assert_ok(append_fixture(j, 5));
    assert_int_equal(read_checked(path), 1);
    journal_close(&j);
    mem_free(whole);
}

/* Not a journal at all: kept, not removed. */
TEST(foreign_file_is_kept)
{
    const char *dir = fixture_dir("foreign");
    const char text[] = "these are somebody's notes";
    char path[600], aside[700];
    struct journal *j;
    size_t n;
    void *got;

    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/toy.journal", dir);
    test_write(path, text, sizeof(text));
    log_set_sink(ignore_line, NULL);
    j = open_toy(dir);
    log_set_sink(NULL, NULL);
    journal_close(&j);
    snprintf(aside, sizeof(aside), "%s.unreadable", path);
    got = test_read(aside, &n);
    assert_int_equal(n, sizeof(text));
    assert_memory_equal(got, text, n);
    mem_free(got);
}

/* The disk fills up: the cells before it stay, the journal takes no more. */
TEST(disk_full)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct stat st;
    char path[600];

    signal(SIGXFSZ, SIG_IGN);
    log_set_level(LOG_ERROR);
    for (int extra = 1; extra < 3000; extra += 97) {
        struct journal *j = open_toy(fixture_dir("full"));
        struct rlimit small = none;
        int rc, finished = 1;

        snprintf(path, sizeof(path), "%s", journal_path(j));
        assert_ok(append_fixture(j, 0));
        assert_int_equal(stat(path, &st), 0);
        small.rlim_cur = (rlim_t)(st.st_size + extra);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        while ((rc = append_fixture(j, finished)) == OK)
            finished++;
        assert_int_equal(rc, ERR_IO);
        assert_err(append_fixture(j, 2), ERR_STATE, "earlier write failed");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        assert_err(append_fixture(j, 2), ERR_STATE, "earlier write failed");
        journal_close(&j);
        assert_int_equal(read_checked(path), finished);
        j = open_toy(fixture_dir("full"));
        assert_int_equal(journal_n_finished(j), finished);
        assert_ok(journal_remove(&j));
    }
}

static void write_until_killed(const char *dir, int ready)
{
    struct journal *j = open_toy(dir);

    if (write(ready, "x", 1) != 1)
        _exit(1);
    for (int i = 0; i < 1000; i++) {
        char key[32];
        snprintf(key, sizeof(key), "rate=%d/repeat=0", i);
        if (!journal_finished(j, key, NULL) && append_fixture(j, i) != OK)
            _exit(2);
    }
    _exit(0);
}

/* kill -9 at random moments: finished cells stay, in order and whole; work goes on. */
TEST(killed)
{
    const char *dir = fixture_dir("killed");
    struct rng r;
    size_t before = 0;

    rng_init(&r, test_seed(), "kill");
    log_set_level(LOG_ERROR);
    for (int round = 0; round < 30; round++) {
        int ready[2], status;
        struct journal *j;
        char c;
        pid_t pid;

        assert_int_equal(pipe(ready), 0);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
            write_until_killed(dir, ready[1]);
        assert_true(pid > 0);
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        usleep((useconds_t)rng_below(&r, 20000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        j = open_toy(dir);
        assert_true(journal_n_finished(j) >= before);
        before = journal_n_finished(j);
        assert_int_equal(read_checked(journal_path(j)), before);
        for (size_t i = 0; i < before; i++) {
            char key[48];
            snprintf(key, sizeof(key), "rate=%zu/repeat=0", i);
            assert_true(journal_finished(j, key, NULL));
        }
        journal_close(&j);
    }
    log_set_level(LOG_INFO);
}

enum { SHORT = 3 };

static void end_short(void)
{
    _exit(SHORT);
}

/* In a process of its own, which ends where it is refused memory, as the harness does. */
static void go_on_with(const char *dir, long n_allocations, bool once)
{
    json_t *h = fixture_header(UTC);
    struct fixture_cell f;
    struct journal *j;
    int n = 0;

    fixture_cell_make(&f, 0);
    mem_when_short(end_short);
    mem_fail_after(n_allocations, once);
    _exit(journal_open(&j, dir, "toy", h, false) != OK ||
          journal_cell(j, &f.cell) != OK ||
          journal_read(journal_path(j), count_cell, &n, NULL, NULL) != OK);
}

TEST(memory_fails)
{
    const char *dir = fixture_dir("nomem");
    struct journal *j = open_toy(dir);
    char path[600];
    void *whole;
    size_t n_whole;

    snprintf(path, sizeof(path), "%s", journal_path(j));
    assert_ok(append_fixture(j, 0));
    journal_close(&j);
    whole = test_read(path, &n_whole);
    log_set_level(LOG_ERROR);
    for (int once = 0; once < 2; once++)
        for (long k = 0;; k++) {
            int status;
            pid_t pid;

            put_file(path, whole, n_whole);
            pid = fork();
            if (pid == 0)
                go_on_with(dir, k, once);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFEXITED(status));
            if (WEXITSTATUS(status) == OK)
                break;
            assert_int_equal(WEXITSTATUS(status), SHORT);
            assert_true(read_checked(path) >= 1);
            assert_true(k < 20000);
        }
    log_set_level(LOG_INFO);
    assert_int_equal(read_checked(path), 2);
    mem_free(whole);
}
