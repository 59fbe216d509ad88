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

/* One defect each, and what the refusal says. */
enum defect {
    DUP_KEY,
    DUP_TENSOR,
    OVERLAP,
    PAST_END,
    ALIGN_3,
    ALIGN_0,
    ODD_OFFSET,
    NESTED,
    HUGE_ARRAY,
    HUGE_STRING,
    BOOL_2,
    EMPTY_KEY,
    FIVE_DIMS,
    ZERO_DIM,
    DIM_OVERFLOW,
    TYPE_99,
    Q2_K,
    PART_BLOCK,
    VECTOR_Q8_0,
    SHAPE,
    MISSING,
    UNKNOWN_TENSOR,
    ARCH,
    NO_ARCH,
    EXPERTS,
    YARN,
    QK_BIAS,
    VERSION_2,
    SWAPPED,
    N_DEFECTS
};

static const struct {
    int code;
    const char *part;
} refusal[N_DEFECTS] = {
    [DUP_KEY] = {ERR_FORMAT, "key general.name: expected once, found twice"},
    [DUP_TENSOR] = {ERR_FORMAT, "tensor output_norm.weight: expected once, found twice"},
    [OVERLAP] = {ERR_FORMAT, "(where token_embd.weight ends)"},
    [PAST_END] = {ERR_FORMAT, "found a file of"},
    [ALIGN_3] = {ERR_FORMAT, "general.alignment: expected a power of two"},
    [ALIGN_0] = {ERR_FORMAT, "general.alignment"},
    [ODD_OFFSET] = {ERR_FORMAT, "expected an offset that 32 divides"},
    [NESTED] = {ERR_UNSUPPORTED, "found array"},
    [HUGE_ARRAY] = {ERR_FORMAT, "array: expected"},
    [HUGE_STRING] = {ERR_FORMAT, "string value: expected"},
    [BOOL_2] = {ERR_FORMAT, "expected 0 or 1, found 2"},
    [EMPTY_KEY] = {ERR_FORMAT, "key: expected 1 to"},
    [FIVE_DIMS] = {ERR_FORMAT, "expected 1 to 4 dimensions, found 5"},
    [ZERO_DIM] = {ERR_FORMAT, "dimension 0"},
    [DIM_OVERFLOW] = {ERR_FORMAT, "dimension 1"},
    [TYPE_99] = {ERR_UNSUPPORTED, "found 99"},
    [Q2_K] = {ERR_UNSUPPORTED,
              "blk.0.ffn_down.weight: expected type F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
              "Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, found Q2_K"},
    [PART_BLOCK] =
        {ERR_FORMAT,
         "blk.0.ffn_down.weight: expected rows of whole Q4_K blocks below 2^64 "
         "bytes, found rows of 128"},
    [VECTOR_Q8_0] = {ERR_UNSUPPORTED,
                     "tensor blk.0.ffn_norm.weight: expected a vector of "
                     "F32, F16 or BF16, found q8_0"},
    [SHAPE] = {ERR_FORMAT, "blk.0.ffn_down.weight: expected shape [8, 6], found [6, 8]"},
    [MISSING] = {ERR_FORMAT,
                 "blk.0.ffn_down.weight: expected shape [8, 6], found no such"},
    [UNKNOWN_TENSOR] = {ERR_UNSUPPORTED, "blk.0.attn_q_norm.weight"},
    [ARCH] = {ERR_UNSUPPORTED,
              "expected llama (also Mistral), qwen2 or qwen3, found gemma3"},
    [NO_ARCH] = {ERR_NOTFOUND, "general.architecture"},
    [EXPERTS] = {ERR_UNSUPPORTED, "llama.expert_count: expected 0, found 8"},
    [YARN] = {ERR_UNSUPPORTED, "expected none or linear, found yarn"},
    [QK_BIAS] = {ERR_UNSUPPORTED, "blk.0.attn_q.bias"},
    [VERSION_2] = {ERR_UNSUPPORTED, "version: expected 3, found 2"},
    [SWAPPED] = {ERR_UNSUPPORTED, "big-endian"},
};

