/* tests/format/small.h - model files of a few hundred bytes, written by hand (not by the
 * code under test), with one defect each if asked. Also what every test of a reader does
 * with the outcome: a mutant is refused with one line, or is a sound model. */
#ifndef TESTS_MODEL_SMALL_H
#define TESTS_MODEL_SMALL_H

#include "tests/support/faults.h"

#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"
#include "format/gguf.h"

/* The shape all of them have. */
enum {
    S_DIM = 8,
    S_HEADS = 2,
    S_KV = 1,
    S_HEAD_DIM = 4,
    S_HIDDEN = 6,
    S_VOCAB = 5,
    S_CTX = 16
};
/* ... but the one with quantised tensors, whose rows must be whole blocks. */
enum { SQ_DIM = 256, SQ_HEADS = 8, SQ_HIDDEN = 32 };

struct small {
    uint8_t b[40960];
    size_t n;
    uint32_t n_tensors, n_keys;
    uint64_t data; /* bytes of tensor data so far */
    size_t head_n; /* where the data begins */
};

static inline void small_put(struct small *s, const void *p, size_t n)
{
    assert_true(s->n + n <= sizeof(s->b));
    memcpy(s->b + s->n, p, n);
    s->n += n;
}

static inline void small_u32(struct small *s, uint32_t v)
{
    small_put(s, &v, sizeof(v));
}

static inline void small_u64(struct small *s, uint64_t v)
{
    small_put(s, &v, sizeof(v));
}

static inline void small_str(struct small *s, const char *v)
{
    small_u64(s, strlen(v));
    small_put(s, v, strlen(v));
}

static inline void small_key(struct small *s, const char *key, uint32_t type)
{
    small_str(s, key);
    small_u32(s, type);
    s->n_keys++;
}

static inline void small_key_u32(struct small *s, const char *key, uint32_t v)
{
    small_key(s, key, GGUF_U32);
    small_u32(s, v);
}

static inline void small_key_f32(struct small *s, const char *key, float v)
{
    small_key(s, key, GGUF_F32);
    small_put(s, &v, sizeof(v));
}

static inline void small_key_str(struct small *s, const char *key, const char *v)
{
    small_key(s, key, GGUF_STRING);
    small_str(s, v);
}

/* Bytes of a row of a GGUF type; of those that are not listed, as of f32. */
static inline uint64_t small_row_bytes(uint32_t type, uint64_t cols)
{
    static const struct {
        uint8_t block, bytes; /* block: in units of 32, 0: one weight */
    } of[] = {[1] = {0, 2},    [2] = {1, 18},   [3] = {1, 20},   [8] = {1, 34},
              [12] = {8, 144}, [13] = {8, 176}, [14] = {8, 210}, [30] = {0, 2}};

    if (type >= sizeof(of) / sizeof(of[0]) || of[type].bytes == 0)
        return cols * 4;
    return (of[type].block ? cols / (32u * of[type].block) : cols) * of[type].bytes;
}

/* A tensor at the next free offset (a multiple of 32). rows 0: a vector. */
static inline void small_tensor(struct small *s, const char *name, uint64_t cols,
                                uint64_t rows, uint32_t type)
{
    small_str(s, name);
    small_u32(s, rows ? 2 : 1);
    small_u64(s, cols);
    if (rows)
        small_u64(s, rows);
    small_u32(s, type);
    small_u64(s, s->data);
    s->data = (s->data + (rows ? rows : 1) * small_row_bytes(type, cols) + 31) / 32 * 32;
    s->n_tensors++;
}

static inline void small_begin(struct small *s)
{
    memset(s, 0, sizeof(*s));
    small_put(s, "GGUF", 4);
    small_u32(s, 3);
    small_u64(s, 0); /* counts: small_end() */
    small_u64(s, 0);
}

static inline void small_keys_of(struct small *s, const char *arch, uint32_t dim,
                                 uint32_t hidden, uint32_t heads)
{
    const struct {
        const char *key;
        uint32_t v;
    } sizes[] = {{"context_length", S_CTX},
                 {"embedding_length", dim},
                 {"block_count", 1},
                 {"feed_forward_length", hidden},
                 {"attention.head_count", heads},
                 {"attention.head_count_kv", S_KV}};
    static const char *const tokens[S_VOCAB] = {"<unk>", "<s>", "</s>", "a", "bc"};
    char key[80];
    size_t i;

    small_key_str(s, "general.architecture", arch);
    small_key_str(s, "general.name", "small");
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, sizes[i].key);
        small_key_u32(s, key, sizes[i].v);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    small_key_f32(s, key, 1e-5f);
    small_key(s, "tokenizer.ggml.tokens", GGUF_ARRAY);
    small_u32(s, GGUF_STRING);
    small_u64(s, S_VOCAB);
    for (i = 0; i < S_VOCAB; i++)
        small_str(s, tokens[i]);
    small_key_u32(s, "tokenizer.ggml.bos_token_id", 1);
    small_key_u32(s, "tokenizer.ggml.eos_token_id", 2);
    small_key(s, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    small_put(s, "\1", 1);
}

