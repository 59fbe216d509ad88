#include "experiments/harness/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/harness/journal_cell.h"

static int map_file(const char *path, const uint8_t **p, size_t *n)
{
    struct stat st;
    int rc = OK, fd = open(path, O_RDONLY | O_CLOEXEC);

    *p = NULL;
    *n = 0;
    if (fd < 0)
        return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open: %m",
                       path);
    if (fstat(fd, &st) != 0) {
        rc = err_set(ERR_IO, "%s: cannot stat: %m", path);
    } else if (st.st_size > 0) {
        void *m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m == MAP_FAILED)
            rc = err_set(ERR_IO, "%s: cannot map: %m", path);
        else
            *p = m, *n = (size_t)st.st_size;
    }
    close(fd);
    return rc;
}

/* The end frame closes a cell: check that nothing is missing, then show it. */
static int finish_cell(struct journal_parts *parts, const struct journal_frame *f,
                       journal_cell_fn fn, void *ctx)
{
    struct journal_end end;
    struct record_cell cell;
    json_t *attributes = NULL;
    int rc = journal_decode_end(f, &end, &attributes);

    if (rc == OK && (end.n_rows != parts->n_rows || end.n_values != parts->n_values ||
                     end.n_series != parts->n_series))
        rc = err_set(ERR_FORMAT,
                     "journal: cell %s: expected %zu rows, %zu values, %zu series, found "
                     "%zu, %zu, %zu",
                     parts->key, end.n_rows, end.n_values, end.n_series, parts->n_rows,
                     parts->n_values, parts->n_series);
    if (rc == OK) {
        journal_parts_link(parts);
        cell = (struct record_cell){.key = parts->key,
                                    .state = end.state,
                                    .attributes = attributes,
                                    .rows = parts->rows,
                                    .n_rows = parts->n_rows,
                                    .values = parts->values,
                                    .n_values = parts->n_values,
                                    .series = parts->series,
                                    .n_series = parts->n_series};
        rc = fn(ctx, &cell);
    }
    json_decref(attributes);
    return rc;
}

/* Everything behind the header. */
static int walk_cells(const uint8_t *p, size_t n, size_t at, journal_cell_fn fn,
                      void *ctx, size_t *n_interrupted)
{
    struct journal_parts parts = {0};
    struct journal_frame f;
    bool inside = false;
    int rc = OK;

    while (rc == OK && journal_frame_next(p, n, &at, &f)) {
        if (f.type == JOURNAL_CELL) {
            *n_interrupted += inside;
            inside = true;
            rc = journal_parts_begin(&parts, &f);
        } else if (f.type == JOURNAL_END && inside) {
            rc = finish_cell(&parts, &f, fn, ctx);
            inside = false;
        } else if (f.type != JOURNAL_RESUME) {
            rc = inside ? journal_parts_add(&parts, &f)
                        : err_set(ERR_FORMAT, "offset %zu: a frame outside a cell", at);
        }
    }
    *n_interrupted += inside;
    journal_parts_fini(&parts);
    return rc;
}

/* {"resumes": [...]} joins the header, so that a record tells when it was interrupted. */
static int add_resumes(json_t *header, const uint8_t *p, size_t n, size_t at)
{
    struct journal_frame f;
    json_t *list = json_array(), *one;
    int rc = list ? OK : err_set(ERR_NOMEM, "out of memory");

    while (rc == OK && journal_frame_next(p, n, &at, &f)) {
        if (f.type != JOURNAL_RESUME)
            continue;
        rc = json_read_own(&one, (const char *)f.payload, f.n, "journal: resume");
        if (rc == OK && json_array_append_new(list, one) != 0)
            rc = err_set(ERR_NOMEM, "out of memory");
    }
    if (rc == OK && json_array_size(list) > 0 &&
        json_object_set(header, "resumes", list) != 0)
        rc = err_set(ERR_NOMEM, "out of memory");
    json_decref(list);
    return rc;
}

int journal_read(const char *path, journal_cell_fn fn, void *ctx, json_t **header,
                 size_t *n_interrupted)
{
    const uint8_t *p = NULL;
    size_t n = 0, at = 0, interrupted = 0;
    struct journal_frame f;
    json_t *head = NULL;
    int rc;

    if (header)
        *header = NULL;
    rc = map_file(path, &p, &n);
    if (rc != OK)
        goto out;
    if (!journal_frame_next(p, n, &at, &f) || f.type != JOURNAL_HEAD) {
        rc = err_set(ERR_FORMAT, "%s: offset 0: expected a journal's header", path);
        goto out;
    }
    rc = json_read_own(&head, (const char *)f.payload, f.n, path);
    if (rc == OK)
        rc = add_resumes(head, p, n, at);
    if (rc == OK && fn)
        rc = walk_cells(p, n, at, fn, ctx, &interrupted);
    if (rc != OK)
        goto out;
    if (n_interrupted)
        *n_interrupted = interrupted;
    if (header)
        *header = head, head = NULL;
out:
    json_decref(head);
    if (p)
        munmap((void *)p, n);
    return rc;
}
