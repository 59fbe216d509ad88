/* Files of mixtures of experts: the names and keys of each family, the older files that have a
 * tensor for each expert, and what is refused by name. */
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/gguf_write.h"
#include "make/make.h"
#include "tests/format/same_config.h"
#include "tests/support/test.h"

static const char *made(const char *arch, const char *format, const char *name)
{
    static char path[4][300];
    static int n;
    char *out = path[n++ % 4];
    struct make_opts o = {
        .arch = arch, .type = KERN_F32, .seed = 3, .format = format, .n_threads = 1};

    snprintf(out, sizeof(path[0]), "%s/%s", test_dir(), name);
    o.out = out;
    assert_ok(make_model(&o));
    return out;
}

/* ---- GGUF files, written again with changes ---- */

struct change {
    bool apart;      /* a tensor for each expert, as older files have them */
    const char *key; /* without the architecture: another number, or a new key */
    uint32_t value;
    const char *drop;   /* a tensor left out */
    const char *rename; /* to this name */
    int n_experts;      /* that the stacked tensors have; 0: all */
};

static bool ends_in(const char *s, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(s + n - strlen(end), end, strlen(end)) == 0;
}

static void put_keys(struct gguf_records *m, const struct gguf *g, const struct change *c,
                     const char *arch)
{
    char key[128];

    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_record r;

        gguf_key_at(g, i, &r);
        if (!c->key || !ends_in(r.key, r.key_n, c->key))
            gguf_put_record(m, &r);
    }
    snprintf(key, sizeof(key), "%s.%s", arch, c->key ? c->key : "");
    if (c->key)
        gguf_put_key_u32(m, key, c->value);
}

static void put_data(struct text *data, const void *p, size_t n)
{
    text_put(data, p, n);
    text_pad(data, GGUF_ALIGN, 0);
}

/* "blk.1.ffn_up_exps.weight" becomes "blk.1.ffn_up.5.weight". */
static void put_experts_apart(struct gguf_records *d, struct text *data,
                              const struct gguf_tensor *t)
{
    size_t each = t->bytes / t->dims[2];

    for (uint64_t e = 0; e < t->dims[2]; e++) {
        char name[96];

        snprintf(name, sizeof(name), "%.*s.%d.weight",
                 (int)(strstr(t->name, "_exps") - t->name), t->name, (int)e);
        gguf_put_tensor(d, name, t->dims, 2, t->ggml_type, data->n);
        put_data(data, (const char *)t->data + e * each, each);
    }
}

static const char *rewritten(const char *from, const char *arch, struct change c)
{
    static char path[300];
    struct gguf_records m = {0}, d = {0};
    struct text data = {0}, head = {0};
    struct gguf *g;

    assert_ok(gguf_open(&g, from));
    put_keys(&m, g, &c, arch);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool stacked = strstr(t->name, "_exps") != NULL, it;
        uint64_t dims[3] = {t->dims[0], t->dims[1], t->dims[2]};

        it = c.drop && strcmp(t->name, c.drop) == 0;
        if (it && !c.rename)
            continue;
        if (stacked && c.apart) {
            put_experts_apart(&d, &data, t);
            continue;
        }
        if (stacked && c.n_experts)
            dims[2] = (uint64_t)c.n_experts;
        gguf_put_tensor(&d, it ? c.rename : t->name, dims, t->n_dims, t->ggml_type,
                        data.n);
        put_data(&data, t->data, t->bytes / t->dims[2] * dims[2]);
    }
    assert_ok(gguf_put_head(&head, &m, &d));
    text_put(&head, data.p, data.n);
    assert_int_equal(head.rc, OK);
    snprintf(path, sizeof(path), "%s/rewritten.gguf", test_dir());
    test_write(path, head.p, head.n);
    text_fini(&m.text), text_fini(&d.text), text_fini(&data), text_fini(&head);
    gguf_close(&g);
    return path;
}

