#include "experiments/record/record.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/file_tmp.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/journal.h"
#include "experiments/record/cell.h"
#include "experiments/record/fields.h"

struct build {
    const struct journal *journal;
    const struct record_headline *headline;
    size_t n_headline;
    struct file_tmp tmp; /* what HDF5 writes */
    /* in the child */
    struct record_h5 h5;
    hid_t cells;
    size_t n_cells;
    json_t *attempts; /* key -> how often it was seen */
};

/* --- in the child: from journal to HDF5 */

static int put_cell(void *ctx, const struct record_cell *cell)
{
    struct build *b = ctx;
    json_int_t n = json_integer_value(json_object_get(b->attempts, cell->key)) + 1;

    if (json_object_set_new(b->attempts, cell->key, json_integer(n)) != 0)
        return err_set(ERR_NOMEM, "%s: out of memory", b->tmp.path);
    record_cell_put(&b->h5, b->cells, b->n_cells++, n, cell);
    return OK;
}

/* Scalars of the header become attributes, documents become datasets. */
static void put_header(struct record_h5 *h, const json_t *header)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)header, key, v)
    {
        char path[128];

        if (strcmp(key, "journal_version") == 0 || json_is_null(v))
            continue;
        if (json_is_object(v) || json_is_array(v)) {
            snprintf(path, sizeof(path), "/%s_json", key);
            record_json(h, h->file, path + 1, v, record_field_meaning(path));
        } else if (strcmp(key, "hwloc_xml") == 0 && json_is_string(v)) {
            record_text(h, h->file, key, json_string_value(v),
                        record_field_meaning("/hwloc_xml"));
        } else {
            record_h5_attr(h, h->file, key, v);
        }
    }
    record_attributes(h, h->file, "", json_object_get(header, "provenance"));
}

static void put_counts(struct build *b, size_t n_interrupted)
{
    json_t *own = json_pack("{s:i s:I s:I}", "schema_version", RECORD_SCHEMA_VERSION,
                            "n_cells", (json_int_t)b->n_cells, "n_interrupted_cells",
                            (json_int_t)n_interrupted);

    if (!own)
        child_exit(err_set(ERR_NOMEM, "%s: out of memory", b->tmp.path));
    record_attributes(&b->h5, b->h5.file, "", own);
    json_decref(own);
}

static void put_headline(struct build *b)
{
    hid_t g = record_h5_group(&b->h5, b->h5.file, "headline");

    for (size_t i = 0; i < b->n_headline; i++)
        record_scalar(&b->h5, g, &b->headline[i], b->headline[i].name);
    H5Gclose(g);
}

