/* tests/record/toy_export.h - a record of fixture cells, and its exports. Include it once in a
 * test. */
#ifndef TESTS_TOY_EXPORT_H
#define TESTS_TOY_EXPORT_H

#include "tests/support/fixture.h"

#include "experiments/record/export.h"

#define N 8

static inline const char *result(void)
{
    static char *path;
    static char kept[600];
    const struct record_headline h[] = {
        {.name = "ttft", .unit = "ms", .better = "lower", .value = 12.5},
        {.name = "goodput",
         .unit = "req/s",
         .better = "higher",
         .value = NAN,
         .why = "no | rate <b>\x1b[2J"}};
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
    assert_ok(record_finish(&j, h, 2, false, &path));
    snprintf(kept, sizeof(kept), "%s", path);
    mem_free(path);
    json_decref(header);
    return kept;
}

static inline char *copy_of_result(const char *name)
{
    static char path[600];
    size_t n;
    void *bytes = test_read(result(), &n);

    snprintf(path, sizeof(path), "%s/%s.h5", test_dir(), name);
    test_write(path, bytes, n);
    mem_free(bytes);
    return path;
}

#endif
