/* tests/datasets/data.h - what the tests of this module share: a file with given content,
 * and options with their defaults. */
#ifndef TESTS_DATASETS_DATA_H
#define TESTS_DATASETS_DATA_H

#include "datasets/dataset.h"
#include "tests/support/test.h"

/* Write `n` bytes to a file below test_dir(); its path is lent until the next call. */
static inline const char *data_file(const void *bytes, size_t n)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/in", test_dir());
    test_write(path, bytes, n);
    return path;
}

static inline const char *data_text(const char *text)
{
    return data_file(text, strlen(text));
}

/* Defaults with this reader and path; give back with opt_free(). */
static inline struct dataset_opts data_opts(const char *reader, const char *path)
{
    struct dataset_opts o;

    assert_ok(opt_init(dataset_opt_table, &o));
    assert_ok(opt_set(dataset_opt_table, &o, "reader", reader, "test"));
    if (path)
        assert_ok(opt_set(dataset_opt_table, &o, "path", path, "test"));
    return o;
}

/* Open and close again; the code of the open. */
static inline int data_try(const char *reader, const char *path)
{
    struct dataset_opts o = data_opts(reader, path);
    struct dataset *d;
    int rc = dataset_open(&d, &o);

    assert_true((rc == OK) == (d != NULL));
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
    return rc;
}

static inline int data_try_text(const char *reader, const char *text)
{
    return data_try(reader, data_text(text));
}

#endif
