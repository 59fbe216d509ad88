#include "experiments/harness/record.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/harness/journal.h"
#include "experiments/harness/record_cell.h"
#include "experiments/harness/record_fields.h"

/* --- from journal to image */

struct build {
    struct record_h5 *h5;
    hid_t cells;
    size_t n_cells;
    json_t *attempts; /* key -> how often it was seen */
};

static int put_one(void *ctx, const struct record_cell *cell)
{
    struct build *b = ctx;
    json_int_t n = json_integer_value(json_object_get(b->attempts, cell->key)) + 1;

    if (json_object_set_new(b->attempts, cell->key, json_integer(n)) != 0)
        return err_set(ERR_NOMEM, "%s: out of memory", b->h5->where);
    return record_cell_put(b->h5, b->cells, b->n_cells++, n, cell);
}

/* Scalars of the header become attributes, documents become datasets. */
static int put_header(struct record_h5 *h, const json_t *header)
{
    const json_t *provenance = json_object_get(header, "provenance");
    const char *key;
    json_t *v;
    int rc = OK;

    json_object_foreach((json_t *)header, key, v)
    {
        char path[128];

        if (strcmp(key, "journal_version") == 0 || json_is_null(v))
            continue;
        if (json_is_object(v) || json_is_array(v)) {
            snprintf(path, sizeof(path), "/%s_json", key);
            rc = record_json(h, h->file, path + 1, v, record_field_meaning(path));
        } else if (strcmp(key, "hwloc_xml") == 0 && json_is_string(v)) {
            rc = record_h5_text(h, h->file, key, json_string_value(v),
                                record_field_meaning("/hwloc_xml"));
        } else {
            rc = record_h5_attr(h, h->file, key, v);
        }
        if (rc != OK)
            return rc;
    }
    return record_attributes(h, h->file, "", provenance);
}

static int put_counts(struct record_h5 *h, size_t n_cells, size_t n_interrupted)
{
    json_t *own =
        json_pack("{s:i s:I s:I}", "schema_version", RECORD_SCHEMA_VERSION, "n_cells",
                  (json_int_t)n_cells, "n_interrupted_cells", (json_int_t)n_interrupted);
    int rc = own ? record_attributes(h, h->file, "", own)
                 : err_set(ERR_NOMEM, "%s: out of memory", h->where);

    json_decref(own);
    return rc;
}

static int put_headline(struct record_h5 *h, const struct record_headline *v, size_t n)
{
    hid_t g;
    int rc = record_h5_group(h, h->file, "headline", &g);

    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < n; i++)
        rc = record_scalar(h, g, &v[i], v[i].name);
    H5Gclose(g);
    return rc;
}

/* Bytes that HDF5 will need, from above. A dataset costs its elements and, with its
 * header, attributes and compression index, well under these. */
#define BYTES_PER_OBJECT 4096
#define BYTES_PER_ROW    320

static int add_bytes(void *ctx, const struct record_cell *c)
{
    size_t *bytes = ctx;
    char *text = json_text(c->attributes, JSON_INDENT(1));

    if (!text)
        return ERR_NOMEM;
    /* the text, and again as attributes; a few groups; the columns */
    *bytes += 8 * strlen(text) + 32 * BYTES_PER_OBJECT;
    mem_free(text);
    *bytes += c->n_rows * BYTES_PER_ROW + (c->n_values + c->n_series) * BYTES_PER_OBJECT;
    for (size_t i = 0; i < c->n_rows; i++)
        *bytes += 12 * (size_t)c->rows[i].n_tok;
    for (size_t i = 0; i < c->n_series; i++)
        *bytes += 12 * c->series[i].n;
    return OK;
}

static int expected_bytes(const char *path, size_t n_headline, size_t *out)
{
    json_t *header;
    char *text;
    int rc;

    *out = (n_headline + 64) * BYTES_PER_OBJECT;
    rc = journal_read(path, add_bytes, out, &header, NULL);
    if (rc != OK)
        return rc;
    text = json_text(header, JSON_INDENT(1));
    json_decref(header);
    if (!text)
        return ERR_NOMEM;
    *out += 4 * strlen(text);
    mem_free(text);
    return OK;
}

