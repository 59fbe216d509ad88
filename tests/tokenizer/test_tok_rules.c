/* What a vocabulary's file says about text around tokens: pre-tokenizers, spaces, special
 * tokens, bytes and ends of a text, as llama.cpp (for GGUF) and Hugging Face (for
 * tokenizer.json) define them. */
#include "tests/format/small.h"

#include "tokenizer/tokenizer.h"

static char path[300];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/rules", test_dir());
    return 0;
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4

static void gives(const struct tok *t, const char *text, unsigned flags,
                  const int32_t *want, size_t n)
{
    size_t n_ids;
    int32_t *ids;

    assert_ok(tok_encode(t, text, strlen(text), flags, &ids, &n_ids));
    for (size_t i = 0; i < n_ids || i < n; i++)
        if (i >= n_ids || i >= n || ids[i] != want[i])
            fail_msg("\"%s\": %zu ids, id %zu is %d; expected %zu, %d", text, n_ids, i,
                     i < n_ids ? ids[i] : -1, n, i < n ? want[i] : -1);
    mem_free(ids);
}

/* ---- GGUF ---- */

struct entry {
    const char *text;
    int type; /* as in GGUF: 1 normal, 2 unknown, 3 control, 4 user-defined, 6 byte */
};

static void put_tokens(struct small *s, const struct entry *e, int n, bool types)
{
    small_key(s, "tokenizer.ggml.tokens", GGUF_ARRAY);
    small_u32(s, GGUF_STRING);
    small_u64(s, (uint64_t)n);
    for (int i = 0; i < n; i++)
        small_str(s, e[i].text);
    small_key(s, "tokenizer.ggml.scores", GGUF_ARRAY);
    small_u32(s, GGUF_F32);
    small_u64(s, (uint64_t)n);
    for (int i = 0; i < n; i++)
        small_put(s, &(float){-(float)i}, 4);
    if (!types)
        return;
    small_key(s, "tokenizer.ggml.token_type", GGUF_ARRAY);
    small_u32(s, GGUF_I32);
    small_u64(s, (uint64_t)n);
    for (int i = 0; i < n; i++)
        small_u32(s, (uint32_t)e[i].type);
}

static struct tok *open_small(struct small *s, const struct tok_opts *o)
{
    struct tok *t;

    small_end(s);
    test_write(path, s->b, s->n);
    (void)test_warned("");
    assert_ok(tok_open(&t, path, o));
    return t;
}

/* Bytes, and pairs of them that the pre-tokenizers divide in different ways. */
enum { T_12 = 256, T_1234, T_34, T_SPACE_BANG, T_AB, T_STOP };

static struct tok *open_bpe(const char *pre, const struct tok_opts *o)
{
    static const char *const merges[] = {"1 2", "12 34", "3 4", "\xC4\xA0 !", "a B"};
    static char bytes[256][4];
    struct entry e[262];
    struct small s;

    for (int b = 0; b < 256; b++) {
        int c = b <= 0x20                ? b + 0x100
                : b >= 0x7F && b <= 0xA0 ? b - 0x7F + 0x121
                : b == 0xAD              ? 0x143
                                         : b;

        snprintf(bytes[b], 4, c < 0x80 ? "%c" : "%c%c", c < 0x80 ? c : 0xC0 | c >> 6,
                 0x80 | (c & 0x3F));
        e[b] = (struct entry){bytes[b], 1};
    }
    e[T_12] = (struct entry){"12", 1};
    e[T_1234] = (struct entry){"1234", 1};
    e[T_34] = (struct entry){"34", 1};
    e[T_SPACE_BANG] = (struct entry){"\xC4\xA0!", 1};
    e[T_AB] = (struct entry){"aB", 1};
    e[T_STOP] = (struct entry){"<|eot_id|>", 3};
    small_begin(&s);
    small_key_str(&s, "tokenizer.ggml.model", "gpt2");
    if (pre)
        small_key_str(&s, "tokenizer.ggml.pre", pre);
    put_tokens(&s, e, 262, true);
    small_key(&s, "tokenizer.ggml.merges", GGUF_ARRAY);
    small_u32(&s, GGUF_STRING);
    small_u64(&s, 5);
    for (int i = 0; i < 5; i++)
        small_str(&s, merges[i]);
    return open_small(&s, o);
}

