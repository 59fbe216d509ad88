#include "tests/support/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "experiments/harness/record_fields.h"

#define UTC  "2026-01-31T23:59:59Z"
#define STEM "20260131T235959Z-0123456"
#define N    9 /* cells */

static const struct record_headline headline[] = {
    {"ttft", "ms", "lower", 12.5, NULL, 0, true, 11.5, 14},
    {"goodput", "req/s", "higher", NAN, "the lowest rate fails", 3, false, 0, 0},
};

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

/* --- helpers */

static struct journal *filled_with(const char *dir, int n)
{
    json_t *h = fixture_header(UTC);
    struct journal *j;
    struct fixture_cell f;
    int rc;

    /* one that was killed may leave a process that holds the lock a moment longer */
    for (int i = 0;
         (rc = journal_open(&j, dir, "toy", h, false)) == ERR_STATE && i < 1000; i++)
        usleep(1000);
    assert_ok(rc);
    for (int i = 0; i < n; i++) {
        fixture_cell_make(&f, i);
        if (!journal_finished(j, f.key, NULL))
            assert_ok(journal_cell(j, &f.cell));
        fixture_cell_free(&f);
    }
    json_decref(h);
    return j;
}

static struct journal *filled(const char *dir)
{
    return filled_with(dir, N);
}

static char *finished(const char *dir)
{
    struct journal *j = filled(dir);
    char *path;

    assert_ok(record_finish(&j, headline, 2, &path));
    assert_null(j);
    return path;
}

static int n_files(const char *dir, const char *suffix)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        size_t a = strlen(e->d_name), b = strlen(suffix);
        n += a > b && strcmp(e->d_name + a - b, suffix) == 0;
    }
    closedir(d);
    return n;
}

static void check_array(hid_t cell, const char *name, hid_t type, const void *want,
                        size_t n)
{
    hid_t set = H5Dopen2(cell, name, H5P_DEFAULT), space;
    char *got = mem_new(MEM_TEST, n, 8);

    assert_true(set >= 0);
    space = H5Dget_space(set);
    assert_int_equal(H5Sget_simple_extent_npoints(space), n);
    if (n > 0)
        assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    for (size_t i = 0; i < n; i++)
        if (type != H5T_NATIVE_DOUBLE || !isnan(((const double *)want)[i]))
            assert_memory_equal(got + i * 8, (const char *)want + i * 8, 8);
        else
            assert_true(isnan(((double *)got)[i]));
    H5Sclose(space);
    H5Dclose(set);
    mem_free(got);
}

/* A column of the requests, whatever it holds, against the members it came from. */
static void check_column(hid_t cell, const struct record_column *c,
                         const struct fixture_cell *f)
{
    char name[64], text[FIXTURE_ROWS_MAX][RECORD_ERROR_BYTES];
    int64_t i64[FIXTURE_ROWS_MAX];
    double f64[FIXTURE_ROWS_MAX];
    hid_t set, type;

    snprintf(name, sizeof(name), "requests/%s", c->name);
    for (size_t i = 0; i < f->cell.n_rows; i++) {
        const char *want = (const char *)&f->rows[i] + c->offset;

        memcpy(&i64[i], want, 8);
        memcpy(&f64[i], want, 8);
        if (c->kind == RECORD_COLUMN_BOOL)
            i64[i] = *(const bool *)want;
        else if (c->kind == RECORD_COLUMN_STATUS)
            i64[i] = *(const enum metrics_status *)want;
    }
    if (c->kind == RECORD_COLUMN_F64) {
        check_array(cell, name, H5T_NATIVE_DOUBLE, f64, f->cell.n_rows);
    } else if (c->kind != RECORD_COLUMN_ERROR) {
        check_array(cell, name, H5T_NATIVE_INT64, i64, f->cell.n_rows);
    } else {
        set = H5Dopen2(cell, name, H5P_DEFAULT);
        type = H5Dget_type(set);
        assert_int_equal(H5Tget_size(type), RECORD_ERROR_BYTES);
        assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0);
        for (size_t i = 0; i < f->cell.n_rows; i++)
            assert_string_equal(text[i], f->rows[i].error);
        H5Tclose(type);
        H5Dclose(set);
    }
}