static inline void small_keys(struct small *s, const char *arch)
{
    small_keys_of(s, arch, S_DIM, S_HIDDEN, S_HEADS);
}

static inline void small_tensors(struct small *s)
{
    small_tensor(s, "token_embd.weight", S_DIM, S_VOCAB, 0);
    small_tensor(s, "output_norm.weight", S_DIM, 0, 0);
    small_tensor(s, "blk.0.attn_norm.weight", S_DIM, 0, 0);
    small_tensor(s, "blk.0.attn_q.weight", S_DIM, S_HEADS * S_HEAD_DIM, 0);
    small_tensor(s, "blk.0.attn_k.weight", S_DIM, S_KV * S_HEAD_DIM, 0);
    small_tensor(s, "blk.0.attn_v.weight", S_DIM, S_KV * S_HEAD_DIM, 0);
    small_tensor(s, "blk.0.attn_output.weight", S_HEADS * S_HEAD_DIM, S_DIM, 0);
    small_tensor(s, "blk.0.ffn_norm.weight", S_DIM, 0, 0);
    small_tensor(s, "blk.0.ffn_gate.weight", S_DIM, S_HIDDEN, 0);
    small_tensor(s, "blk.0.ffn_up.weight", S_DIM, S_HIDDEN, 0);
    small_tensor(s, "blk.0.ffn_down.weight", S_HIDDEN, S_DIM, 0);
}

/* Counts, padding, and data that are 0, 1/256, 2/256 ... as f32. */
static inline void small_end(struct small *s)
{
    uint64_t counts[2] = {s->n_tensors, s->n_keys}, i;
    float v;

    memcpy(s->b + 8, counts, sizeof(counts));
    while (s->n % 32)
        small_put(s, "", 1);
    s->head_n = s->n;
    for (i = 0; i < s->data / 4; i++) {
        v = (float)i / 256;
        small_put(s, &v, sizeof(v));
    }
}

static inline void small_gguf(struct small *s)
{
    small_begin(s);
    small_keys(s, "llama");
    small_tensors(s);
    small_end(s);
}

/* A model with a tensor of every quantised type, mixed as published files mix them. */
static inline void small_gguf_quantised(struct small *s)
{
    const uint64_t q = SQ_HEADS * S_HEAD_DIM, kv = S_KV * S_HEAD_DIM;

    small_begin(s);
    small_keys_of(s, "llama", SQ_DIM, SQ_HIDDEN, SQ_HEADS);
    small_key_u32(s, "llama.attention.key_length", S_HEAD_DIM);
    small_key_u32(s, "llama.attention.value_length", S_HEAD_DIM);
    small_key_u32(s, "llama.rope.dimension_count", S_HEAD_DIM);
    small_tensor(s, "token_embd.weight", SQ_DIM, S_VOCAB, 14);
    small_tensor(s, "output_norm.weight", SQ_DIM, 0, 0);
    small_tensor(s, "blk.0.attn_norm.weight", SQ_DIM, 0, 0);
    small_tensor(s, "blk.0.attn_q.weight", SQ_DIM, q, 12);
    small_tensor(s, "blk.0.attn_k.weight", SQ_DIM, kv, 12);
    small_tensor(s, "blk.0.attn_v.weight", SQ_DIM, kv, 14);
    small_tensor(s, "blk.0.attn_output.weight", q, SQ_DIM, 3);
    small_tensor(s, "blk.0.ffn_norm.weight", SQ_DIM, 0, 0);
    small_tensor(s, "blk.0.ffn_gate.weight", SQ_DIM, SQ_HIDDEN, 13);
    small_tensor(s, "blk.0.ffn_up.weight", SQ_DIM, SQ_HIDDEN, 8);
    small_tensor(s, "blk.0.ffn_down.weight", SQ_HIDDEN, SQ_DIM, 2);
    small_end(s);
}

/* The same shape as a safetensors header and data; `edit` replaces "%s" parts: see the
 * test. */
