#include "tests/support/fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"

/* What a sync costs is the disk's affair: thousands of them are not waited for here. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

#define UTC "2026-01-31T23:59:59Z"

static struct journal *open_toy(const char *dir)
{
    json_t *h = fixture_header(UTC);
    struct journal *j;

    assert_ok(journal_open(&j, dir, "toy", h, false));
    json_decref(h);
    return j;
}

/* Not over the file that is there: cutting one to nothing can make a disk sync it. */
static void put_file(const char *path, const void *data, size_t n)
{
    unlink(path);
    test_write(path, data, n);
}

static int append_fixture(struct journal *j, int i)
{
    struct fixture_cell f;
    int rc;

    fixture_cell_make(&f, i);
    rc = journal_cell(j, &f.cell);
    fixture_cell_free(&f);
    return rc;
}

/* Every cell walked is whole and equal to its fixture; *ctx counts them. */
static int check_cell(void *ctx, const struct record_cell *c)
{
    fixture_cell_check(c, fixture_cell_number(c->key));
    ++*(int *)ctx;
    return OK;
}

static int count_cell(void *ctx, const struct record_cell *c)
{
    (void)c;
    ++*(int *)ctx;
    return OK;
}

static int read_checked(const char *path)
{
    int n = 0;

    assert_ok(journal_read(path, check_cell, &n, NULL, NULL));
    return n;
}

static void crc_known(void **state)
{
    uint8_t zeros[32] = {0};

    (void)state;
    assert_int_equal(journal_crc32("123456789", 9), 0xcbf43926u); /* as every CRC-32 */
    assert_int_equal(journal_crc32(zeros, 32), 0x190a55adu);
    assert_int_equal(journal_crc32("", 0), 0);
}

static void round_trip_and_resume(void **state)
{
    const char *dir = fixture_dir("a/b/toy");
    struct journal *j = open_toy(dir);
    enum record_state how;
    json_t *header;
    size_t interrupted;
    int n = 0;

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_ok(append_fixture(j, i));
    assert_int_equal(journal_n_finished(j), 10);
    assert_int_equal(read_checked(journal_path(j)), 10); /* while open */
    assert_ok(journal_begin(j, "rate=99/repeat=0"));
    journal_close(&j);
    assert_null(j);

    j = open_toy(dir);
    assert_int_equal(journal_n_finished(j), 10);
    assert_true(journal_finished(j, "rate=6/repeat=0", &how));
    assert_int_equal(how, RECORD_FAILED);
    assert_true(journal_finished(j, "rate=5/repeat=0", &how));
    assert_int_equal(how, RECORD_DONE);
    assert_false(journal_finished(j, "rate=99/repeat=0", NULL));
    assert_ok(append_fixture(j, 3)); /* measured again */
    assert_int_equal(journal_n_finished(j), 10);
    assert_int_equal(journal_n_attempts(j), 11);
    assert_ok(journal_read(journal_path(j), check_cell, &n, &header, &interrupted));
    assert_int_equal(n, 11);
    assert_int_equal(interrupted, 1);
    assert_int_equal(json_array_size(json_object_get(header, "resumes")), 1);
    assert_string_equal(json_string_value(json_object_get(header, "experiment")), "toy");
    json_decref(header);
    assert_ok(journal_remove(&j));
    assert_int_equal(access(dir, F_OK), 0);
}

/* Each line is one JSON object whose CRC anyone can check: jq reads it, and gzip's CRC of
 * what follows the first member is that member. */
static void lines_are_json(void **state)
{
    const char *dir = fixture_dir("lines");
    struct journal *j = open_toy(dir);
    static const char *const kinds[] = {"header", "begin", "cell"};
    size_t n, at = 0;
    char *text;

    (void)state;
    assert_ok(journal_begin(j, "rate=4/repeat=0"));
    assert_ok(append_fixture(j, 4));
    text = test_read(journal_path(j), &n);
    for (int i = 0; i < 3; i++) {
        char *end = memchr(text + at, '\n', n - at);
        unsigned crc;
        json_t *line;

        assert_non_null(end);
        assert_ok(json_read_text(&line, text + at, (size_t)(end - text) - at, "line"));
        assert_int_equal(json_object_size(line), 2);
        assert_non_null(json_object_get(line, kinds[i]));
        assert_int_equal(
            sscanf(json_string_value(json_object_get(line, "crc")), "%x", &crc), 1);
        assert_int_equal(crc,
                         journal_crc32(text + at + 18, (size_t)(end - text) - at - 18));
        if (i == 2)
            assert_string_equal(json_string_value(json_object_get(
                                    json_object_get(line, "cell"), "state")),
                                "done");
        json_decref(line);
        at = (size_t)(end - text) + 1;
    }
    assert_int_equal(at, n);
    mem_free(text);
    journal_close(&j);
}

