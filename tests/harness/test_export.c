#include "tests/support/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/harness/export.h"

#define N 8

static const char *result(void)
{
    static char *path;
    static char kept[600];
    const struct record_headline h[] = {
        {.name = "ttft", .unit = "ms", .better = "lower", .value = 12.5},
        {"goodput", "req/s", "higher", NAN, "no | rate", 0, false, 0, 0}};
    json_t *header = fixture_header("2026-01-31T23:59:59Z");
    struct journal *j;
    struct fixture_cell f;

    if (path) {
        json_decref(header);
        return kept;
    }
    assert_ok(journal_open(&j, fixture_dir("result"), "toy", header, false));
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

static void json_full_holds_every_token(void **state)
{
    char *text = exported("json-full");
    json_t *j, *cell, *times;
    struct fixture_cell f;

    (void)state;
    assert_ok(json_read_text(&j, text, strlen(text), "export"));
    for (int i = 0; i < N; i++) {
        fixture_cell_make(&f, i);
        cell = json_array_get(json_object_get(j, "cells"), (size_t)i);
        assert_int_equal(json_array_size(json_object_get(cell, "token_ns")),
                         f.cell.n_rows);
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
static void locked_records_are_read(void **state)
{
    int fd = open(result(), O_RDONLY | O_CLOEXEC);

    (void)state;
    H5Fclose(H5Fopen(result(), H5F_ACC_RDONLY, H5P_DEFAULT));
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    free(exported("markdown"));
    close(fd);
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
    assert_err(export_print(path, EXPORT_JSON, null), ERR_NOTFOUND, "none.h5");
    test_write(path, "not HDF5", 8);
    assert_err(export_print(path, EXPORT_JSON, null), ERR_FORMAT, "HDF5 file");
    assert_err(export_print(dir, EXPORT_JSON, null), ERR_FORMAT, "HDF5 file");
    /* cut short: never an export that looks whole */
    whole = test_read(result(), &n);
    for (size_t cut = 0; cut < n; cut += 997) {
        test_write(path, whole, cut);
        for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++)
            if (export_print(path, (enum export_format)form, null) != ERR_FORMAT)
                fail_msg("cut at %zu of %zu: exported as format %d", cut, n, form);
    }
    mem_free(whole);
    if (!full) {
        fclose(null);
        test_skip("/dev/full is not there");
    }
    for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++)
        assert_err(export_print(result(), (enum export_format)form, full), ERR_IO,
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
            rc = export_print(path, (enum export_format)form, null);
            mem_fail_after(-1, 0);
            if (rc == OK)
                break;
            if (rc != ERR_NOMEM && rc != ERR_FORMAT)
                fail_msg("allocation %ld: %s: %s", k, err_name(rc), err_msg());
            assert_true(k < 100000);
        }
    fclose(null);
}

/* --- records that are not ours, or no longer */

/* Refused in every format, with one line that names the file. */
static void assert_refused(const char *path, const char *part)
{
    FILE *null = fopen("/dev/null", "w");

    for (int form = EXPORT_CSV_REQUESTS; form <= EXPORT_MARKDOWN; form++) {
        int rc = export_print(path, (enum export_format)form, null);

        if (rc != ERR_FORMAT || !strstr(err_msg(), path) || !strstr(err_msg(), part) ||
            strchr(err_msg(), '\n'))
            fail_msg("%s: format %d: %s \"%s\"", part, form, err_name(rc), err_msg());
    }
    fclose(null);
}

static char *copy_of_result(const char *name)
{
    static char path[600];
    size_t n;
    void *bytes = test_read(result(), &n);

    snprintf(path, sizeof(path), "%s/%s.h5", test_dir(), name);
    test_write(path, bytes, n);
    mem_free(bytes);
    return path;
}

/* Put another dataset, of which nothing is written, in the place of `name`. */
static const char *with_dataset(const char *name, hid_t type, int rank, hsize_t extent,
                                hsize_t chunk)
{
    const hsize_t extents[] = {extent, 2}, chunks[] = {chunk, 2};
    const char *path = copy_of_result("changed");
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set;
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = rank ? H5Screate_simple(rank, extents, NULL) : H5Screate(H5S_SCALAR);

    assert_true(file >= 0);
    if (H5Lexists(file, name, H5P_DEFAULT) > 0)
        assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    if (chunk)
        H5Pset_chunk(p, rank, chunks);
    set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, p, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(p);
    H5Fclose(file);
    return path;
}

#define METRIC "/cells/0001/summary/mean_ttft_ms"

/* Type, rank and extent are looked at before anything is read, and no memory is taken for
 * what the file has no bytes for. */
static void shapes_are_checked(void **state)
{
    static const char *const scalars[] = {METRIC, "/headline/ttft"};
    size_t used = mem_used_bytes(MEM_HARNESS);
    hid_t text = H5Tcopy(H5T_C_S1);

    (void)state;
    H5Tset_size(text, H5T_VARIABLE);
    for (int i = 0; i < 2; i++) {
        assert_refused(with_dataset(scalars[i], H5T_IEEE_F64LE, 1, 1000000000, 0),
                       "expected one number");
        assert_refused(with_dataset(scalars[i], H5T_IEEE_F64LE, 1, 1000000000, 4096),
                       "expected one number");
        assert_refused(with_dataset(scalars[i], H5T_IEEE_F64LE, 1, 0, 0),
                       "expected one number");
        assert_refused(with_dataset(scalars[i], H5T_IEEE_F64LE, 2, 1, 0),
                       "expected one number");
        assert_refused(with_dataset(scalars[i], text, 0, 0, 0), "expected one number");
    }
    H5Tclose(text);
    assert_int_equal(mem_used_bytes(MEM_HARNESS), used);
}

/* The same for the columns, which only one format reads. */
static void columns_are_checked(void **state)
{
    static const struct {
        hsize_t n, chunk;
        int rank;
        const char *part;
    } bad[] = {
        {(hsize_t)1 << 40, 0, 1, "as many bytes in the file"},
        {(hsize_t)1 << 40, 1 << 16, 1, "as many bytes in the file"},
        {4, 0, 2, "expected a column"},
        {0, 0, 1, "as long as the others"},
    };
    FILE *null = fopen("/dev/null", "w");
    const char *path;
    hid_t text = H5Tcopy(H5T_C_S1);

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        path = with_dataset("/cells/0001/requests/intended_ns", H5T_STD_I64LE,
                            bad[i].rank, bad[i].n, bad[i].chunk);
        assert_err(export_print(path, EXPORT_CSV_REQUESTS, null), ERR_FORMAT,
                   bad[i].part);
    }
    path = with_dataset("/cells/0001/requests/status", H5T_IEEE_F64LE, 1, 4, 0);
    assert_err(export_print(path, EXPORT_CSV_REQUESTS, null), ERR_FORMAT, "of bytes");
    H5Tset_size(text, 1000);
    path = with_dataset("/cells/0001/requests/error", text, 1, 4, 0);
    assert_err(export_print(path, EXPORT_CSV_REQUESTS, null), ERR_FORMAT, "of texts");
    H5Tclose(text);
    fclose(null);
}

