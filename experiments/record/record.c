#include "experiments/record/record.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/file_tmp.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/journal.h"
#include "experiments/record/h5.h"
#include "experiments/record/head.h"

struct build {
    const char *journal; /* its path */
    size_t n_expected;   /* finished cells in it */
    const struct record_headline *headline;
    size_t n_headline;
    struct file_tmp tmp; /* what HDF5 writes */
    /* in the child */
    struct record_h5 h5;
    json_t *attempts; /* key -> how often it was seen */
    json_t *head;
};

/* --- in the child: from journal to HDF5 */

static int put_cell(void *ctx, const struct record_cell *cell)
{
    struct build *b = ctx;
    const json_int_t n = json_int_at(b->attempts, cell->key) + 1;

    json_object_set_new(b->attempts, cell->key, json_integer(n));
    record_h5_cell(&b->h5, n, cell);
    record_head_cell(b->head, cell);
    return OK;
}

static int write_h5(struct build *b)
{
    size_t n_interrupted;
    json_t *header;

    b->attempts = json_object();
    b->head = record_head_new();
    record_h5_create(&b->h5, b->tmp.path);
    TRY(journal_read(b->journal, put_cell, b, &header, &n_interrupted));
    if (b->h5.n_cells != b->n_expected)
        return err_set(ERR_FORMAT, "%s: expected %zu finished cells, found %zu",
                       b->journal, b->n_expected, b->h5.n_cells);
    record_head_end(b->head, header, b->h5.n_cells, n_interrupted, b->headline,
                    b->n_headline);
    record_h5_close(&b->h5, json_object_get(b->head, "run"), header, b->headline,
                    b->n_headline);
    json_object_set_new(json_object_get(b->head, "run"), RECORD_CHAIN_ATTRIBUTE,
                        json_string(b->h5.chain));
    return OK;
}

/* --- its name */

static bool same_content(const char *a_path, const char *b_path)
{
    FILE *a, *b = NULL;
    bool same = file_stream(&a, a_path) == OK && file_stream(&b, b_path) == OK;

    while (same) {
        char x[4096], y[4096];
        size_t n = fread(x, 1, sizeof(x), a);

        same = fread(y, 1, sizeof(y), b) == n && memcmp(x, y, n) == 0;
        if (n == 0)
            break;
    }
    if (a)
        fclose(a);
    if (b)
        fclose(b);
    return same;
}

/* "<dir>/20260131T235959Z-d125964.h5", with -2, -3 ... where another result has the name.
 * A result of the same bytes is this very one, of a run killed before it removed its
 * journal: *there. */
static void name_result(const struct build *b, char *path, size_t n, bool *there)
{
    const char *utc = json_str_at(b->head, "utc", "");
    const char *commit = json_str_at(b->head, "commit", "unknown");
    int n_dir = (int)(strrchr(b->tmp.path, '/') - b->tmp.path);
    char stamp[32], serial[16] = "";
    size_t k = 0;

    for (; *utc && k < sizeof(stamp) - 1; utc++)
        if (isalnum((unsigned char)*utc))
            stamp[k++] = *utc;
    stamp[k] = 0;
    for (int i = 2;; i++) {
        snprintf(path, n, "%.*s/%s-%.7s%s.h5", n_dir, b->tmp.path, stamp, commit, serial);
        *there = same_content(path, b->tmp.path);
        if (*there || access(path, F_OK) != 0)
            break;
        snprintf(serial, sizeof(serial), "-%d", i);
    }
}

/* --- all of it */

/* Prints the result's path. The head is there before the record has its name. */
static int make_record(void *ctx, FILE *out)
{
    struct build *b = ctx;
    int n_dir = (int)(strrchr(b->tmp.path, '/') - b->tmp.path), rc;
    char path[PATH_MAX], head[PATH_MAX], latest[PATH_MAX];
    bool there = false;

    TRY(write_h5(b));
    name_result(b, path, sizeof(path), &there);
    snprintf(head, sizeof(head), "%.*s.json", (int)(strrchr(path, '.') - path), path);
    snprintf(latest, sizeof(latest), "%.*s/latest.json", n_dir, b->tmp.path);
    json_object_set_new(b->head, "file", json_string(path + n_dir + 1));
    rc = json_write_file(b->head, head);
    if (rc == OK && !there)
        rc = file_tmp_publish(&b->tmp, path);
    if (rc == OK)
        rc = json_write_file(b->head, latest);
    if (rc != OK && !there) {
        unlink(path);
        unlink(head);
    }
    fputs(path, out);
    return rc;
}

static int check_headline(const struct record_headline *v, size_t n, const char *where)
{
    for (size_t i = 0; i < n; i++)
        if (!v[i].name[0] || strchr(v[i].name, '/') || !v[i].unit || !v[i].better)
            return err_set(ERR_ARG,
                           "%s: headline %zu: expected a name without '/', a unit "
                           "and a direction, found \"%s\"",
                           where, i, v[i].name);
    return OK;
}

int record_finish(struct journal **jp, const struct record_headline *headline,
                  size_t n_headline, bool keep_journal, char **path_out)
{
    const char *journal = journal_path(*jp);
    size_t n = strlen(journal);
    struct build b = {.journal = journal,
                      .n_expected = journal_n_attempts(*jp),
                      .headline = headline,
                      .n_headline = n_headline};
    const struct child child = {.fn = make_record,
                                .ctx = &b,
                                .where = journal,
                                .if_crash = "no record was written"};
    char *path = NULL, *target;
    int rc = check_headline(headline, n_headline, journal);

    if (path_out)
        *path_out = NULL;
    if (rc != OK)
        return rc;
    target = mem_new(MEM_HARNESS, n + 8, 1);
    snprintf(target, n + 8, "%.*s.h5", (int)(strrchr(journal, '.') - journal), journal);
    rc = file_tmp_open(&b.tmp, target);
    if (rc == OK)
        rc = child_run(&child, &path, &n);
    file_tmp_close(&b.tmp);
    mem_free(target);
    if (rc == OK && keep_journal)
        journal_close(jp);
    else if (rc == OK)
        rc = journal_remove(jp);
    if (rc == OK && path_out)
        *path_out = path, path = NULL;
    mem_free(path);
    return rc;
}
