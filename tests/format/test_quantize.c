/* `model quantize` and the quantised types of `model make`: both write the blocks that the
 * definition asks for, around the metadata and vectors of the model, or nothing. */
#include "tests/support/test.h"
#include "tests/support/leftovers.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "format/fill.h"
#include "format/format.h"
#include "format/gguf.h"
#include "make/make.h"
#include "format/quantize.h"
#include "tests/support/naive_quant.h"

/* Regression: a model could not be made with a scheme that is called as a type, such as
 * q4_0, by its name. */

static const struct kern_quant_scheme *scheme(const char *name)
{
    const struct kern_quant_scheme *s;

    assert_ok(kern_quant_scheme_find(name, &s));
    return s;
}

static const char *plain_model(const char *arch, enum kern_type type, const char *name)
{
    const char *path = test_path(name);
    const struct make_opts o = {.arch = arch,
                                .type = type,
                                .seed = 5,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 2};

    assert_ok(make_model(&o));
    return path;
}

static int quantize(const char *in, const char *out, const char *name, int n_threads)
{
    const struct format_quantize_opts o = {
        .in = in, .out = out, .scheme = scheme(name), .n_threads = n_threads};

    return format_quantize(&o);
}

static const char *word(enum format_role role, int layer, const char *name)
{
    static char text[80];

    snprintf(text, sizeof(text), "role %d of layer %d as %s", (int)role, layer, name);
    return text;
}

/* What a matrix of the scheme is read as. */
static enum kern_type read_as(const struct kern_quant_scheme *s)
{
    return s->type == KERN_Q4_1 && s->group == 0 ? KERN_W4C : s->type;
}

/* Each weight of q is a weight of f32 tensor t to within the scheme's bound. */
static void check_matrix(const struct format_tensor *q, const struct format_tensor *t,
                         const struct kern_quant_scheme *s, const char *what)
{
    const int block = kern_type_block(s->type);
    const int64_t group = s->group ? s->group : t->cols;
    float *w = mem_new(MEM_TEST, (size_t)t->cols, sizeof(*w));
    int64_t step = t->rows / 16 + 1;

    assert_non_null(w);
    assert_int_equal(q->type, read_as(s));
    assert_int_equal(q->rows, t->rows);
    assert_int_equal(q->cols, t->cols);
    for (int64_t row = 0; row < t->rows; row += step) {
        const uint8_t *from =
            (const uint8_t *)q->data + (size_t)row * kern_type_size(q->type, q->cols);

        memcpy(w, (const char *)t->data + (size_t)(row * t->cols) * sizeof(*w),
               (size_t)t->cols * sizeof(*w));
        for (int64_t at = 0; at < t->cols; at += group) {
            int64_t end = at + group < t->cols ? at + group : t->cols;
            float lo = w[at], hi = w[at], bound;

            for (int64_t i = at; i < end; i++)
                lo = fminf(lo, w[i]), hi = fmaxf(hi, w[i]);
            bound = naive_quant_error(s, lo, hi);
            for (int64_t i = at; i < end; i++) {
                double got = naive_weight(
                    s->type, from + (size_t)(i / block) * kern_type_bytes(s->type),
                    (int)(i % block));

                if (!(fabs(got - (double)w[i]) <= (double)bound))
                    fail_msg("%s: row %d, weight %d: %g, was %g, bound %g", what,
                             (int)row, (int)i, got, (double)w[i], (double)bound);
            }
        }
    }
    mem_free(w);
}

/* Regression: biases of experts, which have two dimensions in a GGUF file, were quantised. */
static void check_expert(const struct format_file *q, const struct format_file *f,
                         const struct kern_quant_scheme *s, int layer, int e,
                         enum format_role role)
{
    const struct format_tensor *a = format_expert_tensor(q, layer, e, role);
    const struct format_tensor *b = format_expert_tensor(f, layer, e, role);

    if (!format_role_needed(&f->config, role, layer))
        return;
    if (role < FORMAT_EXPERT_GATE_BIAS) {
        check_matrix(a, b, s, word(role, layer, s->name));
    } else {
        assert_int_equal(a->type, KERN_F32);
        assert_memory_equal(a->data, b->data, (size_t)b->cols * sizeof(float));
    }
}

