/* What each format of an export holds, and where it may be written. */
#include "tests/record/toy_export.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/json.h"

static char *exported(const char *format)
{
    enum export_format f;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_ok(export_format_find(format, &f));
    assert_ok(export_print(result(), f, out));
    fclose(out);
    return text;
}

/* Fields of the record at *p by RFC 4180, which then moves behind it. Returns how many.
 */
static int csv_record(const char **p, char field[64][128])
{
    int n = 0;
    size_t k = 0;
    bool quoted = false;

    for (;; (*p)++) {
        char c = **p;
        assert_true(c != 0);
        if (quoted && c == '"' && (*p)[1] == '"')
            field[n][k++] = *++*p;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == ',' || c == '\r')) {
            field[n++][k] = 0;
            k = 0;
            if (c == '\r') {
                *p += 2;
                return n;
            }
        } else {
            field[n][k++] = c;
        }
        assert_true(n < 64 && k < 127);
    }
}

static int column(char header[64][128], int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(header[i], name) == 0)
            return i;
    fail_msg("no column %s", name);
    return -1;
}

TEST(csv_requests)
{
    static char header[64][128], field[64][128];
    char *text = exported("csv"), want[64];
    const char *p = text;
    int n = csv_record(&p, header), rows = 0;
    struct fixture_cell f;

    for (int i = 0; i < N; i++) {
        fixture_cell_make(&f, i);
        for (size_t r = 0; r < f.cell.n_rows; r++, rows++) {
            const struct metrics_row *row = &f.rows[r];
            assert_int_equal(csv_record(&p, field), n);
            assert_int_equal(atoi(field[column(header, n, "cell")]), i);
            assert_string_equal(field[column(header, n, "key")], f.key);
            assert_int_equal(atoll(field[column(header, n, "intended_ns")]),
                             row->intended_ns);
            assert_string_equal(field[column(header, n, "error")], row->error);
            assert_string_equal(field[column(header, n, "status")],
                                metrics_status_name(row->status));
            snprintf(want, sizeof(want), "%lld", (long long)row->first_token_ns);
            assert_string_equal(field[column(header, n, "first_token_ns")],
                                row->first_token_ns == METRICS_NEVER ? "" : want);
            if (isnan(row->decode_bytes))
                assert_string_equal(field[column(header, n, "decode_bytes")], "");
            else
                assert_true(strtod(field[column(header, n, "decode_bytes")], NULL) ==
                            row->decode_bytes);
        }
        fixture_cell_free(&f);
    }
    assert_true(rows > N);
    assert_int_equal(*p, 0);
    free(text);
}

TEST(csv_cells)
{
    static char header[64][128], field[64][128];
    char *text = exported("csv-cells"), want[16];
    const char *p = text;
    int n = csv_record(&p, header);

    for (int i = 0; i < N; i++) {
        assert_int_equal(csv_record(&p, field), n);
        assert_int_equal(atoi(field[column(header, n, "rate")]), i);
        assert_string_equal(field[column(header, n, "load.process")], "poisson");
        assert_string_equal(field[column(header, n, "state")],
                            i == 6 ? "failed" : "done");
        assert_true(strtod(field[column(header, n, "mean_ttft_ms")], NULL) == 1.5 + i);
        snprintf(want, sizeof(want), "%d", i + 2);
        assert_string_equal(field[column(header, n, "mean_ttft_ms_hi")],
                            i % 3 ? "" : want);
        assert_string_equal(field[column(header, n, "p99_ttft_ms")], "");
        assert_string_equal(field[column(header, n, "n_completed")], "0");
        assert_true(strtod(field[column(header, n, "request_throughput_rps")], NULL) ==
                    1e300 / 7);
    }
    assert_int_equal(*p, 0);
    free(text);
}

/* A row for each element of the cells' one array, which is shorter or longer. */
TEST(csv_series)
{
    static char header[64][128], field[64][128];
    char *text = exported("csv-series");
    const char *p = text;

    assert_int_equal(csv_record(&p, header), 2);
    assert_string_equal(header[0], "cell");
    assert_string_equal(header[1], "cdf");
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i % 16; k++) {
            assert_int_equal(csv_record(&p, field), 2);
            assert_int_equal(atoi(field[0]), i);
            if (k == 3)
                assert_string_equal(field[1], "");
            else
                assert_true(strtod(field[1], NULL) == (double)k / 3 + i);
        }
    assert_int_equal(*p, 0);
    free(text);
}

TEST(json_has_known_keys)
{
    static const char *const keys[] = {"duration",           "completed",
                                       "total_input_tokens", "total_output_tokens",
                                       "request_throughput", "request_goodput",
                                       "output_throughput",  "mean_ttft_ms",
                                       "median_ttft_ms",     "p99_ttft_ms",
                                       "mean_tpot_ms",       "p99_tpot_ms",
                                       "mean_itl_ms",        "std_itl_ms",
                                       "p99_e2el_ms"};
    char *text = exported("json");
    json_t *j, *cell;

    assert_ok(json_read_text(&j, text, strlen(text), "export"));
    assert_int_equal(json_array_size(json_object_get(j, "cells")), N);
    for (int i = 0; i < N; i++) {
        cell = json_array_get(json_object_get(j, "cells"), (size_t)i);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            if (!json_object_get(cell, keys[k]))
                fail_msg("no key %s", keys[k]);
        assert_true(json_number_value(json_object_get(cell, "mean_ttft_ms")) == 1.5 + i);
        assert_true(json_is_null(json_object_get(cell, "p99_ttft_ms")));
        assert_true(json_is_null(json_object_get(cell, "mean_tpot_ms"))); /* not stored */
        assert_true(json_number_value(json_object_get(cell, "completed")) == 0);
    }
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(j, "run"), "claim")), "none");
    json_decref(j);
    free(text);
}

