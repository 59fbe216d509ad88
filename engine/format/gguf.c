/* Parsing of a GGUF file: every length is checked against what is left of the file before
 * it is used, and what is allocated is bounded by the file's own size. */
#include "format/gguf_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define GGUF_MAGIC         0x46554747u /* "GGUF", little-endian */
#define GGUF_VERSION       3
#define GGUF_DEFAULT_ALIGN 32
/* The least a record can take: key length, one letter, type, one byte of value. */
#define MIN_KV_BYTES (8 + 1 + 4 + 1)
/* Name length, one letter, number of dimensions, one of them, type, offset. */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

struct cursor {
    const struct gguf *g;
    uint64_t at;
};

static uint64_t left(const struct cursor *c)
{
    return c->g->map.bytes - c->at;
}

static int take(struct cursor *c, uint64_t n, const uint8_t **p, const char *what)
{
    *p = c->g->map.base;
    if (n > left(c))
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64 ": %s: expected %" PRIu64
                       " bytes, found %" PRIu64 " to the end of the file",
                       c->g->path, c->at, what, n, left(c));
    *p = c->g->map.base + c->at;
    c->at += n;
    return OK;
}

static int take_u32(struct cursor *c, uint32_t *v, const char *what)
{
    const uint8_t *p;
    int rc = take(c, sizeof(*v), &p, what);

    if (rc == OK)
        memcpy(v, p, sizeof(*v));
    return rc;
}

static int take_u64(struct cursor *c, uint64_t *v, const char *what)
{
    const uint8_t *p;
    int rc = take(c, sizeof(*v), &p, what);

    if (rc == OK)
        memcpy(v, p, sizeof(*v));
    return rc;
}

static int take_str(struct cursor *c, const uint8_t **s, uint64_t *n, const char *what)
{
    int rc = take_u64(c, n, what);

    return rc == OK ? take(c, *n, s, what) : rc;
}

/* A key or a tensor's name: not empty, not long, no NUL inside. */
static int take_name(struct cursor *c, const uint8_t **s, uint64_t *n, uint64_t max,
                     const char *what)
{
    uint64_t at = c->at;
    int rc = take_str(c, s, n, what);

    if (rc != OK)
        return rc;
    if (*n == 0 || *n > max || memchr(*s, 0, *n))
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64 ": %s: expected 1 to %" PRIu64
                       " bytes without NUL, found %" PRIu64 " bytes%s",
                       c->g->path, at, what, max, *n,
                       *n && *n <= max ? " with a NUL" : "");
    return OK;
}

static int check_bools(const struct cursor *c, const uint8_t *p, uint64_t n)
{
    uint64_t i;

    for (i = 0; i < n; i++)
        if (p[i] > 1)
            return err_set(ERR_FORMAT,
                           "%s: offset %" PRIu64 ": bool: expected 0 or 1, found %d",
                           c->g->path, (uint64_t)(p - c->g->map.base) + i, p[i]);
    return OK;
}

static int index_strings(struct cursor *c, struct gguf_array *a)
{
    const uint8_t *s;
    uint64_t i, n;
    int rc;

    if (a->n > left(c) / 8)
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64 ": array: expected room for %" PRIu64
                       " strings, found %" PRIu64 " bytes to the end of the file",
                       c->g->path, c->at, a->n, left(c));
    a->at = mem_new(MEM_MODEL_FILE, a->n, sizeof(a->at[0]));
    if (!a->at)
        return ERR_NOMEM;
    for (i = 0; i < a->n; i++) {
        a->at[i] = (uint64_t)(c->g->map.base + c->at - a->data);
        if ((rc = take_str(c, &s, &n, "string in an array")) != OK)
            return rc;
    }
    return OK;
}

