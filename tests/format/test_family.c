/* Every row of the table of families: a GGUF file and a folder of the family, written by hand with
 * the names and vectors of the row, open as the same model. */
#include <string.h>

#include "format/fill.h"
#include "tests/format/same_config.h"
#include "tests/format/small.h"

enum { N_EXPERTS = 2, EXPERT_HIDDEN = 6 };

static struct model_config config_of(const struct format_family *f)
{
    struct model_config c = {.dim = S_DIM,
                             .n_layers = 1,
                             .n_heads = S_HEADS,
                             .n_kv_heads = S_KV,
                             .head_dim = S_HEAD_DIM,
                             .hidden = S_HIDDEN,
                             .vocab = S_VOCAB};

    format_family_apply(f, &c);
    for (int i = 0; i < FORMAT_N_NUMBERS; i++)
        if (f->numbers >> i & 1)
            *format_number_of(&c, i) = 1.0f / (float)(2 << i);
    c.max_tok = S_CTX;
    format_family_derive(f, &c);
    model_config_window(&c, 0, f->window_every, false);
    /* a multiple of 4 times a half or a quarter is even only where it is rounded to be */
    c.rope_dims = f->rotary_frac > 0 ? S_HEAD_DIM / 2 : 0;
    if (f->latent) {
        c.latent_dim = 32, c.nope_dim = 6, c.value_dim = 48, c.rope_dims = 16;
        c.n_heads = S_HEADS;
        c.q_rank = f->router_sigmoid ? 10 : 0;
        model_config_latent(&c, 0, 0);
    }
    if (f->experts) {
        c.n_experts = N_EXPERTS, c.n_active = 1, c.expert_hidden = EXPERT_HIDDEN;
        c.hidden = f->experts->shared_hidden ? S_HIDDEN
                   : f->experts->n_shared    ? 2 * EXPERT_HIDDEN
                                             : 0;
    }
    return c;
}

typedef void (*put_tensor)(struct small *s, const char *name, int64_t rows, int64_t cols,
                           int planes);

/* All tensors that the configuration needs: `planes` experts to a tensor. */
static void put_tensors(struct small *s, const struct model_config *c,
                        enum model_naming naming, int planes, put_tensor put)
{
    char name[MODEL_NAME_BYTES];
    int64_t rows, cols, first, all;

    for (int role = 0; role < FORMAT_ALL_ROLES; role++) {
        bool of_expert = role >= FORMAT_EXPERT_GATE;
        bool gguf = (naming & MODEL_NAMES_MASK) == MODEL_NAMES_GGUF;
        bool of_head = role == FORMAT_K_B || role == FORMAT_V_B; /* one in folders */

        if (role == FORMAT_KV_B ? gguf || c->latent_dim == 0
            : of_head && !gguf  ? true
                                : !format_role_needed(c, (enum format_role)role, 0))
            continue;
        format_role_shape(c, (enum format_role)role, &rows, &cols);
        if (format_role_slice(c, naming, (enum format_role)role, &first, &all)) {
            if (first > 0)
                continue;
            *(rows == 1 ? &cols : &rows) = all;
        }
        for (int e = 0; e < (of_expert ? c->n_experts : 1); e += of_expert ? planes : 1) {
            format_role_name(naming, (enum format_role)role, 0, e, name);
            put(s, name, of_head ? rows / c->n_heads : rows, cols,
                of_head     ? c->n_heads
                : of_expert ? planes
                            : 1);
        }
    }
}

static void put_gguf(struct small *s, const char *name, int64_t rows, int64_t cols,
                     int planes)
{
    small_str(s, name);
    if (planes > 1 && rows == 1) { /* a vector of each expert */
        rows = planes;
        planes = 1;
    }
    small_u32(s, planes > 1 ? 3 : rows > 1 ? 2 : 1);
    small_u64(s, (uint64_t)cols);
    if (rows > 1)
        small_u64(s, (uint64_t)rows);
    if (planes > 1)
        small_u64(s, (uint64_t)planes);
    small_u32(s, 0);
    small_u64(s, s->data);
    s->data = (s->data + (uint64_t)(rows * cols * planes) * 4 + 31) / 32 * 32;
    s->n_tensors++;
}

static void put_safetensors(struct small *s, const char *name, int64_t rows, int64_t cols,
                            int planes)
{
    assert_int_equal(planes, 1);
    small_safet_entry(s, name, rows > 1 ? (uint64_t)rows : 0, (uint64_t)cols);
}

