/* Look-up in an opened GGUF file. */
#include "format/gguf_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = g->map.bytes;

    for (int i = 0; i < g->n_parts; i++)
        n += g->part[i]->map.bytes;
    return (int64_t)n;
}

uint64_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->by_name[i]->t : NULL;
}

static int name_cmp(const void *key, const void *elem)
{
    const struct gguf_entry *const *e = elem;

    return strcmp(key, (*e)->name);
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    struct gguf_entry **e =
        bsearch(name, g->by_name, g->n_tensors, sizeof(g->by_name[0]), name_cmp);

    return e ? &(*e)->t : NULL;
}

static int key_cmp(const void *key, const void *elem)
{
    const struct gguf_kv *kv = elem;
    size_t n = strlen(key);
    int d = memcmp(key, kv->key, n < kv->key_n ? n : kv->key_n);

    return d ? d : (n > kv->key_n) - (n < kv->key_n);
}

static const struct gguf_kv *find_key(const struct gguf *g, const char *key)
{
    return bsearch(key, g->kv, g->n_kv, sizeof(g->kv[0]), key_cmp);
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find_key(g, key) != NULL;
}

uint64_t gguf_n_keys(const struct gguf *g)
{
    return g->n_kv;
}

void gguf_key_at(const struct gguf *g, uint64_t i, struct gguf_record *out)
{
    const struct gguf_kv *kv = &g->kv[i];

    *out = (struct gguf_record){kv->key, kv->key_n, kv->raw, kv->raw_n};
}

static int wrong_type(const struct gguf *g, const char *key, const char *expected,
                      const struct gguf_kv *kv)
{
    return err_set(ERR_FORMAT, "%s: %s: expected %s, found %s", g->path, key, expected,
                   gguf_type_name(kv->type));
}

static int missing(const struct gguf *g, const char *key)
{
    return err_set(ERR_NOTFOUND, "%s: %s: expected this key, found none", g->path, key);
}

/* A scalar integer at p; false: not an integer type, or above 2^63 - 1. */
static bool load_int(enum gguf_type type, const uint8_t *p, int64_t *out)
{
    union {
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v = {.u64 = 0};

    if (gguf_type_bytes(type) == 0 || gguf_type_bytes(type) > sizeof(v))
        return false;
    memcpy(&v, p, gguf_type_bytes(type));
    switch (type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64: /* little-endian: the upper bytes are zero */
        *out = (int64_t)v.u64;
        return v.u64 <= INT64_MAX;
    case GGUF_I8:
        *out = v.i8;
        return true;
    case GGUF_I16:
        *out = v.i16;
        return true;
    case GGUF_I32:
        *out = v.i32;
        return true;
    case GGUF_I64:
        *out = v.i64;
        return true;
    default:
        return false;
    }
}

static bool load_f64(enum gguf_type type, const uint8_t *p, double *out)
{
    float f;
    int64_t i;

    if (type == GGUF_F32) {
        memcpy(&f, p, sizeof(f));
        *out = (double)f;
        return true;
    }
    if (type == GGUF_F64) {
        memcpy(out, p, sizeof(*out));
        return true;
    }
    if (!load_int(type, p, &i))
        return false;
    *out = (double)i;
    return true;
}

int gguf_get_int(const struct gguf *g, const char *key, int64_t *out)
{
    const struct gguf_kv *kv = find_key(g, key);

    if (!kv)
        return missing(g, key);
    if (!kv->value || kv->type == GGUF_STRING || !load_int(kv->type, kv->value, out))
        return wrong_type(g, key, "an integer below 2^63", kv);
    return OK;
}

int gguf_opt_int(const struct gguf *g, const char *key, int64_t *out)
{
    return gguf_has(g, key) ? gguf_get_int(g, key, out) : OK;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_kv *kv = find_key(g, key);

    if (!kv)
        return missing(g, key);
    if (!kv->value || kv->type == GGUF_STRING || !load_f64(kv->type, kv->value, out))
        return wrong_type(g, key, "a number", kv);
    return OK;
}

int gguf_opt_f64(const struct gguf *g, const char *key, double *out)
{
    return gguf_has(g, key) ? gguf_get_f64(g, key, out) : OK;
}

int gguf_opt_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_kv *kv = find_key(g, key);

    if (!kv)
        return OK;
    if (kv->type != GGUF_BOOL)
        return wrong_type(g, key, "a bool", kv);
    *out = kv->value[0] != 0;
    return OK;
}

double gguf_number(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = find_key(g, key);
    double v = NAN;

    if (kv && kv->type == GGUF_BOOL)
        return kv->value[0] != 0;
    if (gguf_get_f64(g, key, &v) != OK)
        err_clear();
    return v;
}

int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *n)
{
    const struct gguf_kv *kv = find_key(g, key);

    if (!kv)
        return missing(g, key);
    if (kv->type != GGUF_STRING)
        return wrong_type(g, key, "a string", kv);
    *s = (const char *)kv->value;
    *n = kv->str_n;
    return OK;
}

int gguf_opt_str(const struct gguf *g, const char *key, const char **s, size_t *n)
{
    return gguf_has(g, key) ? gguf_get_str(g, key, s, n) : OK;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type *type,
                   uint64_t *n, const void **handle)
{
    const struct gguf_kv *kv = find_key(g, key);

    if (!kv)
        return missing(g, key);
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, key, "an array", kv);
    *type = kv->array.type;
    *n = kv->array.n;
    *handle = &kv->array;
    return OK;
}

static int check_index(const struct gguf_array *a, uint64_t i)
{
    return i < a->n ? OK
                    : err_set(ERR_ARG,
                              "GGUF array: expected an index below %" PRIu64
                              ", found %" PRIu64,
                              a->n, i);
}

int gguf_array_str(const void *handle, uint64_t i, const char **s, size_t *n)
{
    const struct gguf_array *a = handle;
    uint64_t len;
    int rc = check_index(a, i);

    if (rc != OK)
        return rc;
    if (a->type != GGUF_STRING)
        return err_set(ERR_FORMAT, "GGUF array: expected strings, found %s",
                       gguf_type_name(a->type));
    memcpy(&len, a->data + a->at[i], sizeof(len)); /* checked when it was indexed */
    *s = (const char *)a->data + a->at[i] + sizeof(len);
    *n = len;
    return OK;
}

int gguf_array_f32(const void *handle, uint64_t i, float *out)
{
    const struct gguf_array *a = handle;
    double v;
    int rc = check_index(a, i);

    if (rc != OK)
        return rc;
    if (a->type == GGUF_STRING ||
        !load_f64(a->type, a->data + i * gguf_type_bytes(a->type), &v))
        return err_set(ERR_FORMAT, "GGUF array: expected numbers, found %s",
                       gguf_type_name(a->type));
    *out = (float)v;
    return OK;
}

int gguf_array_int(const void *handle, uint64_t i, int64_t *out)
{
    const struct gguf_array *a = handle;
    int rc = check_index(a, i);

    if (rc != OK)
        return rc;
    if (a->type == GGUF_STRING ||
        !load_int(a->type, a->data + i * gguf_type_bytes(a->type), out))
        return err_set(ERR_FORMAT, "GGUF array: expected integers, found %s",
                       gguf_type_name(a->type));
    return OK;
}
