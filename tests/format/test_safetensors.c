#include "tests/format/same_config.h"
#include "tests/format/small.h"

#include <math.h>

static char dir[300], config_path[340], tensors_path[340], index_path[360];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "%s/st", test_dir());
    snprintf(config_path, sizeof(config_path), "%s/config.json", dir);
    snprintf(tensors_path, sizeof(tensors_path), "%s/model.safetensors", dir);
    snprintf(index_path, sizeof(index_path), "%s.index.json", tensors_path);
    return mkdir(dir, 0777);
}

static void write_text(const char *path, const char *text)
{
    test_write(path, text, strlen(text));
}

/* The good directory, its configuration's `from` replaced by `to` (both may be NULL). */
static void write_small(const char *from, const char *to)
{
    char text[1200];
    const char *at = from ? strstr(small_config_json, from) : NULL;
    struct small s;

    small_safetensors(&s);
    test_write(tensors_path, s.b, s.n);
    if (from) {
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - small_config_json),
                 small_config_json, to, at + strlen(from));
        write_text(config_path, text);
    } else {
        write_text(config_path, small_config_json);
    }
}

TEST(small_model_opens)
{
    struct format_file *f;
    float v;

    write_small(NULL, NULL);
    assert_ok(format_open(&f, dir));
    assert_string_equal(f->format, "safetensors");
    assert_string_equal(f->config.name, "st");
    assert_string_equal(f->config.arch, "llama");
    assert_int_equal(f->config.head_dim, S_HEAD_DIM);
    assert_int_equal(f->config.eos_id, 2); /* the first of a list */
    assert_false(f->config.tied);
    assert_false(f->rope_interleaved);
    memcpy(&v, f->global[FORMAT_HEAD].data, sizeof(v));
    assert_true(v == 40.0f / 256);
    (void)small_touch(f);
    format_close(&f);
}

TEST(configurations_are_refused_by_key)
{
    static const struct test_fault cases[] = {
        {"LlamaForCausalLM", "OrionForCausalLM", ERR_UNSUPPORTED,
         "found OrionForCausalLM"},
        {"\"architectures\"", "\"x\"", ERR_FORMAT, "architectures"},
        {"\"hidden_size\": 8", "\"hidden_size\": null", ERR_FORMAT, "hidden_size"},
        {"\"hidden_size\": 8", "\"hidden_size\": \"8\"", ERR_FORMAT, "hidden_size"},
        {"\"hidden_size\": 8", "\"hidden_size\": 9", ERR_FORMAT,
         "hidden_size 9, found 2"},
        {"\"intermediate_size\": 6", "\"intermediate_size\": -6", ERR_FORMAT,
         "intermediate_size"},
        {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1e9", ERR_FORMAT,
         "num_hidden_layers"},
        {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000", ERR_LIMIT,
         "n_layers"},
        {"\"vocab_size\": 5,", "", ERR_FORMAT, "vocab_size"},
        {"1e-05", "-1", ERR_FORMAT, "norm_eps"},
        {"\"bos_token_id\": 1", "\"bos_token_id\": \"<s>\"", ERR_FORMAT, "bos_token_id"},
        {"\"bos_token_id\": 1", "\"hidden_act\": \"gelu\"", ERR_UNSUPPORTED,
         "found gelu"},
        {"\"bos_token_id\": 1", "\"attention_bias\": \"yes\"", ERR_FORMAT,
         "attention_bias"},
        {"\"bos_token_id\": 1", "\"mlp_bias\": true", ERR_UNSUPPORTED, "mlp_bias"},
        {"\"bos_token_id\": 1", "\"use_sliding_window\": true", ERR_UNSUPPORTED,
         "sliding"},
        {"\"bos_token_id\": 1", "\"partial_rotary_factor\": 1.5", ERR_FORMAT, "1.5"},
        {"\"bos_token_id\": 1", "\"quantization_config\": {}", ERR_UNSUPPORTED,
         "quantis"},
        {"\"bos_token_id\": 1", "\"rope_theta\": 0", ERR_FORMAT, "rope_theta"},
        {"\"bos_token_id\": 1", "\"rope_scaling\": {\"type\": \"ntk\"}", ERR_UNSUPPORTED,
         "rope_scaling: rope_type: expected default, linear, llama3, yarn, dynamic or "
         "longrope, found ntk"},
        {"\"bos_token_id\": 1", "\"rope_scaling\": {\"type\": \"yarn\"}", ERR_FORMAT,
         "factor"},
        {"\"bos_token_id\": 1", "\"rope_scaling\": {\"rope_type\": \"llama3\"}",
         ERR_FORMAT, "factor"},
        {"\"bos_token_id\": 1",
         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 4,"
         " \"high_freq_factor\": 4, \"original_max_position_embeddings\": 32}",
         ERR_FORMAT, "high_freq_factor"},
        {"\"bos_token_id\": 1", "\"rope_scaling\": 7", ERR_FORMAT, "rope_scaling"},
        {"\"bos_token_id\": 1", "\"vocab_size\": 5", ERR_FORMAT,
         "vocab_size"}, /* twice */
    };
    const struct test_document d = {.path = config_path,
                                    .data = small_config_json,
                                    .n = strlen(small_config_json),
                                    .parse = small_parse,
                                    .opened = dir};

    write_small(NULL, NULL);
    test_faults(&d, cases);
}

