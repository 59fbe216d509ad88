/* Folders with quantised matrices: each weight is what the definition of its scheme says, in
 * float64, rounded to f32 once; and what is not read is refused by name. */
#include "format/safet_quant.h"
#include "kernels/quant.h"
#include "tests/format/quant_folder.h"
#include "tests/format/small.h"

static struct rng seeded(const char *what)
{
    struct rng r;

    rng_init(&r, test_seed(), what);
    return r;
}

/* ---- what is read ---- */

static void check_matrix(const struct format_file *f, const struct qf_scheme *s, int m)
{
    const struct format_tensor *t = format_layer_tensor(f, 0, qf_matrices[m].role);
    /* a scale in f32 is rounded to 20 bits */
    const bool rounded = s->layout <= QF_INT4 && strcmp(s->scale_type, "F32") == 0;
    const double tolerance = rounded ? 0x1p-20 * 15 * .06 : 0;
    const int64_t cols = qf_matrices[m].cols;
    float row[QF_HIDDEN];

    assert_int_equal(t->type, s->layout <= QF_INT4   ? KERN_W4G128
                              : s->layout == QF_INT8 ? KERN_W8G128
                                                     : KERN_F32);
    for (int n = 0; n < qf_matrices[m].rows; n++) {
        kern_row_to_f32(t->type, row,
                        (const char *)t->data + (size_t)n * kern_type_size(t->type, cols),
                        cols);
        for (int64_t k = 0; k < cols; k++) {
            const double want = qf.want[m][n * cols + k];

            if (!(fabs((double)row[k] - (double)(float)want) <= tolerance))
                fail_msg("%s, %s, row %d, column %d: %a, expected %a", s->name,
                         qf_matrices[m].name, n, (int)k, (double)row[k], want);
        }
    }
}

TEST(weights_are_those_of_the_definition)
{
    for (int s = 0; s < QF_N_SCHEMES; s++) {
        struct format_file *f;

        qf_write("q", &qf_schemes[s], seeded("folders"));
        assert_ok(format_open(&f, qf.dir));
        for (int m = 0; m < QF_N_MATRICES; m++)
            check_matrix(f, &qf_schemes[s], m);
        format_close(&f);
    }
}

/* ---- what is refused ---- */

static void refused(const char *config, const char *why)
{
    struct format_file *f = NULL;
    int rc;

    qf_write_config(config);
    rc = format_open(&f, qf.dir);
    if (rc == OK || !strstr(err_msg(), why) || strchr(err_msg(), '\n') ||
        !strstr(err_msg(), qf.dir))
        fail_msg("%s: \"%s\", expected \"%s\"", config, rc == OK ? "opened" : err_msg(),
                 why);
    format_close(&f);
}

