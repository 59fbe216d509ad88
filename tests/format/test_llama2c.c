#include "tests/format/small.h"

static float first(const struct format_tensor *t)
{
    float v;

    memcpy(&v, t->data, sizeof(v));
    return v * 256; /* the index of the value in the file */
}

TEST(tensors_lie_in_order)
{
    struct format_file *f;
    struct small s;

    small_llama2c(&s, -S_VOCAB);
    test_write(test_path("s.bin"), s.b, s.n);
    assert_ok(format_open(&f, test_path("s.bin")));
    assert_string_equal(f->format, "llama2c");
    assert_string_equal(f->config.name, "s");
    assert_false(f->config.tied);
    assert_true(f->rope_interleaved);
    assert_int_equal(f->config.max_tok, S_CTX);
    assert_int_equal(f->config.bos_id, 1);
    assert_int_equal(f->config.eos_id, 2);
    assert_true(first(&f->global[FORMAT_EMBED]) == 0);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_ATTN_NORM)) == 40);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_Q)) == 48);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_K)) == 112);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_V)) == 144);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_O)) == 176);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_FFN_NORM)) == 240);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_GATE)) == 248);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_DOWN)) == 296);
    assert_true(first(format_layer_tensor(f, 0, FORMAT_UP)) == 344);
    assert_true(first(&f->global[FORMAT_OUT_NORM]) == 392);
    /* 16 x 4 / 2 cosines and as many sines lie between */
    assert_true(first(&f->global[FORMAT_HEAD]) == 464);
    (void)small_touch(f);
    format_close(&f);

    small_llama2c(&s, S_VOCAB);
    test_write(test_path("s.bin"), s.b, s.n);
    assert_ok(format_open(&f, test_path("s.bin")));
    assert_true(f->config.tied);
    assert_null(f->global[FORMAT_HEAD].data);
    format_close(&f);
}

TEST(headers_are_checked)
{
    static const struct {
        size_t field;
        int32_t value;
        int code;
        const char *part;
    } cases[] = {
        {0, 0, ERR_FORMAT, "offset 0: dim: expected at least 1, found 0"},
        {1, -1, ERR_FORMAT, "offset 4: hidden"},
        {2, 1 << 20, ERR_LIMIT, "n_layers"},
        {3, 3, ERR_FORMAT, "offset 12: n_heads: expected a divisor of dim 8, found 3"},
        {4, 0, ERR_FORMAT, "n_kv_heads"},
        {5, INT32_MIN, ERR_FORMAT, "offset 20: vocab"},
        {5, 6, ERR_FORMAT, "bytes by its header"},
        {6, 17, ERR_FORMAT, "bytes by its header"},
        {0, 0x616b3432, ERR_UNSUPPORTED, "later version"},
    };
    struct test_document d;
    struct small s;

    small_llama2c(&s, S_VOCAB);
    d = small_document(&s, test_path("s.bin"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        small_llama2c(&s, S_VOCAB);
        memcpy(s.b + 4 * cases[i].field, &cases[i].value, 4);
        assert_err(test_parse(&d, s.b, s.n), cases[i].code, cases[i].part);
    }
    small_llama2c(&s, S_VOCAB); /* one byte more is wrong too */
    assert_err(test_parse(&d, s.b, s.n + 1), ERR_FORMAT, "bytes by its header");
}

TEST(every_allocation_may_fail)
{
    struct format_file *f;
    struct small s;

    small_llama2c(&s, S_VOCAB);
    test_write(test_path("s.bin"), s.b, s.n);
    assert_true(test_allocations(format_open(&f, test_path("s.bin")), !f) > 2);
    format_close(&f);
}

TEST(stories_260k)
{
    const char *path = test_need_data("models/stories260K.bin");
    struct format_file *f;

    assert_ok(format_open(&f, path));
    assert_int_equal(f->config.dim, 64);
    assert_int_equal(f->config.hidden, 172);
    assert_int_equal(f->config.n_layers, 5);
    assert_int_equal(f->config.n_heads, 8);
    assert_int_equal(f->config.n_kv_heads, 4);
    assert_int_equal(f->config.vocab, 512);
    assert_int_equal(f->config.max_tok, 512);
    (void)small_touch(f);
    format_close(&f);
}
