/* The head of a GGUF file: metadata and tensor directory. */
#include "format/make_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/gguf.h"

#define ALIGN 32 /* the format's default */

/* Metadata are counted while they are written; the count goes to the front at the end. */
struct meta {
    struct text *b;
    uint64_t n;
};

static void put_str(struct text *b, const char *s)
{
    uint64_t n = strlen(s);

    text_put(b, &n, sizeof(n));
    text_put(b, s, n);
}

static void put_key(struct meta *m, const char *key, uint32_t type)
{
    put_str(m->b, key);
    text_put(m->b, &type, sizeof(type));
    m->n++;
}

static void meta_str(struct meta *m, const char *key, const char *v)
{
    put_key(m, key, GGUF_STRING);
    put_str(m->b, v);
}

static void meta_u32(struct meta *m, const char *key, uint32_t v)
{
    put_key(m, key, GGUF_U32);
    text_put(m->b, &v, sizeof(v));
}

static void meta_f32(struct meta *m, const char *key, float v)
{
    put_key(m, key, GGUF_F32);
    text_put(m->b, &v, sizeof(v));
}

static void meta_bool(struct meta *m, const char *key, bool v)
{
    uint8_t byte = v;

    put_key(m, key, GGUF_BOOL);
    text_put(m->b, &byte, sizeof(byte));
}

static void meta_array(struct meta *m, const char *key, uint32_t type, uint64_t n)
{
    put_key(m, key, GGUF_ARRAY);
    text_put(m->b, &type, sizeof(type));
    text_put(m->b, &n, sizeof(n));
}

static const char *arch_key(const struct make_plan *p, const char *key, char out[96])
{
    snprintf(out, 96, "%s.%s", p->config.arch, key);
    return out;
}

static void put_model(struct meta *m, const struct make_plan *p)
{
    static const uint32_t file_type[] = {
        [KERN_F32] = 0, [KERN_F16] = 1, [KERN_BF16] = 32};
    const struct model_config *c = &p->config;
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        {"context_length", c->max_tok},        {"embedding_length", c->dim},
        {"block_count", c->n_layers},          {"feed_forward_length", c->hidden},
        {"attention.head_count", c->n_heads},  {"attention.head_count_kv", c->n_kv_heads},
        {"attention.key_length", c->head_dim}, {"attention.value_length", c->head_dim},
        {"rope.dimension_count", c->head_dim}, {"vocab_size", c->vocab},
    };
    char key[96], text[96];
    size_t i;

    meta_str(m, "general.architecture", c->arch);
    meta_str(m, "general.type", "model");
    meta_str(m, "general.name", c->name);
    snprintf(text, sizeof(text), "random weights in this shape, seed %llu",
             (unsigned long long)p->opts->seed);
    meta_str(m, "general.description", text);
    meta_u32(m, "general.file_type", file_type[p->opts->type]);
    meta_u32(m, "general.alignment", ALIGN);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        meta_u32(m, arch_key(p, sizes[i].key, key), (uint32_t)sizes[i].value);
    meta_f32(m, arch_key(p, "attention.layer_norm_rms_epsilon", key), c->norm_eps);
    meta_f32(m, arch_key(p, "rope.freq_base", key), c->rope_theta);
}

static void put_merges(struct meta *m, const struct make_vocab *v)
{
    char text[MAKE_TOKEN_BYTES];
    int id;

    meta_array(m, "tokenizer.ggml.merges", GGUF_STRING,
               (uint64_t)(v->special_at - v->piece_at));
    for (id = v->piece_at; id < v->special_at; id++) {
        format_make_merge(v, id, text);
        put_str(m->b, text);
    }
}

/* SentencePiece merges the best score first; ours falls with the id, as rank does in BPE.
 */
static void put_scores(struct meta *m, const struct make_vocab *v, int n)
{
    float score;
    int id;

    meta_array(m, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)n);
    for (id = 0; id < n; id++) {
        score = id < v->single_at ? 0 : (float)(v->single_at - id);
        text_put(m->b, &score, sizeof(score));
    }
}

static int put_vocab(struct meta *m, const struct make_plan *p)
{
    const struct make_shape *s = p->shape;
    char text[MAKE_TOKEN_BYTES];
    struct make_vocab v;
    int32_t kind;
    int id, rc = format_make_vocab_init(&v, s, s->family == MAKE_LLAMA2);

    if (rc != OK)
        goto out;
    meta_str(m, "tokenizer.ggml.model", v.spm ? "llama" : "gpt2");
    meta_str(m, "tokenizer.ggml.pre",
             v.spm                      ? "default"
             : s->family == MAKE_LLAMA3 ? "llama-bpe"
                                        : "qwen2");
    meta_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)s->vocab);
    for (id = 0; id < s->vocab; id++) {
        (void)format_make_token(&v, id, text);
        put_str(m->b, text);
    }
    meta_array(m, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)s->vocab);
    for (id = 0; id < s->vocab; id++) {
        kind = (int32_t)format_make_token(&v, id, text);
        text_put(m->b, &kind, sizeof(kind));
    }
    if (v.spm) {
        put_scores(m, &v, s->vocab);
        meta_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    } else {
        put_merges(m, &v);
    }
    meta_u32(m, "tokenizer.ggml.bos_token_id", (uint32_t)s->bos_id);
    meta_u32(m, "tokenizer.ggml.eos_token_id", (uint32_t)s->eos_id);
    meta_bool(m, "tokenizer.ggml.add_bos_token", s->adds_bos);