TEST(other_schemes_are_refused)
{
    static const char *const cases[][2] = {
        {"\"quant_method\": \"bitsandbytes\"",
         "quant_method: expected one of gptq, awq, fp8, compressed-tensors, or a model "
         "that is not quantised, found bitsandbytes"},
        {"\"bits\": 4", "quant_method: expected one of gptq"},
        {"\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 128",
         "quantization_config of gptq: bits: expected 4, found 8"},
        {"\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64",
         "group_size: expected a multiple of 128, or -1 (a row), found 64"},
        {"\"quant_method\": \"gptq\", \"bits\": 4", "found none"},
        {"\"quant_method\": \"gptq\", \"bits\": \"4\"", "found something else"},
        {"\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, "
         "\"checkpoint_format\": \"marlin\"",
         "checkpoint_format: expected gptq or gptq_v2, found marlin"},
        {"\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"version\": "
         "\"gemv\"",
         "version: expected gemm, found gemv"},
        {"\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"zero_point\": "
         "false",
         "zero_point: expected true, found false"},
        {"\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
         "\"weight_block_size\": [64, 128]",
         "weight_block_size: expected [128, 128] or none"},
        {QF_COMPRESSED "\"nvfp4-pack-quantized\"",
         "of compressed-tensors: format: expected pack-quantized (W4A16), int-quantized "
         "(W8A8) or float-quantized (FP8), found nvfp4-pack-quantized"},
        {QF_COMPRESSED "\"pack-quantized\", " QF_WEIGHTS
                       "8, \"type\": \"int\", \"strategy\": \"channel\"}}}",
         "num_bits: expected 4, found 8"},
        {QF_COMPRESSED "\"pack-quantized\", " QF_WEIGHTS "4, \"type\": \"float\"}}}",
         "type: expected int, found float"},
        {QF_COMPRESSED "\"pack-quantized\", \"config_groups\": {}",
         "config_groups: expected one group with weights"},
        {QF_COMPRESSED "\"float-quantized\", \"kv_cache_scheme\": {}, " QF_WEIGHTS
                       "8, \"type\": \"float\", \"strategy\": \"tensor\"}}}",
         "kv_cache_scheme: expected none, found one"},
        {QF_COMPRESSED "\"int-quantized\", " QF_WEIGHTS
                       "8, \"type\": \"int\", \"strategy\": \"token\"}}}",
         "strategy: expected channel or tensor, found token"},
        {QF_COMPRESSED "\"int-quantized\", " QF_WEIGHTS
                       "8, \"type\": \"int\", \"strategy\": \"channel\", \"symmetric\": "
                       "false}}}",
         "symmetric: expected true, found false"},
    };

    qf_write("q", qf_scheme_of(QF_GPTQ), seeded("refused"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refused(cases[i][0], cases[i][1]);
}

/* A word of the directory of tensors of a sound folder is replaced. */
static void broken(enum qf_layout layout, const char *from, const char *to,
                   const char *why)
{
    char *at;

    qf_write("q", qf_scheme_of(layout), seeded("broken"));
    qf.head[--qf.head_n] = 0; /* the brace */
    at = strstr(qf.head, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    qf_write_tensors();
    refused(qf_scheme_of(layout)->config, why);
}

TEST(broken_matrices_are_refused)
{
    broken(QF_GPTQ, "q_proj.scales", "q_proj.scalex",
           "model.layers.0.self_attn.q_proj.scales: expected this tensor, found none");
    broken(QF_AWQ, "q_proj.qzeros", "q_proj.qzerox",
           "q_proj.qzeros: expected this tensor");
    broken(QF_GPTQ, "q_proj.qweight", "q_proj.qweighx",
           "q_proj.weight: expected shape [256, 256], found no such tensor");
    broken(QF_GPTQ, "q_proj.qzeros\":{\"dtype\":\"I32\"",
           "q_proj.qzeros\":{\"dtype\":\"F32\"",
           "expected I32 of 64 elements, found F32");
    broken(QF_GPTQ, "q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[32,256]",
           "q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[64,128]",
           "q_proj.g_idx: expected I32 of 512 elements, found I32 of 256");
    broken(QF_GPTQ, "q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[32,256]",
           "q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[8,1024]",
           "q_proj.qweight: expected rows of whole groups of 128 weights, found 64");
    broken(QF_INT8, "q_proj.weight_scale\":{\"dtype\":\"F32\"",
           "q_proj.weight_scale\":{\"dtype\":\"I32\"",
           "expected F16, BF16 or F32 of 256");
    broken(QF_INT8, "q_proj.weight\":{\"dtype\":\"I8\",\"shape\":[256,256]",
           "q_proj.weight\":{\"dtype\":\"I8\",\"shape\":[512,128]",
           "expected F16, BF16 or F32 of 512 elements, found F32 of 256");
    broken(QF_INT8, "q_proj.weight\":{\"dtype\":\"I8\",\"shape\":[256,256]",
           "q_proj.weight\":{\"dtype\":\"I8\",\"shape\":[65536,1]",
           "expected rows of whole groups of 128 weights, found 1");
    broken(QF_FP8, "down_proj.input_scale", "down_proj.other_scale",
           "down_proj.other_scale: expected only tensors of a llama model");
    broken(QF_FP8, "q_proj.weight_scale", "q_proj.wei_ht_scale",
           "q_proj.weight_scale: expected this tensor, found none");
    broken(QF_FP8, "q_proj.weight\":{\"dtype\":\"F8_E4M3\"",
           "q_proj.weight\":{\"dtype\":\"F8_E5M2\"", "F8_E5M2");
}

/* The last tensors of a GPTQ folder are the bias and g_idx of the last matrix. */
static void broken_bytes(size_t from_end, const void *bytes, size_t n, const char *why)
{
    qf_write("q", qf_scheme_of(QF_GPTQ), seeded("order"));
    memcpy(qf.data + qf.data_n - from_end, bytes, n);
    qf.head_n--;
    qf_write_tensors();
    refused(qf_scheme_of(QF_GPTQ)->config, why);
}

TEST(order_and_biases_are_refused)
{
    const int32_t group = 1;
    const uint16_t bias = 1;

    broken_bytes(
        sizeof(group) * QF_HIDDEN, &group, sizeof(group),
        "down_proj.g_idx: expected groups of neighbours, found weights in another "
        "order (desc_act, actorder)");
    broken_bytes(sizeof(group) * QF_HIDDEN + 2 * QF_DIM, &bias, sizeof(bias),
                 "down_proj.bias: expected only tensors of a llama model");
}

/* Weights of 8 bits may have zeros which are all 0. */
TEST(zeros_of_8_bits)
{
    static int8_t zeros[QF_DIM];
    const struct qf_scheme *s = qf_scheme_of(QF_INT8);

    for (int i = 0; i < 2; i++) {
        struct format_file *f;

        qf_write("q", s, seeded("zeros"));
        qf.head_n--;
        zeros[QF_DIM - 1] = (int8_t)i;
        qf_add("model.layers.0.mlp.down_proj", ".weight_zero_point", "I8", QF_DIM, 1,
               zeros, 1);
        qf_write_tensors();
        if (i == 1) {
            refused(s->config, "down_proj.weight_zero_point: expected zeros");
            continue;
        }
        assert_ok(format_open(&f, qf.dir));
        format_close(&f);
    }
}

/* Damage anywhere is read as a sound model or refused, and so is a want of memory. */
TEST(damaged_folders)
{
    static const enum qf_layout layouts[] = {QF_GPTQ, QF_INT4, QF_FP8};

    for (int i = 0; i < 3; i++) {
        struct test_document d = {.parse = small_parse};
        char path[340];

        qf_write("q", qf_scheme_of(layouts[i]), seeded("damaged"));
        snprintf(path, sizeof(path), "%s/model.safetensors", qf.dir);
        d.path = path, d.opened = d.named = qf.dir;
        d.data = qf.file, d.n = qf.file_n;
        (void)test_allocations(small_parse(qf.dir), true);
        assert_true(test_mutants(&d, 200) > 0);
        (void)test_cuts(&d, 8 + qf.head_n, NULL);
    }
}

/* What `explain-support` prints are the methods that are read. */
TEST(methods_are_listed)
{
    for (int s = 0; s < QF_N_SCHEMES; s++) {
        bool listed = false;

        for (const struct format_quant_method *m = format_quant_methods; m->name; m++)
            listed |= strstr(qf_schemes[s].config, m->name) != NULL;
        assert_true(listed);
    }
}