static int put_cells(struct build *b, const struct journal *j, json_t **header,
                     size_t *n_interrupted)
{
    int rc = record_h5_group(b->h5, b->h5->file, "cells", &b->cells);

    if (rc != OK)
        return rc;
    rc = journal_read(journal_path(j), put_one, b, header, n_interrupted);
    H5Gclose(b->cells);
    if (rc == OK && b->n_cells != journal_n_attempts(j))
        rc = err_set(ERR_FORMAT, "%s: expected %zu finished cells, found %zu",
                     journal_path(j), journal_n_attempts(j), b->n_cells);
    return rc;
}

static int build_image(struct record_h5 *h, const struct journal *j,
                       const struct record_headline *headline, size_t n_headline,
                       json_t **header)
{
    struct build b = {.h5 = h, .cells = -1, .attempts = json_object()};
    size_t n_interrupted = 0;
    int rc;

    if (!b.attempts)
        return err_set(ERR_NOMEM, "%s: out of memory", journal_path(j));
    rc = put_cells(&b, j, header, &n_interrupted);
    if (rc == OK)
        rc = put_header(h, *header);
    if (rc == OK)
        rc = put_counts(h, b.n_cells, n_interrupted);
    if (rc == OK)
        rc = put_headline(h, headline, n_headline);
    json_decref(b.attempts);
    return rc;
}

/* --- from image to disk */

static int write_image(int fd, const char *path, const uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return err_set(ERR_IO, "%s: cannot write: %m", path);
        p += put;
        n -= (size_t)put;
    }
    return fsync(fd) == 0 ? OK : err_set(ERR_IO, "%s: cannot sync: %m", path);
}

static int put_file(const char *tmp, const char *path, const uint8_t *p, size_t n)
{
    int rc, fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot create: %m", tmp);
    rc = write_image(fd, tmp, p, n);
    if (close(fd) != 0 && rc == OK)
        rc = err_set(ERR_IO, "%s: cannot close: %m", tmp);
    if (rc == OK && rename(tmp, path) != 0)
        rc = err_set(ERR_IO, "%s: cannot rename to %s: %m", tmp, path);
    if (rc != OK)
        unlink(tmp);
    return rc;
}

static bool same_content(const char *path, const uint8_t *p, size_t n)
{
    FILE *f = fopen(path, "rbe");
    uint8_t *q = mem_new(MEM_HARNESS, n + 1, 1);
    bool same = f && q && fread(q, 1, n + 1, f) == n && memcmp(p, q, n) == 0;

    mem_free(q);
    if (f)
        fclose(f);
    return same;
}

/* "<dir>/20260131T235959Z-d125964.h5", with -2, -3 ... where another result has the name.
 * A result of the same bytes is this very one, of a run killed before it removed its
 * journal: *there. */
static int result_path(const struct journal *j, const json_t *header, const uint8_t *p,
                       size_t n, char **out, bool *there)
{
    const char *utc = json_string_value(json_object_get(header, "utc"));
    const char *commit = json_string_value(
        json_object_get(json_object_get(header, "provenance"), "commit"));
    const char *slash = strrchr(journal_path(j), '/');
    int n_dir = (int)(slash - journal_path(j));
    size_t cap = (size_t)n_dir + 64;
    char *path = mem_new(MEM_HARNESS, cap, 1), stamp[32], serial[16] = "";
    size_t k = 0;

    if (!path)
        return ERR_NOMEM;
    for (; *utc && k < sizeof(stamp) - 1; utc++)
        if (isalnum((unsigned char)*utc))
            stamp[k++] = *utc;
    stamp[k] = 0;
    for (int i = 2;; i++) {
        snprintf(path, cap, "%.*s/%s-%.7s%s.h5", n_dir, journal_path(j), stamp,
                 commit ? commit : "unknown", serial);
        *there = same_content(path, p, n);
        if (*there || access(path, F_OK) != 0)
            break;
        snprintf(serial, sizeof(serial), "-%d", i);
    }
    *out = path;
    return OK;
}

/* --- latest.json */

