/* What the keys of a configuration mean: rotary scalings, ends of text and windows of
 * attention as llama.cpp (for GGUF) and Hugging Face (for config.json) define them, or a
 * refusal that names the key. */
#include "tests/format/small.h"

#include <math.h>

#include "format/keys.c"

static char path[300], dir[300];

static int make_paths(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/keys.gguf", test_dir());
    snprintf(dir, sizeof(dir), "%s/hf", test_dir());
    return mkdir(dir, 0777);
}

/* ---- GGUF ---- */

struct key {
    const char *name; /* after "llama." */
    const char *text; /* NULL: a number */
    float number;
};

static void write_gguf(const struct key *keys, int n, const float *divisors)
{
    struct small s;
    char name[128];

    small_begin(&s);
    small_keys(&s, "llama");
    for (int i = 0; i < n && keys[i].name; i++) {
        snprintf(name, sizeof(name), "llama.%s", keys[i].name);
        if (keys[i].text)
            small_key_str(&s, name, keys[i].text);
        else
            small_key_f32(&s, name, keys[i].number);
    }
    if (divisors)
        small_tensor(&s, "rope_freqs.weight", S_HEAD_DIM / 2, 0, 0);
    small_tensors(&s);
    small_end(&s);
    if (divisors)
        memcpy(s.b + s.head_n, divisors, S_HEAD_DIM / 2 * sizeof(float));
    test_write(path, s.b, s.n);
}

/* llama.cpp turns pair i by pos * base^(-2i/d) * freq_scale / divisor[i]. Its freq_scale is 1
 * for type none, else 1 over scaling.factor, or over scale_linear where that is absent, or
 * 1 where it is 0; a file without a type is linear.
 * Regression: a rotary scaling without a type, by its old name, together with divisors,
 * with an attention factor, in two places or per layer was ignored; so was any unknown
 * key of rotary embeddings or attention. */
TEST(gguf_rope)
{
    static const struct {
        struct key keys[3];
        float divisors[2]; /* of rope_freqs.weight; 0: none */
        double freq_scale; /* 0: refused */
        const char *refusal;
    } cases[] = {
        {{{0}}, {0}, 1, NULL},
        {{{"rope.scaling.type", "none", 0}, {"rope.scaling.factor", 0, 4}}, {0}, 1, NULL},
        {{{"rope.scaling.type", "linear", 0}, {"rope.scaling.factor", 0, 4}},
         {0},
         0.25,
         NULL},
        {{{"rope.scaling.type", "linear", 0}}, {0}, 1, NULL},
        {{{"rope.scaling.factor", 0, 4}}, {0}, 0.25, NULL},
        {{{"rope.scaling.factor", 0, 0}}, {0}, 1, NULL},
        {{{"rope.scale_linear", 0, 8}}, {0}, 0.125, NULL},
        {{{"rope.scale_linear", 0, 8}, {"rope.scaling.factor", 0, 2}}, {0}, 0.5, NULL},
        {{{0}}, {1, 8}, 1, NULL},
        {{{"rope.scaling.factor", 0, 4}}, {1, 8}, 0.25, NULL},
        {{{"rope.scaling.attn_factor", 0, 1}}, {0}, 1, NULL},
        {{{"rope.scaling.finetuned", 0, 1},
          {"rope.scaling.original_context_length", 0, 8}},
         {0},
         1,
         NULL},
        {{{"rope.scaling.attn_factor", 0, 2}}, {0}, 1, NULL},
        {{{"rope.scaling.type", "ntk", 0}},
         {0},
         0,
         "llama.rope.scaling.type: expected none, linear, yarn or longrope, found ntk"},
        {{{"rope.scaling.type", "yarn", 0}}, {0}, 0, "llama.rope.scaling.factor"},
        {{{"rope.scaling.type", "yarn", 0},
          {"rope.scaling.factor", 0, 4},
          {"rope.scaling.yarn_beta_slow", 0, 40}},
         {0},
         0,
         "yarn_beta_slow < yarn_beta_fast"},
        {{{"rope.scaling.yarn_ext_factor", 0, 0.5f}}, {0}, 0, "yarn_ext_factor"},
        {{{"rope.scaling.type", "longrope", 0}}, {0}, 0, "expected with longrope"},
        {{{"rope.scaling.factor", 0, -2}}, {0}, 0, "rope_factor: expected a finite"},
        {{{"rope.dimension_count", 0, 0}}, {0}, 0, "rope.dimension_count"},
        {{{"rope.dimension_sections", 0, 1}}, {0}, 0, "llama.rope.dimension_sections"},
        {{{"rope.freq_base_swa", 0, 1}}, {0}, 0, "llama.rope.freq_base_swa"},
    };
    struct format_file *f;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool divided = cases[i].divisors[0] > 0;

        write_gguf(cases[i].keys, 3, divided ? cases[i].divisors : NULL);
        if (cases[i].refusal) {
            if (format_open(&f, path) == OK || !strstr(err_msg(), cases[i].refusal) ||
                !strstr(err_msg(), path))
                fail_msg("case %zu: \"%s\", expected \"%s\"", i, err_msg(),
                         cases[i].refusal);
            continue;
        }
        assert_ok(format_open(&f, path));
        for (int k = 0; k < S_HEAD_DIM / 2; k++) {
            double want =
                (divided ? (double)cases[i].divisors[k] : 1) / cases[i].freq_scale;

            if (fabs((double)f->config.rope_factor[k] / want - 1) > 1e-6)
                fail_msg("case %zu: pair %d slowed down by %g, expected %g", i, k,
                         (double)f->config.rope_factor[k], want);
        }
        format_close(&f);
    }
}