out:
    format_make_vocab_fini(&v);
    return rc;
}

/* The tokenizer of another GGUF file, record by record. */
static int copy_vocab(struct meta *m, const struct make_plan *p)
{
    static const char prefix[] = "tokenizer.";
    struct gguf_record r;
    enum gguf_type type;
    const void *handle;
    struct gguf *g;
    uint64_t i, n;
    int rc = gguf_open(&g, p->opts->tokenizer);

    if (rc != OK)
        return rc;
    if ((rc = gguf_get_array(g, "tokenizer.ggml.tokens", &type, &n, &handle)) != OK)
        goto out;
    if (n != (uint64_t)p->config.vocab) {
        rc = err_set(
            ERR_ARG, "%s: tokenizer.ggml.tokens: expected %d tokens for %s, found %llu",
            p->opts->tokenizer, p->config.vocab, p->config.name, (unsigned long long)n);
        goto out;
    }
    for (i = 0; i < gguf_n_keys(g); i++) {
        gguf_key_at(g, i, &r);
        if (r.key_n > sizeof(prefix) - 1 &&
            memcmp(r.key, prefix, sizeof(prefix) - 1) == 0) {
            text_put(m->b, r.raw, r.raw_n);
            m->n++;
        }
    }
    rc = file_map_check();
out:
    gguf_close(&g);
    return rc;
}

/* Llama-3 scaling stands in a tensor of divisors, given rather than generated. */
static void add_rope_freqs(struct make_plan *p)
{
    struct make_tensor *t = &p->tensor[p->n_tensors];

    if (p->shape->scale.factor == 0)
        return;
    *t =
        (struct make_tensor){.rows = 1, .cols = p->config.head_dim / 2, .type = KERN_F32};
    t->given = p->config.rope_factor;
    t->bytes = (uint64_t)t->cols * sizeof(float);
    p->n_tensors++;
}

static void put_tensors(struct text *b, struct make_plan *p)
{
    static const uint32_t ggml_type[] = {
        [KERN_F32] = 0, [KERN_F16] = 1, [KERN_BF16] = 30};
    char name[MODEL_NAME_BYTES];
    struct make_tensor *t;
    uint64_t dims[2];
    uint32_t n_dims;
    int i;

    for (i = 0; i < p->n_tensors; i++) {
        t = &p->tensor[i];
        t->at = p->data_bytes;
        p->data_bytes += (t->bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (t->given)
            strcpy(name, "rope_freqs.weight");
        else
            format_role_name(MODEL_NAMES_GGUF, t->role, t->layer, name);
        dims[0] = (uint64_t)t->cols;
        dims[1] = (uint64_t)t->rows;
        n_dims = t->rows > 1 ? 2 : 1;
        put_str(b, name);
        text_put(b, &n_dims, sizeof(n_dims));
        text_put(b, dims, n_dims * sizeof(dims[0]));
        text_put(b, &ggml_type[t->type], sizeof(ggml_type[0]));
        text_put(b, &t->at, sizeof(t->at));
    }
}

int format_make_gguf_head(struct make_plan *p)
{
    struct text meta_buf = {0}, *b = &p->head;
    struct meta m = {.b = &meta_buf};
    uint32_t version = 3;
    uint64_t n;
    int rc;

    /* rotary pairs stand side by side in architecture llama, apart in qwen2 */
    p->interleave = strcmp(p->config.arch, "llama") == 0;
    put_model(&m, p);
    rc = p->opts->tokenizer ? copy_vocab(&m, p) : put_vocab(&m, p);
    if (rc != OK)
        goto out;
    add_rope_freqs(p);
    text_put(b, "GGUF", 4);
    text_put(b, &version, sizeof(version));
    n = (uint64_t)p->n_tensors;
    text_put(b, &n, sizeof(n));
    text_put(b, &m.n, sizeof(m.n));
    text_put(b, meta_buf.p, meta_buf.n);
    put_tensors(b, p);
    text_pad(b, ALIGN, 0);
    rc = meta_buf.rc != OK ? meta_buf.rc : b->rc;
out:
    text_fini(&meta_buf);
    return rc;
}
