#include "tests/format/small.h"

#include <math.h>

static const char *write_small(const struct small *s)
{
    const char *path = test_path("s.gguf");

    test_write(path, s->b, s->n);
    return path;
}

TEST(small_model_opens)
{
    struct format_file *f;
    struct small s;
    float v;

    small_gguf(&s);
    assert_ok(format_open(&f, write_small(&s)));
    assert_string_equal(f->format, "gguf");
    assert_string_equal(f->config.name, "small");
    assert_int_equal(f->config.head_dim, S_HEAD_DIM); /* by division */
    assert_int_equal(f->config.vocab, S_VOCAB);       /* by the list of tokens */
    assert_true(f->config.tied);
    assert_true(f->rope_interleaved);
    assert_true(f->config.rope_theta == 10000); /* the default */
    assert_int_equal(f->config.bos_id, 1);
    assert_int_equal(f->config.eos_id, 2);
    assert_int_equal(f->file_bytes, (int64_t)s.n);
    /* the second tensor begins after 5 x 8 values */
    memcpy(&v, f->global[FORMAT_OUT_NORM].data, sizeof(v));
    assert_true(v == 40.0f / 256);
    format_drop(&f->global[FORMAT_EMBED]); /* may drop nothing; must not hurt */
    (void)small_touch(f);
    format_close(&f);
    assert_null(f);
}

/* One key of each kind that the tests below ask for. */
static struct gguf *open_typed(void)
{
    struct small s;
    struct gguf *g;

    small_begin(&s);
    small_key(&s, "i8", GGUF_I8);
    small_put(&s, "\xff", 1);
    small_key(&s, "u64", GGUF_U64);
    small_u64(&s, UINT64_MAX);
    small_key_f32(&s, "f32", 0.5f);
    small_key_str(&s, "str", "text");
    small_key(&s, "bool", GGUF_BOOL);
    small_put(&s, "\1", 1);
    small_key(&s, "words", GGUF_ARRAY);
    small_u32(&s, GGUF_STRING);
    small_u64(&s, 2);
    small_str(&s, "one");
    small_str(&s, "");
    small_key(&s, "shorts", GGUF_ARRAY);
    small_u32(&s, GGUF_U16);
    small_u64(&s, 2);
    small_put(&s, "\1\0\2\1", 4);
    small_end(&s);
    assert_ok(gguf_open(&g, write_small(&s)));
    return g;
}

TEST(metadata_is_typed)
{
    struct gguf *g = open_typed();
    const char *str = NULL;
    int64_t i = 7;
    double d = 7;
    bool b = false;
    size_t len;

    assert_ok(gguf_get_int(g, "i8", &i));
    assert_int_equal(i, -1);
    assert_err(gguf_get_int(g, "u64", &i), ERR_FORMAT,
               "u64: expected an integer below 2^63");
    assert_err(gguf_get_int(g, "f32", &i), ERR_FORMAT, "found f32");
    assert_err(gguf_get_int(g, "words", &i), ERR_FORMAT, "found array");
    assert_err(gguf_get_int(g, "none", &i), ERR_NOTFOUND, "none");
    assert_ok(gguf_get_f64(g, "f32", &d));
    assert_true(d == 0.5);
    assert_ok(gguf_get_f64(g, "i8", &d));
    assert_true(d == -1);
    assert_err(gguf_get_f64(g, "str", &d), ERR_FORMAT, "found string");
    assert_ok(gguf_opt_bool(g, "bool", &b));
    assert_true(b);
    assert_err(gguf_opt_bool(g, "i8", &b), ERR_FORMAT, "expected a bool");
    assert_ok(gguf_get_str(g, "str", &str, &len));
    assert_int_equal(len, 4);
    assert_memory_equal(str, "text", 4);

    err_clear();
    i = 7;
    assert_ok(gguf_opt_int(g, "none", &i));
    assert_ok(gguf_opt_f64(g, "none", &d));
    assert_ok(gguf_opt_str(g, "none", &str, &len));
    assert_int_equal(i, 7);
    assert_string_equal(err_msg(), "");
    assert_true(gguf_has(g, "words") && !gguf_has(g, "word") && !gguf_has(g, "wordss"));
    gguf_close(&g);
    assert_null(g);
}