TEST(gguf_attention)
{
    static const struct {
        struct key key;
        const char *refusal; /* NULL: it opens */
    } cases[] = {
        {{"attention.causal", 0, 1}, NULL},
        {{"attention.causal", 0, 0}, "llama.attention.causal: expected 1, found 0"},
        {{"attention.scale", 0, 0}, NULL},
        {{"attention.scale", 0, 0.5f}, "attention.scale: expected 0, found 0.5"},
        {{"attention.clamp_kqv", 0, 8}, "attention.clamp_kqv"},
        {{"attention.max_alibi_bias", 0, 8}, "attention.max_alibi_bias"},
        {{"attention.layer_norm_epsilon", 0, 1}, NULL},
        {{"attention.shared_kv_layers", 0, 1}, "llama.attention.shared_kv_layers"},
        {{"attention.scale", "big", 0},
         "attention.scale: expected 0, found something else"},
        {{"attn_logit_softcapping", 0, 50}, "attn_logit_softcapping"},
        {{"final_logit_softcapping", 0, 30}, "final_logit_softcapping"},
        {{"logit_scale", 0, 0.5f}, "logit_scale"},
        {{"expert_used_count", 0, 0}, NULL},
        {{"pooling_type", 0, 3}, NULL}, /* of embeddings */
    };
    struct format_file *f;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc;

        write_gguf(&cases[i].key, 1, NULL);
        rc = format_open(&f, path);
        if (cases[i].refusal ? rc == OK || !strstr(err_msg(), cases[i].refusal)
                             : rc != OK)
            fail_msg("%s: \"%s\"", cases[i].key.name, err_msg());
        format_close(&f);
    }
}

/* A window that is no shorter than the context is none.
 * Regression: a window of attention was ignored, or refused where it changes
 * nothing; later, contexts were cut to it. */
