#include "format/safet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/file_map.h"

#define HEAD_BYTES 8 /* the header's length */

struct format_safet {
    struct file_map map;
    char path[768];
    json_t *header; /* keeps names and dtypes */
    uint64_t header_n, n;
    struct format_safet_tensor *tensor; /* by name */
};

static uint64_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } known[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
                 {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                 {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, dtype) == 0)
            return known[i].bytes;
    return 0;
}

static int read_u64(const struct format_safet *s, const json_t *array, size_t i,
                    const char *name, const char *key, uint64_t *out)
{
    const json_t *v = json_array_get(array, i);

    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return err_set(
            ERR_FORMAT, "%s: tensor %.100s: %s[%zu]: expected a whole number, found %s",
            s->path, name, key, i, json_is_integer(v) ? "one below 0" : "something else");
    *out = (uint64_t)json_integer_value(v);
    return OK;
}

/* Shape and dtype give the number of bytes. */
static int read_shape(const struct format_safet *s, struct format_safet_tensor *t,
                      const json_t *shape, uint64_t *bytes)
{
    size_t i, n = json_array_size(shape);
    int rc;

    if (n > 4)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: tensor %.100s: shape: expected at most 4 dimensions, found %zu", s->path,
            t->name, n);
    t->n_dims = (int)n;
    *bytes = dtype_bytes(t->dtype);
    if (*bytes == 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %.100s: dtype: expected F32, F16 or BF16, found %.40s",
                       s->path, t->name, t->dtype);
    for (i = 0; i < n; i++) {
        if ((rc = read_u64(s, shape, i, t->name, "shape", &t->dims[i])) != OK)
            return rc;
        if (__builtin_mul_overflow(*bytes, t->dims[i], bytes))
            return err_set(ERR_FORMAT,
                           "%s: tensor %.100s: shape: expected below 2^64 bytes, found a "
                           "product above",
                           s->path, t->name);
    }
    return OK;
}

static int read_tensor(const struct format_safet *s, struct format_safet_tensor *t,
                       const json_t *entry)
{
    const json_t *shape, *offsets;
    char where[900];
    uint64_t bytes = 0;
    int rc;

    snprintf(where, sizeof(where), "%s: tensor %.100s", s->path, t->name);
    if (!json_is_object(entry))
        return err_set(ERR_FORMAT, "%s: expected an object, found something else", where);
    if ((rc = json_get_str(entry, "dtype", &t->dtype, where)) != OK ||
        (rc = json_get_arr(entry, "shape", &shape, where)) != OK ||
        (rc = json_get_arr(entry, "data_offsets", &offsets, where)) != OK)
        return rc;
    if (json_array_size(offsets) != 2)
        return err_set(ERR_FORMAT, "%s: data_offsets: expected 2 numbers, found %zu",
                       where, json_array_size(offsets));
    if ((rc = read_u64(s, offsets, 0, t->name, "data_offsets", &t->begin)) != OK ||
        (rc = read_u64(s, offsets, 1, t->name, "data_offsets", &t->end)) != OK ||
        (rc = read_shape(s, t, shape, &bytes)) != OK)
        return rc;
    if (t->end < t->begin || t->end - t->begin != bytes)
        return err_set(ERR_FORMAT,
                       "%s: data_offsets: expected %" PRIu64
                       " bytes by shape and dtype, found "
                       "[%" PRIu64 ", %" PRIu64 "]",
                       where, bytes, t->begin, t->end);
    return OK;
}

static int begin_order(const void *a, const void *b)
{
    const struct format_safet_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end); /* empty tensors first */
}

static int name_order(const void *a, const void *b)
{
    const struct format_safet_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The tensors cover the data from its first byte to its last, each byte once. */
static int check_cover(struct format_safet *s)
{
    uint64_t data_at = HEAD_BYTES + s->header_n, data_bytes = s->map.bytes - data_at,
             at = 0, i;
    struct format_safet_tensor *t;

    qsort(s->tensor, s->n, sizeof(s->tensor[0]), begin_order);
    for (i = 0; i < s->n; i++) {
        t = &s->tensor[i];
        if (t->begin != at)
            return err_set(
                ERR_FORMAT,
                "%s: tensor %.100s: data_offsets: expected to begin at %" PRIu64
                ", found %" PRIu64 " (%s)",
                s->path, t->name, at, t->begin, t->begin < at ? "an overlap" : "a hole");
        if (t->end > data_bytes)
            return err_set(ERR_FORMAT,
                           "%s: tensor %.100s: data_offsets: expected to end by %" PRIu64
                           ", found %" PRIu64,
                           s->path, t->name, data_bytes, t->end);
        at = t->end;
        t->data = s->map.base + data_at + t->begin;
    }
    if (at != data_bytes)
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64 ": expected the file to end, found %" PRIu64
                       " bytes of no tensor",
                       s->path, data_at + at, data_bytes - at);
    qsort(s->tensor, s->n, sizeof(s->tensor[0]), name_order);
    return OK;
}

