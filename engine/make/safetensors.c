/* The Hugging Face side of `model make`: the safetensors header, config.json and a
 * byte-level BPE tokenizer.json. */
#include "make/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "format/fill.h"

static const char *dtype_name(enum kern_type t)
{
    static const char *const names[] = {
        [KERN_F32] = "F32", [KERN_F16] = "F16", [KERN_BF16] = "BF16"};

    return names[t];
}

int make_safetensors_head(struct make_plan *p)
{
    char name[MODEL_NAME_BYTES];
    struct text *b = &p->head;
    struct make_tensor *t;
    uint64_t n = 0;
    int i;

    p->interleave = p->family->hf_rope_interleaved;
    text_put(b, &n, sizeof(n)); /* known at the end */
    text_printf(b, "{\"__metadata__\":{\"format\":\"pt\",\"seed\":\"%llu\"}",
                (unsigned long long)p->opts->seed);
    for (i = 0; i < p->n_tensors; i++) {
        t = &p->tensor[i];
        t->at = p->data_bytes; /* no holes: the format allows none */
        p->data_bytes += t->bytes;
        format_role_name(p->family->hf_naming | (enum model_naming)p->family->fused,
                         t->role, t->layer, t->expert, name);
        text_printf(b, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name,
                    dtype_name(t->type));
        if (t->rows > 1 || t->role == FORMAT_SHARED_SCALE || /* a matrix of one row */
            (t->role == FORMAT_ROUTER_CHOICE &&
             p->family->hf_naming == MODEL_NAMES_HF_ERNIE))
            text_printf(b, "%lld,", (long long)t->rows);
        text_printf(b, "%lld],\"data_offsets\":[%llu,%llu]}", (long long)t->cols,
                    (unsigned long long)t->at, (unsigned long long)p->data_bytes);
    }
    text_puts(b, "}");
    text_pad(b, 8, ' ');
    if (b->rc == OK) {
        n = b->n - sizeof(n);
        memcpy(b->p, &n, sizeof(n));
    }
    return b->rc;
}

static json_t *factors(const float *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, json_real((double)x[i])) != 0)
            break; /* the list is short, or none, and not read again */
    return list;
}

static json_t *rope_scaling(const struct make_shape *s, const struct model_config *c)
{
    const int half = model_rope_dims(c) / 2;

    if (s->yarn.factor > 0 && s->latent_dim > 0)
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "type", "yarn", "factor",
                         s->yarn.factor, "mscale", s->yarn.mscale, "mscale_all_dim",
                         s->yarn.mscale, "original_max_position_embeddings",
                         s->yarn.original_tok);
    if (s->yarn.factor > 0)
        return json_pack("{s:s, s:f, s:i}", "rope_type", "yarn", "factor", s->yarn.factor,
                         "original_max_position_embeddings", s->yarn.original_tok);
    if (s->linear > 0)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->linear);
    if (c->rope_short_tok > 0)
        return json_pack("{s:s, s:o, s:o}", "rope_type", "longrope", "short_factor",
                         factors(c->rope_factor, half), "long_factor",
                         factors(c->rope_long, half));
    if (s->scale.factor == 0)
        return json_null();
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                     s->scale.factor, "low_freq_factor", s->scale.low, "high_freq_factor",
                     s->scale.high, "original_max_position_embeddings",
                     s->scale.original_tok);
}

static int write_json(json_t *j, const char *dir, const char *file)
{
    char path[768];
    int rc;

    if (!j)
        return err_set(ERR_NOMEM, "%s/%s: not enough memory", dir, file);
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    rc = json_write_file(j, path);
    json_decref(j);
    return rc;
}

/* Not 0: no memory. */
static int put_experts(json_t *j, const struct make_plan *p)
{
    const struct format_expert_keys *keys = p->family->experts;
    const struct make_shape *s = p->shape;
    int rc = json_object_set_new(j, keys->n_experts, json_integer(s->n_experts));

    rc |= json_object_set_new(j, keys->n_active ? keys->n_active : "num_experts_per_tok",
                              json_integer(s->n_active));
    if (keys->expert_hidden) {
        rc |= json_object_set_new(j, keys->expert_hidden, json_integer(s->expert_hidden));
        rc |= json_object_set_new(j, "decoder_sparse_step", json_integer(1));
        rc |= json_object_set_new(j, "mlp_only_layers", json_array());
    }
    if (keys->norm_topk)
        rc |= json_object_set_new(j, keys->norm_topk, json_boolean(s->norm_topk));
    if (keys->shared_hidden)
        rc |= json_object_set_new(j, keys->shared_hidden, json_integer(s->hidden));
    if (keys->n_shared)
        rc |= json_object_set_new(j, keys->n_shared,
                                  json_integer(s->hidden / s->expert_hidden));
    if (keys->n_dense)
        rc |= json_object_set_new(j, keys->n_dense, json_integer(s->n_dense));
    if (s->n_groups > 0) {
        rc |= json_object_set_new(j, "n_group", json_integer(s->n_groups));
        rc |= json_object_set_new(j, "topk_group", json_integer(s->n_active_groups));
    }
    return rc;
}