TEST(gguf_window)
{
    static const int windows[][2] = {{0, 0}, {8, 8}, {S_CTX, 0}, {4096, 0}};
    struct format_file *f;

    for (int i = 0; i < 4; i++) {
        struct small s;

        small_begin(&s);
        small_keys(&s, "llama");
        small_key_u32(&s, "llama.attention.sliding_window", (uint32_t)windows[i][0]);
        small_tensors(&s);
        small_end(&s);
        test_write(path, s.b, s.n);
        assert_ok(format_open(&f, path));
        assert_int_equal(f->config.max_tok, S_CTX);
        assert_int_equal(f->config.window, windows[i][1]);
        assert_int_equal(f->config.layer_flags[0] & MODEL_LAYER_WINDOW,
                         windows[i][1] ? MODEL_LAYER_WINDOW : 0);
        format_close(&f);
    }
}

static void stops_are(const struct format_file *f, const int *want, int n)
{
    assert_int_equal(f->config.n_stop, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(f->config.stop_ids[i], want[i]);
}

/* Regression: of several tokens that end a text one counted, and a Llama 3 chat never
 * ended. */
TEST(gguf_stops)
{
    struct format_file *f;
    struct small s;

    small_begin(&s);
    small_keys(&s, "llama"); /* EOS is 2 */
    small_key_u32(&s, "tokenizer.ggml.eot_token_id", 4);
    small_key_u32(&s, "tokenizer.ggml.eom_token_id", 3);
    small_tensors(&s);
    small_end(&s);
    test_write(path, s.b, s.n);
    assert_ok(format_open(&f, path));
    assert_int_equal(f->config.eos_id, 2);
    stops_are(f, (int[]){2, 4, 3}, 3);
    format_close(&f);
}

/* ---- config.json ---- */

static void write_text(const char *name, const char *text)
{
    char file[340];

    snprintf(file, sizeof(file), "%s/%s", dir, name);
    test_write(file, text, strlen(text));
}

static int open_hf(struct format_file **f, const char *class, const char *more)
{
    char text[1500];
    struct small s;

    snprintf(
        text, sizeof(text),
        "{\"architectures\": [\"%s\"], \"hidden_size\": 8, \"intermediate_size\": 6, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"vocab_size\": 5, "
        "\"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-05%s%s}",
        class, *more ? ", " : "", more);
    write_text("config.json", text);
    small_safetensors(&s);
    snprintf(text, sizeof(text), "%s/model.safetensors", dir);
    test_write(text, s.b, s.n);
    return format_open(f, dir);
}

#define LLAMA   "LlamaForCausalLM"
#define MISTRAL "MistralForCausalLM"
#define NUMBERS                                                                          \
    "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "                   \
    "\"original_max_position_embeddings\": 16"

/* Hugging Face's llama3, branch by branch, with the numbers above. */
static double llama3(double wavelength)
{
    double smooth = (16 / wavelength - 1) / (4 - 1);

    if (wavelength < 16.0 / 4)
        return 1;
    if (wavelength > 16.0 / 1)
        return 8;
    return 1 / ((1 - smooth) / 8 + smooth);
}

enum { NONE, LINEAR4, LLAMA3 };
static const struct {
    const char *more;
    double theta; /* 0: refused */
    int scaling;
    const char *refusal;
} rope_cases[] = {
    {"", 1e4, NONE, NULL},
    {"\"rope_theta\": 5e5, \"rope_scaling\": null", 5e5, NONE, NULL},
    {"\"rope_scaling\": {}", 1e4, NONE, NULL},
    {"\"rope_scaling\": {\"rope_type\": \"default\"}", 1e4, NONE, NULL},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", 1e4, LINEAR4, NULL},
    {"\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"linear\", "
     "\"factor\": 4, "
     "\"attention_factor\": null}",
     1e4, LINEAR4, NULL},
    {"\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", " NUMBERS "}",
     5e5, LLAMA3, NULL},
    {"\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", " NUMBERS "}",
     5e5, LLAMA3, NULL},
    {"\"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": "
     "\"llama3\", " NUMBERS "}, \"rope_scaling\": {\"type\": \"llama3\", " NUMBERS "}",
     5e5, LLAMA3, NULL},
    {"\"rope_interleaved\": false, \"partial_rotary_factor\": 1.0", 1e4, NONE, NULL},

    {"\"rope_scaling\": {\"factor\": 4}", 0, NONE,
     "rope_scaling: factor: expected with it a rope_type that scales, found no "
     "such"},
    {"\"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 4}", 0, NONE,
     "rope_scaling: factor: expected with it a rope_type that scales, found "
     "default"},
    {"\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"default\"}", 0, NONE,
     "rope_scaling: type: expected default as rope_type says, found linear"},
    {"\"rope_parameters\": {\"rope_type\": \"default\"}, \"rope_scaling\": "
     "{\"type\": "
     "\"linear\", \"factor\": 4}",
     0, NONE, "rope_scaling: expected the scaling of rope_parameters, found another"},
    {"\"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5}", 0, NONE,
     "rope_parameters: rope_theta: expected 10000 as elsewhere in the file, found "
     "500000"},
    {"\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}", 0, NONE,
     "rope_parameters: full_attention: expected the same parameters for all layers"},
    {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 0.5}", 0, NONE,
     "rope_scaling: factor: expected 1 to 1e6, found 0.5"},
    {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 1}", 0,
     NONE, "expected 0 < beta_slow < beta_fast, found 1 and 1"},
    {"\"rope_scaling\": {\"type\": \"dynamic\"}", 0, NONE, "factor"},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"attention_factor\": "
     "2}",
     0, NONE, "rope_scaling: attention_factor: expected 1, found 2"},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"beta_fast\": 32}", 0,
     NONE, "rope_scaling: beta_fast: expected with it rope_type yarn, found linear"},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"beta_last\": 32}", 0,
     NONE, "rope_scaling: beta_last: expected only known keys"},
    {"\"rope_interleaved\": true", 0, NONE, "rope_interleaved: expected 0, found 1"},
    {"\"rope_local_base_freq\": 1e4", 0, NONE, "rope_local_base_freq: expected 0"},
    {"\"attention_multiplier\": 0.5", 0, NONE, "attention_multiplier: expected 0"},
    {"\"attn_temperature_tuning\": 4", 0, NONE, "attn_temperature_tuning"},
    {"\"rotary_pct\": 0.25", 0, NONE, "rotary_pct"},
    {"\"use_mrope\": true", 0, NONE, "use_mrope"},
};