static void write_gguf(const struct format_family *f, const struct model_config *c,
                       const char *path)
{
    enum model_naming naming = MODEL_NAMES_GGUF | (enum model_naming)f->fused;
    const struct {
        const char *key;
        int value;
    } experts[] = {{"expert_count", c->n_experts},
                   {"expert_used_count", c->n_active},
                   {"expert_feed_forward_length", c->expert_hidden},
                   {"expert_shared_feed_forward_length", c->hidden}};
    static struct small s;
    char key[80];

    small_begin(&s);
    small_keys(&s, f->arch);
    for (size_t i = 0; f->experts && i < sizeof(experts) / sizeof(experts[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", f->arch, experts[i].key);
        if (experts[i].value > 0)
            small_key_u32(&s, key, (uint32_t)experts[i].value);
    }
    if (f->router_sigmoid) {
        snprintf(key, sizeof(key), "%s.expert_gating_func", f->arch);
        small_key_u32(&s, key, 2);
        snprintf(key, sizeof(key), "%s.expert_weights_norm", f->arch);
        small_key(&s, key, GGUF_BOOL);
        small_put(&s, &f->norm_topk, 1);
    }
    for (int i = 0; i < FORMAT_N_NUMBERS; i++) {
        snprintf(key, sizeof(key), "%s.%s", f->arch, format_numbers[i].gguf);
        if (f->numbers >> i & 1)
            small_key_f32(&s, key, format_number_in_file(i, *format_number_of(c, i)));
    }
    for (int i = 0; f->latent && i < 3; i++) {
        static const char *const keys[] = {"kv_lora_rank", "key_length", "value_length"};

        snprintf(key, sizeof(key), "%s.attention.%s", f->arch, keys[i]);
        small_key_u32(&s, key,
                      (uint32_t)(i == 0   ? c->latent_dim
                                 : i == 1 ? model_q_dim(c)
                                          : c->value_dim));
    }
    if (c->q_rank > 0) {
        snprintf(key, sizeof(key), "%s.attention.q_lora_rank", f->arch);
        small_key_u32(&s, key, (uint32_t)c->q_rank);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_epsilon", f->arch);
    small_key_f32(&s, key, 1e-5f);
    snprintf(key, sizeof(key), "%s.rope.dimension_count", f->arch);
    small_key_u32(&s, key, (uint32_t)model_rope_dims(c));
    put_tensors(&s, c, naming, N_EXPERTS, put_gguf);
    small_end(&s);
    test_write(path, s.b, s.n);
}

static void write_folder(const struct format_family *f, const struct model_config *c,
                         const char *dir)
{
    const struct format_expert_keys *k = f->experts;
    static struct small s;
    char path[400], json[2000];
    size_t n;

    n = (size_t)snprintf(
        json, sizeof(json),
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_act\": \"%s\", "
        "\"hidden_size\": 8, \"intermediate_size\": 6, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 5, "
        "\"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-05, \"bos_token_id\": 1, "
        "\"sliding_window\": null, \"eos_token_id\": 2, \"layer_norm_eps\": 1e-05, "
        "\"norm_epsilon\": 1e-05, "
        "\"tie_word_embeddings\": false",
        f->hf_class, f->hf_type, format_activation_names[f->activation][0]);
    if (f->latent)
        n += (size_t)snprintf(
            json + n, sizeof(json) - n,
            ", \"q_lora_rank\": %s, \"kv_lora_rank\": %d, \"qk_nope_head_dim\": %d, "
            "\"qk_rope_head_dim\": %d, \"v_head_dim\": %d",
            c->q_rank > 0 ? "10" : "null", c->latent_dim, c->nope_dim, c->rope_dims,
            c->value_dim);
    else if (c->rope_dims > 0)
        n += (size_t)snprintf(json + n, sizeof(json) - n,
                              ", \"partial_rotary_factor\": "
                              "0.5");
    if (k)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": %d, \"%s\": 1",
                              k->n_experts, N_EXPERTS,
                              k->n_active ? k->n_active : "num_experts_per_tok");
    if (k && k->n_shared)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": 2", k->n_shared);
    if (k && k->expert_hidden)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": %d",
                              k->expert_hidden, EXPERT_HIDDEN);
    if (k && k->norm_topk)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": %s", k->norm_topk,
                              f->norm_topk ? "true" : "false");
    if (k && k->shared_hidden)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": %d",
                              k->shared_hidden, S_HIDDEN);
    for (int i = 0; i < FORMAT_N_NUMBERS; i++)
        if (f->numbers >> i & 1)
            n += (size_t)snprintf(
                json + n, sizeof(json) - n, ", \"%s\": %g", format_numbers[i].hf,
                (double)format_number_in_file(i, *format_number_of(c, i)));
    if (f->hf_bias && !c->qkv_bias)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": false",
                              f->bias_key ? f->bias_key : "attention_bias");
    if (f->attention_bias && c->qkv_bias)
        n += (size_t)snprintf(json + n, sizeof(json) - n, ", \"%s\": true",
                              f->bias_key ? f->bias_key : "attention_bias");
    n += (size_t)snprintf(json + n, sizeof(json) - n, "}");
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    test_write(path, json, n);
    small_begin_safetensors(&s);
    put_tensors(&s, c, f->hf_naming | (enum model_naming)f->fused, 1, put_safetensors);
    small_end_safetensors(&s);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    test_write(path, s.b, s.n);
}