static void same_experts(const struct format_file *a, const struct format_file *b)
{
    for (int layer = 0; layer < a->config.n_layers; layer++)
        for (int e = 0; e < a->config.n_experts; e++)
            for (int role = FORMAT_EXPERT_GATE; role < FORMAT_ALL_ROLES; role++) {
                const struct format_tensor *x =
                    format_expert_tensor(a, layer, e, (enum format_role)role);
                const struct format_tensor *y =
                    format_expert_tensor(b, layer, e, (enum format_role)role);

                assert_int_equal(x->rows, y->rows);
                assert_memory_equal(x->data, y->data,
                                    (size_t)(x->rows * x->cols) * sizeof(float));
            }
}

TEST(older_files_have_a_tensor_for_each_expert)
{
    const char *from = made("tiny-moe", "gguf", "moe.gguf");
    struct format_file *a, *b;

    assert_ok(format_open(&a, from));
    assert_ok(format_open(&b, rewritten(from, "llama", (struct change){.apart = true})));
    same_config(&a->config, &b->config, 0);
    same_experts(a, b);
    format_close(&a);
    format_close(&b);
}

/* Files before the key of its size have it in the tensor; a key says how weights are scaled. */
TEST(what_files_may_leave_out)
{
    const char *from = made("tiny-qwen2-moe", "gguf", "qwen2moe.gguf");
    const struct change zero = {.key = "expert_shared_feed_forward_length"};
    struct format_file *f;

    assert_ok(format_open(&f, rewritten(from, "qwen2moe", zero)));
    assert_int_equal(f->config.hidden, 174);
    assert_int_equal(f->config.expert_hidden, 46);
    assert_false(f->config.norm_topk);
    format_close(&f);
}

/* Layers that predict a token more are behind the others, and are not read. */
TEST(layers_ahead)
{
    const struct change ahead = {.key = "nextn_predict_layers", .value = 1};
    struct format_file *f;
    char path[400];
    const char *dir;
    json_t *j;

    assert_ok(format_open(
        &f, rewritten(made("tiny-glm4-moe", "gguf", "ahead.gguf"), "glm4moe", ahead)));
    assert_int_equal(f->config.n_layers, 2);
    assert_int_equal(f->config.n_dense, 1);
    format_close(&f);
    dir = made("tiny-glm4-moe", "safetensors", "ahead");
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_ok(json_read_file(&j, path, 1 << 20));
    json_object_set_new(j, "num_hidden_layers", json_integer(2));
    assert_ok(json_write_file(j, path));
    assert_err(format_open(&f, dir), ERR_UNSUPPORTED, "model.layers.2.");
    json_object_set_new(j, "num_nextn_predict_layers", json_integer(1));
    assert_ok(json_write_file(j, path));
    json_decref(j);
    assert_ok(format_open(&f, dir));
    assert_int_equal(f->config.n_layers, 2);
    format_close(&f);
}

/* A file's word counts before its family's. */
TEST(a_file_says_how_experts_are_scored)
{
    const struct change sigmoid = {.key = "expert_gating_func", .value = 2};
    const struct change chosen = {.key = "expert_gating_func", .value = 3};
    const struct change silent = {.key = "expert_gating_func", .value = 0};
    const char *from = made("tiny-qwen2-moe", "gguf", "scores.gguf");
    struct format_file *f;

    assert_ok(format_open(&f, rewritten(from, "qwen2moe", sigmoid)));
    assert_true(f->config.router_sigmoid && !f->config.norm_topk);
    format_close(&f);
    assert_ok(format_open(&f, rewritten(from, "qwen2moe", chosen)));
    assert_true(!f->config.router_sigmoid && f->config.norm_topk);
    format_close(&f);
    /* Of latent attention, a bias of choice says it where the file does not. */
    from = made("tiny-glm4-lite", "gguf", "choice.gguf");
    assert_ok(format_open(&f, rewritten(from, "deepseek2", silent)));
    assert_true(f->config.router_choice && f->config.router_sigmoid);
    format_close(&f);
    from = made("tiny-deepseek2", "gguf", "no-choice.gguf");
    assert_ok(format_open(&f, rewritten(from, "deepseek2", silent)));
    assert_true(!f->config.router_choice && !f->config.router_sigmoid);
    format_close(&f);
}