/* How each divides "1234" (by its digits), " !" and "aB" (by its case).
 * Regression: a byte-level vocabulary without `tokenizer.ggml.pre`, or with "default",
 * was divided as GPT-2's, silently. */
TEST(pre_tokenizers)
{
    static const struct {
        const char *in_file, *asked;
        int digits; /* in a word: 4, 3 or 1 */
        bool apart, by_case, warns;
    } cases[] = {
        {"gpt-2", NULL, 4, false, false, false},
        {"llama-bpe", NULL, 3, false, false, false},
        {"qwen2", NULL, 1, false, false, false},
        {"smollm", NULL, 1, false, false, false},
        {"tekken", NULL, 1, false, true, false},
        {"gpt-4o", NULL, 3, false, true, false},
        {"stablelm2", NULL, 1, false, false, false},
        {"olmo", NULL, 4, false, false, false},
        {"default", NULL, 3, true, false, false},
        {NULL, NULL, 3, true, false, true}, /* llama.cpp takes "default" then */
        {NULL, "qwen2", 1, false, false, false},
        {"default", "gpt-2", 4, false, false, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct tok_opts o = {.pre = cases[i].asked};
        struct tok *t = open_bpe(cases[i].in_file, &o);

        assert_int_equal(test_warned("no_pre_tokenizer"), cases[i].warns);
        if (cases[i].digits == 4)
            gives(t, "1234", 0, IDS(T_1234));
        else if (cases[i].digits == 3)
            gives(t, "1234", 0, IDS(T_12, '3', '4'));
        else
            gives(t, "1234", 0, IDS('1', '2', '3', '4'));
        if (cases[i].apart)
            gives(t, " !", 0, IDS(' ', '!'));
        else
            gives(t, " !", 0, IDS(T_SPACE_BANG));
        if (cases[i].by_case)
            gives(t, "aB", 0, IDS('a', 'B'));
        else
            gives(t, "aB", 0, IDS(T_AB));
        tok_close(&t);
    }
}

/* The turn's end counts though only an end of text is named, as in llama.cpp. */
TEST(ends_of_turns)
{
    struct tok *t = open_bpe("llama-bpe", NULL);
    int32_t stops[TOK_STOP_MAX];

    assert_int_equal(tok_stops(t, stops), 1);
    assert_int_equal(stops[0], T_STOP);
    gives(t, "1<|eot_id|>", TOK_SPECIAL, IDS('1', T_STOP));
    gives(t, "<|", 0, IDS('<', '|'));
    tok_close(&t);
}

enum { S_UNK, S_BOS, S_EOS, S_Q, S_MARK, S_A, S_MARK_A, S_USER };
static const struct entry spm[] = {
    {"<unk>", 2},
    {"<s>", 3},
    {"</s>", 3},
    {"<0x71>", 6},
    {"\xE2\x96\x81", 1},
    {"a", 1},
    {"\xE2\x96\x81"
     "a",
     1},
    {"<ud>", 4},
};

static struct tok *open_spm(bool no_prefix, bool types)
{
    struct small s;

    small_begin(&s);
    small_key_str(&s, "tokenizer.ggml.model", "llama");
    put_tokens(&s, spm, 8, types);
    small_key_u32(&s, "tokenizer.ggml.eos_token_id", S_EOS);
    small_key_u32(&s, "tokenizer.ggml.unknown_token_id", S_UNK);
    if (no_prefix) {
        small_key(&s, "tokenizer.ggml.add_space_prefix", GGUF_BOOL);
        small_put(&s, "\0", 1);
    }
    return open_small(&s, NULL);
}

/* llama.cpp puts a space before the first text and after every special token.
 * Regression: text after a user-defined token lost its leading space mark, and added
 * tokens left the whitespace that they take. */
TEST(spaces_of_gguf)
{
    struct tok *t = open_spm(false, true);
    struct tok_stream st;
    char text[64];
    size_t n, at = 0;
    int32_t *ids;

    gives(t, "a<ud>a", 0, IDS(S_MARK_A, S_USER, S_MARK_A));
    gives(t, "a<ud> a", 0, IDS(S_MARK_A, S_USER, S_MARK, S_MARK_A));
    gives(t, "<s>a", TOK_SPECIAL, IDS(S_BOS, S_MARK_A));
    gives(t, "<unk>a", TOK_SPECIAL, IDS(S_UNK, S_MARK_A));
    /* decoding keeps the space after a user-defined token */
    assert_ok(tok_encode(t, "a<ud>a", 6, 0, &ids, &n));
    tok_stream_init(&st, t);
    for (size_t i = 0, m; i < n; i++, at += m)
        assert_ok(tok_stream_put(&st, ids[i], text + at, sizeof(text) - at, &m));
    assert_int_equal(at, 7);
    assert_memory_equal(text, "a<ud> a", 7);
    mem_free(ids);
    tok_close(&t);

    t = open_spm(true, true);
    gives(t, "a<ud>a", 0, IDS(S_A, S_USER, S_A));
    tok_close(&t);
}

/* Regression: a vocabulary that lacks a byte was refused, or gave one unknown token for
 * each byte of a character. */
TEST(bytes_of_gguf)
{
    struct tok *t = open_spm(true, true);

    assert_false(test_warned("bytes_without_token"));
    gives(t, "aqa", 0, IDS(S_A, S_Q, S_A));
    gives(t, "a\xC3\xA9", 0, IDS(S_A, S_UNK)); /* one for the character */
    tok_close(&t);
    t = open_spm(true, false); /* bytes are known by their names */
    gives(t, "aqa", 0, IDS(S_A, S_Q, S_A));
    tok_close(&t);
}

/* ---- tokenizer.json ---- */

static struct tok *open_json(const char *normalizer, const char *pre, const char *added,
                             const char *vocab, const char *model)
{
    char text[3000];
    struct tok *t;

    snprintf(text, sizeof(text),
             "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"added_tokens\": [%s], "
             "\"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": []%s}}",
             normalizer, pre, added, vocab, model);
    test_write(path, text, strlen(text));
    (void)test_warned("");
    assert_ok(tok_open(&t, path, NULL));
    return t;
}