/* The same scalings in both formats. With beta_slow 0.001 an original context of 8 gives pair 1
 * of 2 half of the factor, or, unrounded, 0.644 of it. */
TEST(yarn_of_both_formats)
{
    static const struct key keys[] = {{"rope.scaling.type", "yarn", 0},
                                      {"rope.scaling.factor", 0, 4},
                                      {"rope.scaling.yarn_beta_slow", 0, 0.001f},
                                      {"rope.scaling.attn_factor", 0, 0.5f}};
    const double length = 1 + 0.1 * log(4);
    struct format_file *f;

    write_gguf(keys, 4, NULL); /* of an original context of 16 */
    assert_ok(format_open(&f, path));
    assert_true(fabs((double)f->config.rope_factor[1] - 1.6) < 1e-6);
    assert_true(fabs((double)f->config.rope_length - length / 2) < 1e-6);
    format_close(&f);
#define YARN "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4"
#define SLOW ", \"original_max_position_embeddings\": 8, \"beta_slow\": 0.001"
    assert_ok(open_hf(&f, LLAMA, YARN SLOW "}"));
    assert_true(fabs((double)f->config.rope_factor[1] - 1.6) < 1e-6);
    assert_true(fabs((double)f->config.rope_length - length) < 1e-6);
    assert_int_equal(f->config.max_tok, 8192);
    format_close(&f);
    assert_ok(open_hf(&f, LLAMA, YARN SLOW ", \"truncate\": false}"));
    assert_true(fabs((double)f->config.rope_factor[1] - 1 / (0.25 * 0.644 + 0.356)) <
                1e-3);
    format_close(&f);
    assert_ok(open_hf(&f, LLAMA, YARN ", \"attention_factor\": 0.75}"));
    assert_true(f->config.rope_length == 0.75f);
    assert_int_equal(f->config.max_tok, 4 * 8192);
    format_close(&f);
    assert_ok(open_hf(&f, LLAMA, YARN ", \"mscale\": 1, \"mscale_all_dim\": 1}"));
    assert_true(f->config.rope_length == 1);
    format_close(&f);
    assert_ok(
        open_hf(&f, LLAMA, "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}"));
    assert_true(f->config.rope_ntk == 2);
    assert_int_equal(f->config.rope_short_tok, 8192);
    assert_int_equal(f->config.max_tok, 2 * 8192);
    format_close(&f);
#undef YARN
#undef SLOW
}

