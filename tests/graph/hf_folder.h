/* tests/graph/hf_folder.h - what transformers states about a folder of a model: the shapes of its
 * tensors by its modules, and the tokenizer.json that its converter makes of a SentencePiece
 * vocabulary. */
#ifndef TESTS_GRAPH_HF_FOLDER_H
#define TESTS_GRAPH_HF_FOLDER_H

#include <stdlib.h>

#include "base/json.h"
#include "format/gguf.h"
#include "tests/support/test.h"

/* Of a number; the first of the keys that the configuration has. */
static inline long long hf_int(const json_t *config, const char *key, const char *or_key)
{
    const json_t *v = json_object_get(config, key);

    v = v ? v : json_object_get(config, or_key);
    return (long long)json_integer_value(v);
}

/* nn.Linear(in, out) has a weight [out, in] and a bias [out]; norms and an Embedding as usual. The
 * name of an expert's number is not looked at. rows 0: a vector. */
static void hf_shape(const json_t *c, const char *name, long long *rows, long long *cols)
{
    const long long dim = hf_int(c, "hidden_size", ""),
                    vocab = hf_int(c, "vocab_size", ""), hd = hf_int(c, "head_dim", ""),
                    heads = hf_int(c, "num_attention_heads", ""),
                    latent = hf_int(c, "kv_lora_rank", ""),
                    low = hf_int(c, "q_lora_rank", ""),
                    nope = hf_int(c, "qk_nope_head_dim", ""),
                    rope = hf_int(c, "qk_rope_head_dim", ""),
                    value = hf_int(c, "v_head_dim", ""),
                    q = heads * (latent ? nope + rope : hd),
                    o = latent ? heads * value : q,
                    kv = hf_int(c, "num_key_value_heads", "") * hd,
                    n_experts = json_object_get(c, "n_routed_experts")
                                    ? hf_int(c, "n_routed_experts", "")
                                : json_object_get(c, "moe_num_experts")
                                    ? hf_int(c, "moe_num_experts", "")
                                    : hf_int(c, "num_experts", "num_local_experts"),
                    n_dense = hf_int(c, "first_k_dense_replace", "moe_layer_start_index"),
                    n_shared = hf_int(c, "n_shared_experts", "moe_num_shared_experts"),
                    hidden = hf_int(c, "intermediate_size", ""),
                    expert = hf_int(c, "moe_intermediate_size", "intermediate_size"),
                    shared = hf_int(c, "shared_expert_intermediate_size", "");
    const char *type = json_string_value(json_object_get(c, "model_type"));
    const bool row = strncmp(type, "olmo", 4) == 0; /* norms of all heads together */
    const bool dense = n_experts == 0 || (strncmp(name, "model.layers.", 13) == 0 &&
                                          atoi(name + 13) < n_dense);
    const bool shared_experts = strstr(name, "shared_experts.");
    const long long inner = shared_experts ? n_shared * expert : dense ? hidden : expert;
    const struct {
        const char *part;
        long long rows, cols;
    } declared[] = {{"embed_tokens.weight", vocab, dim},
                    {"kv_a_proj_with_mqa.weight", latent + rope, dim},
                    {"kv_a_layernorm.weight", 0, latent},
                    {"q_a_proj.weight", low, dim},
                    {"q_a_layernorm.weight", 0, low},
                    {"q_b_proj.weight", q, low},
                    {"kv_b_proj.weight", heads * (nope + value), latent},
                    {"mlp.c_fc.weight", hidden, dim},
                    {"mlp.c_proj.weight", dim, hidden},
                    {"mlp.c_fc.bias", 0, hidden},
                    {"mlp.c_proj.bias", 0, dim},
                    {"qkv_proj.weight", q + 2 * kv, dim},
                    {"gate_up_proj.weight", 2 * hidden, dim},
                    {"norm.bias", 0, dim},
                    {"lm_head.weight", vocab, dim},
                    {"q_proj.weight", q, dim},
                    {"k_proj.weight", kv, dim},
                    {"v_proj.weight", kv, dim},
                    {"o_proj.weight", dim, o},
                    {"q_proj.bias", 0, q},
                    {"k_proj.bias", 0, kv},
                    {"v_proj.bias", 0, kv},
                    {"o_proj.bias", 0, dim},
                    {"self_attn.q_norm.weight", 0, row ? q : hd},
                    {"self_attn.k_norm.weight", 0, row ? kv : hd},
                    {"norm.weight", 0, dim},
                    {"mlp.gate.weight", n_experts, dim},
                    {"block_sparse_moe.gate.weight", n_experts, dim},
                    {"shared_expert_gate.weight", 1, dim},
                    {"shared_expert.gate_proj.weight", shared, dim},
                    {"shared_expert.up_proj.weight", shared, dim},
                    {"shared_expert.down_proj.weight", dim, shared},
                    {"w1.weight", expert, dim},
                    {"w3.weight", expert, dim},
                    {"w2.weight", dim, expert},
                    {"gate_proj.weight", inner, dim},
                    {"up_proj.weight", inner, dim},
                    {"down_proj.weight", dim, inner},
                    {"gate.e_score_correction_bias", 0, n_experts},
                    {"moe_statics.e_score_correction_bias", 1, n_experts},
                    {"layernorm.weight", 0, dim}};

    for (size_t i = 0; i < sizeof(declared) / sizeof(declared[0]); i++) {
        size_t n = strlen(declared[i].part);

        if (strlen(name) < n || strcmp(name + strlen(name) - n, declared[i].part) != 0)
            continue;
        *rows = declared[i].rows;
        *cols = declared[i].cols;
        return;
    }
    fail_msg("transformers declares no %s", name);
}

