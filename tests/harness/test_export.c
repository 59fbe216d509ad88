#include "tests/support/fixture.h"

#include <unistd.h>

#include "base/json.h"
#include "experiments/harness/export.h"

#define N 8

static const char *result(void)
{
    static char *path;
    static char kept[600];
    const struct record_headline h[] = {
        {"ttft", "ms", "lower", 12.5, NULL, 0},
        {"goodput", "req/s", "higher", NAN, "no | rate", 0}};
    json_t *header = fixture_header("2026-01-31T23:59:59Z");
    struct journal *j;
    struct fixture_cell f;

    if (path) {
        json_decref(header);
        return kept;
    }
    assert_ok(journal_open(&j, fixture_dir("result"), "toy", header, 1));
    for (int i = 0; i < N; i++) {
        fixture_cell_make(&f, i);
        assert_ok(journal_cell(j, &f.cell));
        fixture_cell_free(&f);
    }
    assert_ok(record_finish(&j, h, 2, &path));
    snprintf(kept, sizeof(kept), "%s", path);
    mem_free(path);
    json_decref(header);
    return kept;
}

static char *exported(const char *format)
{
    enum export_format f;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_ok(export_format_find(format, &f));
    assert_ok(export_file(result(), f, out));
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

static void csv_requests(void **state)
{
    static char header[64][128], field[64][128];
    char *text = exported("csv"), want[64];
    const char *p = text;
    int n = csv_record(&p, header), rows = 0;
    struct fixture_cell f;

    (void)state;
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

static void csv_cells(void **state)
{
    static char header[64][128], field[64][128];
    char *text = exported("csv-cells");
    const char *p = text;
    int n = csv_record(&p, header);

    (void)state;
    for (int i = 0; i < N; i++) {
        assert_int_equal(csv_record(&p, field), n);
        assert_int_equal(atoi(field[column(header, n, "rate")]), i);
        assert_string_equal(field[column(header, n, "load.process")], "poisson");
        assert_string_equal(field[column(header, n, "state")],
                            i == 6 ? "failed" : "done");
        assert_true(strtod(field[column(header, n, "mean_ttft_ms")], NULL) == 1.5 + i);
        assert_string_equal(field[column(header, n, "p99_ttft_ms")], "");
        assert_string_equal(field[column(header, n, "n_completed")], "0");
        assert_true(strtod(field[column(header, n, "request_throughput_rps")], NULL) ==
                    1e300 / 7);
    }
    assert_int_equal(*p, 0);
    free(text);
}

static void json_has_known_keys(void **state)
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

    (void)state;
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

static void markdown(void **state)
{
    char *text = exported("markdown");
    int bars = -1;

    (void)state;
    assert_non_null(strstr(text, "# toy"));
    assert_non_null(strstr(text, "commit 0123456789ab, measured"));
    assert_non_null(strstr(text, "| ttft | 12.5 | ms | lower |"));
    assert_non_null(strstr(text, "n/a (no \\| rate)"));
    assert_non_null(strstr(text, "n/a (n=3 < 368)"));
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

static void refuses(void **state)
{
    const char *dir = test_dir();
    enum export_format f;
    char path[600];
    uint8_t *whole;
    size_t n;
    FILE *full = fopen("/dev/full", "w"), *null = fopen("/dev/null", "w");

    (void)state;
    assert_err(export_format_find("jsn", &f), ERR_NOTFOUND, "did you mean \"json\"?");
    assert_err(export_format_find("elephant", &f), ERR_NOTFOUND, "expected csv");
    snprintf(path, sizeof(path), "%s/none.h5", dir);
    assert_err(export_file(path, EXPORT_JSON, null), ERR_NOTFOUND, "none.h5");
    test_write(path, "not HDF5", 8);
    assert_err(export_file(path, EXPORT_JSON, null), ERR_FORMAT, "HDF5 file");
    assert_err(export_file(dir, EXPORT_JSON, null), ERR_FORMAT, "HDF5 file");
    /* cut short: never an export that looks whole */
    whole = test_read(result(), &n);
    for (size_t cut = 0; cut < n; cut += 997) {
        test_write(path, whole, cut);
        for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++)
            if (export_file(path, (enum export_format)form, null) != ERR_FORMAT)
                fail_msg("cut at %zu of %zu: exported as format %d", cut, n, form);
    }
    mem_free(whole);
    if (!full) {
        fclose(null);
        test_skip("/dev/full is not there");
    }
    for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++)
        assert_err(export_file(result(), (enum export_format)form, full), ERR_IO,
                   "write");
    fclose(full);
    fclose(null);
}

static void memory_fails(void **state)
{
    const char *path = result();
    FILE *null = fopen("/dev/null", "w");

    (void)state;
    for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++)
        for (long k = 0;; k += 1 + k / 16) {
            int rc;
            mem_fail_after(k, 0);
            rc = export_file(path, (enum export_format)form, null);
            mem_fail_after(-1, 0);
            if (rc == OK)
                break;
            if (rc != ERR_NOMEM && rc != ERR_FORMAT)
                fail_msg("allocation %ld: %s: %s", k, err_name(rc), err_msg());
            assert_true(k < 100000);
        }
    fclose(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_requests),
        cmocka_unit_test(csv_cells),
        cmocka_unit_test(json_has_known_keys),
        cmocka_unit_test(markdown),
        cmocka_unit_test(refuses),
        cmocka_unit_test(memory_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