TEST(hf_rope)
{
    struct format_file *f;

    for (size_t i = 0; i < sizeof(rope_cases) / sizeof(rope_cases[0]); i++) {
        int rc = open_hf(&f, LLAMA, rope_cases[i].more);

        if (rope_cases[i].refusal) {
            if (rc == OK || !strstr(err_msg(), rope_cases[i].refusal) ||
                !strstr(err_msg(), "config.json"))
                fail_msg("%s: \"%s\"", rope_cases[i].more, err_msg());
            continue;
        }
        if (rc != OK)
            fail_msg("%s: %s", rope_cases[i].more, err_msg());
        assert_true(f->config.rope_theta == (float)rope_cases[i].theta);
        for (int k = 0; k < S_HEAD_DIM / 2; k++) {
            double wavelength = 2 * M_PI * pow(rope_cases[i].theta, 2.0 * k / S_HEAD_DIM);
            double want = rope_cases[i].scaling == LLAMA3    ? llama3(wavelength)
                          : rope_cases[i].scaling == LINEAR4 ? 4
                                                             : 1;

            if (fabs((double)f->config.rope_factor[k] / want - 1) > 1e-6)
                fail_msg("%s: pair %d slowed down by %g, expected %g", rope_cases[i].more,
                         k, (double)f->config.rope_factor[k], want);
        }
        format_close(&f);
    }
}

TEST(hf_windows_and_activations)
{
    static const struct {
        const char *class, *more;
        int max_tok; /* 0: refused */
        const char *refusal;
        int window;
    } cases[] = {
        {LLAMA, "\"hidden_act\": \"swish\"", 8192, NULL, 0},
        {LLAMA, "\"hidden_act\": \"gelu_new\"", 0,
         "hidden_act: expected silu, found gelu_new", 0},
        {LLAMA, "\"sliding_window\": 4096", 8192, NULL, 0}, /* Llama has none */
        {LLAMA, "\"attention_dropout\": 0.1, \"pretraining_tp\": 2", 8192, NULL, 0},
        {LLAMA, "\"sliding_window\": 4096, \"use_sliding_window\": true", 0,
         "use_sliding_window: expected false", 0},
        {LLAMA, "\"layer_types\": [\"chunked_attention\"]", 0,
         "layer_types: layer 0: expected full_attention or sliding_attention, found "
         "chunked",
         0},
        {MISTRAL, "\"sliding_window\": null", 8192, NULL, 0},
        {MISTRAL, "\"sliding_window\": 1024", 8192, NULL, 1024},
        {MISTRAL, "\"sliding_window\": 8192", 8192, NULL, 0},
        {MISTRAL, "", 8192, NULL, 4096}, /* MistralConfig's default */
        {MISTRAL, "\"attention_bias\": true", 0, "attention_bias", 0},
        {LLAMA, "\"attention_bias\": false", 8192, NULL, 0},
        {LLAMA, "\"attention_bias\": true", 0,
         "self_attn.q_proj.bias: expected shape [1, 8], found no such tensor", 0},
    };
    struct format_file *f;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = open_hf(&f, cases[i].class, cases[i].more);

        if (cases[i].refusal ? rc == OK || !strstr(err_msg(), cases[i].refusal)
                             : rc != OK)
            fail_msg("%s: \"%s\"", cases[i].more, err_msg());
        if (rc == OK) {
            assert_int_equal(f->config.max_tok, cases[i].max_tok);
            assert_int_equal(f->config.window, cases[i].window);
            assert_string_equal(f->config.arch, "llama");
        }
        format_close(&f);
    }
}