/* A configuration that ties the head to the embedding, and a head of its own: equal bytes are
 * tied, others were ignored without a word. */
TEST(a_tied_head_with_weights_of_its_own)
{
    static const char tie[] = "\"tie_word_embeddings\": true";
    const size_t bytes = S_VOCAB * S_DIM * sizeof(float);
    struct format_file *f;
    char *file, *head;
    size_t n;

    write_small("\"bos_token_id\": 1", tie);
    (void)test_warned("");
    assert_ok(format_open(&f, dir));
    assert_false(f->config.tied);
    assert_true(test_warned("head_not_tied"));
    assert_non_null(f->global[FORMAT_HEAD].data);
    file = test_read(tensors_path, &n);
    head = memmem(file, n, f->global[FORMAT_HEAD].data, bytes);
    assert_non_null(head);
    memcpy(head, f->global[FORMAT_EMBED].data, bytes);
    format_close(&f);
    test_write(tensors_path, file, n);
    (void)test_warned("");
    assert_ok(format_open(&f, dir));
    assert_true(f->config.tied);
    assert_false(test_warned("head_not_tied"));
    assert_null(f->global[FORMAT_HEAD].data);
    format_close(&f);
    mem_free(file);
}

TEST(rope_stands_in_either_place)
{
    static const char *const places[] = {
        "\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": "
        "8,"
        " \"low_freq_factor\": 1, \"high_freq_factor\": 4,"
        " \"original_max_position_embeddings\": 32}",
        "\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", "
        "\"factor\": 8,"
        " \"low_freq_factor\": 1, \"high_freq_factor\": 4,"
        " \"original_max_position_embeddings\": 32}"};
    struct format_file *f;
    int i;

    for (i = 0; i < 2; i++) {
        write_small("\"bos_token_id\": 1", places[i]);
        assert_ok(format_open(&f, dir));
        assert_true(f->config.rope_theta == 5e5f);
        assert_true(f->config.rope_factor[0] == 1); /* the fast pair turns five times */
        assert_true(f->config.rope_factor[1] ==
                    8); /* the slow pair turns less than once */
        assert_int_equal(f->config.bos_id, -1);
        format_close(&f);
    }
    write_small("\"bos_token_id\": 1",
                "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}");
    assert_ok(format_open(&f, dir));
    assert_true(f->config.rope_factor[0] == 2);
    format_close(&f);
}

/* A file of this header and n bytes of data is refused. */
static void header_refused(const char *header, size_t n_data, int code, const char *part)
{
    const struct test_document d = {
        .path = tensors_path, .parse = small_parse, .opened = dir};
    struct small s = {.n = 0};

    small_u64(&s, strlen(header));
    small_put(&s, header, strlen(header));
    assert_err(test_parse(&d, s.b, s.n + n_data), code, part);
}

TEST(headers_follow_the_rules)
{
    uint64_t huge = 100000001;

    write_small(NULL, NULL);
#define T(offsets) "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" offsets "]}"
    header_refused("[]", 0, ERR_FORMAT, "expected '{'");
    header_refused("{\"a\":" T("0,8") ",\"a\":" T("8,16") "}", 16, ERR_FORMAT,
                   "duplicate");
    header_refused("{\"a\":" T("0,8") ",\"b\":" T("4,12") "}", 12, ERR_FORMAT,
                   "an overlap");
    header_refused("{\"a\":" T("0,8") ",\"b\":" T("0,8") "}", 8, ERR_FORMAT,
                   "an overlap");
    header_refused("{\"a\":" T("0,8") ",\"b\":" T("9,17") "}", 17, ERR_FORMAT, "a hole");
    header_refused("{\"a\":" T("8,16") "}", 16, ERR_FORMAT, "a hole");
    header_refused("{\"a\":" T("0,8") "}", 9, ERR_FORMAT, "1 bytes of no tensor");
    header_refused("{\"a\":" T("0,8") "}", 7, ERR_FORMAT, "expected to end by 7");
    header_refused("{\"a\":" T("8,0") "}", 8, ERR_FORMAT, "expected 8 bytes by shape");
    header_refused("{\"a\":" T("0,9") "}", 9, ERR_FORMAT, "expected 8 bytes by shape");
    header_refused("{\"a\":" T("-8,0") "}", 8, ERR_FORMAT, "below 0");
    header_refused("{\"a\":" T("0,8,9") "}", 8, ERR_FORMAT, "found 3");
    header_refused("{\"a\":" T("0,18446744073709551616") "}", 8, ERR_FORMAT, "too big");
    header_refused("{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
                   ERR_UNSUPPORTED, "found Q4");
    header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
                   "\"data_offsets\":[0,0]}}",
                   0, ERR_FORMAT, "below 2^64");
    header_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, ERR_FORMAT,
                   "shape");
    header_refused("{\"a\":7}", 0, ERR_FORMAT, "expected an object");
    header_refused(
        "{\"a\":{\"b\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        0, ERR_LIMIT, "nested");
#undef T
    test_write(tensors_path, &huge, sizeof(huge));
    {
        struct format_file *f;

        assert_err(format_open(&f, dir), ERR_FORMAT, "header length: expected at most 0");
        assert_err(format_open(&f, tensors_path), ERR_ARG, "expected the directory");
    }
}