static void check_tensors(const struct format_file *q, const struct format_file *f,
                          const struct kern_quant_scheme *s)
{
    for (int layer = 0; layer < f->config.n_layers; layer++)
        for (int role = 0; role < FORMAT_N_ROLES; role++) {
            const struct format_tensor *a =
                role < FORMAT_ATTN_NORM
                    ? &q->global[role]
                    : format_layer_tensor(q, layer, (enum format_role)role);
            const struct format_tensor *b =
                role < FORMAT_ATTN_NORM
                    ? &f->global[role]
                    : format_layer_tensor(f, layer, (enum format_role)role);
            const char *what = word((enum format_role)role, layer, s->name);

            if (!b->data || (layer > 0 && role < FORMAT_ATTN_NORM))
                continue;
            if (b->rows > 1 && role != FORMAT_ROUTER) {
                check_matrix(a, b, s, what);
            } else {
                assert_int_equal(a->type, KERN_F32);
                assert_memory_equal(a->data, b->data,
                                    (size_t)(b->rows * b->cols) * sizeof(float));
            }
        }
    for (int layer = 0; layer < f->config.n_layers; layer++)
        for (int e = 0; e < f->config.n_experts; e++)
            for (int r = FORMAT_EXPERT_GATE; r < FORMAT_ALL_ROLES; r++)
                check_expert(q, f, s, layer, e, (enum format_role)r);
}

static void keeps_its_bound(const char *arch)
{
    char plain[400];

    snprintf(plain, sizeof(plain), "%s", plain_model(arch, KERN_F32, "f32.gguf"));
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++) {
        const char *made = test_path("made.gguf"), *out = test_path("out.gguf");
        struct make_opts o = {.arch = arch,
                              .scheme = s,
                              .seed = 5,
                              .format = "gguf",
                              .out = made,
                              .n_threads = 3};
        struct format_file *f, *a, *b;

        assert_ok(make_model(&o));
        assert_ok(quantize(plain, out, s->name, 2));
        assert_ok(format_open(&f, plain));
        assert_ok(format_open(&a, made));
        assert_ok(format_open(&b, out));
        assert_int_equal(a->config.weight_type, read_as(s));
        check_tensors(a, f, s);
        check_tensors(b, f, s);
        for (int role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++) {
            const struct format_tensor *x =
                format_layer_tensor(a, 1, (enum format_role)role);

            if (x->data)
                assert_memory_equal(
                    x->data, format_layer_tensor(b, 1, (enum format_role)role)->data,
                    (size_t)x->rows * kern_type_size(x->type, x->cols));
        }
        format_close(&f);
        format_close(&a);
        format_close(&b);
    }
}

/* A model made with a type is the f32 model of that seed, quantised. */
TEST(every_scheme_keeps_its_bound)
{
    keeps_its_bound("tiny-quant");
    keeps_its_bound("tiny-moe");
    keeps_its_bound("tiny-quant-gpt-oss");
}

TEST(threads_and_input_types)
{
    static const enum kern_type types[] = {KERN_F32, KERN_F16, KERN_BF16};

    for (int t = 0; t < 3; t++) {
        const char *in = plain_model("tiny-quant", types[t], "in.gguf");
        char *first = NULL;
        size_t n_first = 0;

        for (int n = 1; n <= 4; n++) {
            const char *out = test_path("threads.gguf");
            char *now;
            size_t len;

            /* The last time a thread cannot be had: those that there are write all. */
            thread_fail_after(n < 4 ? -1 : 2);
            assert_ok(quantize(in, out, "w4c", n));
            thread_fail_after(-1);
            now = test_read(out, &len);
            if (first) {
                assert_int_equal(len, n_first);
                assert_memory_equal(now, first, len);
                mem_free(now);
            } else {
                first = now;
                n_first = len;
            }
        }
        mem_free(first);
    }
}

static int64_t key_int(const struct gguf *g, const char *key)
{
    int64_t v = -1;

    assert_ok(gguf_opt_int(g, key, &v));
    return v;
}

/* All records but the three that describe the file's types. */
TEST(metadata_is_copied)
{
    const char *in = plain_model("tiny-quant", KERN_BF16, "meta.gguf");
    const char *out = test_path("meta-q.gguf");
    struct gguf *a, *b;

    assert_ok(quantize(in, out, "q4_1", 1));
    assert_ok(gguf_open(&a, in));
    assert_ok(gguf_open(&b, out));
    assert_int_equal(key_int(b, "general.file_type"), 3);
    assert_int_equal(key_int(b, "general.quantization_version"), 2);
    assert_int_equal(gguf_n_keys(b), gguf_n_keys(a) + 1);
    for (uint64_t i = 0, k = 0; i < gguf_n_keys(a); i++, k++) {
        struct gguf_record x, y;

        gguf_key_at(a, i, &x);
        gguf_key_at(b, k, &y);
        if (y.key_n == 28 && memcmp(y.key, "general.quantization_version", 28) == 0)
            gguf_key_at(b, ++k, &y);
        assert_int_equal(x.key_n, y.key_n);
        assert_memory_equal(x.key, y.key, x.key_n);
        if (x.key_n == 17 && memcmp(x.key, "general.file_type", 17) == 0)
            continue;
        assert_int_equal(x.raw_n, y.raw_n);
        assert_memory_equal(x.raw, y.raw, x.raw_n);
    }
    gguf_close(&a);
    gguf_close(&b);
}

