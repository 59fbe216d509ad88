/* Keys of a vocabulary's files: followed, refused by name, or known to change no id. Many were
 * not read, so that a text got other ids than the model was trained with, silently. */
#include "tests/format/small.h"

#include "base/json.h"
#include "tests/support/tok_files.h"
#include "tokenizer/tokenizer.h"

static char dir[300];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "%s", test_dir());
    return 0;
}

/* ---- tokenizer.json and tokenizer_config.json ---- */

/* The small vocabulary `kind` as JSON, with `change` (an object) merged into it. */
static int open_changed(struct tok **t, enum tok_files_kind kind, const char *at,
                        const char *change, const char *config)
{
    json_t *root, *v = json_loads(change, 0, NULL), *part;
    char path[400], *text;
    int rc;

    assert_non_null(v);
    assert_ok(json_read_file(&root, tok_files_write(kind), 1 << 20));
    part = *at ? json_object_get(root, at) : root;
    if (json_is_array(part))
        assert_int_equal(json_object_update(json_array_get(part, 0), v), 0);
    else
        assert_int_equal(json_object_update(part, v), 0);
    text = json_dumps(root, 0);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    test_write(path, config, strlen(config));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    test_write(path, text, strlen(text));
    free(text);
    json_decref(root);
    json_decref(v);
    rc = tok_open(t, path, NULL);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    unlink(path);
    return rc;
}

#define TEMPLATE(single, more)                                                           \
    "{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" single       \
    "]" more "}}"
#define S(id) "{\"SpecialToken\": {\"id\": \"" id "\", \"type_id\": 0}}"
#define A     "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"

