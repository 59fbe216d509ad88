/* The head of a GGUF file: metadata and tensor directory. */
#include "make/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/gguf_parts.h"
#include "format/gguf_write.h"

static const char *arch_key(const struct make_plan *p, const char *key, char out[96])
{
    snprintf(out, 96, "%s.%s", p->config.arch, key);
    return out;
}

static void put_experts(struct gguf_records *m, const struct make_plan *p)
{
    const struct model_config *c = &p->config;
    char key[96];

    if (c->n_experts == 0)
        return;
    gguf_put_key_u32(m, arch_key(p, "expert_count", key), (uint32_t)c->n_experts);
    gguf_put_key_u32(m, arch_key(p, "expert_used_count", key), (uint32_t)c->n_active);
    if (p->shape->dense_hidden > 0)
        gguf_put_key_u32(m, arch_key(p, "expert_feed_forward_length", key),
                         (uint32_t)c->expert_hidden);
    if (c->hidden > 0)
        gguf_put_key_u32(m, arch_key(p, "expert_shared_feed_forward_length", key),
                         (uint32_t)c->hidden);
    if (p->family->experts->n_shared)
        gguf_put_key_u32(m, arch_key(p, "expert_shared_count", key),
                         (uint32_t)(c->hidden / c->expert_hidden));
    if (p->family->experts->n_dense)
        gguf_put_key_u32(m, arch_key(p, "leading_dense_block_count", key),
                         (uint32_t)c->n_dense);
    if (c->router_sigmoid)
        gguf_put_key_u32(m, arch_key(p, "expert_gating_func", key), 2);
    if (p->family->experts->n_dense || c->router_sigmoid)
        gguf_put_key_bool(m, arch_key(p, "expert_weights_norm", key), c->norm_topk);
    if (c->n_groups > 0) {
        gguf_put_key_u32(m, arch_key(p, "expert_group_count", key),
                         (uint32_t)c->n_groups);
        gguf_put_key_u32(m, arch_key(p, "expert_group_used_count", key),
                         (uint32_t)c->n_active_groups);
    }
}

static void put_number(struct gguf_records *m, const struct make_plan *p, int i)
{
    float v = format_number_in_file(i, *format_number_of(&p->config, i));
    char key[96];

    if (p->family->numbers >> i & 1)
        gguf_put_key_f32(m, arch_key(p, format_numbers[i].gguf, key), v);
}