/* The tokens that end a text are those of config.json and of generation_config.json. */
TEST(hf_stops)
{
    static const struct {
        const char *config, *generation; /* NULL: no such file */
        int n, ids[4];
    } cases[] = {
        {"", NULL, 0, {0}},
        {"\"eos_token_id\": 2", NULL, 1, {2}},
        {"\"eos_token_id\": [2, 4, 3, 2]", NULL, 3, {2, 4, 3}},
        {"\"eos_token_id\": [99, 4]", NULL, 1, {4}}, /* 99 is not in the vocabulary */
        {"\"eos_token_id\": 2", "{\"eos_token_id\": [4, 2]}", 2, {2, 4}},
        {"\"eos_token_id\": null", "{\"eos_token_id\": 3, \"temperature\": 1}", 1, {3}},
        {"\"eos_token_id\": 2", "{\"eos_token_id\": null}", 1, {2}},
    };
    struct format_file *f;
    char file[340];

    snprintf(file, sizeof(file), "%s/generation_config.json", dir);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)unlink(file);
        if (cases[i].generation)
            write_text("generation_config.json", cases[i].generation);
        assert_ok(open_hf(&f, LLAMA, cases[i].config));
        stops_are(f, cases[i].ids, cases[i].n);
        format_close(&f);
    }
    write_text("generation_config.json", "{\"eos_token_id\": \"</s>\"}");
    assert_err(open_hf(&f, LLAMA, ""), ERR_FORMAT,
               "generation_config.json: eos_token_id: expected an integer");
    write_text("generation_config.json", "[");
    assert_err(open_hf(&f, LLAMA, ""), ERR_FORMAT, "generation_config.json");
    assert_int_equal(unlink(file), 0);
    assert_err(open_hf(&f, LLAMA, "\"eos_token_id\": [0, true]"), ERR_FORMAT,
               "eos_token_id");
}

/* ---- every value that the libraries know ---- */

/* Of config.json as transformers reads it. Those that are refused are named with their key; of
 * those that are obeyed the tests above show what they mean. */
static const char *const activations[] = {
    "gelu",       "gelu_10",     "gelu_accurate", "gelu_fast",
    "gelu_new",   "gelu_python", "laplace",       "gelu_pytorch_tanh",
    "leaky_relu", "linear",      "mish",          "prelu",
    "quick_gelu", "relu",        "relu2",         "relu6",
    "sigmoid",    "swish",       "silu",          "tanh",
    "xielu",      NULL};
static const char *const rope_types[] = {"default",  "linear", "dynamic",      "yarn",
                                         "longrope", "llama3", "proportional", NULL};
static const char *const layer_types[] = {"full_attention",
                                          "sliding_attention",
                                          "chunked_attention",
                                          "linear_attention",
                                          "conv",
                                          "mamba",
                                          "attention",
                                          "sparse",
                                          "dense",
                                          "hybrid",
                                          "moe",
                                          NULL};
/* Of GGUF files as llama.cpp reads them. */
static const char *const scalings[] = {"none", "linear", "yarn", "longrope", NULL};

static void one_value(const char *key, const char *value, const char *more, bool obeyed)
{
    struct format_file *f = NULL;
    int rc = open_hf(&f, LLAMA, more);

    if (obeyed ? rc != OK
               : rc == OK || !strstr(err_msg(), key) || !strstr(err_msg(), value))
        fail_msg("%s: \"%s\"", more, rc == OK ? "opened" : err_msg());
    format_close(&f);
}