TEST(arrays_are_typed)
{
    struct gguf *g = open_typed();
    enum gguf_type type;
    const void *h;
    const char *str;
    uint64_t n;
    int64_t i;
    float v;
    size_t len;

    assert_ok(gguf_get_array(g, "words", &type, &n, &h));
    assert_int_equal(type, GGUF_STRING);
    assert_int_equal(n, 2);
    assert_ok(gguf_array_str(h, 0, &str, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(str, "one", 3);
    assert_ok(gguf_array_str(h, 1, &str, &len));
    assert_int_equal(len, 0);
    assert_err(gguf_array_str(h, 2, &str, &len), ERR_ARG, "below 2, found 2");
    assert_err(gguf_array_int(h, 0, &i), ERR_FORMAT, "found string");
    assert_ok(gguf_get_array(g, "shorts", &type, &n, &h));
    assert_ok(gguf_array_int(h, 1, &i));
    assert_int_equal(i, 0x102);
    assert_ok(gguf_array_f32(h, 0, &v));
    assert_true(v == 1);
    assert_err(gguf_array_str(h, 0, &str, &len), ERR_FORMAT, "expected strings");
    assert_err(gguf_get_array(g, "str", &type, &n, &h), ERR_FORMAT, "expected an array");
    gguf_close(&g);
}

/* One defect each, and what the refusal says: a key or a tensor more, or the last tensor,
 * blk.0.ffn_down.weight, left out or written otherwise. */
struct defect {
    int code;
    const char *part;
    const char *arch; /* NULL: llama; "": no keys at all */
    const char *key;
    enum gguf_type key_type;
    const void *value; /* [value_bytes] */
    size_t value_bytes;
    bool no_down;
    const char *tensor;
    uint64_t cols, rows;
    uint32_t type;
    uint64_t offset; /* 0: behind the others */
};
#define KEY(name, its_type, bytes)                                                       \
    .key = name, .key_type = its_type, .value = bytes, .value_bytes = sizeof(bytes) - 1
#define DOWN .no_down = true, .tensor = "blk.0.ffn_down.weight"

static const struct defect defects[] = {
    {ERR_FORMAT, "key general.name: expected once, found twice",
     KEY("general.name", GGUF_STRING, "\1\0\0\0\0\0\0\0x")},
    {ERR_FORMAT, "general.alignment: expected a power of two",
     KEY("general.alignment", GGUF_U32, "\3\0\0\0")},
    {ERR_FORMAT, "general.alignment", KEY("general.alignment", GGUF_U32, "\0\0\0\0")},
    {ERR_UNSUPPORTED, "found array", KEY("a", GGUF_ARRAY, "\x9\0\0\0\1\0\0\0\0\0\0\0")},
    {ERR_FORMAT, "array: expected", /* 2^61 + 1 numbers of 8 bytes */
     KEY("a", GGUF_ARRAY, "\xa\0\0\0\1\0\0\0\0\0\0\x20")},
    {ERR_FORMAT, "string value: expected",
     KEY("s", GGUF_STRING, "\xfc\xff\xff\xff\xff\xff\xff\xff")},
    {ERR_FORMAT, "expected 0 or 1, found 2", KEY("b", GGUF_BOOL, "\2")},
    {ERR_FORMAT, "key: expected 1 to", KEY("", GGUF_U32, "\1\0\0\0")},
    {ERR_FORMAT, "llama.expert_used_count: expected this key, found none",
     KEY("llama.expert_count", GGUF_U32, "\x8\0\0\0")},
    {ERR_UNSUPPORTED, "expected none, linear, yarn or longrope, found ntks",
     KEY("llama.rope.scaling.type", GGUF_STRING, "\4\0\0\0\0\0\0\0ntks")},
    {ERR_UNSUPPORTED, "lists as known, found mamba9", .arch = "mamba9"},
    {ERR_UNSUPPORTED, "found mamba2, which needs state-space layers", .arch = "mamba2"},
    {ERR_NOTFOUND, "general.architecture", .arch = ""},
    {ERR_FORMAT, "tensor output_norm.weight: expected once, found twice",
     .tensor = "output_norm.weight", .cols = S_DIM},
    {ERR_UNSUPPORTED, "blk.0.attn_q_norm.weight", .tensor = "blk.0.attn_q_norm.weight",
     .cols = S_HEAD_DIM},
    {ERR_FORMAT, "blk.0.attn_k.bias: expected shape [1, 4], found no such",
     .tensor = "blk.0.attn_q.bias", .cols = S_DIM},
    {ERR_UNSUPPORTED, "blk.0.attn_k.bias", .tensor = "blk.0.attn_k.bias",
     .cols = S_HEAD_DIM},
    {ERR_UNSUPPORTED, "blk.0.ffn_down.bias", .tensor = "blk.0.ffn_down.bias",
     .cols = S_DIM},
    {ERR_FORMAT, "blk.0.attn_output.bias: expected shape [1, 8], found [1, 4]",
     .tensor = "blk.0.attn_output.bias", .cols = S_HEAD_DIM},
    {ERR_UNSUPPORTED, "found 99", .tensor = "extra", .cols = 32, .type = 99},
    {ERR_FORMAT, "(where token_embd.weight ends)", .tensor = "extra", .cols = 8,
     .offset = 32},
    {ERR_FORMAT, "expected an offset that 32 divides", .tensor = "extra", .cols = 8,
     .offset = 4},
    {ERR_FORMAT, "found a file of", .tensor = "extra", .cols = 8, .offset = 1ull << 40},
    {ERR_FORMAT, "blk.0.ffn_down.weight: expected shape [8, 6], found [6, 8]", DOWN,
     .cols = S_DIM, .rows = S_HIDDEN},
    {ERR_FORMAT, "blk.0.ffn_down.weight: expected shape [8, 6], found no such",
     .no_down = true},
    {ERR_UNSUPPORTED,
     "blk.0.ffn_down.weight: expected type F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
     "Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, IQ4_XS or MXFP4, found IQ2_XXS, "
     "whose codes name vectors or thirds of bits: a copy in Q3_K or IQ4_XS loads",
     DOWN, .cols = 256, .rows = 1, .type = 16},
    {ERR_FORMAT,
     "blk.0.ffn_down.weight: expected rows of whole Q4_K blocks below 2^64 bytes, found "
     "rows of 128",
     DOWN, .cols = 128, .rows = 1, .type = 12},
    {ERR_FORMAT, "dimension 0", .tensor = "extra", .cols = 0, .rows = 1},
    {ERR_FORMAT, "dimension 1", .tensor = "extra", .cols = 1ull << 32,
     .rows = 1ull << 32},
};

static void make_defective(struct small *s, const struct defect *d)
{
    uint64_t end;

    small_begin(s);
    if (!d->arch || *d->arch)
        small_keys(s, d->arch ? d->arch : "llama");
    if (d->key) {
        small_key(s, d->key, d->key_type);
        small_put(s, d->value, d->value_bytes);
    }
    small_tensors(s);
    if (d->no_down) { /* its entry: name, number of dimensions, both, type, offset */
        s->n -= 8 + strlen("blk.0.ffn_down.weight") + 4 + 16 + 4 + 8;
        s->n_tensors--;
        s->data -= 192;
    }
    end = s->data;
    if (d->offset)
        s->data = d->offset;
    if (d->tensor)
        small_tensor(s, d->tensor, d->cols, d->rows, d->type);
    if (d->offset)
        s->data = end;
    small_end(s);
}

TEST(each_defect_is_named)
{
    const struct test_document d = {.path = test_path("s.gguf"), .parse = small_parse};
    struct small s;

    for (size_t i = 0; i < sizeof(defects) / sizeof(defects[0]); i++) {
        make_defective(&s, &defects[i]);
        assert_err(test_parse(&d, s.b, s.n), defects[i].code, defects[i].part);
    }
}

TEST(each_wrong_number_is_named)
{
    static const struct {
        const char *name;
        size_t at; /* behind the name */
        uint32_t value;
        int code;
        const char *part;
    } numbers[] = {
        {"GGUF", 0, 2, ERR_UNSUPPORTED, "version: expected 3, found 2"},
        {"GGUF", 0, 3u << 24, ERR_UNSUPPORTED, "big-endian"},
        {"output_norm.weight", 0, 5, ERR_FORMAT, "expected 1 to 4 dimensions, found 5"},
        {"blk.0.ffn_norm.weight", 4 + 8, 8, ERR_UNSUPPORTED,
         "tensor blk.0.ffn_norm.weight: expected a vector of F32, F16 or BF16, found "
         "q8_0"},
    };
    const struct test_document d = {.path = test_path("s.gguf"), .parse = small_parse};
    struct small s;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t n = strlen(numbers[i].name);
        uint8_t *at;

        small_gguf_quantised(&s);
        at = memmem(s.b, s.n, numbers[i].name, n);
        assert_non_null(at);
        memcpy(at + n + numbers[i].at, &numbers[i].value, sizeof(numbers[i].value));
        assert_err(test_parse(&d, s.b, s.n), numbers[i].code, numbers[i].part);
    }
}

TEST(quantised_tensors_are_read)
{
    static const struct {
        enum format_role role;
        enum kern_type type;
        double bits; /* of a weight, with its share of the scales */
    } of[] = {{FORMAT_Q, KERN_Q4_K, 4.5},    {FORMAT_K, KERN_Q4_K, 4.5},
              {FORMAT_V, KERN_Q6_K, 6.5625}, {FORMAT_O, KERN_Q4_1, 5},
              {FORMAT_GATE, KERN_Q5_K, 5.5}, {FORMAT_UP, KERN_Q8_0, 8.5},
              {FORMAT_DOWN, KERN_Q4_0, 4.5}};
    struct format_file *f;
    struct small s;

    small_gguf_quantised(&s);
    assert_ok(format_open(&f, write_small(&s)));
    assert_int_equal(f->global[FORMAT_EMBED].type, KERN_Q6_K);
    assert_true((const uint8_t *)f->global[FORMAT_OUT_NORM].data -
                    (const uint8_t *)f->global[FORMAT_EMBED].data ==
                (5 * 210 + 31) / 32 * 32);
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        const struct format_tensor *t = format_layer_tensor(f, 0, of[i].role);

        assert_int_equal(t->type, of[i].type);
        assert_true((double)kern_type_size(t->type, t->cols) ==
                    (double)t->cols * of[i].bits / 8);
    }
    /* 36 rows of 256 weights, and at most 32 of other types. Packed, the scales of Q4_K and
     * Q5_K take an eighth of a bit more. */
    assert_int_equal(f->config.weight_type, KERN_Q4_K);
    assert_int_equal(f->config.k_block, 32);
    assert_true(f->config.v_split);
    assert_true(fabs(f->config.mean_bytes[MODEL_QKV] * 8 -
                     (36 * 4.625 + 4 * 6.5625) / 40) < 1e-12);
    assert_true(fabs(f->config.mean_bytes[MODEL_FFN] * 8 - (5.625 + 8.5 + 4.5) / 3) <
                1e-12);
    assert_true(f->config.mean_bytes[MODEL_HEAD] * 8 == 6.5625); /* tied */
    (void)small_touch(f);
    format_close(&f);
}

