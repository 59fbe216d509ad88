/* What quantization_config of config.json says. Formats are defined by those who write them:
 * AutoGPTQ and GPTQModel, AutoAWQ, vLLM and transformers (fp8), compressed-tensors. */
#include "format/safet_quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"

#define MAX_CONFIG_BYTES (1u << 20)

/* What is read of quantization_config, and where it is from. */
struct config {
    const char *path;
    const json_t *json;
    const char *method;
};

static int refuse(const struct config *c, const char *key, const char *expected,
                  const char *found)
{
    return err_set(ERR_UNSUPPORTED,
                   "%s: quantization_config of %.40s: %s: expected %s, found %.60s",
                   c->path, c->method, key, expected, found ? found : "none");
}

static const char *string_at(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static int refuse_int(const struct config *c, const json_t *v, const char *key,
                      const char *expected)
{
    char found[24];

    snprintf(found, sizeof(found), "%" PRId64, (int64_t)json_integer_value(v));
    return refuse(c, key, expected,
                  json_is_integer(v) ? found
                  : v                ? "something else"
                                     : NULL);
}

static int expect_int(const struct config *c, const json_t *j, const char *key,
                      int64_t want)
{
    const json_t *v = json_object_get(j, key);
    char expected[24];

    if (json_is_integer(v) && json_integer_value(v) == want)
        return OK;
    snprintf(expected, sizeof(expected), "%" PRId64, want);
    return refuse_int(c, v, key, expected);
}

/* -1 is a row. */
static int read_group(struct format_safet_quant *q, const struct config *c,
                      const json_t *j)
{
    const json_t *v = json_object_get(j, "group_size");
    const int64_t n = json_integer_value(v);

    q->group = n > 0 ? n : 0;
    if (json_is_integer(v) && (n == -1 || (n > 0 && n % FORMAT_QUANT_BLOCK == 0)))
        return OK;
    return refuse_int(c, v, "group_size", "a multiple of 128, or -1 (a row)");
}

static int read_gptq(struct format_safet_quant *q, const struct config *c)
{
    const char *format = string_at(c->json, "checkpoint_format");

    q->scheme = FORMAT_SCHEME_GPTQ;
    q->zeros_less_1 = !format || strcmp(format, "gptq") == 0;
    if (!q->zeros_less_1 && strcmp(format, "gptq_v2") != 0)
        return refuse(c, "checkpoint_format", "gptq or gptq_v2", format);
    TRY(expect_int(c, c->json, "bits", 4));
    return read_group(q, c, c->json);
}

static int read_awq(struct format_safet_quant *q, const struct config *c)
{
    const char *version = string_at(c->json, "version");

    q->scheme = FORMAT_SCHEME_AWQ;
    if (version && strcasecmp(version, "gemm") != 0)
        return refuse(c, "version", "gemm", version);
    if (json_is_false(json_object_get(c->json, "zero_point")))
        return refuse(c, "zero_point", "true", "false");
    TRY(expect_int(c, c->json, "bits", 4));
    return read_group(q, c, c->json);
}

/* A scale for blocks of 128 rows and columns; none: for the matrix or a row. */
static int read_blocks(struct format_safet_quant *q, const struct config *c,
                       const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    const bool square = json_array_size(v) == 2 &&
                        json_integer_value(json_array_get(v, 0)) == FORMAT_QUANT_BLOCK &&
                        json_integer_value(json_array_get(v, 1)) == FORMAT_QUANT_BLOCK;

    q->scheme = square ? FORMAT_SCHEME_FP8_BLOCKS : FORMAT_SCHEME_FP8;
    return square || !v || json_is_null(v)
               ? OK
               : refuse(c, key, "[128, 128] or none", "something else");
}

static int read_fp8(struct format_safet_quant *q, const struct config *c)
{
    return read_blocks(q, c, c->json, "weight_block_size");
}

/* `weights` of the one group that config_groups has. */
static int read_compressed(struct format_safet_quant *q, const struct config *c)
{
    static const struct {
        const char *format, *type;
        enum format_scheme scheme;
        int bits;
    } formats[] = {{"pack-quantized", "int", FORMAT_SCHEME_INT4, 4},
                   {"int-quantized", "int", FORMAT_SCHEME_INT8, 8},
                   {"float-quantized", "float", FORMAT_SCHEME_FP8, 8}};
    const char *format = string_at(c->json, "format");
    json_t *groups = json_object_get(c->json, "config_groups");
    const json_t *w =
        json_object_get(json_object_iter_value(json_object_iter(groups)), "weights");
    const json_t *kv = json_object_get(c->json, "kv_cache_scheme");
    const char *type = string_at(w, "type"), *strategy = string_at(w, "strategy");
    size_t i = 0;

    while (i < 3 && (!format || strcmp(format, formats[i].format) != 0))
        i++;
    if (i == 3)
        return refuse(c, "format",
                      "pack-quantized (W4A16), int-quantized (W8A8) or float-quantized "
                      "(FP8)",
                      format);
    if (json_object_size(groups) != 1 || !json_is_object(w))
        return refuse(c, "config_groups", "one group with weights", "something else");
    if (kv && !json_is_null(kv))
        return refuse(c, "kv_cache_scheme", "none", "one");
    q->scheme = formats[i].scheme;
    TRY(expect_int(c, w, "num_bits", formats[i].bits));
    if (!type || strcmp(type, formats[i].type) != 0)
        return refuse(c, "type", formats[i].type, type);
    if (i > 0 && json_is_false(json_object_get(w, "symmetric")))
        return refuse(c, "symmetric", "true", "false");
    if (strategy && strcmp(strategy, "group") == 0 && i == 0)
        return read_group(q, c, w);
    if (strategy && strcmp(strategy, "block") == 0 && i == 2)
        return read_blocks(q, c, w, "block_structure");
    if (!strategy ||
        (strcmp(strategy, "channel") != 0 && strcmp(strategy, "tensor") != 0))
        return refuse(c, "strategy",
                      i == 0   ? "group, channel or tensor"
                      : i == 1 ? "channel or tensor"
                               : "channel, tensor or block",
                      strategy);
    return OK;
}

static int (*const readers[])(struct format_safet_quant *q, const struct config *c) = {
    read_gptq, read_awq, read_fp8, read_compressed};

const struct format_quant_method format_quant_methods[] = {
    {"gptq", "w4g128",
     "4 bits, one scale for a multiple of 128 weights or a row; desc_act only with one "
     "for "
     "a row"},
    {"awq", "w4g128", "version gemm, 4 bits, one scale for a multiple of 128 weights"},
    {"fp8", "f32", "E4M3, one scale for a matrix, a row or 128 rows and columns"},
    {"compressed-tensors", "w4g128, w8g128, f32",
     "pack-quantized of 4 bits (W4A16), int-quantized (W8A8) and float-quantized (FP8), "
     "all matrices alike"},
    {0}};

static int read_method(struct format_safet_quant *q, const struct config *c)
{
    char names[80] = "";
    size_t n = 0;

    for (int i = 0; format_quant_methods[i].name; i++) {
        if (strcmp(c->method, format_quant_methods[i].name) == 0)
            return readers[i](q, c);
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
                              format_quant_methods[i].name);
    }
    return err_set(
        ERR_UNSUPPORTED,
        "%s: quantization_config: quant_method: expected one of %s, or a model "
        "that is not quantised, found %.60s",
        c->path, names, *c->method ? c->method : "none");
}

int format_safet_quant_config(struct format_safet_quant *q, const char *path)
{
    struct config c = {.path = path};
    json_t *config;
    int rc = OK;

    TRY(json_read_file(&config, path, MAX_CONFIG_BYTES));
    c.json = json_object_get(config, "quantization_config");
    c.method = string_at(c.json, "quant_method");
    if (!c.method)
        c.method = "";
    if (c.json && !json_is_null(c.json))
        rc = read_method(q, &c);
    json_decref(config);
    return rc;
}