/* A cell without its name, and one whose name is a number. */
static void cells_have_names(void **state)
{
    const char *path = copy_of_result("nameless");
    const hsize_t one = 1;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), a;
    hid_t space = H5Screate_simple(1, &one, NULL);

    (void)state;
    assert_true(H5Adelete_by_name(file, "/cells/0001", "key", H5P_DEFAULT) >= 0);
    H5Fclose(file);
    assert_refused(path, "/cells/0001: expected an attribute \"key\"");
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    a = H5Acreate_by_name(file, "/cells/0001", "key", H5T_STD_I64LE, space, H5P_DEFAULT,
                          H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(a, H5T_NATIVE_INT64, &(int64_t){7}) >= 0);
    H5Aclose(a);
    H5Sclose(space);
    H5Fclose(file);
    assert_refused(path, "/cells/0001: expected an attribute \"key\"");
}

#define N_DAMAGED 600

/* Bytes changed at many places, in a file of ours and in one of the older layout without
 * checksums: an export or one line, whatever HDF5 does with it. */
static void damaged_files(void **state)
{
    char path[600], earliest[600];
    FILE *null = fopen("/dev/null", "w");
    hid_t from = H5Fopen(result(), H5F_ACC_RDONLY, H5P_DEFAULT), to;
    int n_refused = 0, n_crashed = 0;
    struct rng r;

    (void)state;
    snprintf(earliest, sizeof(earliest), "%s/earliest.h5", test_dir());
    snprintf(path, sizeof(path), "%s/damaged.h5", test_dir());
    to = H5Fcreate(earliest, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Ocopy(from, "cells", to, "cells", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Ocopy(from, "headline", to, "headline", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Fclose(from);
    H5Fclose(to);
    assert_ok(export_print(earliest, EXPORT_JSON, null));
    rng_init(&r, test_seed(), "damage");
    for (int i = 0; i < N_DAMAGED; i++) {
        size_t n;
        uint8_t *bytes = test_read(i % 2 ? earliest : result(), &n);
        int rc;

        for (uint64_t k = 1 + rng_below(&r, 4); k > 0; k--)
            bytes[rng_below(&r, i % 8 < 4 ? n : 4096)] =
                (uint8_t)(k % 2 ? rng_below(&r, 256) : 0xff);
        unlink(path);
        test_write(path, bytes, n);
        mem_free(bytes);
        rc = export_print(path, (enum export_format)(i / 2 % 4), null);
        n_refused += rc != OK;
        n_crashed += rc != OK && strstr(err_msg(), "ended with") != NULL;
        if (rc != OK && (!strstr(err_msg(), path) || strchr(err_msg(), '\n')))
            fail_msg("seed %llu, file %d: %s: %s", (unsigned long long)test_seed(), i,
                     err_name(rc), err_msg());
    }
    printf("# %d of %d refused, in %d of them HDF5 crashed or met a limit\n", n_refused,
           N_DAMAGED, n_crashed);
    assert_in_range(n_refused, N_DAMAGED / 10, N_DAMAGED);
    fclose(null);
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
static void saves_whole_or_not_at_all(void **state)
{
    char *text = exported("markdown"), out[600], other[600];
    const char *path = copy_of_result("saved");
    struct stat before, after;
    size_t n;
    void *whole = test_read(path, &n);

    (void)state;
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

/* What older records call truth is their evidence. */
static void older_records_are_read(void **state)
{
    char *path = copy_of_result("older"), *text;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    size_t n;
    FILE *f = open_memstream(&text, &n);

    (void)state;
    assert_true(H5Arename(file, "evidence", "truth") >= 0);
    H5Fclose(file);
    assert_ok(export_print(path, EXPORT_MARKDOWN, f));
    fclose(f);
    assert_non_null(strstr(text, "commit 0123456789ab, measured"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_requests),
        cmocka_unit_test(csv_cells),
        cmocka_unit_test(json_has_known_keys),
        cmocka_unit_test(json_full_holds_every_token),
        cmocka_unit_test(markdown),
        cmocka_unit_test(locked_records_are_read),
        cmocka_unit_test(refuses),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(columns_are_checked),
        cmocka_unit_test(cells_have_names),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(saves_whole_or_not_at_all),
        cmocka_unit_test(older_records_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