static int put_numbers(json_t *j, const struct make_plan *p)
{
    int rc = 0;

    for (int i = 0; i < FORMAT_N_NUMBERS; i++) {
        double v = (double)format_number_in_file(i, *format_number_of(&p->config, i));

        if (p->family->numbers >> i & 1)
            rc |= json_object_set_new(j, format_numbers[i].hf, json_real(v));
    }
    if (p->config.latent_dim > 0) {
        rc |= json_object_set_new(j, "kv_lora_rank", json_integer(p->config.latent_dim));
        rc |= json_object_set_new(j, "q_lora_rank",
                                  p->config.q_rank > 0 ? json_integer(p->config.q_rank)
                                                       : json_null());
        rc |=
            json_object_set_new(j, "qk_nope_head_dim", json_integer(p->config.nope_dim));
        rc |=
            json_object_set_new(j, "qk_rope_head_dim", json_integer(p->config.rope_dims));
        rc |= json_object_set_new(j, "v_head_dim", json_integer(p->config.value_dim));
        rc |= json_object_set_new(j, "num_key_value_heads",
                                  json_integer(p->config.n_heads));
        rc |= json_object_del(j, "head_dim");
    } else if (p->config.rope_dims > 0)
        rc |= json_object_set_new(j, "partial_rotary_factor",
                                  json_real(p->shape->rotary_frac));
    if (p->family->qk_norm_key)
        rc |= json_object_set_new(j, p->family->qk_norm_key,
                                  json_boolean(p->config.qk_norm));
    if (p->family->gemma)
        rc |= json_object_set_new(j, "query_pre_attn_scalar",
                                  json_integer(p->config.head_dim));
    if (p->config.window > 0)
        rc |= json_object_set_new(j, "sliding_window", json_integer(p->config.window));
    if (p->config.rope_short_tok > 0)
        rc |= json_object_set_new(j, "original_max_position_embeddings",
                                  json_integer(p->config.rope_short_tok));
    if (p->family->no_rope_every > 0)
        rc |= json_object_set_new(j, "no_rope_layer_interval",
                                  json_integer(p->family->no_rope_every));
    return rc;
}

static int write_config(const struct make_plan *p, const char *dir)
{
    static const char *const torch_dtype[] = {
        [KERN_F32] = "float32", [KERN_F16] = "float16", [KERN_BF16] = "bfloat16"};
    const struct make_shape *s = p->shape;
    const struct model_config *c = &p->config;
    json_t *j = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s, "
        "s:o, s:n, s:i, s:i, s:s, s:b}",
        "architectures", s->hf_class, "model_type", p->family->hf_type, "hidden_size",
        s->dim, "intermediate_size", p->dense_hidden, "num_hidden_layers", s->n_layers,
        "num_attention_heads", s->n_heads, "num_key_value_heads", c->n_kv_heads,
        "head_dim", p->config.head_dim, "vocab_size", s->vocab, "max_position_embeddings",
        s->max_tok,
        p->family->eps_key ? p->family->eps_key
        : c->layer_norm    ? "layer_norm_eps"
                           : "rms_norm_eps",
        s->norm_eps, "rope_theta", s->rope_theta, "tie_word_embeddings", s->tied,
        "hidden_act", format_activation_names[p->family->activation][0], "rope_scaling",
        rope_scaling(s, c), "sliding_window", "bos_token_id", s->bos_id, "eos_token_id",
        s->eos_id, "torch_dtype", torch_dtype[p->opts->type], "use_cache", 1);

    if (j && ((s->n_experts > 0 && put_experts(j, p) != 0) || put_numbers(j, p) != 0 ||
              (p->family->attention_bias &&
               json_object_set_new(
                   j, p->family->bias_key ? p->family->bias_key : "attention_bias",
                   json_boolean(s->attention_bias)) != 0))) {
        json_decref(j);
        j = NULL;
    }
    return write_json(j, dir, "config.json");
}

/* How text is cut before merging, as the published tokenizers of each family say it. */
static json_t *pre_tokenizer(enum make_family family)
{
    const struct make_words *words = &make_words[family];

    if (family == MAKE_LLAMA2)
        return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                         0, "trim_offsets", 1, "use_regex", 1);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type",
                     "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                     words->regex, "behavior", "Isolated", "invert", 0, "type",
                     "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     words->gpt2);
}

