/* A finished record holds what was measured, with units and meanings, the same bytes each time. */
#include "tests/record/toy_record.h"

#include "experiments/record/head.h"

/* Regression: a record killed before its journal was removed was written twice. */

/* Of nine fixture cells one failed, and those of an odd number are measured_small. */
static void check_head(const json_t *head)
{
    const json_t *run = json_object_get(head, "run");
    const json_t *cells = json_object_get(head, "cells");
    const json_t *series = json_object_get(head, "series");

    assert_int_equal(json_int_at(run, "n_cells"), N);
    assert_int_equal(json_int_at(run, "schema_version"), RECORD_SCHEMA_VERSION);
    assert_string_equal(json_str_at(run, "commit", ""), "0123456789abcdef");
    assert_null(json_object_get(run, "hwloc_xml"));
    assert_int_equal(json_int_at(cells, "done"), N - 1);
    assert_int_equal(json_int_at(cells, "failed"), 1);
    assert_int_equal(json_int_at(json_object_get(head, "left_out"), "failed"), 1);
    assert_int_equal(json_object_size(series), 1);
    assert_true(
        json_is_true(json_object_get(json_object_get(series, "simulated"), "cdf")));
}

/* A record of another machine may need another name. */
static void renamed(const char *dir, const char *path)
{
    char from[600], to[600];
    json_t *head;

    snprintf(to, sizeof(to), "%s/other.h5", dir);
    assert_int_equal(rename(path, to), 0);
    assert_err(export_head(&head, to), ERR_NOTFOUND, "expected its head next to it");
    snprintf(from, sizeof(from), "%s/" STEM ".json", dir);
    snprintf(to, sizeof(to), "%s/other.json", dir);
    assert_int_equal(rename(from, to), 0);
    snprintf(to, sizeof(to), "%s/other.h5", dir);
    assert_ok(export_head(&head, to));
    assert_string_equal(json_str_at(head, "path", ""), to);
    json_decref(head);
}

TEST(reads_back)
{
    const char *dir = fixture_dir("back");
    char want[600], aside[600], *path = finished(dir);
    json_t *latest, *head, *v;

    snprintf(want, sizeof(want), "%s/" STEM ".h5", dir);
    assert_string_equal(path, want);
    check_result(path);
    assert_int_equal(n_files(dir, ".journal"), 0);
    assert_int_equal(n_files(dir, ".tmp"), 0);
    snprintf(want, sizeof(want), "%s/latest.json", dir);
    assert_ok(json_read_file(&latest, want, 1 << 20));
    snprintf(aside, sizeof(aside), "%s/aside",
             dir); /* the fixture's cells are not true */
    assert_int_equal(rename(path, aside), 0);
    assert_ok(export_head(&head, path));
    assert_int_equal(rename(aside, path), 0);
    assert_string_equal(json_string_value(json_object_get(head, "path")), path);
    json_object_del(head, "path");
    assert_true(json_equal(head, latest));
    check_head(head);
    json_decref(head);
    assert_string_equal(json_string_value(json_object_get(latest, "file")), STEM ".h5");
    assert_string_equal(json_string_value(json_object_get(latest, "evidence")),
                        "measured");
    v = json_object_get(json_object_get(latest, "headline"), "goodput");
    assert_true(json_is_null(json_object_get(v, "value")));
    assert_int_equal(json_integer_value(json_object_get(v, "n_left_out")), 3);
    assert_null(json_object_get(v, "lo"));
    assert_null(json_object_get(v, "detectable_frac"));
    assert_string_equal(json_str_at(v, "detectable_why", ""), "the A/A has no interval");
    v = json_object_get(json_object_get(latest, "headline"), "ttft");
    assert_true(json_number_value(json_object_get(v, "lo")) == 11.5);
    assert_true(json_number_value(json_object_get(v, "detectable_frac")) == 0.04);
    assert_null(json_object_get(v, "detectable_why"));
    assert_string_equal(json_string_value(json_object_get(v, "better")), "lower");
    json_decref(latest);
    renamed(dir, path);
    mem_free(path);
}