static const char small_config_json[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 8, "
    "\"intermediate_size\": 6,"
    " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    " \"vocab_size\": 5, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-05,"
    " \"bos_token_id\": 1, \"eos_token_id\": [2, 1]}";

static inline void small_safet_entry(struct small *s, const char *name, uint64_t rows,
                                     uint64_t cols)
{
    uint64_t bytes = (rows ? rows : 1) * cols * 4;
    char text[256], shape[64];

    snprintf(shape, sizeof(shape), rows ? "%llu,%llu" : "%.0llu%llu",
             (unsigned long long)rows, (unsigned long long)cols);
    snprintf(text, sizeof(text),
             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
             s->data ? "," : "{", name, shape, (unsigned long long)s->data,
             (unsigned long long)(s->data + bytes));
    small_put(s, text, strlen(text));
    s->data += bytes;
}

static inline void small_begin_safetensors(struct small *s)
{
    memset(s, 0, sizeof(*s));
    small_u64(s, 0); /* the size of the header: small_end_safetensors() */
}

static inline void small_end_safetensors(struct small *s)
{
    uint64_t n, i;
    float v;

    small_put(s, "}", 1);
    n = s->n - 8;
    memcpy(s->b, &n, sizeof(n));
    s->head_n = s->n;
    for (i = 0; i < s->data / 4; i++) {
        v = (float)i / 256;
        small_put(s, &v, sizeof(v));
    }
}

/* ... and its model.safetensors. */
static inline void small_safetensors(struct small *s)
{
    small_begin_safetensors(s);
    small_safet_entry(s, "model.embed_tokens.weight", S_VOCAB, S_DIM);
    small_safet_entry(s, "lm_head.weight", S_VOCAB, S_DIM);
    small_safet_entry(s, "model.norm.weight", 0, S_DIM);
    small_safet_entry(s, "model.layers.0.input_layernorm.weight", 0, S_DIM);
    small_safet_entry(s, "model.layers.0.self_attn.q_proj.weight", 8, S_DIM);
    small_safet_entry(s, "model.layers.0.self_attn.k_proj.weight", 4, S_DIM);
    small_safet_entry(s, "model.layers.0.self_attn.v_proj.weight", 4, S_DIM);
    small_safet_entry(s, "model.layers.0.self_attn.o_proj.weight", S_DIM, 8);
    small_safet_entry(s, "model.layers.0.post_attention_layernorm.weight", 0, S_DIM);
    small_safet_entry(s, "model.layers.0.mlp.gate_proj.weight", S_HIDDEN, S_DIM);
    small_safet_entry(s, "model.layers.0.mlp.up_proj.weight", S_HIDDEN, S_DIM);
    small_safet_entry(s, "model.layers.0.mlp.down_proj.weight", S_DIM, S_HIDDEN);
    small_end_safetensors(s);
}

static inline void small_llama2c(struct small *s, int vocab)
{
    int32_t h[7] = {S_DIM, S_HIDDEN, 1, S_HEADS, S_KV, vocab, S_CTX};
    int n_params = S_VOCAB * S_DIM * (vocab < 0 ? 2 : 1) + 3 * S_DIM + 2 * S_DIM * 8 +
                   2 * S_DIM * 4 + 3 * S_DIM * S_HIDDEN + S_CTX * S_HEAD_DIM;
    float v;
    int i;

    memset(s, 0, sizeof(*s));
    small_put(s, h, sizeof(h));
    s->head_n = s->n;
    for (i = 0; i < n_params; i++) {
        v = (float)i / 256;
        small_put(s, &v, sizeof(v));
    }
}

/* Read the first and the last byte of every tensor: outside the mapping, this faults. */
static inline unsigned small_touch(const struct format_file *f)
{
    const struct format_tensor *t;
    const uint8_t *p;
    unsigned sum = 0;
    int role, layer;

    for (layer = 0; layer < f->config.n_layers; layer++)
        for (role = 0; role < FORMAT_N_ROLES; role++) {
            t = role < FORMAT_ATTN_NORM ? &f->global[role]
                                        : format_layer_tensor(f, layer, role);
            p = t->data;
            if (p)
                sum += p[0] + p[(size_t)t->rows * kern_type_size(t->type, t->cols) - 1];
        }
    for (int e = 0; e < f->config.n_layers * f->config.n_experts; e++)
        for (role = 0; role < FORMAT_N_EXPERT_ROLES; role++) {
            t = &f->expert[e][role];
            p = t->data;
            sum += p[0] + p[(size_t)t->rows * kern_type_size(t->type, t->cols) - 1];
        }
    return sum;
}

/* What opens is a sound model. */
static inline int small_parse(const char *path)
{
    struct format_file *f;
    int rc = format_open(&f, path);

    if (rc != OK) {
        assert_null(f);
        return rc;
    }
    if (model_config_check(&f->config, path) != OK || format_check_tensors(f) != OK)
        fail_msg("opened, yet %s", err_msg());
    (void)small_touch(f);
    format_close(&f);
    return OK;
}

/* The small model as a document at `path`. */
static inline struct test_document small_document(const struct small *s, const char *path)
{
    return (struct test_document){
        .path = path, .data = s->b, .n = s->n, .parse = small_parse};
}

#endif