TEST(keys_of_hf)
{
    static const struct {
        const char *at, *change, *config;
        const char *refusal; /* NULL: it is opened */
    } cases[] = {
        {"", "{\"truncation\": {\"max_length\": 4}, \"padding\": null}", "{}", NULL},
        {"", "{\"preprocessor\": {}}", "{}",
         "tokenizer.json: preprocessor: expected only"},
        {"model", "{\"dropout\": 0.1}", "{}", "model: dropout: expected 0, found 0.1"},
        {"model", "{\"dropout\": null}", "{}", NULL},
        {"model", "{\"max_input_chars_per_word\": 9}", "{}", "max_input_chars_per_word"},
        {"added_tokens", "{\"single_word\": true}", "{}", "added_tokens[0]: single_word"},
        {"added_tokens", "{\"whole\": true}", "{}", "added_tokens[0]: whole"},
        {"normalizer", "{\"strip\": true}", "{}", "normalizers: strip"},
        {"", TEMPLATE(S("<s>") "," A, ""), "{}", NULL},
        {"", TEMPLATE(A, ""), "{}", NULL},
        {"", TEMPLATE(A "," S("</s>"), ""), "{}", "post_processor: single: expected the"},
        {"", TEMPLATE(S("<s>") "," A "," S("</s>"), ""), "{}", "found 3 parts"},
        {"", TEMPLATE(S("<s>"), ""), "{}", "found 1 parts"},
        {"", TEMPLATE(S("<s>") "," A, ", \"special_tokens\": {\"<s>\": {\"ids\": [2]}}"),
         "{}", "expected the id of that token, 1, alone"},
        {"", "{\"post_processor\": {\"type\": \"RobertaProcessing\"}}", "{}",
         "post_processor: type \"RobertaProcessing\""},
        {"", "{\"post_processor\": {\"type\": \"ByteLevel\", \"trim_offsets\": true}}",
         "{}", NULL},
        {"", "{}", "{\"add_eos_token\": true}", "add_eos_token: expected 0, found 1"},
        {"", "{}", "{\"add_eos_token\": false, \"legacy\": true}", NULL},
        {"", "{}", "{\"split_special_tokens\": true}", "split_special_tokens"},
        {"", "{}", "{\"add_dummy\": 1}", "tokenizer_config.json: add_dummy"},
        {"", "{}", "{\"add_prefix_space\": true}", NULL},
        {"", "{}", "{\"add_prefix_space\": false}", "add_prefix_space: expected true as"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tok *t = NULL;
        int rc = open_changed(&t, TOK_FILES_JSON_SPM, cases[i].at, cases[i].change,
                              cases[i].config);

        printf("# %s %s %s\n", cases[i].at, cases[i].change, cases[i].config);
        if (cases[i].refusal)
            assert_err(rc, ERR_UNSUPPORTED, cases[i].refusal);
        else
            assert_ok(rc);
        tok_close(&t);
    }
}

TEST(post_processor_of_no_token)
{
    struct tok *t;

    assert_err(
        open_changed(&t, TOK_FILES_JSON_SPM, "", TEMPLATE(S("<x>") "," A, ""), "{}"),
        ERR_FORMAT, "\"<x>\" is not a token");
}

/* tokenizer_config.json decides; where it says nothing, the post_processor does. Regression: false
 * was not obeyed. */
TEST(add_bos_token_is_obeyed)
{
    static const char with[] = TEMPLATE(S("<s>") "," A, ""),
                      without[] = "{\"post_processor\": null}";
    static const struct {
        const char *change, *config;
        bool adds;
    } cases[] = {
        {with, "{\"bos_token\": \"<s>\"}", true},
        {with, "{\"bos_token\": \"<s>\", \"add_bos_token\": null}", true},
        {with, "{\"bos_token\": \"<s>\", \"add_bos_token\": true}", true},
        {with, "{\"bos_token\": \"<s>\", \"add_bos_token\": false}", false},
        {without, "{\"bos_token\": \"<s>\"}", false},
        {without, "{\"bos_token\": \"<s>\", \"add_bos_token\": null}", false},
        {without, "{\"bos_token\": \"<s>\", \"add_bos_token\": true}", true},
        {without, "{\"bos_token\": \"<s>\", \"add_bos_token\": false}", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tok *t;

        assert_ok(
            open_changed(&t, TOK_FILES_JSON_SPM, "", cases[i].change, cases[i].config));
        if (tok_adds_bos(t) != cases[i].adds)
            fail_msg("case %zu: %s %s", i, cases[i].change, cases[i].config);
        tok_close(&t);
    }
}

static void ids_are(const struct tok *t, const char *text, const char *want)
{
    char got[200] = "";
    int32_t *ids;
    size_t n;

    assert_ok(tok_encode(t, text, strlen(text), TOK_SPECIAL, &ids, &n));
    for (size_t i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", i ? " " : "",
                 ids[i]);
    mem_free(ids);
    assert_string_equal(got, want);
}

#define SPM_NORMALIZER                                                                   \
    "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "   \
    "\"\xE2\x96\x81\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "      \
    "\"content\": \"\xE2\x96\x81\"}]}"

static struct tok *open_text(const char *normalizer, const char *added, const char *model)
{
    char path[400], text[3000];
    struct tok *t;

    snprintf(path, sizeof(path), "%s/own.json", dir);
    snprintf(
        text, sizeof(text),
        "{\"normalizer\": %s, \"pre_tokenizer\": null, \"added_tokens\": [%s], "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, "
        "\"\xE2\x96\x81\": 3, \"<0x71>\": 4, \"<\": 5, \"c\": 6, \">\": 7}, "
        "\"merges\": [], \"unk_token\": \"<unk>\"%s}}",
        normalizer, added, model);
    test_write(path, text, strlen(text));
    assert_ok(tok_open(&t, path, NULL));
    return t;
}

/* The token's text is normalised, too: a space stands before it, and it is not found without
 * one. Expected as Hugging Face's library computes it. */
TEST(normalized_tokens)
{
    struct tok *t = open_text(SPM_NORMALIZER,
                              "{\"id\": 8, \"content\": \"<c>\", \"normalized\": true},"
                              "{\"id\": 9, \"content\": \"<b>\", \"normalized\": false}",
                              "");

    ids_are(t, "a <c>b", "3 1 8 2");
    ids_are(t, "a<c> b", "3 1 5 6 7 3 2");
    ids_are(t, "<c>a", "8 1");
    ids_are(t, " <c> a", "3 8 3 1");
    ids_are(t, "a\xE2\x96\x81<c>\xE2\x96\x81<c>", "3 1 8 8");
    ids_are(t, "<b><c>a<b>a", "9 8 1 9 3 1");
    ids_are(t, "", "");
    tok_close(&t);
}

/* A control token of normalised text is one where the template wrote it, and only there. */
TEST(normalized_control_tokens)
{
    /* marks and a space of a user | "<c>" of a template | a user's | and half a user's */
    static const char text[] = "\xE2\x96\x81\xE2\x96\x81 <c>a <c>a <c>";
    static const struct tok_part parts[] = {
        {7, false}, {3, true}, {7, false}, {1, true}, {2, false}};
    static const int32_t want[] = {3, 3, 3, 8, 1, 3, 5, 6, 7, 1, 3, 5, 6, 7};
    struct tok *t = open_text(SPM_NORMALIZER,
                              "{\"id\": 8, \"content\": \"<c>\", \"normalized\": true, "
                              "\"special\": true}",
                              "");
    int32_t *ids;
    size_t n;

    assert_int_equal(strlen(text), 20);
    assert_ok(tok_encode_parts(t, text, parts, 5, 0, &ids, &n));
    assert_int_equal(n, sizeof(want) / sizeof(want[0]));
    assert_memory_equal(ids, want, sizeof(want));
    mem_free(ids);
    tok_close(&t);
}

/* Without byte fallback a character that has no token is unknown, though bytes have tokens. */
TEST(no_byte_fallback)
{
    static const char *const models[] = {"", ", \"byte_fallback\": false",
                                         ", \"byte_fallback\": true"};

    for (int i = 0; i < 3; i++) {
        struct tok *t = open_text(SPM_NORMALIZER, "", models[i]);

        ids_are(t, "aq", i < 2 ? "3 1 0" : "3 1 4");
        tok_close(&t);
    }
}

/* U+180E is no white space since Unicode 6.3, though PCRE2's \s has it: then it is of one word
 * with the space before it, and their bytes may be one token. */
TEST(u180e_is_no_space)
{
    static const char text[] =
        "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
        "\"Split\", \"pattern\": {\"Regex\": \" "
        "?[^\\\\s\\\\p{L}]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"use_regex\": false}]}, \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"\\u0120\": 0, \"\\u00e1\": 1, \"\\u0142\": 2, "
        "\"\\u0130\": 3, \"b\": 4, \"\\u0120\\u00e1\": 5, \"\\u00c2\": 6}, \"merges\": "
        "[\"\\u0120 \\u00e1\"]}}";
    char path[400];
    struct tok *t;

    snprintf(path, sizeof(path), "%s/own.json", dir);
    test_write(path, text, strlen(text));
    assert_ok(tok_open(&t, path, NULL));
    ids_are(t,
            " \xE1\xA0\x8E"
            "b",
            "5 2 3 4");
    ids_are(t,
            " \xC2\xA0"
            "b",
            "0 6 2 4"); /* U+00A0 is one */
    tok_close(&t);
}

/* ---- GGUF ---- */

static int open_gguf(struct tok **t, const char *pre, const char *key, int type,
                     uint32_t value)
{
    static const char *const tokens[] = {"a", "b", "ab", "<|stop|>", "<|more|>"};
    static const int types[] = {1, 1, 1, 3, 3};
    struct small s;
    char path[400];

    small_begin(&s);
    small_key_str(&s, "tokenizer.ggml.model", "gpt2");
    small_key_str(&s, "tokenizer.ggml.pre", pre);
    small_key(&s, "tokenizer.ggml.tokens", GGUF_ARRAY);
    small_u32(&s, GGUF_STRING);
    small_u64(&s, 5);
    for (int i = 0; i < 5; i++)
        small_str(&s, tokens[i]);
    small_key(&s, "tokenizer.ggml.token_type", GGUF_ARRAY);
    small_u32(&s, GGUF_I32);
    small_u64(&s, 5);
    for (int i = 0; i < 5; i++)
        small_u32(&s, (uint32_t)types[i]);
    small_key(&s, "tokenizer.ggml.merges", GGUF_ARRAY);
    small_u32(&s, GGUF_STRING);
    small_u64(&s, 0);
    small_key(&s, key, (enum gguf_type)type);
    if (type == GGUF_BOOL)
        small_put(&s, &(char){(char)value}, 1);
    else
        small_u32(&s, value);
    small_end(&s);
    snprintf(path, sizeof(path), "%s/own.gguf", dir);
    test_write(path, s.b, s.n);
    return tok_open(t, path, NULL);
}

#define KEY(name) "tokenizer.ggml." name

TEST(keys_of_gguf)
{
    static const struct {
        const char *key;
        uint32_t value;
        const char *refusal;
    } cases[] = {{KEY("add_eos_token"), 1, "add_eos_token: expected 0, found 1"},
                 {KEY("add_eos_token"), 0, NULL},
                 {KEY("add_sep_token"), 1, "add_sep_token"},
                 {KEY("remove_extra_whitespaces"), 1, "remove_extra_whitespaces"},
                 {KEY("add_something"), 0, "add_something: expected only keys"},
                 {KEY("cache_hint"), 1, NULL}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tok *t = NULL;
        int rc = open_gguf(&t, "gpt-2", cases[i].key, GGUF_BOOL, cases[i].value);

        if (cases[i].refusal)
            assert_err(rc, ERR_UNSUPPORTED, cases[i].refusal);
        else
            assert_ok(rc);
        tok_close(&t);
    }
}

/* The end of a turn and of a message, by the keys that llama.cpp writes. */
TEST(ends_named_by_keys)
{
    static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};

    for (int i = 0; i < 2; i++) {
        struct tok *t;
        int32_t stops[TOK_STOP_MAX];
        bool found = false;
        int n;

        assert_ok(open_gguf(&t, "gpt-2", keys[i], GGUF_U32, 4));
        n = tok_stops(t, stops);
        for (int k = 0; k < n; k++)
            found |= stops[k] == 4;
        assert_true(found);
        tok_close(&t);
    }
}

/* It divides text as Llama 3 does, but merges every word from its parts, and adds no BOS. */
TEST(smaug_is_not_llama_3)
{
    static const struct {
        const char *pre, *ids;
    } cases[] = {{"llama-bpe", "2"}, {"smaug-bpe", "0 1"}};

    for (int i = 0; i < 2; i++) {
        struct tok *t;

        assert_ok(open_gguf(&t, cases[i].pre, KEY("cache_hint"), GGUF_BOOL, 1));
        ids_are(t, "ab", cases[i].ids);
        tok_close(&t);
    }
}

TEST_GROUP(make_dir, NULL);