static void check_arrays(hid_t file, size_t index, const struct fixture_cell *f)
{
    int64_t offset[FIXTURE_ROWS_MAX + 1] = {0};
    char name[24];
    hid_t cell;

    snprintf(name, sizeof(name), "/cells/%04zu", index);
    cell = H5Gopen2(file, name, H5P_DEFAULT);
    assert_true(cell >= 0);
    for (const struct record_column *c = record_columns; c->name; c++)
        check_column(cell, c, f);
    for (size_t i = 0; i < f->cell.n_rows; i++)
        offset[i + 1] = offset[i] + f->rows[i].n_tok;
    check_array(cell, "tokens/offset", H5T_NATIVE_INT64, offset, f->cell.n_rows + 1);
    check_array(cell, "tokens/time_ns", H5T_NATIVE_INT64, f->token_ns,
                (size_t)offset[f->cell.n_rows]);
    check_array(cell, "series/cdf", H5T_NATIVE_DOUBLE, f->series_v, f->series[0].n);
    H5Gclose(cell);
}

static void check_cell(const json_t *cell, const struct fixture_cell *f, int index)
{
    json_t *a = json_object_get(cell, "attributes"), *m;

    assert_string_equal(json_string_value(json_object_get(a, "key")), f->key);
    assert_string_equal(json_string_value(json_object_get(a, "state")),
                        record_state_name(f->cell.state));
    assert_int_equal(json_integer_value(json_object_get(a, "attempt")), 1);
    assert_int_equal(json_integer_value(json_object_get(a, "rate")), index);
    assert_string_equal(json_string_value(json_object_get(a, "load.process")), "poisson");
    assert_true(json_is_true(json_object_get(a, "warm")));
    for (size_t k = 0; k < f->cell.n_values; k++) {
        m = json_object_get(json_object_get(cell, "summary"), f->values[k].name);
        assert_string_equal(json_string_value(json_object_get(m, "unit")),
                            f->values[k].unit);
        if (isnan(f->values[k].value)) {
            assert_true(json_is_null(json_object_get(m, "value")));
            assert_string_equal(json_string_value(json_object_get(m, "why")),
                                f->values[k].why);
        } else {
            assert_true(json_real_value(json_object_get(m, "value")) ==
                        f->values[k].value);
        }
    }
    m = json_object_get(json_object_get(cell, "summary"), "p99_ttft_ms");
    assert_non_null(
        strstr(json_string_value(json_object_get(m, "meaning")), "first token"));
    assert_string_equal(json_string_value(json_object_get(m, "better")), "lower");
}

static void check_cells(const char *path, int n)
{
    json_t *all = fixture_exported(path), *cells = json_object_get(all, "cells"), *v;
    json_t *root = json_object_get(all, "run"), *head = json_object_get(all, "headline");
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);

    assert_true(file >= 0);
    assert_int_equal(json_array_size(cells), n);
    for (int i = 0; i < n; i++) {
        struct fixture_cell f;

        fixture_cell_make(&f, i);
        check_cell(json_array_get(cells, (size_t)i), &f, i);
        check_arrays(file, (size_t)i, &f);
        fixture_cell_free(&f);
    }
    H5Fclose(file);
    assert_string_equal(json_string_value(json_object_get(root, "experiment")), "toy");
    assert_string_equal(json_string_value(json_object_get(root, "evidence")), "measured");
    assert_string_equal(json_string_value(json_object_get(root, "commit")),
                        "0123456789abcdef");
    assert_false(json_is_true(json_object_get(root, "dirty")));
    assert_int_equal(json_integer_value(json_object_get(root, "n_cells")), n);
    v = json_object_get(head, "goodput");
    assert_true(json_is_null(json_object_get(v, "value")));
    assert_string_equal(json_string_value(json_object_get(v, "why")),
                        "the lowest rate fails");
    assert_int_equal(json_integer_value(json_object_get(v, "n_left_out")), 3);
    v = json_object_get(head, "ttft");
    assert_null(json_object_get(v, "n_left_out"));
    assert_true(json_real_value(json_object_get(v, "value")) == 12.5);
    assert_true(json_real_value(json_object_get(v, "hi")) == 14);
    json_decref(all);
}

static void check_result(const char *path)
{
    check_cells(path, N);
}

/* --- tests */