/* *header: new reference. */
static int write_h5(struct build *b, json_t **header)
{
    const char *journal = journal_path(b->journal);
    size_t n_interrupted, expected = journal_n_attempts(b->journal);
    int rc;

    b->attempts = json_object();
    if (!b->attempts)
        return err_set(ERR_NOMEM, "%s: out of memory", b->tmp.path);
    record_h5_create(&b->h5, b->tmp.path);
    b->cells = record_h5_group(&b->h5, b->h5.file, "cells");
    rc = journal_read(journal, put_cell, b, header, &n_interrupted);
    if (rc != OK)
        return rc;
    if (b->n_cells != expected)
        return err_set(ERR_FORMAT, "%s: expected %zu finished cells, found %zu", journal,
                       expected, b->n_cells);
    H5Gclose(b->cells);
    put_header(&b->h5, *header);
    put_counts(b, n_interrupted);
    put_headline(b);
    record_h5_close(&b->h5);
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
static void name_result(const struct build *b, const json_t *header, char *path, size_t n,
                        bool *there)
{
    const char *utc = json_string_value(json_object_get(header, "utc"));
    const char *commit = json_string_value(
        json_object_get(json_object_get(header, "provenance"), "commit"));
    int n_dir = (int)(strrchr(b->tmp.path, '/') - b->tmp.path);
    char stamp[32], serial[16] = "";
    size_t k = 0;

    for (; *utc && k < sizeof(stamp) - 1; utc++)
        if (isalnum((unsigned char)*utc))
            stamp[k++] = *utc;
    stamp[k] = 0;
    for (int i = 2;; i++) {
        snprintf(path, n, "%.*s/%s-%.7s%s.h5", n_dir, b->tmp.path, stamp,
                 commit ? commit : "unknown", serial);
        *there = same_content(path, b->tmp.path);
        if (*there || access(path, F_OK) != 0)
            break;
        snprintf(serial, sizeof(serial), "-%d", i);
    }
}

/* --- latest.json */

static json_t *headline_json(const struct record_headline *v, size_t n)
{
    json_t *all = json_object(), *one;

    for (size_t i = 0; i < n; i++) {
        if (isfinite(v[i].value))
            one = json_pack("{s:f s:s s:s}", "value", v[i].value, "unit", v[i].unit,
                            "better", v[i].better);
        else
            one = json_pack("{s:n s:s s:s s:s}", "value", "unit", v[i].unit, "better",
                            v[i].better, "why", v[i].why ? v[i].why : "no reason given");
        if ((v[i].n_left_out &&
             json_object_set_new(one, "n_left_out",
                                 json_integer((json_int_t)v[i].n_left_out)) != 0) ||
            (v[i].has_interval &&
             json_object_update_new(
                 one, json_pack("{s:f s:f}", "lo", v[i].lo, "hi", v[i].hi)) != 0) ||
            (v[i].evidence &&
             json_object_set_new(one, "evidence", json_string(v[i].evidence)) != 0) ||
            json_object_set_new(all, v[i].name, one) != 0)
            child_exit(err_set(ERR_NOMEM, "latest.json: out of memory"));
    }
    return all;
}

static json_t *latest_json(const struct build *b, const char *h5_path,
                           const json_t *header)
{
    json_t *provenance = json_object_get(header, "provenance");
    json_t *doc = json_pack("{s:s s:O s:O? s:O s:o}", "file", strrchr(h5_path, '/') + 1,
                            "utc", json_object_get(header, "utc"), "commit",
                            json_object_get(provenance, "commit"), "evidence",
                            json_object_get(header, "evidence"), "headline",
                            headline_json(b->headline, b->n_headline));

    if (!doc)
        child_exit(err_set(ERR_NOMEM, "latest.json: out of memory"));
    return doc;
}

/* --- all of it */

/* Prints the result's path. */
static int make_record(void *ctx, FILE *out)
{
    struct build *b = ctx;
    json_t *header, *latest;
    int n_dir = (int)(strrchr(b->tmp.path, '/') - b->tmp.path), rc;
    size_t n = strlen(b->tmp.path) + 64;
    char *path = mem_new(MEM_HARNESS, 2, n), *latest_path = path + n;
    bool there = false;

    rc = path ? write_h5(b, &header) : ERR_NOMEM;
    if (rc != OK)
        return rc;
    name_result(b, header, path, n, &there);
    snprintf(latest_path, n, "%.*s/latest.json", n_dir, b->tmp.path);
    latest = latest_json(b, path, header);
    if (!there)
        rc = file_tmp_publish(&b->tmp, path);
    if (rc == OK)
        rc = json_write_file(latest, latest_path);
    if (rc != OK && !there)
        unlink(path);
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
                  size_t n_headline, char **path_out)
{
    const char *journal = journal_path(*jp);
    size_t n = strlen(journal);
    struct build b = {.journal = *jp, .headline = headline, .n_headline = n_headline};
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
    if (!target)
        return ERR_NOMEM;
    snprintf(target, n + 8, "%.*s.h5", (int)(strrchr(journal, '.') - journal), journal);
    rc = file_tmp_open(&b.tmp, target);
    if (rc == OK)
        rc = child_run(&child, &path, &n);
    file_tmp_close(&b.tmp);
    mem_free(target);
    if (rc == OK)
        rc = journal_remove(jp);
    if (rc == OK && path_out)
        *path_out = path, path = NULL;
    mem_free(path);
    return rc;
}
