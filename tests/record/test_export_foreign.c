/* Records that are not ours, of another version, cut or damaged: an export or one line. */
#include "tests/record/toy_export.h"

#include <hdf5.h>
#include <unistd.h>

#include "experiments/record/fields.h"

TEST(refuses)
{
    const char *dir = test_dir();
    enum export_format f;
    char path[600];
    uint8_t *whole;
    size_t n;
    FILE *full = fopen("/dev/full", "w"), *null = fopen("/dev/null", "w");

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

TEST(memory_fails)
{
    const char *path = result();
    FILE *null = fopen("/dev/null", "w");

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
TEST(shapes_are_checked)
{
    static const char *const scalars[] = {METRIC, "/headline/ttft"};
    size_t used = mem_used_bytes(MEM_HARNESS);
    hid_t text = H5Tcopy(H5T_C_S1);

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
TEST(columns_are_checked)
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

/* A cell without its name, one whose name is a number, one without its description. */
TEST(cells_have_names)
{
    static const struct {
        const char *doc, *part;
    } bad[] = {
        {"{}", "/cells/0001: expected a \"key\" in attributes_json"},
        {"{\"key\": 7}", "/cells/0001: expected a \"key\" in attributes_json"},
        {"{\"key\": \"k\"", "attributes_json: "},
        {NULL, "attributes_json: expected a text"},
    };
    const char *path = copy_of_result("nameless");

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), type, space, set;

        if (i < 1 || bad[i - 1].doc)
            assert_true(H5Ldelete(file, "/cells/0001/attributes_json", H5P_DEFAULT) >= 0);
        if (bad[i].doc) {
            type = H5Tcopy(H5T_C_S1);
            H5Tset_size(type, strlen(bad[i].doc));
            space = H5Screate(H5S_SCALAR);
            set = H5Dcreate2(file, "/cells/0001/attributes_json", type, space,
                             H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
            assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bad[i].doc) >=
                        0);
            H5Dclose(set);
            H5Sclose(space);
            H5Tclose(type);
        }
        H5Fclose(file);
        assert_refused(path, bad[i].part);
    }
}

static void put_version(hid_t file, int64_t version)
{
    hid_t space = H5Screate(H5S_SCALAR), a;

    if (H5Aexists(file, "schema_version") > 0)
        assert_true(H5Adelete(file, "schema_version") >= 0);
    a = H5Acreate2(file, "schema_version", H5T_STD_I64LE, space, H5P_DEFAULT,
                   H5P_DEFAULT);
    assert_true(H5Awrite(a, H5T_NATIVE_INT64, &version) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

TEST(versions_are_checked)
{
    const char *path = copy_of_result("later");
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);

    put_version(file, RECORD_SCHEMA_VERSION + 1);
    H5Fclose(file);
    assert_refused(path, "schema_version: expected 1 to");
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Adelete(file, "schema_version") >= 0);
    H5Fclose(file);
    assert_refused(path, "found 0: not a record of this version");
}

#define N_DAMAGED 600

/* Bytes changed at many places, in a file of ours and in one of the older layout without
 * checksums: an export or one line, whatever HDF5 does with it. */
TEST(damaged_files)
{
    char path[600], earliest[600];
    FILE *null = fopen("/dev/null", "w");
    hid_t from = H5Fopen(result(), H5F_ACC_RDONLY, H5P_DEFAULT), to;
    int n_refused = 0, n_crashed = 0;
    struct rng r;

    snprintf(earliest, sizeof(earliest), "%s/earliest.h5", test_dir());
    snprintf(path, sizeof(path), "%s/damaged.h5", test_dir());
    to = H5Fcreate(earliest, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Ocopy(from, "cells", to, "cells", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Ocopy(from, "headline", to, "headline", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    put_version(to, RECORD_SCHEMA_VERSION);
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