TEST(linear_scaling_and_divisors)
{
    struct format_file *f;
    struct small s;

    small_begin(&s);
    small_keys(&s, "llama");
    small_key_str(&s, "llama.rope.scaling.type", "linear");
    small_key_f32(&s, "llama.rope.scaling.factor", 4);
    small_tensors(&s);
    small_end(&s);
    assert_ok(format_open(&f, write_small(&s)));
    assert_true(f->config.rope_factor[0] == 4 && f->config.rope_factor[1] == 4);
    format_close(&f);

    small_begin(&s);
    small_keys(&s, "llama");
    small_tensor(&s, "rope_freqs.weight", S_HEAD_DIM / 2, 0, 0);
    small_tensors(&s);
    small_end(&s);
    memcpy(s.b + s.head_n, &(float[2]){1, 8}, 8);
    assert_ok(format_open(&f, write_small(&s)));
    assert_true(f->config.rope_factor[0] == 1 && f->config.rope_factor[1] == 8);
    format_close(&f);
}

TEST(no_model_at_all)
{
    struct format_file *f;
    char *fifo = strdup(test_path("pipe.bin"));

    assert_err(format_open(&f, "/no/such/file"), ERR_IO, "/no/such/file");
    test_write(test_path("text.txt"), "hello", 5);
    assert_err(format_open(&f, test_path("text.txt")), ERR_FORMAT,
               "expected a GGUF file");
    test_write(test_path("empty.gguf"), "", 0);
    assert_err(format_open(&f, test_path("empty.gguf")), ERR_FORMAT, "empty.gguf");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_err(format_open(&f, fifo), ERR_FORMAT, "found none"); /* and does not wait */
    free(fifo);
}