static int read_header(struct format_safet *s)
{
    char where[900];

    if (s->map.bytes < HEAD_BYTES)
        return err_set(ERR_FORMAT,
                       "%s: offset 0: header length: expected 8 bytes, found %" PRIu64,
                       s->path, s->map.bytes);
    memcpy(&s->header_n, s->map.base, HEAD_BYTES);
    if (s->header_n > MODEL_SAFET_MAX_HEADER || s->header_n > s->map.bytes - HEAD_BYTES)
        return err_set(
            ERR_FORMAT,
            "%s: offset 0: header length: expected at most %" PRIu64 ", found %" PRIu64,
            s->path,
            s->map.bytes - HEAD_BYTES < MODEL_SAFET_MAX_HEADER ? s->map.bytes - HEAD_BYTES
                                                               : MODEL_SAFET_MAX_HEADER,
            s->header_n);
    if (s->header_n == 0 || s->map.base[HEAD_BYTES] != '{')
        return err_set(ERR_FORMAT, "%s: offset 8: header: expected '{', found %s",
                       s->path, s->header_n ? "something else" : "nothing");
    snprintf(where, sizeof(where), "%s: header", s->path);
    return json_read_text(&s->header, (const char *)s->map.base + HEAD_BYTES, s->header_n,
                          where);
}

static int read_tensors(struct format_safet *s)
{
    size_t n = json_object_size(s->header);
    const char *name;
    json_t *entry;
    int rc;

    if (n > MODEL_SAFET_MAX_TENSORS)
        return err_set(ERR_LIMIT, "%s: header: expected at most %d tensors, found %zu",
                       s->path, MODEL_SAFET_MAX_TENSORS, n);
    s->tensor = mem_new(MEM_MODEL_FILE, n, sizeof(s->tensor[0]));
    if (!s->tensor)
        return ERR_NOMEM;
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        s->tensor[s->n].name = name;
        if ((rc = read_tensor(s, &s->tensor[s->n], entry)) != OK)
            return rc;
        s->n++;
    }
    return check_cover(s);
}

int format_safet_open(struct format_safet **out, const char *path)
{
    struct format_safet *s;
    int rc;

    *out = NULL;
    s = mem_new(MEM_MODEL_FILE, 1, sizeof(*s));
    if (!s)
        return ERR_NOMEM;
    snprintf(s->path, sizeof(s->path), "%s", path);
    if ((rc = file_map_open(&s->map, path)) != OK || (rc = read_header(s)) != OK ||
        (rc = read_tensors(s)) != OK)
        goto out;
    *out = s, s = NULL;
out:
    format_safet_close(&s);
    return rc;
}

void format_safet_close(struct format_safet **s)
{
    if (!*s)
        return;
    json_decref((*s)->header);
    mem_free((*s)->tensor);
    file_map_close(&(*s)->map);
    mem_free(*s);
    *s = NULL;
}

int64_t format_safet_bytes(const struct format_safet *s)
{
    return (int64_t)s->map.bytes;
}

uint64_t format_safet_n(const struct format_safet *s)
{
    return s->n;
}

const struct format_safet_tensor *format_safet_at(const struct format_safet *s,
                                                  uint64_t i)
{
    return &s->tensor[i];
}

static int name_cmp(const void *key, const void *elem)
{
    const struct format_safet_tensor *t = elem;

    return strcmp(key, t->name);
}

const struct format_safet_tensor *format_safet_find(const struct format_safet *s,
                                                    const char *name)
{
    return bsearch(name, s->tensor, s->n, sizeof(s->tensor[0]), name_cmp);
}