/* `biases`: of all projections of attention, where config.json says so. */
static void one_family(const struct format_family *f, bool biases)
{
    struct model_config want = config_of(f), got;
    char gguf[300], dir[300];
    struct format_file *a, *b;

    want.o_bias = biases && !f->no_o_bias;
    want.qkv_bias |= biases;
    want.mlp_bias = biases && f->no_gate;
    snprintf(gguf, sizeof(gguf), "%s/%s%d.gguf", test_dir(), f->hf_class, biases);
    snprintf(dir, sizeof(dir), "%s/%s%d", test_dir(), f->hf_class, biases);
    write_gguf(f, &want, gguf);
    write_folder(f, &want, dir);
    assert_ok(format_open(&a, gguf));
    if (f->gguf_only) {
        assert_err(format_open(&b, dir), ERR_UNSUPPORTED, f->gguf_only);
        assert_int_equal(a->config.sinks, f->sinks);
        assert_int_equal(a->config.expert_bias, f->expert_bias);
        assert_int_equal(a->config.o_bias, want.o_bias);
        format_close(&a);
        return;
    }
    assert_ok(format_open(&b, dir));
    same_config(&a->config, &b->config, 0);
    got = a->config;
    assert_int_equal(got.qk_norm_row, f->qk_norm_row);
    assert_int_equal(got.norms, f->norms);
    for (int i = 0; i < FORMAT_N_NUMBERS; i++)
        assert_true(*format_number_of(&got, i) == *format_number_of(&want, i));
    assert_int_equal(got.layer_flags[0], want.layer_flags[0]);
    assert_true(got.embed_scale == want.embed_scale);
    assert_true(a->norm_offset == 0 && b->norm_offset == (f->gemma ? 1 : 0));
    assert_string_equal(got.arch, f->arch);
    assert_int_equal(got.activation, f->activation);
    assert_int_equal(got.qkv_bias, want.qkv_bias);
    assert_int_equal(got.o_bias, want.o_bias);
    assert_int_equal(got.rope_dims, want.rope_dims);
    assert_int_equal(got.layer_norm, f->layer_norm);
    assert_int_equal(got.norm_bias, f->norm_bias);
    assert_int_equal(got.parallel, f->parallel);
    assert_int_equal(got.no_gate, f->no_gate);
    assert_int_equal(got.mlp_bias, want.mlp_bias);
    assert_int_equal(a->fused, f->fused);
    assert_int_equal(b->fused, f->fused & ~MODEL_NAMES_POST_NORM);
    assert_int_equal(got.qk_norm, f->qk_norm);
    assert_int_equal(got.n_experts, want.n_experts);
    assert_int_equal(got.hidden, want.hidden);
    assert_int_equal(got.latent_dim, want.latent_dim);
    assert_true(got.attn_scale == want.attn_scale && got.head_dim == b->config.head_dim);
    assert_int_equal(b->config.router_sigmoid, f->router_sigmoid);
    assert_int_equal(got.router_choice, f->router_choice);
    assert_int_equal(got.shared_plain, f->shared_plain);
    assert_int_equal(got.norm_topk, f->experts && f->norm_topk);
    assert_int_equal(a->rope_interleaved, f->rope_interleaved);
    assert_int_equal(b->rope_interleaved, f->hf_rope_interleaved);
    (void)small_touch(a), (void)small_touch(b);
    format_close(&a);
    format_close(&b);
}

TEST(every_family_is_read_from_both_formats)
{
    int n = 0;

    for (const struct format_family *f = format_families; f->arch; f++, n++)
        for (int biases = 0; biases <= f->attention_bias; biases++)
            one_family(f, biases);
    assert_true(n >= 7);
}

/* A reader finds a row by one name only, and rows of one arch stand together, the dense ones
 * first. */
TEST(rows_are_in_order)
{
    for (const struct format_family *f = format_families; f->arch; f++) {
        assert_ptr_equal(format_family_of_class(f->hf_class), f);
        assert_true(strlen(f->arch) < sizeof(((struct model_config *)0)->arch));
        if (f > format_families && strcmp(f->arch, f[-1].arch) != 0)
            assert_ptr_equal(format_family_of_arch(f->arch), f);
        else if (f > format_families)
            assert_true(!f[-1].experts || f->experts);
    }
    assert_null(format_family_of_class("OrionForCausalLM"));
    assert_null(format_family_of_arch("gemma3n"));
    assert_string_equal(format_family_like(false, false)->arch, "llama");
    assert_string_equal(format_family_like(true, false)->arch, "qwen2");
    assert_string_equal(format_family_like(true, true)->arch, "qwen3");
}