TEST(values_of_config)
{
    static const char *const methods[] = {
        "awq",   "gptq",       "bitsandbytes", "compressed-tensors",
        "fp8",   "fbgemm_fp8", "hqq",          "quanto",
        "eetq",  "aqlm",       "vptq",         "torchao",
        "mxfp4", NULL};
    static const char *const families[] = {"llama",   "mistral", "mixtral",   "gemma",
                                           "qwen2",   "qwen3",   "qwen2_moe", "phi3",
                                           "granite", NULL};
    char more[300];

    for (int i = 0; activations[i]; i++) {
        snprintf(more, sizeof(more), "\"hidden_act\": \"%s\"", activations[i]);
        one_value("hidden_act", activations[i], more,
                  !strcmp(activations[i], "silu") || !strcmp(activations[i], "swish"));
    }
    for (int i = 0; rope_types[i]; i++) {
        bool factor = strcmp(rope_types[i], "default") != 0;

        if (strcmp(rope_types[i], "longrope") == 0)
            continue; /* with lists of its own, see tests/make/test_make.c */
        snprintf(more, sizeof(more), "\"rope_scaling\": {\"rope_type\": \"%s\"%s}",
                 rope_types[i], factor ? ", " NUMBERS : "");
        one_value("rope_scaling: rope_type", rope_types[i], more,
                  strcmp(rope_types[i], "proportional") != 0);
    }
    for (int i = 0; layer_types[i]; i++) {
        snprintf(more, sizeof(more), "\"layer_types\": [\"%s\"]", layer_types[i]);
        one_value("layer_types", layer_types[i], more, i < 2);
    }
    for (int i = 0; methods[i]; i++) {
        snprintf(more, sizeof(more),
                 "\"quantization_config\": {\"quant_method\": \"%s\"}", methods[i]);
        /* the matrices are plain: the others lack bits, or a format */
        one_value("quantization_config", "", more, strcmp(methods[i], "fp8") == 0);
    }
    /* Regressions: neither of the two was looked at. */
    for (int i = 0; families[i]; i++) {
        snprintf(more, sizeof(more), "\"model_type\": \"%s\"", families[i]);
        one_value("model_type: expected llama", families[i], more, i == 0);
    }
}

TEST(values_of_gguf)
{
    struct key keys[] = {{"rope.scaling.type", NULL, 0},
                         {"rope.scaling.factor", NULL, 4}};
    struct format_file *f = NULL;

    for (int i = 0; scalings[i]; i++) {
        int rc;

        keys[0].text = scalings[i];
        write_gguf(keys, 2, NULL);
        rc = format_open(&f, path);
        /* with longrope a file has tensors that this one has not */
        if (i < 3 ? rc != OK
                  : rc == OK || !strstr(err_msg(), "llama.rope.scaling.type") ||
                        !strstr(err_msg(), scalings[i]))
            fail_msg("%s: \"%s\"", scalings[i], rc == OK ? "opened" : err_msg());
        format_close(&f);
    }
}

/* A key with one value has no other, whatever is found in its place. */
TEST(only_values)
{
    int n = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        char key[80];

        if (r->rule != ONLY)
            continue;
        snprintf(key, sizeof(key), "%s%s", r->of == FORMAT_KEYS_GGUF ? "llama." : "",
                 r->key);
        assert_ok(format_key_check(r->of, NULL, key, r->value, "f"));
        assert_err(format_key_check(r->of, NULL, key, r->value + 1, "f"), ERR_UNSUPPORTED,
                   r->key);
        assert_err(format_key_check(r->of, NULL, key, (double)NAN, "f"), ERR_UNSUPPORTED,
                   r->key);
        n++;
    }
    assert_true(n > 20);
}

TEST_GROUP(make_paths, NULL);