/* Put a value at the first weight of a row of a tensor of an f32 file. */
static void poison(const char *path, const char *tensor, int64_t row, float value)
{
    const struct gguf_tensor *t;
    struct gguf *g;
    char *bytes, *base;
    size_t n, at;

    bytes = test_read(path, &n);
    assert_ok(gguf_open(&g, path));
    t = gguf_tensor_find(g, tensor);
    assert_non_null(t);
    base = memmem(bytes, n, t->data, 64);
    assert_non_null(base);
    at = (size_t)(base - bytes) + (size_t)row * t->dims[0] * sizeof(float);
    gguf_close(&g);
    memcpy(bytes + at, &value, sizeof(value));
    test_write(path, bytes, n);
    mem_free(bytes);
}

TEST(refusals_name_the_tensor)
{
    const char *plain = plain_model("tiny-quant", KERN_F32, "ok.gguf");
    const char *odd = plain_model("tiny", KERN_F32, "odd.gguf");
    const char *out = test_path("refused.gguf"), *once = test_path("once.gguf");
    struct make_opts o = {.arch = "tiny",
                          .scheme = scheme("q4_0"),
                          .seed = 1,
                          .format = "gguf",
                          .out = out,
                          .n_threads = 1};

    assert_err(quantize(odd, out, "q8_0", 1), ERR_UNSUPPORTED,
               "expected rows of a multiple of 32 weights for q8_0, found 84");
    assert_err(make_model(&o), ERR_UNSUPPORTED,
               "tensor token_embd.weight: expected rows of a multiple of 32 weights for "
               "q4_0, found 84");
    o.arch = "tiny-quant";
    o.format = "safetensors";
    assert_err(make_model(&o), ERR_UNSUPPORTED, "for safetensors, found q4_0");
    o.format = "gguf";
    o.type = KERN_Q4_0;
    o.scheme = NULL;
    assert_err(make_model(&o), ERR_ARG, "expected f32, f16 or bf16");
    assert_ok(quantize(plain, once, "q4_0", 2));
    assert_err(quantize(once, out, "q4_0", 2), ERR_UNSUPPORTED,
               "found Q4_0: quantising twice would lose precision");
    assert_err(quantize(plain, plain, "q4_0", 2), ERR_ARG, "ok.gguf");
    assert_err(quantize(test_path("none"), out, "q4_0", 2), ERR_IO, "none");
    poison(plain, "blk.1.ffn_down.weight", 3, INFINITY);
    assert_err(
        quantize(plain, out, "q4_0", 2), ERR_ARG,
        "tensor blk.1.ffn_down.weight: row 3: weight 0 of a row: expected a finite "
        "number, found inf");
    poison(plain, "blk.1.ffn_down.weight", 3, 1e9f);
    assert_err(quantize(plain, out, "w4c", 2), ERR_ARG, "the f16 scales of w4c");
    assert_int_equal(access(out, F_OK), -1);
}

TEST(failures_leave_nothing)
{
    const char *plain = plain_model("tiny-quant", KERN_BF16, "full.gguf");
    struct rlimit old, low;
    char parent[300], out[340];
    int rc = ERR_NOMEM;

    snprintf(parent, sizeof(parent), "%s", test_path("fails"));
    snprintf(out, sizeof(out), "%s/out.gguf", parent);
    assert_int_equal(mkdir(parent, 0777), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){20000, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(quantize(plain, out, "q4_0", 2), ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(left_files(parent), 0);
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = quantize(plain, out, "q4_0", 1);
        mem_fail_after(-1, 0);
        if (rc != OK && rc != ERR_NOMEM)
            fail_msg("allocation %ld: %s \"%s\"", n, err_name(rc), err_msg());
        assert_int_equal(left_files(parent), rc == OK);
    }
}
