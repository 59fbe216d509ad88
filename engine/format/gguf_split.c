/* A model in several GGUF files. Each has its own tensor directory; the metadata are in the
 * first. split.count, split.no and split.tensors.count say which file is which part. */
#include "format/gguf_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct split {
    int64_t no, count, n_tensors;
};

static int read_split(const struct gguf *g, struct split *s)
{
    int rc;

    *s = (struct split){.count = 1, .n_tensors = -1};
    if ((rc = gguf_opt_int(g, "split.no", &s->no)) != OK ||
        (rc = gguf_opt_int(g, "split.count", &s->count)) != OK ||
        (rc = gguf_opt_int(g, "split.tensors.count", &s->n_tensors)) != OK)
        return rc;
    if (s->count == 0)
        s->count = 1;
    if (s->count < 1 || s->count > GGUF_MAX_PARTS)
        return err_set(ERR_LIMIT, "%s: split.count: expected 1 to %d, found %" PRId64,
                       g->path, GGUF_MAX_PARTS, s->count);
    if (s->no < 0 || s->no >= s->count)
        return err_set(ERR_FORMAT,
                       "%s: split.no: expected 0 to %" PRId64 ", found %" PRId64, g->path,
                       s->count - 1, s->no);
    return OK;
}

/* The path of part `no`, given that of part s->no. ERR_FORMAT: that is not named as one. */
static int part_path(const struct gguf *g, const struct split *s, int64_t no,
                     char out[600])
{
    char ending[40];
    size_t n = strlen(g->path), m;

    m = (size_t)snprintf(ending, sizeof(ending), "-%05d-of-%05d.gguf", (int)s->no + 1,
                         (int)s->count);
    if (n <= m || strcmp(g->path + n - m, ending) != 0)
        return err_set(
            ERR_FORMAT,
            "%s: part %d of %d of a model: expected a name that ends in %s, by "
            "which the other parts are found",
            g->path, (int)s->no + 1, (int)s->count, ending);
    snprintf(out, 600, "%.*s-%05d-of-%05d.gguf", (int)(n - m), g->path, (int)no + 1,
             (int)s->count);
    return OK;
}

static int open_part(struct gguf *g, const struct split *first, int64_t no)
{
    struct split own;
    char path[600];
    int rc = part_path(g, first, no, path);

    if (rc != OK || (rc = gguf_open_file(&g->part[g->n_parts], path)) != OK)
        return rc;
    rc = read_split(g->part[g->n_parts++], &own);
    if (rc == OK && (own.no != no || own.count != first->count))
        rc = err_set(ERR_FORMAT,
                     "%s: split.no, split.count: expected part %" PRId64 " of %" PRId64
                     ", found %" PRId64 " of %" PRId64,
                     path, no, first->count, own.no, own.count);
    return rc;
}

/* All tensors by name. */
static int join(struct gguf *g, int64_t n_expected)
{
    uint64_t n = g->n_tensors, at = n;
    struct gguf_entry **all;

    for (int i = 0; i < g->n_parts; i++)
        n += g->part[i]->n_tensors;
    if (n_expected >= 0 && n != (uint64_t)n_expected)
        return err_set(ERR_FORMAT,
                       "%s: split.tensors.count: expected %" PRIu64
                       ", the tensors in its %d files, found %" PRId64,
                       g->path, n, g->n_parts + 1, n_expected);
    all = mem_resize(MEM_MODEL_FILE, g->by_name, n, sizeof(all[0]));
    if (!all)
        return ERR_NOMEM;
    g->by_name = all;
    for (int i = 0; i < g->n_parts; at += g->part[i++]->n_tensors)
        memcpy(all + at, g->part[i]->by_name, g->part[i]->n_tensors * sizeof(all[0]));
    g->n_tensors = n;
    qsort(all, n, sizeof(all[0]), gguf_name_order);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(all[i - 1]->name, all[i]->name) == 0)
            return err_set(ERR_FORMAT,
                           "%s: tensor %s: expected in one part, found in two", g->path,
                           all[i]->name);
    return OK;
}

/* Where `g` is the first of several files, open the others, and let it have their tensors
 * too. */
static int open_parts(struct gguf *g)
{
    struct split s;
    char first[600];
    int rc = read_split(g, &s);

    if (rc != OK || s.count == 1)
        return rc;
    if ((rc = part_path(g, &s, 0, first)) != OK)
        return rc;
    if (s.no != 0)
        return err_set(ERR_ARG,
                       "%s: expected the first part of a model, %s, found part %d",
                       g->path, first, (int)s.no + 1);
    g->part = mem_new(MEM_MODEL_FILE, (size_t)s.count - 1, sizeof(g->part[0]));
    if (!g->part)
        return ERR_NOMEM;
    for (int64_t no = 1; rc == OK && no < s.count; no++)
        rc = open_part(g, &s, no);
    return rc == OK ? join(g, s.n_tensors) : rc;
}

int gguf_open(struct gguf **out, const char *path)
{
    int rc = gguf_open_file(out, path);

    if (rc == OK)
        rc = open_parts(*out);
    if (rc != OK)
        gguf_close(out);
    return rc;
}