struct keep {
    double values[8], series[8];
    struct metrics_row row;
    char why[96];
};

static int keep_cell(void *ctx, const struct record_cell *c)
{
    struct keep *k = ctx;

    for (size_t i = 0; i < c->n_values; i++)
        k->values[i] = c->values[i].value;
    memcpy(k->series, c->series[0].v, c->series[0].n * sizeof(double));
    memcpy(k->why, c->values[1].why, sizeof(k->why));
    k->row = c->rows[0];
    return OK;
}

/* Every double comes back as it was, a NaN with its reason, a time that never came, and
 * the readable part of a text that is not UTF-8. */
static void numbers_and_texts_survive(void **state)
{
    static const double odd[] = {0.1,       -0.0,     5e-324,    1.7976931348623157e308,
                                 1.0 / 3.0, INFINITY, -INFINITY, 9007199254740993.0};
    struct journal *j = open_toy(fixture_dir("odd"));
    struct fixture_cell f;
    struct metrics_value values[8];
    struct keep got;

    (void)state;
    fixture_cell_make(&f, 1);
    for (int i = 0; i < 8; i++) {
        values[i] = (struct metrics_value){"v", "ms", odd[i], ""};
        values[i].name[0] = (char)('a' + i);
        f.series_v[i] = odd[7 - i];
    }
    values[1] = (struct metrics_value){"nan", "ms", NAN, "caf\xc3\xa9 caf\xc3"};
    values[2] = (struct metrics_value){"caf\xc3\xa9", "\xc2\xb5s", odd[2], ""};
    snprintf(f.rows[0].error, sizeof(f.rows[0].error), "bad \xff byte, \xe2\x82\xac");
    f.rows[0].done_ns = METRICS_NEVER;
    f.rows[0].intended_ns = INT64_MAX;
    f.cell.values = values;
    f.cell.n_values = 8;
    f.series[0].n = 8;
    assert_ok(journal_cell(j, &f.cell));
    assert_ok(journal_read(journal_path(j), keep_cell, &got, NULL, NULL));
    for (int i = 0; i < 8; i++) {
        if (i != 1)
            assert_memory_equal(&got.values[i], &odd[i], sizeof(double));
        assert_memory_equal(&got.series[i], &odd[7 - i], sizeof(double));
    }
    assert_true(isnan(got.values[1]));
    assert_string_equal(got.why, "caf\xc3\xa9 caf?");
    assert_string_equal(got.row.error, "bad ? byte, \xe2\x82\xac");
    assert_true(got.row.done_ns == METRICS_NEVER);
    assert_true(got.row.intended_ns == INT64_MAX);
    fixture_cell_free(&f);
    journal_close(&j);
}

/* --fresh: what is there is forgotten, but never what another run is writing. */
static void fresh_waits_for_the_lock(void **state)
{
    const char *dir = fixture_dir("fresh");
    struct journal *j = open_toy(dir), *second;
    json_t *h = fixture_header(UTC);

    (void)state;
    assert_ok(append_fixture(j, 1));
    assert_err(journal_open(&second, dir, "toy", h, true), ERR_STATE, "another process");
    assert_ok(append_fixture(j, 2));
    assert_int_equal(read_checked(journal_path(j)), 2);
    journal_close(&j);
    assert_ok(journal_open(&j, dir, "toy", h, true));
    assert_int_equal(journal_n_finished(j), 0);
    assert_ok(append_fixture(j, 3));
    assert_int_equal(read_checked(journal_path(j)), 1);
    journal_close(&j);
    json_decref(h);
}

