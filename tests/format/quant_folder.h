/* tests/format/quant_folder.h - folders of a Llama of one layer whose matrices are quantised at
 * random, each in the layout of what writes such files: AutoGPTQ and GPTQModel, AutoAWQ, vLLM and
 * transformers (fp8), compressed-tensors. And what every weight is by the definition of its scheme,
 * in float64. */
#ifndef TESTS_FORMAT_QUANT_FOLDER_H
#define TESTS_FORMAT_QUANT_FOLDER_H

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "format/format.h"
#include "tests/support/test.h"

enum { QF_DIM = 256, QF_KV = 128, QF_HIDDEN = 384, QF_VOCAB = 5, QF_GROUP = 128 };
#define QF_MAX (QF_DIM * QF_HIDDEN) /* weights of a matrix */

static const struct {
    const char *name;
    int rows, cols;
    enum format_role role;
} qf_matrices[] = {{"self_attn.q_proj", QF_DIM, QF_DIM, FORMAT_Q},
                   {"self_attn.k_proj", QF_KV, QF_DIM, FORMAT_K},
                   {"self_attn.v_proj", QF_KV, QF_DIM, FORMAT_V},
                   {"self_attn.o_proj", QF_DIM, QF_DIM, FORMAT_O},
                   {"mlp.gate_proj", QF_HIDDEN, QF_DIM, FORMAT_GATE},
                   {"mlp.up_proj", QF_HIDDEN, QF_DIM, FORMAT_UP},
                   {"mlp.down_proj", QF_DIM, QF_HIDDEN, FORMAT_DOWN}};
#define QF_N_MATRICES ((int)(sizeof(qf_matrices) / sizeof(qf_matrices[0])))

/* How codes are stored. */
enum qf_layout { QF_GPTQ, QF_AWQ, QF_INT4, QF_INT8, QF_FP8 };
/* Zeros of 4 bits. */
enum qf_zeros { QF_8, QF_LESS_1, QF_PLAIN, QF_BYTES };

#define QF_COMPRESSED "\"quant_method\": \"compressed-tensors\", \"format\": "
#define QF_WEIGHTS                                                                       \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "         \
    "{\"num_bits\": "
/* The first scheme of a layout is the one that tests break. */
static const struct qf_scheme {
    const char *name, *config;
    enum qf_layout layout;
    enum qf_zeros zeros;
    int group; /* weights of a row that share a scale; 0: all, -1: blocks of 128 x 128 */
    const char *scale_type;
    bool one;               /* a scale for the matrix */
    const char *scale_name; /* NULL: weight_scale */
} qf_schemes[] = {
    {"gptq",
     "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"desc_act\": false",
     QF_GPTQ, QF_LESS_1, 128, "F16", 0, 0},
    {"gptq, format gptq",
     "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"sym\": true, "
     "\"checkpoint_format\": \"gptq\"",
     QF_GPTQ, QF_LESS_1, 128, "BF16", 0, 0},
    {"gptq_v2",
     "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, "
     "\"checkpoint_format\": \"gptq_v2\"",
     QF_GPTQ, QF_PLAIN, 128, "F16", 0, 0},
    {"gptq by rows, desc_act",
     "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1, \"desc_act\": true",
     QF_GPTQ, QF_LESS_1, 0, "F16", 0, 0},
    {"awq",
     "\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"zero_point\": true, "
     "\"version\": \"gemm\"",
     QF_AWQ, QF_PLAIN, 128, "F16", 0, 0},
    {"pack-quantized",
     QF_COMPRESSED "\"pack-quantized\", " QF_WEIGHTS
                   "4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 128, "
                   "\"symmetric\": true}}}",
     QF_INT4, QF_8, 128, "BF16", 0, 0},
    {"pack-quantized, zeros",
     QF_COMPRESSED "\"pack-quantized\", " QF_WEIGHTS
                   "4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 128, "
                   "\"symmetric\": false}}}",
     QF_INT4, QF_PLAIN, 128, "F16", 0, 0},
    {"pack-quantized, zeros in bytes",
     QF_COMPRESSED "\"pack-quantized\", " QF_WEIGHTS
                   "4, \"type\": \"int\", \"strategy\": \"channel\", \"symmetric\": "
                   "false}}}",
     QF_INT4, QF_BYTES, 0, "F32", 0, 0},
    {"int-quantized",
     QF_COMPRESSED "\"int-quantized\", " QF_WEIGHTS
                   "8, \"type\": \"int\", \"strategy\": \"channel\", \"symmetric\": "
                   "true}}}",
     QF_INT8, QF_8, 0, "F32", 0, 0},
    {"int-quantized, one scale",
     QF_COMPRESSED "\"int-quantized\", " QF_WEIGHTS
                   "8, \"type\": \"int\", \"strategy\": \"tensor\", \"symmetric\": "
                   "true}}}",
     QF_INT8, QF_8, 0, "BF16", true, 0},
    {"fp8", "\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"", QF_FP8, QF_8,
     0, "F32", true, 0},
    {"fp8, weight_scale_inv",
     "\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
     "\"weight_block_size\": null",
     QF_FP8, QF_8, 0, "BF16", true, "weight_scale_inv"},
    {"fp8 by blocks",
     "\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
     "\"weight_block_size\": [128, 128]",
     QF_FP8, QF_8, -1, "F32", 0, "weight_scale_inv"},
    {"float-quantized by rows",
     QF_COMPRESSED "\"float-quantized\", " QF_WEIGHTS
                   "8, \"type\": \"float\", \"strategy\": \"channel\"}}}",
     QF_FP8, QF_8, 0, "BF16", 0, 0},
    {"float-quantized by blocks",
     QF_COMPRESSED "\"float-quantized\", " QF_WEIGHTS
                   "8, \"type\": \"float\", \"strategy\": \"block\", "
                   "\"block_structure\": [128, 128]}}}",
     QF_FP8, QF_8, -1, "F32", 0, 0},
};
#define QF_N_SCHEMES ((int)(sizeof(qf_schemes) / sizeof(qf_schemes[0])))