static int take_array(struct cursor *c, struct gguf_array *a)
{
    uint64_t at = c->at, size;
    uint32_t type;
    const uint8_t *p;
    int rc;

    if ((rc = take_u32(c, &type, "array type")) != OK ||
        (rc = take_u64(c, &a->n, "array length")) != OK)
        return rc;
    a->type = type;
    a->data = c->g->map.base + c->at;
    if (type == GGUF_STRING)
        return index_strings(c, a);
    size = gguf_type_bytes(type);
    if (size == 0)
        return err_set(
            type == GGUF_ARRAY ? ERR_UNSUPPORTED : ERR_FORMAT,
            "%s: offset %" PRIu64
            ": array: expected elements of a plain type or strings, found %s (%u)",
            c->g->path, at, gguf_type_name(type), type);
    if (a->n > left(c) / size)
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64 ": array: expected %" PRIu64
                       " elements of %" PRIu64 " bytes, found %" PRIu64
                       " bytes to the end of the file",
                       c->g->path, at, a->n, size, left(c));
    rc = take(c, a->n * size, &p, "array");
    return rc == OK && type == GGUF_BOOL ? check_bools(c, p, a->n) : rc;
}

static int take_kv(struct cursor *c, struct gguf_kv *kv)
{
    const uint8_t *key;
    uint64_t at = c->at;
    uint32_t type;
    int rc;

    if ((rc = take_name(c, &key, &kv->key_n, GGUF_MAX_KEY, "key")) != OK ||
        (rc = take_u32(c, &type, "value type")) != OK)
        return rc;
    kv->key = (const char *)key;
    kv->type = type;
    if (type == GGUF_STRING) {
        rc = take_str(c, &kv->value, &kv->str_n, "string value");
    } else if (type == GGUF_ARRAY) {
        rc = take_array(c, &kv->array);
    } else if (gguf_type_bytes(type) > 0) {
        rc = take(c, gguf_type_bytes(type), &kv->value, "value");
        if (rc == OK && type == GGUF_BOOL)
            rc = check_bools(c, kv->value, 1);
    } else {
        rc = err_set(ERR_FORMAT,
                     "%s: offset %" PRIu64
                     ": value type: expected a number from 0 to 12, found %u",
                     c->g->path, c->at - 4, type);
    }
    kv->raw = c->g->map.base + at;
    kv->raw_n = c->at - at;
    return rc;
}

static int kv_order(const void *a, const void *b)
{
    const struct gguf_kv *x = a, *y = b;
    uint64_t n = x->key_n < y->key_n ? x->key_n : y->key_n;
    int d = memcmp(x->key, y->key, n);

    return d ? d : (x->key_n > y->key_n) - (x->key_n < y->key_n);
}

static int parse_kvs(struct gguf *g, struct cursor *c, uint64_t n)
{
    uint64_t i;
    int rc;

    if (n > GGUF_MAX_KEYS || n > left(c) / MIN_KV_BYTES)
        return err_set(
            n > GGUF_MAX_KEYS ? ERR_LIMIT : ERR_FORMAT,
            "%s: offset 16: number of keys: expected at most %" PRIu64 ", found %" PRIu64,
            g->path, n > GGUF_MAX_KEYS ? (uint64_t)GGUF_MAX_KEYS : left(c) / MIN_KV_BYTES,
            n);
    g->kv = mem_new(MEM_MODEL_FILE, n, sizeof(g->kv[0]));
    if (!g->kv)
        return ERR_NOMEM;
    for (i = 0; i < n; i++) {
        g->n_kv = i + 1; /* what a failing record owns is freed with the rest */
        if ((rc = take_kv(c, &g->kv[i])) != OK)
            return rc;
    }
    qsort(g->kv, n, sizeof(g->kv[0]), kv_order);
    for (i = 1; i < n; i++)
        if (kv_order(&g->kv[i - 1], &g->kv[i]) == 0)
            return err_set(ERR_FORMAT,
                           "%s: offset %" PRIu64 ": key %.*s: expected once, found twice",
                           g->path, (uint64_t)(g->kv[i].raw - g->map.base),
                           (int)(g->kv[i].key_n > 100 ? 100 : g->kv[i].key_n),
                           g->kv[i].key);
    return OK;
}

static int read_align(struct gguf *g)
{
    int64_t align = GGUF_DEFAULT_ALIGN;
    int rc = gguf_opt_int(g, "general.alignment", &align);

    if (rc != OK)
        return rc;
    if (align < 8 || align > GGUF_MAX_ALIGN || (align & (align - 1)) != 0)
        return err_set(ERR_FORMAT,
                       "%s: general.alignment: expected a power of two from 8 to %u, "
                       "found %" PRId64,
                       g->path, GGUF_MAX_ALIGN, align);
    g->align = (uint64_t)align;
    return OK;
}