static void check_series(const json_t *s, const struct fixture_cell *f)
{
    const json_t *v = json_object_get(s, "v");

    assert_string_equal(json_string_value(json_object_get(s, "unit")), "ms");
    assert_string_equal(json_string_value(json_object_get(s, "evidence")), "simulated");
    assert_int_equal(json_array_size(v), f->series[0].n);
    for (size_t i = 0; i < f->series[0].n; i++)
        if (isnan(f->series_v[i]))
            assert_true(json_is_null(json_array_get(v, i)));
        else
            assert_true(json_real_value(json_array_get(v, i)) == f->series_v[i]);
}

TEST(json_full_holds_every_token)
{
    char *text = exported("json-full");
    json_t *j, *cell, *times;
    struct fixture_cell f;

    assert_ok(json_read_text(&j, text, strlen(text), "export"));
    for (int i = 0; i < N; i++) {
        fixture_cell_make(&f, i);
        cell = json_array_get(json_object_get(j, "cells"), (size_t)i);
        assert_int_equal(json_array_size(json_object_get(cell, "token_ns")),
                         f.cell.n_rows);
        check_series(json_object_get(json_object_get(cell, "series"), "cdf"), &f);
        for (size_t r = 0; r < f.cell.n_rows; r++) {
            times = json_array_get(json_object_get(cell, "token_ns"), r);
            assert_int_equal(json_array_size(times), f.rows[r].n_tok);
            for (size_t t = 0; t < json_array_size(times); t++)
                assert_int_equal(json_integer_value(json_array_get(times, t)),
                                 f.rows[r].token_ns[t]);
            times = json_object_get(json_object_get(cell, "requests"), "first_token_ns");
            times = json_array_get(times, r);
            if (f.rows[r].first_token_ns == METRICS_NEVER)
                assert_true(json_is_null(times));
            else
                assert_int_equal(json_integer_value(times), f.rows[r].first_token_ns);
        }
        fixture_cell_free(&f);
    }
    json_decref(j);
    free(text);
}

/* The writer of a record may still hold its lock. HDF5 has been used before, so it no longer
 * reads the environment. */
TEST(locked_records_are_read)
{
    int fd = open(result(), O_RDONLY | O_CLOEXEC);

    H5Fclose(H5Fopen(result(), H5F_ACC_RDONLY, H5P_DEFAULT));
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    free(exported("markdown"));
    close(fd);
}

TEST(markdown)
{
    char *text = exported("markdown");
    int bars = -1;

    assert_non_null(strstr(text, "# toy"));
    assert_non_null(strstr(text, "commit 0123456789ab, measured"));
    assert_non_null(strstr(text, "| ttft | 12.5 | ms | lower |"));
    /* Regression: markup and control characters of a record went into the document. */
    assert_non_null(strstr(text, "n/a (no \\| rate &lt;b&gt;\\\\x1b\\[2J)"));
    assert_non_null(strstr(text, "n/a (n=3 &lt; 368)"));
    assert_non_null(strstr(text, "request_throughput_rps (req/s)"));
    /* every row of the table of cells has as many bars as its head */
    for (char *line = strstr(text, "| cell |"); line && *line == '|';) {
        int n = 0;
        char *end = strchr(line, '\n');
        for (char *p = line; p < end; p++)
            n += *p == '|' && p[-1] != '\\';
        assert_true(bars < 0 || bars == n);
        bars = n;
        line = end + 1;
    }
    assert_true(bars > 4);
    free(text);
}

/* --- where the export goes */

static void assert_file(const char *path, const char *wanted)
{
    size_t n;
    char *got = test_read(path, &n);

    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(got, wanted, n);
    mem_free(got);
}

/* Nothing that is there is lost: not the result, not an older export, not a device. */
TEST(saves_whole_or_not_at_all)
{
    char *text = exported("markdown"), out[600], other[600];
    const char *path = copy_of_result("saved");
    struct stat before, after;
    size_t n;
    void *whole = test_read(path, &n);

    snprintf(out, sizeof(out), "%s/export.md", test_dir());
    snprintf(other, sizeof(other), "%s/other", test_dir());
    assert_ok(export_save(path, EXPORT_MARKDOWN, out));
    assert_file(out, text);
    assert_int_equal(link(path, other), 0);
    assert_err(export_save(path, EXPORT_JSON, path), ERR_ARG, "another file");
    assert_err(export_save(path, EXPORT_JSON, other), ERR_ARG, "another file");
    unlink(other);
    assert_int_equal(symlink("saved.h5", other), 0);
    assert_err(export_save(path, EXPORT_JSON, other), ERR_ARG, "cannot be replaced");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, n);

    test_write(path, whole, n / 2); /* damaged: the older export stays */
    assert_err(export_save(path, EXPORT_MARKDOWN, out), ERR_FORMAT, "saved.h5");
    assert_file(out, text);
    test_write(path, whole, n);
    mem_free(whole);
    free(text);

    unlink(other);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_err(export_save(path, EXPORT_JSON, other), ERR_ARG, "cannot be replaced");
    assert_err(export_save(path, EXPORT_JSON, test_dir()), ERR_ARG, "cannot be replaced");
    assert_err(export_print(other, EXPORT_JSON, stdout), ERR_FORMAT, "no regular file");
    unlink(other);
    assert_err(export_save(path, EXPORT_JSON, ""), ERR_ARG, "needs a name");
    if (mknod(other, S_IFCHR | 0600, makedev(1, 3)) != 0)
        test_skip("no device can be made here: %s", strerror(errno));
    assert_int_equal(stat(other, &before), 0);
    assert_err(export_save(path, EXPORT_JSON, other), ERR_ARG, "cannot be replaced");
    assert_int_equal(stat(other, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}