static void put_model(struct gguf_records *m, const struct make_plan *p)
{
    const enum kern_type matrix = p->opts->scheme ? p->opts->scheme->type : p->plain_type;
    const struct model_config *c = &p->config;
    const int rope_dims = model_rope_dims(c);
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        {"context_length", c->max_tok},
        {"embedding_length", c->dim},
        {"block_count", c->n_layers},
        {"feed_forward_length", p->dense_hidden},
        {"attention.head_count", c->n_heads},
        {"attention.head_count_kv", c->latent_dim > 0 ? c->n_heads : c->n_kv_heads},
        {"attention.key_length", model_q_dim(c)},
        {"attention.value_length", model_o_dim(c)},
        {"vocab_size", c->vocab},
        {"rope.dimension_count", rope_dims},
    };
    char key[96], text[96];
    size_t i;

    gguf_put_key_str(m, "general.architecture", c->arch);
    gguf_put_key_str(m, "general.type", "model");
    gguf_put_key_str(m, "general.name", c->name);
    snprintf(text, sizeof(text), "random weights in this shape, seed %llu",
             (unsigned long long)p->opts->seed);
    gguf_put_key_str(m, "general.description", text);
    gguf_put_key_u32(m, "general.file_type", gguf_file_type(matrix));
    if (kern_type_quantised(matrix))
        gguf_put_key_u32(m, "general.quantization_version", GGUF_QUANT_VERSION);
    gguf_put_key_u32(m, "general.alignment", GGUF_ALIGN);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        gguf_put_key_u32(m, arch_key(p, sizes[i].key, key), (uint32_t)sizes[i].value);
    if (c->latent_dim > 0)
        gguf_put_key_u32(m, arch_key(p, "attention.kv_lora_rank", key),
                         (uint32_t)c->latent_dim);
    if (c->q_rank > 0)
        gguf_put_key_u32(m, arch_key(p, "attention.q_lora_rank", key),
                         (uint32_t)c->q_rank);
    if (c->latent_dim >
        0) /* a tenth, as published; llama.cpp of 2025 needs it without YaRN, too */
        gguf_put_key_f32(m, arch_key(p, "rope.scaling.yarn_log_multiplier", key),
                         (float)(0.1 * p->shape->yarn.mscale));
    put_experts(m, p);
    for (i = 0; i < FORMAT_N_NUMBERS; i++)
        put_number(m, p, (int)i);
    gguf_put_key_f32(m,
                     arch_key(p,
                              c->layer_norm ? "attention.layer_norm_epsilon"
                                            : "attention.layer_norm_rms_epsilon",
                              key),
                     c->norm_eps);
    if (c->rope_short_tok > 0)
        gguf_put_key_u32(m, arch_key(p, "rope.scaling.original_context_length", key),
                         (uint32_t)c->rope_short_tok);
    if (c->window > 0)
        gguf_put_key_u32(m, arch_key(p, "attention.sliding_window", key),
                         (uint32_t)c->window);
    if (p->shape->linear > 0) {
        gguf_put_key_str(m, arch_key(p, "rope.scaling.type", key), "linear");
        gguf_put_key_f32(m, arch_key(p, "rope.scaling.factor", key),
                         (float)p->shape->linear);
    }
    if (p->shape->yarn.factor > 0) {
        gguf_put_key_str(m, arch_key(p, "rope.scaling.type", key), "yarn");
        gguf_put_key_f32(m, arch_key(p, "rope.scaling.factor", key),
                         (float)p->shape->yarn.factor);
        gguf_put_key_u32(m, arch_key(p, "rope.scaling.original_context_length", key),
                         (uint32_t)p->shape->yarn.original_tok);
    } else if (c->rope_length != 0)
        gguf_put_key_f32(m, arch_key(p, "rope.scaling.attn_factor", key), c->rope_length);
    gguf_put_key_f32(m, arch_key(p, "rope.freq_base", key), c->rope_theta);
    if (p->family->sections) { /* of pairs: time, height, width; and none */
        const int32_t pairs = c->head_dim / 2,
                      all[4] = {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3};

        gguf_put_key_array(m, arch_key(p, "rope.dimension_sections", key), GGUF_I32, 4);
        text_put(&m->text, (const char *)all, sizeof(all));
    }
}

static void put_merges(struct gguf_records *m, const struct make_vocab *v)
{
    char text[MAKE_TOKEN_BYTES];
    int id;

    gguf_put_key_array(m, "tokenizer.ggml.merges", GGUF_STRING,
                       (uint64_t)(v->special_at - v->piece_at));
    for (id = v->piece_at; id < v->special_at; id++) {
        make_merge(v, id, text);
        gguf_put_str(&m->text, text);
    }
}

/* SentencePiece merges the best score first; ours falls with the id, as rank does in BPE.
 */
static void put_scores(struct gguf_records *m, const struct make_vocab *v, int n)
{
    float score;
    int id;

    gguf_put_key_array(m, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)n);
    for (id = 0; id < n; id++) {
        score = id < v->single_at ? 0 : (float)(v->single_at - id);
        text_put(&m->text, &score, sizeof(score));
    }
}