TEST(i64_weights_are_refused)
{
    static const struct test_fault fault = {
        "\"F32\"", "\"I32\"", ERR_UNSUPPORTED,
        "model.embed_tokens.weight: dtype: expected F32, F16 or BF16, found I32"};
    struct test_document d;
    struct small s;

    write_small(NULL, NULL);
    small_safetensors(&s);
    d = small_document(&s, tensors_path);
    d.opened = d.named = dir;
    test_faults_of(&d, &fault, 1);
}

TEST(shards_agree_with_their_index)
{
    static const struct {
        const char *index;
        const char *part;
    } cases[] = {
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "file in this directory"},
        {"{\"weight_map\": {\"a\": \"x.bin\"}}", "file in this directory"},
        {"{\"weight_map\": {\"a\": 3}}", "weight_map.a"},
        {"{\"weight_map\": []}", "weight_map"},
        {"{}", "weight_map"},
        {"{\"weight_map\": {\"a\": \"model.safetensors\"}}", "tensor a: expected here"},
        {"{\"weight_map\": {\"lm_head.weight\": \"model.safetensors\"}}",
         "expected in no file by"},
        {"{\"weight_map\": {\"a\": \"none.safetensors\"}}",
         "none.safetensors: cannot open"},
    };
    struct format_file *f;
    size_t i;
    int rc;

    write_small(NULL, NULL);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text(index_path, cases[i].index);
        rc = format_open(&f, dir);
        if (rc == OK || !strstr(err_msg(), cases[i].part))
            fail_msg("%s: %s \"%s\"", cases[i].index, err_name(rc), err_msg());
    }
    assert_int_equal(unlink(index_path), 0);
}

TEST(every_allocation_may_fail)
{
    struct format_file *f;

    write_small(NULL, NULL);
    assert_true(test_allocations(format_open(&f, dir), !f) > 50);
    format_close(&f);
}

/* --- the five golden models: GGUF and safetensors of each hold the same model */

/* g's rows are those of s, in interleaved order where `pairs` (rows a head) says so. */
static void same_rows(const struct format_tensor *g, const struct format_tensor *s,
                      int64_t pairs)
{
    size_t row_bytes = (size_t)s->cols * kern_type_bytes(s->type);
    int64_t i, from, in_head;

    assert_int_equal(g->type, s->type);
    assert_int_equal(g->rows, s->rows);
    assert_int_equal(g->cols, s->cols);
    for (i = 0; i < g->rows; i++) {
        in_head = pairs ? i % pairs : 0;
        from = pairs ? i - in_head + in_head / 2 + (in_head % 2) * (pairs / 2) : i;
        assert_memory_equal((const char *)g->data + (size_t)i * row_bytes,
                            (const char *)s->data + (size_t)from * row_bytes, row_bytes);
    }
}

TEST(golden_models_agree)
{
    static const char *const names[] = {"llama-mha-f32", "llama-gqa-ragged-f32",
                                        "llama-head64-bf16", "llama3-scaled-bf16",
                                        "qwen2-bias-f16"};
    struct format_file *g, *s;
    char rel[128];
    const char *path;
    int i, role, layer, pairs;

    test_need_data("models/golden");
    for (i = 0; i < 5; i++) {
        snprintf(rel, sizeof(rel), "models/golden/%s.gguf", names[i]);
        assert_non_null(path = test_data(rel));
        assert_ok(format_open(&g, path));
        snprintf(rel, sizeof(rel), "models/golden/%s", names[i]);
        assert_ok(format_open(&s, test_data(rel)));
        assert_string_equal(g->config.name, names[i]);
        assert_string_equal(s->config.name, names[i]);
        assert_false(s->rope_interleaved);
        assert_int_equal(g->rope_interleaved, strcmp(g->config.arch, "llama") == 0);
        same_config(&g->config, &s->config, 1e-6f);
        assert_int_equal(g->config.weight_type, s->config.weight_type);
        for (layer = 0; layer < g->config.n_layers; layer++)
            for (role = 0; role < FORMAT_N_ROLES; role++) {
                pairs = g->rope_interleaved && (role == FORMAT_Q || role == FORMAT_K)
                            ? g->config.head_dim
                            : 0;
                if (role < FORMAT_ATTN_NORM)
                    same_rows(&g->global[role], &s->global[role], 0);
                else
                    same_rows(format_layer_tensor(g, layer, role),
                              format_layer_tensor(s, layer, role), pairs);
            }
        format_close(&g);
        format_close(&s);
    }
}

TEST_GROUP(make_dir, NULL);