static int take_dims(struct cursor *c, struct gguf_entry *e, uint64_t *n)
{
    uint64_t at = c->at;
    uint32_t n_dims;
    int i, rc = take_u32(c, &n_dims, "number of dimensions");

    if (rc != OK)
        return rc;
    if (n_dims < 1 || n_dims > 4)
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64
                       ": tensor %s: expected 1 to 4 dimensions, found %u",
                       c->g->path, at, e->name, n_dims);
    e->t.n_dims = (int)n_dims;
    *n = 1;
    for (i = 0; i < 4; i++)
        e->t.dims[i] = 1;
    for (i = 0; i < e->t.n_dims; i++) {
        at = c->at;
        if ((rc = take_u64(c, &e->t.dims[i], "dimension")) != OK)
            return rc;
        if (e->t.dims[i] == 0 || __builtin_mul_overflow(*n, e->t.dims[i], n) ||
            *n > INT64_MAX)
            return err_set(ERR_FORMAT,
                           "%s: offset %" PRIu64
                           ": tensor %s: dimension %d: expected at least "
                           "1 and a product below 2^63, found %" PRIu64,
                           c->g->path, at, e->name, i, e->t.dims[i]);
    }
    return OK;
}

static int take_tensor(struct cursor *c, struct gguf_entry *e)
{
    const uint8_t *name;
    uint64_t at, name_n, n = 0;
    int rc = take_name(c, &name, &name_n, GGUF_MAX_NAME, "tensor name");

    if (rc != OK)
        return rc;
    memcpy(e->name, name, name_n); /* zeroed after it: GGUF_MAX_NAME + 1 bytes */
    e->t.name = e->name;
    if ((rc = take_dims(c, e, &n)) != OK)
        return rc;
    at = c->at;
    if ((rc = take_u32(c, &e->t.ggml_type, "tensor type")) != OK ||
        (rc = take_u64(c, &e->offset, "tensor offset")) != OK)
        return rc;
    if (!gguf_ggml_known(e->t.ggml_type))
        return err_set(ERR_UNSUPPORTED,
                       "%s: offset %" PRIu64
                       ": tensor %s: expected a known tensor type, found %u",
                       c->g->path, at, e->name, e->t.ggml_type);
    if (!gguf_ggml_bytes(e->t.ggml_type, n, e->t.dims[0], &e->t.bytes))
        return err_set(
            ERR_FORMAT,
            "%s: offset %" PRIu64 ": tensor %s: expected rows of whole %s blocks "
            "below 2^64 bytes, found rows of %" PRIu64,
            c->g->path, at, e->name, gguf_ggml_type_name(e->t.ggml_type), e->t.dims[0]);
    if (e->offset % c->g->align != 0)
        return err_set(ERR_FORMAT,
                       "%s: offset %" PRIu64
                       ": tensor %s: expected an offset that %" PRIu64
                       " divides, found %" PRIu64,
                       c->g->path, c->at - 8, e->name, c->g->align, e->offset);
    return OK;
}