static inline const struct qf_scheme *qf_scheme_of(enum qf_layout layout)
{
    int i = 0;

    while (qf_schemes[i].layout != layout)
        i++;
    return &qf_schemes[i];
}

/* A folder that is being written, and the weights of its matrices. */
static struct qf_folder {
    char dir[300];
    char head[16384];
    size_t head_n, data_n;
    uint8_t data[4 << 20];
    uint8_t file[(4 << 20) + (1 << 15)]; /* model.safetensors */
    size_t file_n;
    double want[QF_N_MATRICES][QF_MAX];
} qf;

static inline void qf_add(const char *base, const char *name, const char *dtype, int a,
                          int b, const void *bytes, size_t size)
{
    const size_t n = size * (size_t)((a ? a : 1) * (b ? b : 1));
    char shape[40] = "";

    if (a)
        snprintf(shape, sizeof(shape), b ? "%d,%d" : "%d", a, b);
    assert_true(qf.data_n + n <= sizeof(qf.data));
    qf.head_n += (size_t)snprintf(
        qf.head + qf.head_n, sizeof(qf.head) - qf.head_n,
        "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        qf.head_n ? "," : "{", base, name, dtype, shape, qf.data_n, qf.data_n + n);
    assert_true(qf.head_n < sizeof(qf.head) - 8);
    memcpy(qf.data + qf.data_n, bytes, n);
    qf.data_n += n;
}

/* n scales of this type, each about `size`; their values go to value[n]. */
static inline void qf_scales(uint8_t *to, double *value, const char *dtype, int n,
                             double size, struct rng *r)
{
    for (int i = 0; i < n; i++) {
        const float x = (float)(rng_normal(r) * size);
        const bool half = strcmp(dtype, "F16") == 0;
        const uint16_t h = half ? kern_f16_of(x) : kern_bf16_of(x);

        value[i] = (double)x;
        if (strcmp(dtype, "F32") == 0) {
            memcpy(to + 4 * i, &x, 4);
            continue;
        }
        memcpy(to + 2 * i, &h, 2);
        value[i] = (double)(half ? kern_f16_to(h) : kern_bf16_to(h));
    }
}

/* Each bit of E4M3 by its weight. */
static inline double qf_e4m3(uint8_t x)
{
    const int e = x >> 3 & 15;
    const double size = ldexp((e ? 1 : 0) + (x & 7) / 8.0, (e ? e : 1) - 7);

    return x & 128 ? -size : size;
}

/* Words of 8 codes of 4 bits: code(ctx) of row n, column k at bits 4 i. */
struct qf_codes {
    const uint8_t *code, *zero; /* [rows][cols], [rows][groups]: as stored */
    int rows, cols, groups;
};

static inline void qf_add_4_bits(const struct qf_scheme *s, const char *base,
                                 const struct qf_codes *c, const uint8_t *scales)
{
    static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    static uint32_t words[QF_MAX / 8], zeros[QF_HIDDEN / 8 * 3];
    static int8_t bytes[QF_HIDDEN * 3];
    static uint8_t turned[4 * QF_HIDDEN * 3];
    static int32_t order[QF_HIDDEN];
    const int rows = c->rows, cols = c->cols, groups = c->groups;
    const size_t size = strcmp(s->scale_type, "F32") == 0 ? 4 : 2;
    const bool packed = s->layout == QF_INT4;

    memset(words, 0, sizeof(words));
    memset(zeros, 0, sizeof(zeros));
    for (int n = 0; n < rows; n++)
        for (int g = 0; g < groups; g++) {
            memcpy(turned + size * (size_t)(g * rows + n),
                   scales + size * (size_t)(n * groups + g), size);
            bytes[n * groups + g] = (int8_t)(c->zero[n * groups + g] - 8);
        }
    for (int w = 0; w < rows * cols / 8; w++)
        for (int i = 0; i < 8; i++) {
            int n = w / (cols / 8), k = w % (cols / 8) * 8 + i;

            if (s->layout == QF_GPTQ)
                n = w % rows, k = w / rows * 8 + i;
            if (s->layout == QF_AWQ)
                n = w % (rows / 8) * 8 + awq_order[i], k = w / (rows / 8);
            words[w] |= (uint32_t)c->code[n * cols + k] << 4 * i;
        }
    for (int w = 0; w < rows / 8 * groups; w++)
        for (int i = 0; i < 8; i++) {
            const int n = packed ? w / groups : w % (rows / 8);
            const int g = packed ? w % groups : w / (rows / 8);
            const int at = s->layout == QF_AWQ ? awq_order[i] : i;

            zeros[w] |= (uint32_t)c->zero[(8 * n + at) * groups + g] << 4 * i;
        }
    if (packed) {
        const int64_t shape[2] = {rows, cols};

        qf_add(base, ".weight_packed", "I32", rows, cols / 8, words, 4);
        qf_add(base, ".weight_scale", s->scale_type, rows, groups, scales, size);
        qf_add(base, ".weight_shape", "I64", 2, 0, shape, 8);
        if (s->zeros == QF_PLAIN)
            qf_add(base, ".weight_zero_point", "I32", rows / 8, groups, zeros, 4);
        if (s->zeros == QF_BYTES)
            qf_add(base, ".weight_zero_point", "I8", rows, groups, bytes, 1);
        return;
    }
    qf_add(base, ".scales", s->scale_type, groups, rows, turned, size);
    qf_add(base, ".qzeros", "I32", groups, rows / 8, zeros, 4);
    if (s->layout == QF_AWQ) {
        qf_add(base, ".qweight", "I32", cols, rows / 8, words, 4);
        return;
    }
    for (int k = 0; k < cols; k++)
        order[k] = s->group ? k / s->group : 0;
    qf_add(base, ".qweight", "I32", cols / 8, rows, words, 4);
    memset(turned, 0, sizeof(turned)); /* as AutoGPTQ has for models without biases */
    qf_add(base, ".bias", "F16", rows, 0, turned, 2);
    qf_add(base, ".g_idx", "I32", cols, 0, order, 4);
}

static inline void qf_add_8_bits(const struct qf_scheme *s, const char *base,
                                 const struct qf_codes *c, const uint8_t *scales)
{
    const size_t size = strcmp(s->scale_type, "F32") == 0 ? 4 : 2;
    const int rows = c->rows, cols = c->cols;
    char name[40];

    snprintf(name, sizeof(name), ".%s", s->scale_name ? s->scale_name : "weight_scale");
    qf_add(base, ".weight", s->layout == QF_INT8 ? "I8" : "F8_E4M3", rows, cols, c->code,
           1);
    if (s->group < 0) {
        qf_add(base, name, s->scale_type, rows / 128, cols / 128, scales, size);
        return;
    }
    if (s->one) {
        qf_add(base, name, s->scale_type, s->scale_name ? 0 : 1, 0, scales, size);
        qf_add(base, ".input_scale", s->scale_type, 1, 0, scales, size);
        return;
    }
    qf_add(base, name, s->scale_type, rows, 1, scales, size);
}

/* The scale of row n and column k, in those that are stored. */
static inline int qf_scale_at(const struct qf_scheme *s, const struct qf_codes *c, int n,
                              int k)
{
    if (s->one)
        return 0;
    return s->group < 0 ? n / 128 * (c->cols / 128) + k / 128
                        : n * c->groups + (s->group ? k / s->group : 0);
}

static inline void qf_add_matrix(const struct qf_scheme *s, int m, struct rng *r)
{
    static uint8_t code[QF_MAX], zero[QF_HIDDEN * 3], scales[4 * QF_HIDDEN * 3];
    static double value[QF_HIDDEN * 3];
    const int rows = qf_matrices[m].rows, cols = qf_matrices[m].cols;
    const struct qf_codes c = {code, zero, rows, cols,
                               s->group > 0 ? cols / s->group : 1};
    const bool four = s->layout <= QF_INT4;
    char base[80];

    snprintf(base, sizeof(base), "model.layers.0.%s", qf_matrices[m].name);
    qf_scales(scales, value, s->scale_type, rows * c.groups, four ? .01 : .0005, r);
    for (int i = 0; i < rows * c.groups; i++)
        zero[i] = (uint8_t)rng_below(r, 16);
    for (int i = 0; i < rows * cols; i++) {
        const int n = i / cols, k = i % cols, at = qf_scale_at(s, &c, n, k);
        const int stored = s->zeros == QF_8 ? 8 : zero[at] + (s->zeros == QF_LESS_1);

        code[i] = (uint8_t)rng_below(r, four ? 16 : 256);
        if (s->layout == QF_FP8 && (code[i] & 127) == 127)
            code[i] = 0; /* NaN */
        qf.want[m][i] = value[at] * (four                   ? code[i] - stored % 16
                                     : s->layout == QF_INT8 ? (double)(int8_t)code[i]
                                                            : qf_e4m3(code[i]));
    }
    if (four)
        qf_add_4_bits(s, base, &c, scales);
    else
        qf_add_8_bits(s, base, &c, scales);
}

static inline void qf_write_config(const char *quantization)
{
    char path[340], text[2000];
    const int n = snprintf(
        text, sizeof(text),
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
        "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"num_hidden_layers\": 1, \"vocab_size\": %d, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
        "\"bos_token_id\": 1, \"eos_token_id\": 2, \"tie_word_embeddings\": true%s%s%s}",
        QF_DIM, QF_HIDDEN, QF_VOCAB, quantization ? ", \"quantization_config\": {" : "",
        quantization ? quantization : "", quantization ? "}" : "");

    snprintf(path, sizeof(path), "%s/config.json", qf.dir);
    test_write(path, text, (size_t)n);
}

static inline void qf_write_tensors(void)
{
    char path[340];
    uint64_t n;

    qf.head[qf.head_n++] = '}';
    n = qf.head_n;
    qf.file_n = 8 + qf.head_n + qf.data_n;
    assert_true(qf.file_n <= sizeof(qf.file));
    memcpy(qf.file, &n, 8);
    memcpy(qf.file + 8, qf.head, qf.head_n);
    memcpy(qf.file + 8 + qf.head_n, qf.data, qf.data_n);
    snprintf(path, sizeof(path), "%s/model.safetensors", qf.dir);
    test_write(path, qf.file, qf.file_n);
}

static inline void qf_add_plain(const char *name, int a, int b, double centre,
                                struct rng *r)
{
    static float x[QF_VOCAB * QF_DIM];

    for (int i = 0; i < a * (b ? b : 1); i++)
        x[i] = (float)(centre + rng_normal(r) / 4);
    qf_add("model.", name, "F32", a, b, x, sizeof(float));
}

/* Write test_dir()/`name`. s NULL: the folder in f32 of the weights that were written last, and
 * with the same r the same other tensors. */
static inline void qf_write(const char *name, const struct qf_scheme *s, struct rng r)
{
    static float x[QF_MAX];

    snprintf(qf.dir, sizeof(qf.dir), "%s/%s", test_dir(), name);
    (void)mkdir(qf.dir, 0777);
    qf.head_n = qf.data_n = 0;
    qf_add_plain("embed_tokens.weight", QF_VOCAB, QF_DIM, 0, &r);
    qf_add_plain("norm.weight", QF_DIM, 0, 1, &r);
    qf_add_plain("layers.0.input_layernorm.weight", QF_DIM, 0, 1, &r);
    qf_add_plain("layers.0.post_attention_layernorm.weight", QF_DIM, 0, 1, &r);
    for (int m = 0; m < QF_N_MATRICES; m++) {
        char base[80];

        if (s) {
            qf_add_matrix(s, m, &r);
            continue;
        }
        for (int i = 0; i < QF_MAX; i++)
            x[i] = (float)qf.want[m][i];
        snprintf(base, sizeof(base), "model.layers.0.%s", qf_matrices[m].name);
        qf_add(base, ".weight", "F32", qf_matrices[m].rows, qf_matrices[m].cols, x, 4);
    }
    qf_write_config(s ? s->config : NULL);
    qf_write_tensors();
}

#endif