static void defective_keys(struct small *s, enum defect d)
{
    if (d != NO_ARCH)
        small_keys(s, d == ARCH ? "gemma3" : "llama");
    if (d == DUP_KEY)
        small_key_str(s, "general.name", "again");
    if (d == ALIGN_3 || d == ALIGN_0)
        small_key_u32(s, "general.alignment", d == ALIGN_3 ? 3 : 0);
    if (d == NESTED || d == HUGE_ARRAY) {
        small_key(s, "a", GGUF_ARRAY);
        small_u32(s, d == NESTED ? GGUF_ARRAY : GGUF_U64);
        small_u64(s, d == NESTED ? 1 : UINT64_MAX / 8 + 2);
    }
    if (d == HUGE_STRING) {
        small_key(s, "s", GGUF_STRING);
        small_u64(s, UINT64_MAX - 3);
    }
    if (d == BOOL_2) {
        small_key(s, "b", GGUF_BOOL);
        small_put(s, "\2", 1);
    }
    if (d == EMPTY_KEY)
        small_key_u32(s, "", 1);
    if (d == EXPERTS)
        small_key_u32(s, "llama.expert_count", 8);
    if (d == YARN)
        small_key_str(s, "llama.rope.scaling.type", "yarn");
}

static void raw_tensor(struct small *s, uint32_t n_dims, uint64_t d0, uint64_t d1)
{
    small_str(s, "extra");
    small_u32(s, n_dims);
    small_u64(s, d0);
    small_u64(s, d1);
    small_u32(s, 0);
    small_u64(s, 0);
    s->n_tensors++;
}

static void defective_tensors(struct small *s, enum defect d)
{
    uint64_t at = s->data;

    if (d == DUP_TENSOR)
        small_tensor(s, "output_norm.weight", S_DIM, 0, 0);
    if (d == UNKNOWN_TENSOR)
        small_tensor(s, "blk.0.attn_q_norm.weight", S_HEAD_DIM, 0, 0);
    if (d == QK_BIAS)
        small_tensor(s, "blk.0.attn_q.bias", S_DIM, 0, 0);
    if (d == TYPE_99)
        small_tensor(s, "extra", 32, 0, 99);
    if (d == FIVE_DIMS)
        raw_tensor(s, 5, 1, 1);
    if (d == ZERO_DIM)
        raw_tensor(s, 2, 0, 1);
    if (d == DIM_OVERFLOW)
        raw_tensor(s, 2, 1ull << 32, 1ull << 32);
    if (d == OVERLAP || d == ODD_OFFSET || d == PAST_END) {
        s->data = d == OVERLAP ? 0 : d == ODD_OFFSET ? 4 : 1ull << 40;
        small_tensor(s, "extra", 8, 0, 0);
        s->data = at;
    }
}

/* Give a vector another type: it stands behind name, number of dimensions and length. */
static void retype(struct small *s, const char *name, uint32_t type)
{
    uint8_t *at = memmem(s->b, s->n, name, strlen(name));

    assert_non_null(at);
    memcpy(at + strlen(name) + 4 + 8, &type, sizeof(type));
}

static void make_defective(struct small *s, enum defect d)
{
    struct small all;
    uint64_t before;

    if (d == VECTOR_Q8_0) {
        small_gguf_quantised(s);
        retype(s, "blk.0.ffn_norm.weight", 8);
        return;
    }
    small_begin(s);
    defective_keys(s, d);
    small_tensors(s);
    if (d == MISSING || d == SHAPE || d == Q2_K ||
        d == PART_BLOCK) { /* write the last tensor again */
        small_begin(&all);
        defective_keys(&all, d);
        small_tensors(&all);
        before = 8 + strlen("blk.0.ffn_down.weight") + 4 + 16 + 4 + 8;
        s->n -= before;
        s->n_tensors--;
        s->data = all.data - 192;
        if (d == SHAPE)
            small_tensor(s, "blk.0.ffn_down.weight", S_DIM, S_HIDDEN, 0);
        if (d == Q2_K)
            small_tensor(s, "blk.0.ffn_down.weight", 256, 1, 10);
        if (d == PART_BLOCK)
            small_tensor(s, "blk.0.ffn_down.weight", 128, 1, 12);
    }
    defective_tensors(s, d);
    small_end(s);
    if (d == VERSION_2)
        s->b[4] = 2;
    if (d == SWAPPED)
        memcpy(s->b + 4, "\0\0\0\3", 4);
}

TEST(each_defect_is_named)
{
    struct small s;
    const struct test_document d = {.path = test_path("s.gguf"), .parse = small_parse};

    for (int i = 0; i < N_DEFECTS; i++) {
        make_defective(&s, (enum defect)i);
        assert_err(test_parse(&d, s.b, s.n), refusal[i].code, refusal[i].part);
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