static int put_vocab(struct gguf_records *m, const struct make_plan *p)
{
    const struct make_shape *s = p->shape;
    char text[MAKE_TOKEN_BYTES];
    struct make_vocab v;
    int32_t kind;
    int id, rc = make_vocab_init(&v, s, s->family == MAKE_LLAMA2);

    if (rc != OK)
        goto out;
    gguf_put_key_str(m, "tokenizer.ggml.model", v.spm ? "llama" : "gpt2");
    gguf_put_key_str(m, "tokenizer.ggml.pre",
                     v.spm ? "default" : make_words[s->family].pre);
    gguf_put_key_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)s->vocab);
    for (id = 0; id < s->vocab; id++) {
        (void)make_token(&v, id, text);
        gguf_put_str(&m->text, text);
    }
    gguf_put_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)s->vocab);
    for (id = 0; id < s->vocab; id++) {
        kind = (int32_t)make_token(&v, id, text);
        text_put(&m->text, &kind, sizeof(kind));
    }
    if (v.spm) {
        put_scores(m, &v, s->vocab);
        gguf_put_key_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    } else {
        put_merges(m, &v);
    }
    gguf_put_key_u32(m, "tokenizer.ggml.bos_token_id", (uint32_t)s->bos_id);
    gguf_put_key_u32(m, "tokenizer.ggml.eos_token_id", (uint32_t)s->eos_id);
    gguf_put_key_bool(m, "tokenizer.ggml.add_bos_token", s->adds_bos);
out:
    make_vocab_fini(&v);
    return rc;
}

/* The tokenizer of another GGUF file, record by record. */
static int copy_vocab(struct gguf_records *m, const struct make_plan *p)
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
            memcmp(r.key, prefix, sizeof(prefix) - 1) == 0)
            gguf_put_record(m, &r);
    }
    rc = file_map_check();
out:
    gguf_close(&g);
    return rc;
}

static void add_given(struct make_plan *p, const char *name, const float *values)
{
    const int64_t n = model_rope_dims(&p->config) / 2;

    p->tensor[p->n_tensors++] =
        (struct make_tensor){.name = name,
                             .rows = 1,
                             .cols = n,
                             .type = KERN_F32,
                             .given = values,
                             .bytes = (uint64_t)n * sizeof(float)};
}

/* Scaling of rotary frequencies stands in tensors of divisors, given rather than generated. */
static void add_rope_freqs(struct make_plan *p)
{
    if (p->shape->scale.factor > 0)
        add_given(p, "rope_freqs.weight", p->config.rope_factor);
    if (p->config.rope_short_tok == 0)
        return;
    add_given(p, "rope_factors_long.weight", p->config.rope_long);
    add_given(p, "rope_factors_short.weight", p->config.rope_factor);
}

static void put_tensors(struct gguf_records *d, struct make_plan *p)
{
    char name[MODEL_NAME_BYTES];
    struct make_tensor *t;
    int i, n;

    for (i = 0; i < p->n_tensors; i++) {
        t = &p->tensor[i];
        t->at = p->data_bytes;
        p->data_bytes += (t->bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
        if (t->given)
            snprintf(name, sizeof(name), "%s", t->name);
        else
            format_role_name(MODEL_NAMES_GGUF | (enum model_naming)p->family->fused,
                             t->role, t->layer, t->expert, name);
        if (t->role >= FORMAT_EXPERT_GATE_BIAS) {
            gguf_put_tensor(d, name,
                            (const uint64_t[]){(uint64_t)t->cols, (uint64_t)t->rows}, 2,
                            gguf_ggml_of(t->type), t->at);
            continue;
        }
        n = t->n_experts > 0 ? t->n_experts : 1;
        gguf_put_tensor(
            d, name,
            (const uint64_t[]){(uint64_t)t->cols, (uint64_t)(t->rows / n), (uint64_t)n},
            t->n_experts > 0 ? 3
            : t->rows > 1    ? 2
                             : 1,
            gguf_ggml_of(t->type), t->at);
    }
}

int make_gguf_head(struct make_plan *p)
{
    struct gguf_records metadata = {0}, directory = {0};
    int rc;

    p->interleave = p->family->rope_interleaved;
    put_model(&metadata, p);
    rc = p->opts->tokenizer ? copy_vocab(&metadata, p) : put_vocab(&metadata, p);
    if (rc != OK)
        goto out;
    add_rope_freqs(p);
    put_tensors(&directory, p);
    rc = gguf_put_head(&p->head, &metadata, &directory);
out:
    text_fini(&metadata.text);
    text_fini(&directory.text);
    return rc;
}