/* Each allocation fails in turn: a clean error, nothing leaked (the sanitizer looks). */
TEST(every_allocation_may_fail)
{
    struct format_file *f;
    struct small s;
    const char *path;

    small_gguf(&s);
    path = write_small(&s);
    assert_true(test_allocations(format_open(&f, path), !f) > 5);
    format_close(&f);
}

TEST(type_names)
{
    assert_string_equal(gguf_ggml_type_name(12), "Q4_K");
    assert_string_equal(gguf_ggml_type_name(30), "BF16");
    assert_string_equal(gguf_ggml_type_name(4), "type 4"); /* retired numbers */
    assert_string_equal(gguf_ggml_type_name(UINT32_MAX), "type 4294967295");
}
/* A model whose sizes are numbers for each layer; of two layers there are no tensors. */
static int open_layers(struct format_file **f, uint32_t n_layers, const uint32_t *kv,
                       uint64_t n_kv)
{
    struct small s;

    small_begin(&s);
    small_key_str(&s, "general.architecture", "llama");
    small_key_u32(&s, "llama.context_length", S_CTX);
    small_key_u32(&s, "llama.embedding_length", S_DIM);
    small_key_u32(&s, "llama.block_count", n_layers);
    small_key_u32(&s, "llama.vocab_size", S_VOCAB);
    small_key(&s, "llama.feed_forward_length", GGUF_ARRAY);
    small_u32(&s, GGUF_I32);
    small_u64(&s, n_layers);
    for (uint32_t i = 0; i < n_layers; i++)
        small_u32(&s, S_HIDDEN);
    small_key_u32(&s, "llama.attention.head_count", S_HEADS);
    small_key(&s, "llama.attention.head_count_kv", GGUF_ARRAY);
    small_u32(&s, GGUF_U32);
    small_u64(&s, n_kv);
    for (uint64_t i = 0; i < n_kv; i++)
        small_u32(&s, kv[i]);
    small_key_f32(&s, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    small_tensors(&s);
    small_end(&s);
    return format_open(f, write_small(&s));
}

/* The numbers of all layers were refused as "an integer", also where they are one number. */
TEST(numbers_for_each_layer)
{
    static const uint32_t same[] = {S_KV, S_KV}, differ[] = {S_KV, S_HEADS};
    struct format_file *f;

    assert_ok(open_layers(&f, 1, same, 1));
    assert_int_equal(f->config.hidden, S_HIDDEN);
    assert_int_equal(f->config.n_kv_heads, S_KV);
    format_close(&f);
    assert_err(open_layers(&f, 2, differ, 2), ERR_UNSUPPORTED,
               "llama.attention.head_count_kv: expected the same number for every layer");
    assert_err(open_layers(&f, 2, same, 1), ERR_FORMAT, "one for each of 2 layers");
}