static json_t *headline_json(const struct record_headline *v, size_t n)
{
    json_t *all = json_object(), *one;

    for (size_t i = 0; all && i < n; i++) {
        if (isfinite(v[i].value))
            one = json_pack("{s:f s:s s:s}", "value", v[i].value, "unit", v[i].unit,
                            "better", v[i].better);
        else
            one = json_pack("{s:n s:s s:s s:s}", "value", "unit", v[i].unit, "better",
                            v[i].better, "why", v[i].why ? v[i].why : "no reason given");
        if (v[i].n_left_out &&
            json_object_set_new(one, "n_left_out",
                                json_integer((json_int_t)v[i].n_left_out)) != 0) {
            json_decref(one);
            one = NULL; /* refused below */
        }
        if (json_object_set_new(all, v[i].name, one) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}

static int write_latest(const char *h5_path, const json_t *header,
                        const struct record_headline *headline, size_t n_headline)
{
    const char *slash = strrchr(h5_path, '/');
    size_t n = (size_t)(slash - h5_path) + sizeof("/latest.json");
    json_t *provenance = json_object_get(header, "provenance");
    json_t *all = headline_json(headline, n_headline), *doc = NULL;
    char *path = mem_new(MEM_HARNESS, n, 1);
    int rc = ERR_NOMEM;

    if (all)
        doc = json_pack("{s:s s:O s:O? s:O s:O}", "file", slash + 1, "utc",
                        json_object_get(header, "utc"), "commit",
                        json_object_get(provenance, "commit"), "truth",
                        json_object_get(header, "truth"), "headline", all);
    if (!path || !doc) {
        err_set(rc, "%s: out of memory writing latest.json", h5_path);
    } else {
        snprintf(path, n, "%.*s/latest.json", (int)(slash - h5_path), h5_path);
        rc = json_write_file(doc, path);
    }
    mem_free(path);
    json_decref(doc);
    json_decref(all);
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

static int put_result(const char *path, bool there, const uint8_t *bytes, size_t n)
{
    size_t cap = strlen(path) + 8;
    char *tmp;
    int rc;

    if (there)
        return OK;
    tmp = mem_new(MEM_HARNESS, cap, 1);
    if (!tmp)
        return ERR_NOMEM;
    snprintf(tmp, cap, "%s.tmp", path);
    rc = put_file(tmp, path, bytes, n);
    mem_free(tmp);
    return rc;
}

/* Image in memory -> file next to the journal -> latest.json. */
static int publish(const struct journal *j, struct record_h5 *h, const json_t *header,
                   const struct record_headline *headline, size_t n_headline, char **path)
{
    const uint8_t *bytes;
    bool there = false;
    size_t n;
    int rc = record_h5_image(h, &bytes, &n);

    if (rc == OK)
        rc = result_path(j, header, bytes, n, path, &there);
    if (rc == OK)
        rc = put_result(*path, there, bytes, n);
    if (rc != OK)
        return rc;
    rc = write_latest(*path, header, headline, n_headline); /* syncs the folder as well */
    if (rc != OK && !there)
        unlink(*path);
    return rc;
}

int record_finish(struct journal **jp, const struct record_headline *headline,
                  size_t n_headline, char **path_out)
{
    struct journal *j = *jp;
    struct record_h5 h;
    json_t *header = NULL;
    char *path = NULL;
    size_t expected = 0;
    int rc;

    if (path_out)
        *path_out = NULL;
    rc = check_headline(headline, n_headline, journal_path(j));
    if (rc == OK)
        rc = expected_bytes(journal_path(j), n_headline, &expected);
    if (rc == OK)
        rc = record_h5_create(&h, journal_path(j), expected);
    if (rc != OK)
        return rc;
    rc = build_image(&h, j, headline, n_headline, &header);
    if (rc == OK)
        rc = publish(j, &h, header, headline, n_headline, &path);
    record_h5_close(&h);
    if (rc == OK)
        rc = journal_remove(jp);
    if (rc == OK && path_out)
        *path_out = path, path = NULL;
    mem_free(path);
    json_decref(header);
    return rc;
}