/* Same cells, same bytes; and a second result does not replace the first. */
TEST(reproducible)
{
    const char *dir = fixture_dir("twice");
    char *first = finished(dir), *second;
    struct journal *j = filled(dir);
    struct fixture_cell f;
    size_t n[2];
    void *p[2];

    journal_close(&j); /* killed after the rename, before the journal was removed */
    j = filled(dir);
    assert_ok(record_finish(&j, headline, 2, false, &second)); /* found, not made again */
    assert_string_equal(first, second);
    assert_int_equal(n_files(dir, ".h5"), 1);
    mem_free(second);

    j = filled(dir);
    assert_ok(record_finish(&j, headline, 1, false, &second)); /* another headline */
    assert_string_not_equal(first, second);
    assert_int_equal(n_files(dir, ".h5"), 2);
    mem_free(second);

    j = filled(dir);
    fixture_cell_make(&f, 2);
    assert_ok(journal_cell(j, &f.cell)); /* measured again: a second attempt */
    fixture_cell_free(&f);
    assert_ok(record_finish(&j, headline, 2, false, &second));
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

/* A cell that failed and was measured again, as when a run is resumed, counts by its last attempt;
 * all attempts are in the file. */
TEST(last_attempt_counts)
{
    struct journal *j = filled(fixture_dir("resumed"));
    struct fixture_cell f;
    json_t *head;
    char *path;

    fixture_cell_make(&f, 6);
    assert_int_equal(f.cell.state, RECORD_FAILED);
    f.cell.state = RECORD_DONE;
    assert_ok(journal_cell(j, &f.cell));
    fixture_cell_free(&f);
    fixture_cell_make(&f, 2);
    f.cell.state = RECORD_SKIPPED;
    assert_ok(journal_cell(j, &f.cell));
    fixture_cell_free(&f);
    assert_ok(record_finish(&j, headline, 2, false, &path));
    assert_ok(export_head(&head, path));
    assert_int_equal(json_int_at(json_object_get(head, "cells"), "done"), N - 1);
    assert_int_equal(json_int_at(json_object_get(head, "cells"), "skipped"), 1);
    assert_null(json_object_get(json_object_get(head, "cells"), "failed"));
    assert_int_equal(json_object_size(json_object_get(head, "left_out")), 1);
    assert_int_equal(json_int_at(json_object_get(head, "left_out"), "skipped"), 1);
    assert_int_equal(json_int_at(json_object_get(head, "run"), "n_cells"), N + 2);
    json_decref(head);
    mem_free(path);
}

/* Cells that serve nothing; a large array, which is compressed; a bad headline. */
TEST(odd_cells)
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

    for (size_t i = 0; i < n; i++)
        v[i] = sin((double)i);
    assert_ok(journal_open(&j, fixture_dir("odd"), "toy", h, false));
    assert_ok(journal_cell(j, &c));
    c.state = RECORD_SKIPPED;
    c.key = "m";
    c.n_series = 0;
    assert_ok(journal_cell(j, &c));
    assert_err(record_finish(&j, &bad, 1, false, NULL), ERR_ARG, "a/b");
    assert_ok(record_finish(&j, NULL, 0, false, &path));
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

TEST(units_everywhere)
{
    const char *dir = fixture_dir("units");
    char *path = finished(dir), command[800], line[400];
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    int n = 0, found = 0;
    FILE *p;

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
TEST(schema_is_current)
{
    json_t *now = record_schema(), *kept;

    assert_non_null(now);
    if (getenv("UPDATE"))
        assert_ok(json_write_file(now, "results/schema.json"));
    assert_ok(json_read_file(&kept, "results/schema.json", 1 << 20));
    if (!json_equal(now, kept))
        fail_msg("results/schema.json differs from record_fields.c: UPDATE=1 make test");
    json_decref(now);
    json_decref(kept);
}