struct refusal {
    const char *arch;
    struct change change;
    enum err rc;
    const char *message;
};

static void refused(const struct refusal *cases, size_t n)
{
    struct format_file *f;

    for (size_t i = 0; i < n; i++) {
        const char *from = made(cases[i].arch, "gguf", cases[i].arch);
        struct model_config c;

        assert_ok(make_config(cases[i].arch, &c));
        assert_err(format_open(&f, rewritten(from, c.arch, cases[i].change)), cases[i].rc,
                   cases[i].message);
        assert_null(f);
        assert_int_equal(remove(from), 0);
    }
}

TEST(gguf_refusals)
{
    static const struct refusal cases[] = {
        {"tiny-moe",
         {.key = "expert_count", .value = 7},
         ERR_FORMAT,
         "tensor blk.0.ffn_gate_inp.weight: expected shape [7, 256], found [6, 256]"},
        {"tiny-moe",
         {.key = "expert_count", .value = 100000},
         ERR_LIMIT,
         "n_experts: expected at most 512, found 100000"},
        {"tiny-moe",
         {.key = "expert_used_count", .value = 7},
         ERR_LIMIT,
         "n_active: expected at most 6, found 7"},
        {"tiny-moe",
         {.key = "expert_used_count", .value = 0},
         ERR_FORMAT,
         "n_active: expected at least 1, found 0"},
        {"tiny-moe",
         {.n_experts = 5},
         ERR_FORMAT,
         "tensor blk.0.ffn_gate_exps.weight: expected 6 experts, found 5"},
        {"tiny-moe",
         {.drop = "blk.1.ffn_down_exps.weight"},
         ERR_FORMAT,
         "tensor blk.1.ffn_down_exps.weight: expected shape [256, 512], found no such"},
        {"tiny-moe",
         {.drop = "blk.1.ffn_down_exps.weight", .rename = "blk.1.ffn_down_exps.bias"},
         ERR_FORMAT,
         "tensor blk.1.ffn_down_exps.weight: expected shape"},
    };

    refused(cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(routers_refused)
{
    static const struct refusal cases[] = {
        {"tiny-moe",
         {.key = "expert_gating_func", .value = 4},
         ERR_UNSUPPORTED,
         "expert_gating_func: expected 1 (softmax), 2 (sigmoid) or 3"},
        {"tiny-qwen2-moe",
         {.key = "leading_dense_block_count", .value = 1},
         ERR_FORMAT,
         "tensor blk.0.ffn_gate.weight: expected shape [174, 70], found no such"},
        {"tiny-deepseek",
         {.key = "leading_dense_block_count", .value = 3},
         ERR_FORMAT,
         "n_dense: expected 0 to 2 layers, found 3"},
        {"tiny-deepseek",
         {.key = "leading_dense_block_count", .value = 0},
         ERR_FORMAT,
         "tensor blk.0.ffn_gate_inp.weight: expected shape [7, 60], found no such"},
        {"tiny-deepseek",
         {.key = "nextn_predict_layers", .value = 3},
         ERR_FORMAT,
         "nextn_predict_layers: expected 0 to 2, found 3"},
        {"tiny-deepseek2",
         {.key = "attention.q_lora_rank", .value = 24},
         ERR_FORMAT,
         "blk.0.attn_q_a.weight: expected shape [24, 48], found no such tensor"},
        {"tiny-deepseek2",
         {.key = "attention.kv_lora_rank", .value = 31},
         ERR_UNSUPPORTED,
         "latent attention: expected multiples of 16, found a latent vector of 31"},
        {"tiny-deepseek2",
         {.key = "attention.kv_lora_rank", .value = 2000000000},
         ERR_FORMAT,
         "expected sizes of latent attention, found kv_lora_rank 2000000000"},
        {"tiny-deepseek2",
         {.drop = "blk.3.attn_kv_b.weight"},
         ERR_FORMAT,
         "tensor blk.3.attn_kv_b.weight: expected shape [108, 32], found no such"},
        {"tiny-deepseek2",
         {.drop = "blk.0.attn_kv_b.weight"},
         ERR_FORMAT,
         "tensor blk.0.attn_k_b.weight: expected shape [96, 20], found no such"},
        {"tiny-ling2",
         {.key = "expert_group_count", .value = 5},
         ERR_FORMAT,
         "n_groups: expected a divisor of 12 experts, found 5"},
        {"tiny-ling2",
         {.key = "expert_group_used_count", .value = 0},
         ERR_FORMAT,
         "n_active_groups: expected 1 to 4 groups with at least 3 experts, found 0"},
        {"tiny-ling2",
         {.drop = "blk.2.exp_probs_b.bias"},
         ERR_FORMAT,
         "tensor blk.2.exp_probs_b.bias: expected shape [1, 12], found no such"},
        {"tiny-qwen2-moe",
         {.key = "expert_weights_scale", .value = 2},
         ERR_UNSUPPORTED,
         "expert_weights_scale: expected 1, found 2"},
        {"tiny-qwen2-moe",
         {.drop = "blk.2.ffn_gate_inp_shexp.weight"},
         ERR_FORMAT,
         "tensor blk.2.ffn_gate_inp_shexp.weight"},
        {"tiny-qwen3-moe",
         {.key = "expert_count", .value = 0},
         ERR_FORMAT,
         "qwen3moe.expert_count: expected at least 1, found 0"},
    };

    refused(cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- config.json ---- */

TEST(config_refusals)
{
    static const struct {
        const char *arch, *key;
        double value; /* below 0: a list with a number */
        const char *message;
    } cases[] = {
        {"tiny-qwen2-moe", "decoder_sparse_step", 2, "decoder_sparse_step: expected 1"},
        {"tiny-qwen3-moe", "mlp_only_layers", -1, "mlp_only_layers: expected an empty"},
        {"tiny-qwen2-moe", "qkv_bias", 0, "qkv_bias: expected 1, found 0"},
        {"tiny-moe", "num_experts_per_tok", 9, "n_active: expected at most 6, found 9"},
        {"tiny-deepseek", "first_k_dense_replace", 3, "n_dense: expected 0 to 2 layers"},
        {"tiny-deepseek", "n_shared_experts", 600, "n_shared_experts: expected 0 to 512"},
        {"tiny-deepseek2", "q_lora_rank", 24, "q_a_proj.weight: expected shape [24, 48]"},
        {"tiny-deepseek2", "v_head_dim", 20,
         "latent attention: expected multiples of 16"},
        {"tiny-deepseek", "moe_layer_freq", 2, "moe_layer_freq: expected 1, found 2"},
        {"tiny-glm4-moe", "n_group", 3, "n_groups: expected a divisor of 8 experts"},
        {"tiny-glm4-moe", "topk_group", 5, "n_active_groups: expected 1 to 4 groups"},
        {"tiny-ernie-moe", "moe_layer_end_index", 1, "moe_layer_end_index: expected the"},
    };
    struct format_file *f;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *dir;
        char name[64], path[400];
        json_t *j;

        snprintf(name, sizeof(name), "hf-%zu", i);
        dir = made(cases[i].arch, "safetensors", name);
        snprintf(path, sizeof(path), "%s/config.json", dir);
        assert_ok(json_read_file(&j, path, 1 << 20));
        json_object_set_new(j, cases[i].key,
                            cases[i].value < 0 ? json_pack("[i]", 1)
                                               : json_integer((int)cases[i].value));
        assert_ok(json_write_file(j, path));
        json_decref(j);
        assert_true(format_open(&f, dir) != OK);
        assert_non_null(strstr(err_msg(), cases[i].message));
        err_clear();
    }
}