static void ignore_line(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void refuses_bad_input(void **state)
{
    static const char *const not_keys[] = {
        "\xff\xfe",         "a\nb",     "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xe2\x82", "\x80",
    };
    const char *dir = fixture_dir("refuses");
    struct journal *j, *second;
    struct fixture_cell f;
    json_t *h = fixture_header(UTC);

    (void)state;
    json_object_set_new(h, "evidence", json_string("mesured"));
    assert_err(journal_open(&j, dir, "toy", h, false), ERR_ARG,
               "did you mean \"measured\"?");
    json_object_del(h, "evidence");
    assert_err(journal_open(&j, dir, "toy", h, false), ERR_ARG, "evidence");

    json_decref(h);

    j = open_toy(dir);
    h = fixture_header(UTC);
    assert_err(journal_open(&second, "", "toy", h, false), ERR_IO, "cannot make");
    assert_err(journal_open(&second, dir, "toy", h, false), ERR_STATE, "another process");
    assert_null(second);
    json_decref(h);
    assert_err(journal_begin(j, ""), ERR_ARG, "key");
    for (size_t i = 0; i < sizeof(not_keys) / sizeof(not_keys[0]); i++)
        assert_err(journal_begin(j, not_keys[i]), ERR_ARG, "printable");
    assert_ok(journal_begin(j, "model=\u00fc \u20ac \U0001f600"));
    fixture_cell_make(&f, 1);
    snprintf(f.values[0].name, sizeof(f.values[0].name), "a/b");
    assert_err(journal_cell(j, &f.cell), ERR_ARG, "a/b");
    f.cell.n_values = 0;
    f.rows[0].token_ns = NULL;
    assert_err(journal_cell(j, &f.cell), ERR_ARG, "without times");
    assert_int_equal(journal_n_finished(j), 0);
    assert_int_equal(read_checked(journal_path(j)), 0);
    fixture_cell_free(&f);
    journal_close(&j);
}

static void other_job_is_set_aside(void **state)
{
    const char *dir = fixture_dir("aside");
    struct log_warning w[4];
    char aside[600];
    struct journal *j = open_toy(dir);
    json_t *h = fixture_header("2026-02-01T00:00:00Z");

    (void)state;
    assert_ok(append_fixture(j, 1));
    journal_close(&j);
    while (log_warnings_take(w, 4) > 0)
        ;
    log_set_sink(ignore_line, NULL);
    json_object_set_new(json_object_get(h, "job"), "n", json_integer(4));
    for (int i = 0; i < 2; i++) {
        assert_ok(journal_open(&j, dir, "toy", h, false));
        assert_int_equal(journal_n_finished(j), 0);
        journal_close(&j);
        json_object_set_new(json_object_get(h, "job"), "n", json_integer(5 + i));
    }
    log_set_sink(NULL, NULL);
    assert_int_equal(log_warnings_take(w, 4), 2);
    assert_string_equal(w[0].code, "journal_set_aside");
    snprintf(aside, sizeof(aside), "%s/toy.journal." UTC, dir);
    assert_int_equal(read_checked(aside), 1);
    json_decref(h);
}

/* Truncated at any byte: the finished cells before it are there, unharmed, and the
 * journal can be gone on with. */
static void truncated_anywhere(void **state)
{
    const char *dir = fixture_dir("cut");
    char path[600];
    struct journal *j = open_toy(dir);
    size_t ends[3], n, step;
    uint8_t *whole;

    (void)state;
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
static void flipped_anywhere(void **state)
{
    const char *dir = fixture_dir("flip");
    char path[600];
    struct journal *j = open_toy(dir);
    struct stat st;
    struct log_warning w;
    size_t n, head;
    uint8_t *whole;

    (void)state;
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
static void foreign_file_is_kept(void **state)
{
    const char *dir = fixture_dir("foreign");
    const char text[] = "these are somebody's notes";
    char path[600], aside[700];
    struct journal *j;
    size_t n;
    void *got;

    (void)state;
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
static void disk_full(void **state)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct stat st;
    char path[600];

    (void)state;
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
static void killed(void **state)
{
    const char *dir = fixture_dir("killed");
    struct rng r;
    size_t before = 0;

    (void)state;
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

static void memory_fails(void **state)
{
    const char *dir = fixture_dir("nomem");
    struct journal *j = open_toy(dir);
    char path[600];
    void *whole;
    size_t n_whole;

    (void)state;
    snprintf(path, sizeof(path), "%s", journal_path(j));
    assert_ok(append_fixture(j, 0));
    journal_close(&j);
    whole = test_read(path, &n_whole);
    log_set_level(LOG_ERROR);
    for (int once = 0; once < 2; once++)
        for (long k = 0;; k++) {
            json_t *h = fixture_header(UTC);
            struct fixture_cell f;
            int rc, n = 0;

            put_file(path, whole, n_whole);
            fixture_cell_make(&f, 0);
            mem_fail_after(k, once);
            rc = journal_open(&j, dir, "toy", h, false);
            if (rc == OK)
                rc = journal_cell(j, &f.cell);
            if (rc == OK)
                rc = journal_read(journal_path(j), count_cell, &n, NULL, NULL);
            mem_fail_after(-1, 0);
            journal_close(&j);
            json_decref(h);
            fixture_cell_free(&f);
            if (rc == OK)
                break;
            if (rc != ERR_NOMEM)
                fail_msg("allocation %ld: %s: %s", k, err_name(rc), err_msg());
            assert_true(read_checked(path) >= 1);
            assert_true(k < 20000);
        }
    log_set_level(LOG_INFO);
    assert_int_equal(read_checked(path), 2);
    mem_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_known),
        cmocka_unit_test(round_trip_and_resume),
        cmocka_unit_test(lines_are_json),
        cmocka_unit_test(numbers_and_texts_survive),
        cmocka_unit_test(fresh_waits_for_the_lock),
        cmocka_unit_test(refuses_bad_input),
        cmocka_unit_test(other_job_is_set_aside),
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(flipped_anywhere),
        cmocka_unit_test(foreign_file_is_kept),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(killed),
        cmocka_unit_test(disk_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