#define LEVEL                                                                            \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define MARK "\xE2\x96\x81"

/* The parts between added tokens are normalised and divided one by one. */
TEST(spaces_of_hf)
{
    static const char replace[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
        "\"content\": \"" MARK "\"}";
    static const char added[] = "{\"id\": 3, \"content\": \"<ud>\", \"special\": false}";
    static const char vocab[] = "\"<unk>\": 0, \"" MARK "\": 1, \"a\": 2";
    static const char unk[] = ", \"unk_token\": \"<unk>\"";
    static const struct {
        const char *scheme; /* of Metaspace; NULL: the normalizer Prepend */
        int first, later;   /* spaces put before them: 0 or 1 */
        bool once;
    } cases[] = {{NULL, 1, 1, false},
                 {"\"prepend_scheme\": \"always\"", 1, 1, true},
                 {"\"prepend_scheme\": \"first\"", 1, 0, true},
                 {"\"prepend_scheme\": \"never\"", 0, 0, true},
                 {"\"add_prefix_space\": true", 1, 1, true},
                 {"\"add_prefix_space\": false", 0, 0, true}};
    char normalizer[400], pre[200];

    snprintf(normalizer, sizeof(normalizer),
             "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
             "\"prepend\": \"" MARK "\"}, %s]}",
             replace);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t want[8];
        size_t n = 0;
        struct tok *t;

        snprintf(pre, sizeof(pre),
                 "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                 "\", \"split\": false, %s}",
                 cases[i].scheme ? cases[i].scheme : "");
        t = open_json(cases[i].scheme ? "null" : normalizer,
                      cases[i].scheme ? pre : "null", added, vocab, unk);
        for (int k = 0; k < cases[i].first; k++)
            want[n++] = 1;
        want[n++] = 2, want[n++] = 3;
        for (int k = 0; k < cases[i].later; k++)
            want[n++] = 1;
        want[n++] = 2;
        gives(t, "a<ud>a", 0, want, n);
        if (cases[i].first && !cases[i].once)
            gives(t, " a", 0, IDS(1, 1, 2));
        else
            gives(t, " a", 0, IDS(1, 2));
        tok_close(&t);
    }
}

