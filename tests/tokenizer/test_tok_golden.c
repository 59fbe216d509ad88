/* Real vocabularies against the ids their own implementations give. The files are
 * optional data; without them each test is skipped. */
#include "tests/support/test.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static const char *const llama3_specials[] = {"<|begin_of_text|>", "<|end_of_text|>"};
static const struct tok_opts llama3 = {
    .pre = "llama-3", .specials = llama3_specials, .n_specials = 2};
static const struct tok_opts qwen2 = {.pre = "qwen2"};

/* The ids on one line of an .out file; returns the start of the next line. */
static const char *expected(const char *line, int32_t *ids, size_t max, size_t *n)
{
    char *end;

    *n = 0;
    while (*line && *line != '\n') {
        long v = strtol(line, &end, 10);

        if (end == line)
            return line + strlen(line);
        assert_true(*n < max);
        ids[(*n)++] = (int32_t)v;
        line = end;
    }
    return *line ? line + 1 : line;
}

static void check_text(const struct tok *t, int index, const char *text, size_t n,
                       const int32_t *want, size_t n_want)
{
    char *back = mem_new(MEM_TEST, n + 64, 1);
    struct tok_stream s;
    size_t n_ids, at = 0;
    int32_t *ids;

    assert_ok(tok_encode(t, text, n, 0, &ids, &n_ids));
    for (size_t i = 0; i < n_ids && i < n_want; i++)
        if (ids[i] != want[i])
            fail_msg("text %d: id %zu is %d, expected %d", index, i, ids[i], want[i]);
    if (n_ids != n_want)
        fail_msg("text %d: %zu ids, expected %zu", index, n_ids, n_want);
    tok_stream_init(&s, t);
    for (size_t i = 0; i < n_ids; i++) {
        char out[1024];
        size_t m;

        assert_ok(tok_stream_put(&s, ids[i], out, sizeof(out), &m));
        assert_true(at + m <= n);
        memcpy(back + at, out, m);
        at += m;
    }
    assert_int_equal(at, n);
    assert_memory_equal(back, text, n);
    mem_free(back);
    mem_free(ids);
}

static void check_set(const char *vocab, const char *set, const struct tok_opts *o,
                      const char *kind, int n_vocab)
{
    const char *path = test_need_data(vocab);
    char name[256], *inp, *out;
    int32_t want[4096];
    const char *line, *at;
    size_t n_inp, n_out, n_want;
    struct tok *t;
    int n_texts = 0;

    assert_ok(tok_open(&t, path, o));
    assert_string_equal(tok_kind(t), kind);
    assert_int_equal(tok_vocab(t), n_vocab);
    snprintf(name, sizeof(name), "%s.inp", set);
    inp = test_read(test_data(name), &n_inp);
    snprintf(name, sizeof(name), "%s.out", set);
    out = test_read(test_data(name), &n_out);
    line = out;
    for (at = inp; at; n_texts++) {
        const char *end = strstr(at, SEPARATOR);
        size_t n = end ? (size_t)(end - at) : strlen(at);

        line = expected(line, want, 4096, &n_want);
        check_text(t, n_texts, at, n, want, n_want);
        at = end ? end + strlen(SEPARATOR) : NULL;
    }
    assert_int_equal(n_texts, 47);
    mem_free(inp);
    mem_free(out);
    tok_close(&t);
}

TEST(test_llama_spm)
{
    check_set("tokenizers/ggml-vocab-llama-spm.gguf",
              "tokenizers/ggml-vocab-llama-spm.gguf", NULL, "spm", 32000);
}

TEST(test_gpt2)
{
    check_set("tokenizers/ggml-vocab-gpt-2.gguf", "tokenizers/ggml-vocab-gpt-2.gguf",
              NULL, "bpe/gpt-2", 50257);
}

TEST(test_llama3)
{
    check_set("tokenizers/llama3.tokenizer.model", "tokenizers/ggml-vocab-llama-bpe.gguf",
              &llama3, "bpe/llama-3", 128002);
}

TEST(test_llama3_specials)
{
    const char *path = test_need_data("tokenizers/llama3.tokenizer.model");
    static const int32_t want[] = {128000, 128000, 9906, 1917, 128001};
    const char text[] = "<|begin_of_text|>Hello world<|end_of_text|>";
    struct tok *t;
    int32_t *ids;
    size_t n;

    assert_ok(tok_open(&t, path, &llama3));
    assert_int_equal(tok_bos(t), 128000);
    assert_int_equal(tok_eos(t), 128001);
    assert_true(tok_adds_bos(t));
    assert_ok(tok_encode(t, text, sizeof(text) - 1, TOK_BOS | TOK_SPECIAL, &ids, &n));
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof(want));
    mem_free(ids);
    assert_ok(tok_encode(t, text, sizeof(text) - 1, 0, &ids, &n));
    assert_true(n > 10 && ids[0] < 128000);
    mem_free(ids);
    tok_close(&t);
    assert_err(tok_open(&t, path, NULL), ERR_ARG, "pre-tokenizer");
}

TEST(test_qwen)
{
    const char *path = test_need_data("tokenizers/qwen.tiktoken");
    /* One digit a token; the space before a number stands alone. */
    static const int32_t want[] = {9707, 220, 17, 15, 17, 20};
    struct tok *t;
    int32_t *ids;
    char *text;
    size_t n, n_text;

    assert_ok(tok_open(&t, path, &qwen2));
    assert_ok(tok_encode(t, "Hello 2025", 10, 0, &ids, &n));
    assert_int_equal(n, 6);
    assert_memory_equal(ids, want, sizeof(want));
    text = test_read(test_data("tokenizers/ggml-vocab-llama-bpe.gguf.inp"), &n_text);
    mem_free(ids);
    assert_ok(tok_encode(t, text, n_text, 0, &ids, &n));
    check_text(t, 0, text, n_text, ids, n);
    mem_free(ids);
    mem_free(text);
    tok_close(&t);
}

/* The ids that a trained model wrote give the text that is stored with them. */
TEST(test_stories)
{
    const char *tok = test_need_data("models/tok512.bin");
    const char *golden = test_need_data("models/stories260K.greedy.json");
    static const int32_t once[] = {1, 403, 407, 261, 378};
    const json_t *list;
    const char *text;
    char got[4096];
    struct tok_stream s;
    size_t at = 0, m, n;
    int32_t *ids;
    struct tok *t;
    json_t *j;

    assert_ok(tok_open(&t, tok, NULL));
    assert_int_equal(tok_vocab(t), 512);
    assert_ok(tok_encode(t, "Once upon a time", 16, TOK_BOS, &ids, &n));
    assert_int_equal(n, 5);
    assert_memory_equal(ids, once, sizeof(once));
    mem_free(ids);
    assert_ok(json_read_file(&j, golden, 1 << 20));
    assert_ok(json_get_arr(j, "greedy_tokens", &list, golden));
    assert_ok(json_get_str(j, "text", &text, golden));
    tok_stream_init(&s, t);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(list, i));

        assert_ok(tok_stream_put(&s, id, got + at, sizeof(got) - at, &m));
        at += m;
    }
    got[at] = 0;
    assert_string_equal(got, text);
    json_decref(j);
    tok_close(&t);
}