/* Puts BOS before a text, where the published tokenizer does. */
static json_t *post_processor(const struct make_vocab *v)
{
    char bos[MAKE_TOKEN_BYTES];

    if (!v->shape->adds_bos)
        return json_null();
    (void)make_token(v, v->shape->bos_id, bos);
    return json_pack(
        "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], "
        "s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}], s:{s:{s:s, s:[i], s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", bos, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", bos, "type_id",
        0, "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B", "type_id", 1,
        "special_tokens", bos, "id", bos, "ids", v->shape->bos_id, "tokens", bos);
}

static json_t *added_tokens(const struct make_vocab *v)
{
    json_t *list = json_array();
    char text[MAKE_TOKEN_BYTES];
    int id, rc = 0;

    for (id = 0; list && rc == 0 && id < v->shape->vocab; id++) {
        if (id == v->n_lead)
            id = v->special_at;
        if (id >= v->shape->vocab)
            break;
        (void)make_token(v, id, text);
        rc = json_array_append_new(
            list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                            text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                            "normalized", 0, "special", 1));
    }
    if (rc != 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *bpe_model(const struct make_vocab *v)
{
    json_t *vocab = json_object(), *merges = json_array(), *model = NULL;
    char text[MAKE_TOKEN_BYTES];
    int id, rc = vocab && merges ? 0 : -1;

    /* special tokens stand in added_tokens alone, those in front here too, as is usual */
    for (id = 0; rc == 0 && id < v->special_at; id++) {
        (void)make_token(v, id, text);
        rc = json_object_set_new(vocab, text, json_integer(id));
        if (rc == 0 && id >= v->piece_at) {
            make_merge(v, id, text);
            rc = json_array_append_new(merges, json_string(text));
        }
    }
    if (rc == 0)
        model = json_pack(
            "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type", "BPE",
            "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
            "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
            v->shape->family == MAKE_LLAMA3 || v->shape->family == MAKE_TEKKEN, "vocab",
            vocab, "merges", merges);
    json_decref(vocab);
    json_decref(merges);
    return model;
}

static int write_tokenizer(const struct make_vocab *v, const char *dir)
{
    json_t *nfc =
        v->shape->family == MAKE_QWEN2 ? json_pack("{s:s}", "type", "NFC") : json_null();
    json_t *j = json_pack(
        "{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:{s:s, s:b, s:b, s:b}, s:o}", "version",
        "1.0", "truncation", "padding", "added_tokens", added_tokens(v), "normalizer",
        nfc, "pre_tokenizer", pre_tokenizer(v->shape->family), "post_processor",
        post_processor(v), "decoder", "type", "ByteLevel", "add_prefix_space", 0,
        "trim_offsets", 1, "use_regex", 1, "model", bpe_model(v));

    return write_json(j, dir, "tokenizer.json");
}

static int write_tokenizer_config(const struct make_vocab *v, const char *dir)
{
    char bos[MAKE_TOKEN_BYTES], eos[MAKE_TOKEN_BYTES];

    (void)make_token(v, v->shape->bos_id, bos);
    (void)make_token(v, v->shape->eos_id, eos);
    return write_json(json_pack("{s:s, s:s, s:s, s:b, s:b, s:i}", "tokenizer_class",
                                "PreTrainedTokenizerFast", "bos_token", bos, "eos_token",
                                eos, "add_bos_token", v->shape->adds_bos, "add_eos_token",
                                0, "model_max_length", v->shape->max_tok),
                      dir, "tokenizer_config.json");
}

/* A given tokenizer.json, checked to be JSON and to fit, and written again. */
static int copy_tokenizer(const struct make_plan *p, const char *dir)
{
    const size_t max_bytes = 256u << 20; /* the largest published ones have some 30 MB */
    const char *from = p->opts->tokenizer;
    const json_t *model, *vocab;
    json_t *j;
    int rc = json_read_file(&j, from, max_bytes);

    if (rc != OK)
        return rc;
    if ((rc = json_get_obj(j, "model", &model, from)) == OK &&
        (rc = json_get_obj(model, "vocab", &vocab, from)) == OK &&
        json_object_size(vocab) > (size_t)p->config.vocab)
        rc = err_set(ERR_ARG,
                     "%s: model.vocab: expected at most %d tokens for %s, found %zu",
                     from, p->config.vocab, p->config.name, json_object_size(vocab));
    if (rc == OK)
        return write_json(j, dir, "tokenizer.json");
    json_decref(j);
    return rc;
}

int make_hf_files(const struct make_plan *p, const char *dir)
{
    struct make_vocab v;
    int rc = write_config(p, dir);

    if (rc != OK || p->opts->tokenizer)
        return rc == OK ? copy_tokenizer(p, dir) : rc;
    if ((rc = make_vocab_init(&v, p->shape, false)) == OK &&
        (rc = write_tokenizer(&v, dir)) == OK)
        rc = write_tokenizer_config(&v, dir);
    make_vocab_fini(&v);
    return rc;
}