static void reads_back(void **state)
{
    const char *dir = fixture_dir("back");
    char want[600], *path = finished(dir);
    json_t *latest, *v;

    (void)state;
    snprintf(want, sizeof(want), "%s/" STEM ".h5", dir);
    assert_string_equal(path, want);
    check_result(path);
    assert_int_equal(n_files(dir, ".journal"), 0);
    assert_int_equal(n_files(dir, ".tmp"), 0);
    snprintf(want, sizeof(want), "%s/latest.json", dir);
    assert_ok(json_read_file(&latest, want, 1 << 20));
    assert_string_equal(json_string_value(json_object_get(latest, "file")), STEM ".h5");
    assert_string_equal(json_string_value(json_object_get(latest, "evidence")),
                        "measured");
    v = json_object_get(json_object_get(latest, "headline"), "goodput");
    assert_true(json_is_null(json_object_get(v, "value")));
    assert_int_equal(json_integer_value(json_object_get(v, "n_left_out")), 3);
    assert_null(json_object_get(v, "lo"));
    v = json_object_get(json_object_get(latest, "headline"), "ttft");
    assert_true(json_number_value(json_object_get(v, "lo")) == 11.5);
    assert_string_equal(json_string_value(json_object_get(v, "better")), "lower");
    json_decref(latest);
    mem_free(path);
}

/* Same cells, same bytes; and a second result does not replace the first. */
static void reproducible(void **state)
{
    const char *dir = fixture_dir("twice");
    char *first = finished(dir), *second;
    struct journal *j = filled(dir);
    struct fixture_cell f;
    size_t n[2];
    void *p[2];

    (void)state;
    journal_close(&j); /* killed after the rename, before the journal was removed */
    j = filled(dir);
    assert_ok(record_finish(&j, headline, 2, &second)); /* found, not made again */
    assert_string_equal(first, second);
    assert_int_equal(n_files(dir, ".h5"), 1);
    mem_free(second);

    j = filled(dir);
    assert_ok(record_finish(&j, headline, 1, &second)); /* another headline */
    assert_string_not_equal(first, second);
    assert_int_equal(n_files(dir, ".h5"), 2);
    mem_free(second);

    j = filled(dir);
    fixture_cell_make(&f, 2);
    assert_ok(journal_cell(j, &f.cell)); /* measured again: a second attempt */
    fixture_cell_free(&f);
    assert_ok(record_finish(&j, headline, 2, &second));
    p[0] = test_read(first, &n[0]);
    p[1] = test_read(second, &n[1]);
    assert_true(n[0] != n[1] || memcmp(p[0], p[1], n[0]) != 0);
    mem_free(p[1]);
    mem_free(second);

    second = finished(fixture_dir("elsewhere"));
    p[1] = test_read(second, &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(p[0], p[1], n[0]);
    mem_free(p[0]);
    mem_free(p[1]);
    mem_free(second);
    second = finished(dir); /* already there, byte for byte */
    assert_string_equal(first, second);
    assert_int_equal(n_files(dir, ".h5"), 3);
    mem_free(first);
    mem_free(second);
}

/* Each write, sync and rename fails in turn. Then either nothing new has a result's name,
 * and the journal can be finished later, or the result is whole. */
static void disk_fails(void **state)
{
    static const int errors[] = {ENOSPC, EIO};
    int k, rc;

    (void)state;
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
            rc = record_finish(&j, headline, 2, &path);
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
            journal_close(&j);
            mem_free(finished(dir));
            assert_true(k < 400);
        }
    log_set_level(LOG_INFO);
    /* HDF5's writes, sync, rename, folder; latest.json's write, sync, rename, folder */
    assert_true(k >= 12);
}

static void file_size_limit(void **state)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    const char *dir = fixture_dir("limit");
    struct rlimit small = none;
    struct journal *j = filled(dir);

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    small.rlim_cur = 20000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_err(record_finish(&j, headline, 2, NULL), ERR_IO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(n_files(dir, ".h5"), 0);
    assert_int_equal(n_files(dir, ".tmp"), 0);
    assert_ok(record_finish(&j, headline, 2, NULL));
}

static void memory_fails(void **state)
{
    log_set_level(LOG_ERROR);
    (void)state;
    for (int once = 0; once < 2; once++) {
        const char *dir = fixture_dir(once ? "nomem1" : "nomem0");
        struct journal *j = filled_with(dir, 2);

        for (long k = 0;; k++) {
            int rc;
            mem_fail_after(k, once);
            rc = record_finish(&j, headline, 2, NULL);
            mem_fail_after(-1, 0);
            if (rc == OK)
                break;
            if (rc != ERR_NOMEM)
                fail_msg("allocation %ld: %s: %s", k, err_name(rc), err_msg());
            assert_int_equal(n_files(dir, ".h5"), 0);
            assert_true(k < 20000);
        }
        mem_free(finished(dir));
    }
    log_set_level(LOG_INFO);
}

