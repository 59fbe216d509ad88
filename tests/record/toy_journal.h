/* tests/record/toy_journal.h - a journal of fixture cells, for the tests of journals. Include it
 * once in a test. */
#ifndef TESTS_TOY_JOURNAL_H
#define TESTS_TOY_JOURNAL_H

#include "tests/support/fixture.h"

#include <unistd.h>

#include "base/log.h"

/* What a sync costs is the disk's affair: thousands of them are not waited for here. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

#define UTC "2026-01-31T23:59:59Z"

static inline struct journal *open_toy(const char *dir)
{
    json_t *h = fixture_header(UTC);
    struct journal *j;

    assert_ok(journal_open(&j, dir, "toy", h, false));
    json_decref(h);
    return j;
}

static inline int append_fixture(struct journal *j, int i)
{
    struct fixture_cell f;
    int rc;

    fixture_cell_make(&f, i);
    rc = journal_cell(j, &f.cell);
    fixture_cell_free(&f);
    return rc;
}

/* Every cell walked is whole and equal to its fixture; *ctx counts them. */
static inline int check_cell(void *ctx, const struct record_cell *c)
{
    fixture_cell_check(c, fixture_cell_number(c->key));
    ++*(int *)ctx;
    return OK;
}

static inline int read_checked(const char *path)
{
    int n = 0;

    assert_ok(journal_read(path, check_cell, &n, NULL, NULL));
    return n;
}

static inline void ignore_line(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

#endif
