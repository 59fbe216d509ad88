/* tests/record/toy_record.h - records of fixture cells, and what must be in them. Include it once
 * in a test. */
#ifndef TESTS_TOY_RECORD_H
#define TESTS_TOY_RECORD_H

#include "tests/support/fixture.h"

#include <dirent.h>
#include <hdf5.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/record/fields.h"

#define UTC  "2026-01-31T23:59:59Z"
#define STEM "20260131T235959Z-0123456"
#define N    9 /* cells */

static const struct record_headline headline[] = {
    {"ttft", "ms", "lower", 12.5, NULL, 0, true, 11.5, 14, "measured", true, 0.04, NULL},
    {"goodput", "req/s", "higher", NAN, "the lowest rate fails", 3, false, 0, 0, NULL,
     false, 0, "the A/A has no interval"},
};

static inline struct journal *filled_with(const char *dir, int n)
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

static inline struct journal *filled(const char *dir)
{
    return filled_with(dir, N);
}

static inline char *finished(const char *dir)
{
    struct journal *j = filled(dir);
    char *path;

    assert_ok(record_finish(&j, headline, 2, false, &path));
    assert_null(j);
    return path;
}

static inline int n_files(const char *dir, const char *suffix)
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

static inline void check_array(hid_t cell, const char *name, hid_t type, const void *want,
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
static inline void check_column(hid_t cell, const struct record_column *c,
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

static inline void check_arrays(hid_t file, size_t index, const struct fixture_cell *f)
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

static inline void check_cell(const json_t *cell, const struct fixture_cell *f, int index)
{
    json_t *a = json_object_get(cell, "attributes"), *m;

    assert_string_equal(json_string_value(json_object_get(a, "key")), f->key);
    assert_string_equal(json_string_value(json_object_get(a, "state")),
                        record_states[f->cell.state]);
    assert_int_equal(json_integer_value(json_object_get(a, "attempt")), 1);
    assert_int_equal(json_integer_value(json_object_get(a, "rate")), index);
    assert_string_equal(json_string_value(json_object_get(a, "load.process")), "poisson");
    assert_true(json_is_true(json_object_get(a, "warm")));
    for (size_t k = 0; k < f->cell.n_values; k++) {
        m = json_object_get(json_object_get(cell, "summary"), f->values[k].name);
        assert_string_equal(json_string_value(json_object_get(m, "unit")),
                            f->values[k].unit);
        if (f->values[k].evidence) /* that of others is their cell's */
            assert_string_equal(json_string_value(json_object_get(m, "evidence")),
                                f->values[k].evidence);
        if (isnan(f->values[k].value)) {
            assert_true(json_is_null(json_object_get(m, "value")));
            assert_string_equal(json_string_value(json_object_get(m, "why")),
                                f->values[k].why);
        } else {
            assert_true(json_real_value(json_object_get(m, "value")) ==
                        f->values[k].value);
        }
        if (f->values[k].has_interval) {
            assert_true(json_real_value(json_object_get(m, "lo")) == f->values[k].lo);
            assert_true(json_real_value(json_object_get(m, "hi")) == f->values[k].hi);
        } else {
            assert_null(json_object_get(m, "lo"));
        }
    }
    m = json_object_get(json_object_get(cell, "summary"), "p99_ttft_ms");
    assert_non_null(
        strstr(json_string_value(json_object_get(m, "meaning")), "first token"));
    assert_string_equal(json_string_value(json_object_get(m, "better")), "lower");
}

static inline void check_cells(const char *path, int n)
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

static inline void check_result(const char *path)
{
    check_cells(path, N);
}

#endif