TEST(stripping)
{
    static const char added[] =
        "{\"id\": 3, \"content\": \"<l>\", \"special\": true, \"lstrip\": true},"
        "{\"id\": 4, \"content\": \"<r>\", \"special\": false, \"rstrip\": true},"
        "{\"id\": 5, \"content\": \"<b>\", \"special\": false, \"lstrip\": true, "
        "\"rstrip\": true},"
        "{\"id\": 6, \"content\": \"<n>\", \"special\": false}";
    struct tok *t =
        open_json("null", LEVEL, added, "\"\xC4\xA0\": 0, \"x\": 1, \"\xC4\x8A\": 2", "");

    gives(t, "x  <l> x", TOK_SPECIAL, IDS(1, 3, 0, 1));
    gives(t, "x  <r>\n x", 0, IDS(1, 0, 0, 4, 1));
    gives(t, "x \n<b>\t\xC2\xA0\xE2\x80\x83\xE3\x80\x80x", 0, IDS(1, 5, 1));
    gives(t, "x <n> x", 0, IDS(1, 0, 6, 0, 1));
    gives(t, "<r> <b>", 0, IDS(4, 5));
    gives(t, " <b> ", 0, IDS(5));
    gives(t, "x\xE3\x80\x80<b>", 0, IDS(1, 5));
    tok_close(&t);
    test_write(
        path,
        "{\"pre_tokenizer\": " LEVEL ", \"added_tokens\": [{\"id\": 1, "
        "\"content\": \"<w>\", \"single_word\": true}], \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"x\": 0}, \"merges\": []}}",
        strlen("{\"pre_tokenizer\": " LEVEL ", \"added_tokens\": [{\"id\": 1, "
               "\"content\": \"<w>\", \"single_word\": true}], \"model\": {\"type\": "
               "\"BPE\", \"vocab\": {\"x\": 0}, \"merges\": []}}"));
    assert_err(tok_open(&t, path, NULL), ERR_UNSUPPORTED, "added_tokens[0]: single_word");
}

/* Text without a token is unknown, or left out where there is no unknown token. */
TEST(bytes_of_hf)
{
    static const struct {
        const char *vocab, *model;
        bool chars; /* SentencePiece's, else byte-level */
        bool warns;
        int32_t want[6]; /* for "aq" "q\xC3\xA9" "a" */
        size_t n;
    } cases[] = {
        {"\"a\": 1", "", false, true, {1, 1}, 2},
        {"\"<unk>\": 0, \"a\": 1",
         ", \"unk_token\": \"<unk>\"",
         false,
         false,
         {1, 0, 0, 0, 0, 1},
         6},
        {"\"<unk>\": 0, \"a\": 1",
         ", \"unk_token\": \"<unk>\", \"fuse_unk\": true",
         false,
         false,
         {1, 0, 1},
         3},
        {"\"a\": 1", "", true, true, {1, 1}, 2},
        {"\"<unk>\": 0, \"a\": 1",
         ", \"unk_token\": \"<unk>\"",
         true,
         false,
         {1, 0, 0, 0, 1},
         5},
        {"\"<unk>\": 0, \"a\": 1, \"<0xC3>\": 2, \"<0x71>\": 3",
         ", \"unk_token\": \"<unk>\", \"byte_fallback\": true",
         true,
         false,
         {1, 3, 3, 0, 1},
         5}, /* a character with one of its bytes is unknown */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tok *t = open_json(
            "null",
            cases[i].chars ? "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                             "\", \"split\": false, \"prepend_scheme\": \"never\"}"
                           : LEVEL,
            "", cases[i].vocab, cases[i].model);

        assert_int_equal(test_warned("bytes_without_token"), cases[i].warns);
        gives(t,
              "aqq\xC3\xA9"
              "a",
              0, cases[i].want, cases[i].n);
        tok_close(&t);
    }
}

TEST_GROUP(make_path, NULL);