static void killed_while_finishing(void **state)
{
    const char *dir = fixture_dir("killed");
    char path[600];
    struct rng r;

    (void)state;
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
            _exit(record_finish(&j, headline, 2, NULL) == OK ? 0 : 2);
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

/* Cells that serve nothing; a large array, which is compressed; a bad headline. */
static void odd_cells(void **state)
{
    json_t *h = fixture_header(UTC), *empty = json_object(), *all, *cells;
    const size_t n = 100000;
    double *v = mem_new(MEM_TEST, n, sizeof(*v));
    struct metrics_series s = {.name = "sweep", .unit = "GFLOP/s", .v = v, .n = n};
    struct record_cell c = {.key = "k", .attributes = empty, .series = &s, .n_series = 1};
    struct record_headline bad = {
        .name = "a/b", .unit = "", .better = "lower", .value = 1};
    struct journal *j;
    char *path;
    hid_t file;

    (void)state;
    for (size_t i = 0; i < n; i++)
        v[i] = sin((double)i);
    assert_ok(journal_open(&j, fixture_dir("odd"), "toy", h, false));
    assert_ok(journal_cell(j, &c));
    c.state = RECORD_SKIPPED;
    c.key = "m";
    c.n_series = 0;
    assert_ok(journal_cell(j, &c));
    assert_err(record_finish(&j, &bad, 1, NULL), ERR_ARG, "a/b");
    assert_ok(record_finish(&j, NULL, 0, &path));
    all = fixture_exported(path);
    cells = json_object_get(all, "cells");
    assert_int_equal(json_array_size(cells), 2);
    assert_int_equal(
        json_object_size(json_object_get(json_array_get(cells, 1), "summary")), 0);
    json_decref(all);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_int_equal(H5Lexists(file, "/cells/0000/requests", H5P_DEFAULT), 0);
    check_array(file, "/cells/0000/series/sweep", H5T_NATIVE_DOUBLE, v, n);
    H5Fclose(file);
    mem_free(path);
    mem_free(v);
    json_decref(h);
    json_decref(empty);
}

static herr_t has_unit(hid_t file, const char *name, const H5O_info_t *info, void *n)
{
    (void)file;
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (H5Aexists_by_name(file, name, "unit", H5P_DEFAULT) <= 0 ||
        H5Aexists_by_name(file, name, "meaning", H5P_DEFAULT) <= 0)
        fail_msg("%s has no unit or no meaning", name);
    ++*(int *)n;
    return 0;
}

static void units_everywhere(void **state)
{
    const char *dir = fixture_dir("units");
    char *path = finished(dir), command[800], line[400];
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    int n = 0, found = 0;
    FILE *p;

    (void)state;
    assert_true(
        H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, has_unit, &n, H5O_INFO_BASIC) >= 0);
    assert_true(n > N * 15);
    H5Fclose(file);
    if (system("command -v h5dump >/dev/null") != 0) {
        mem_free(path);
        test_skip("h5dump is not installed");
    }
    snprintf(command, sizeof(command), "h5dump -A -w 200 '%s'", path);
    p = popen(command, "r");
    assert_non_null(p);
    while (fgets(line, sizeof(line), p)) {
        found |= strstr(line, "ATTRIBUTE \"unit\"") ? 1 : 0;
        found |= strstr(line, "\"ns\"") ? 2 : 0;
        found |= strstr(line, "0123456789abcdef") ? 4 : 0;
    }
    assert_int_equal(pclose(p), 0);
    assert_int_equal(found, 7);
    mem_free(path);
}

/* results/schema.json is what the table says; UPDATE=1 rewrites it. */
static void schema_is_current(void **state)
{
    json_t *now = record_schema(), *kept;

    (void)state;
    assert_non_null(now);
    if (getenv("UPDATE"))
        assert_ok(json_write_file(now, "results/schema.json"));
    assert_ok(json_read_file(&kept, "results/schema.json", 1 << 20));
    if (!json_equal(now, kept))
        fail_msg("results/schema.json differs from record_fields.c: UPDATE=1 make test");
    json_decref(now);
    json_decref(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),        cmocka_unit_test(reproducible),
        cmocka_unit_test(disk_fails),        cmocka_unit_test(file_size_limit),
        cmocka_unit_test(memory_fails),      cmocka_unit_test(killed_while_finishing),
        cmocka_unit_test(odd_cells),         cmocka_unit_test(units_everywhere),
        cmocka_unit_test(schema_is_current),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
