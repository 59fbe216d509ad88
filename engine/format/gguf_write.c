#include "format/gguf_write.h"

#include <string.h>

void gguf_put_str(struct text *b, const char *s)
{
    uint64_t n = strlen(s);

    text_put(b, &n, sizeof(n));
    text_put(b, s, n);
}

static void put_u32(struct text *b, uint32_t v)
{
    text_put(b, &v, sizeof(v));
}

static void put_u64(struct text *b, uint64_t v)
{
    text_put(b, &v, sizeof(v));
}

static void put_key(struct gguf_records *m, const char *key, enum gguf_type type)
{
    gguf_put_str(&m->text, key);
    put_u32(&m->text, type);
    m->n++;
}

void gguf_put_key_str(struct gguf_records *m, const char *key, const char *v)
{
    put_key(m, key, GGUF_STRING);
    gguf_put_str(&m->text, v);
}

void gguf_put_key_u32(struct gguf_records *m, const char *key, uint32_t v)
{
    put_key(m, key, GGUF_U32);
    put_u32(&m->text, v);
}

void gguf_put_key_f32(struct gguf_records *m, const char *key, float v)
{
    put_key(m, key, GGUF_F32);
    text_put(&m->text, &v, sizeof(v));
}

void gguf_put_key_bool(struct gguf_records *m, const char *key, bool v)
{
    uint8_t byte = v;

    put_key(m, key, GGUF_BOOL);
    text_put(&m->text, &byte, sizeof(byte));
}

void gguf_put_key_array(struct gguf_records *m, const char *key, enum gguf_type type,
                        uint64_t n)
{
    put_key(m, key, GGUF_ARRAY);
    put_u32(&m->text, type);
    put_u64(&m->text, n);
}

void gguf_put_record(struct gguf_records *m, const struct gguf_record *r)
{
    text_put(&m->text, r->raw, r->raw_n);
    m->n++;
}

void gguf_put_tensor(struct gguf_records *d, const char *name, const uint64_t *dims,
                     int n_dims, uint32_t ggml_type, uint64_t at)
{
    gguf_put_str(&d->text, name);
    put_u32(&d->text, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        put_u64(&d->text, dims[i]);
    put_u32(&d->text, ggml_type);
    put_u64(&d->text, at);
    d->n++;
}

int gguf_put_head(struct text *out, const struct gguf_records *metadata,
                  const struct gguf_records *directory)
{
    text_put(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, directory->n);
    put_u64(out, metadata->n);
    text_put(out, metadata->text.p, metadata->text.n);
    text_put(out, directory->text.p, directory->text.n);
    text_pad(out, GGUF_ALIGN, 0);
    if (metadata->text.rc != OK)
        return metadata->text.rc;
    return directory->text.rc != OK ? directory->text.rc : out->rc;
}