int gguf_name_order(const void *a, const void *b)
{
    const struct gguf_entry *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int offset_order(const void *a, const void *b)
{
    const struct gguf_entry *const *x = a, *const *y = b;

    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* Every tensor is inside the file, and no two share a byte. `order` is scratch. */
static int place_tensors(struct gguf *g, uint64_t data_at, struct gguf_entry **order)
{
    uint64_t i, data_bytes = data_at < g->map.bytes ? g->map.bytes - data_at : 0, end = 0;
    struct gguf_entry *e;

    qsort(order, g->n_tensors, sizeof(order[0]), offset_order);
    for (i = 0; i < g->n_tensors; i++) {
        e = order[i];
        if (e->offset > data_bytes || e->t.bytes > data_bytes - e->offset)
            return err_set(ERR_FORMAT,
                           "%s: tensor %s: expected %" PRIu64 " bytes at offset %" PRIu64
                           " + %" PRIu64 ", found a file of %" PRIu64,
                           g->path, e->name, e->t.bytes, data_at, e->offset,
                           g->map.bytes);
        if (i > 0 && e->offset < end)
            return err_set(ERR_FORMAT,
                           "%s: tensor %s: expected data from offset %" PRIu64
                           " on (where %s ends), found %" PRIu64,
                           g->path, e->name, data_at + end, order[i - 1]->name,
                           data_at + e->offset);
        end = e->offset + e->t.bytes;
        e->t.data = g->map.base + data_at + e->offset;
    }
    return OK;
}

static int parse_tensors(struct gguf *g, struct cursor *c, uint64_t n)
{
    uint64_t i, data_at;
    int rc;

    if (n > GGUF_MAX_TENSORS || n > left(c) / MIN_TENSOR_BYTES)
        return err_set(n > GGUF_MAX_TENSORS ? ERR_LIMIT : ERR_FORMAT,
                       "%s: offset 8: number of tensors: expected at most %" PRIu64
                       ", found %" PRIu64,
                       g->path,
                       n > GGUF_MAX_TENSORS ? (uint64_t)GGUF_MAX_TENSORS
                                            : left(c) / MIN_TENSOR_BYTES,
                       n);
    g->entry = mem_new(MEM_MODEL_FILE, n, sizeof(g->entry[0]));
    g->by_name = g->entry ? mem_new(MEM_MODEL_FILE, n, sizeof(g->by_name[0])) : NULL;
    if (!g->by_name)
        return ERR_NOMEM;
    g->n_tensors = n;
    for (i = 0; i < n; i++) {
        g->by_name[i] = &g->entry[i];
        if ((rc = take_tensor(c, &g->entry[i])) != OK)
            return rc;
    }
    data_at = (c->at + g->align - 1) / g->align * g->align;
    if ((rc = place_tensors(g, data_at, g->by_name)) != OK)
        return rc;
    qsort(g->by_name, n, sizeof(g->by_name[0]), gguf_name_order);
    for (i = 1; i < n; i++)
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return err_set(ERR_FORMAT, "%s: tensor %s: expected once, found twice",
                           g->path, g->by_name[i]->name);
    return OK;
}

static int parse(struct gguf *g)
{
    struct cursor c = {.g = g};
    uint32_t magic, version;
    uint64_t n_tensors, n_kv;
    int rc;

    if ((rc = take_u32(&c, &magic, "magic")) != OK)
        return rc;
    if (magic != GGUF_MAGIC)
        return err_set(ERR_FORMAT, "%s: offset 0: magic: expected \"GGUF\", found 0x%08x",
                       g->path, magic);
    if ((rc = take_u32(&c, &version, "version")) != OK)
        return rc;
    if (version != GGUF_VERSION)
        return err_set(ERR_UNSUPPORTED, "%s: offset 4: version: expected %d, found %u%s",
                       g->path, GGUF_VERSION, version,
                       (version & 0xffff) == 0 && version ? " (big-endian file?)" : "");
    if ((rc = take_u64(&c, &n_tensors, "number of tensors")) != OK ||
        (rc = take_u64(&c, &n_kv, "number of keys")) != OK ||
        (rc = parse_kvs(g, &c, n_kv)) != OK || (rc = read_align(g)) != OK)
        return rc;
    return parse_tensors(g, &c, n_tensors);
}

int gguf_open_file(struct gguf **out, const char *path)
{
    struct gguf *g;
    int rc;

    *out = NULL;
    g = mem_new(MEM_MODEL_FILE, 1, sizeof(*g));
    if (!g)
        return ERR_NOMEM;
    snprintf(g->path, sizeof(g->path), "%s", path);
    if ((rc = file_map_open(&g->map, path)) != OK || (rc = parse(g)) != OK)
        goto out;
    *out = g, g = NULL;
out:
    gguf_close(&g);
    return rc;
}

void gguf_close(struct gguf **g)
{
    uint64_t i;

    if (!*g)
        return;
    while ((*g)->n_parts > 0)
        gguf_close(&(*g)->part[--(*g)->n_parts]);
    mem_free((*g)->part);
    for (i = 0; i < (*g)->n_kv; i++)
        mem_free((*g)->kv[i].array.at);
    mem_free((*g)->kv);
    mem_free((*g)->entry);
    mem_free((*g)->by_name);
    file_map_close(&(*g)->map);
    mem_free(*g);
    *g = NULL;
}