/* Check the shape of every tensor of `folder`. Gives how many there are. */
static int hf_shapes_are_declared(const char *folder)
{
    char path[400], *file;
    json_t *config, *header, *t;
    const char *name;
    uint64_t n_header;
    int n_tensors = 0;
    size_t n;

    snprintf(path, sizeof(path), "%s/config.json", folder);
    assert_ok(json_read_file(&config, path, 1 << 20));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    file = test_read(path, &n);
    memcpy(&n_header, file, sizeof(n_header));
    header = json_loadb(file + 8, n_header, 0, NULL);
    assert_non_null(header);
    json_object_del(header, "__metadata__");
    json_object_foreach(header, name, t)
    {
        const json_t *shape = json_object_get(t, "shape");
        long long rows = 0, cols = 0, last;

        hf_shape(config, name, &rows, &cols);
        assert_int_equal(json_array_size(shape), rows > 0 ? 2 : 1);
        last = (long long)json_integer_value(json_array_get(shape, rows > 0));
        if (last != cols ||
            (rows > 0 && json_integer_value(json_array_get(shape, 0)) != rows))
            fail_msg("%s/%s: expected [%lld, %lld]", folder, name, rows, cols);
        n_tensors++;
    }
    json_decref(header);
    json_decref(config);
    mem_free(file);
    return n_tensors;
}

/* transformers' converter writes every pair of tokens whose text is a token as a merge, the best
 * score first and of equal ones the longest left part. Scores fall with the id here. */
static json_t *hf_merges(const json_t *vocab, const char *const *piece, int n)
{
    json_t *merges = json_array();

    for (int id = 0; id < n; id++)
        for (size_t i = strlen(piece[id]); i-- > 1;)
            if (json_object_getn(vocab, piece[id], i) &&
                json_object_get(vocab, piece[id] + i))
                json_array_append_new(merges,
                                      json_pack("[s%, s]", piece[id], i, piece[id] + i));
    return merges;
}

/* Write the tokenizer.json of the vocabulary of scores that `gguf` has into `folder`. */
static void hf_tokenizer_of_scores(const char *gguf, const char *folder)
{
    json_t *vocab = json_object(), *added = json_array(), *j;
    const void *tokens, *types;
    const char **piece;
    enum gguf_type type;
    struct gguf *g;
    char path[400];
    uint64_t n;

    assert_ok(gguf_open(&g, gguf));
    assert_ok(gguf_get_array(g, "tokenizer.ggml.token_type", &type, &n, &types));
    assert_ok(gguf_get_array(g, "tokenizer.ggml.tokens", &type, &n, &tokens));
    piece = calloc(n, sizeof(*piece));
    assert_non_null(piece);
    for (uint64_t id = 0; id < n; id++) {
        const char *s;
        int64_t kind;
        size_t len;

        assert_ok(gguf_array_str(tokens, id, &s, &len));
        assert_ok(gguf_array_int(types, id, &kind));
        json_object_setn_new(vocab, s, len, json_integer((json_int_t)id));
        assert_int_equal(json_object_size(vocab), id + 1);
        piece[id] = "";
        if (kind == 1) /* a string that ends: the object's own */
            piece[id] = json_object_iter_key(json_object_iter_at(
                vocab, (snprintf(path, sizeof(path), "%.*s", (int)len, s), path)));
        else if (kind != 6)
            json_array_append_new(
                added, json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id,
                                 "content", s, len, "single_word", 0, "lstrip", 0,
                                 "rstrip", 0, "normalized", 0, "special", 1));
    }
    j = json_pack(
        "{s:n, s:o, s:{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}, s:n, s:n, s:{s:s, s:s, "
        "s:b, s:b, s:O, s:o}}",
        "truncation", "added_tokens", added, "normalizer", "type", "Sequence",
        "normalizers", "type", "Prepend", "prepend", "\xE2\x96\x81", "type", "Replace",
        "pattern", "String", " ", "content", "\xE2\x96\x81", "pre_tokenizer",
        "post_processor", "model", "type", "BPE", "unk_token", "<unk>", "fuse_unk", 1,
        "byte_fallback", 1, "vocab", vocab, "merges", hf_merges(vocab, piece, (int)n));
    assert_non_null(j);
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    assert_ok(json_write_file(j, path));
    json_decref(j);
    json_decref(vocab);
    free(piece);
    gguf_close(&g);
}

#endif
