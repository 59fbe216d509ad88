#include "tests/support/tok_files.h"
#include "tests/support/test.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"

const struct tok_files_merge tok_files_merges[] = {
    {" ", "t"},   {"h", "e"},        {" t", "he"},     {"i", "n"}, {"in", "g"},
    {"a", "a"},   {"aa", "aa"},      {"aaaa", "aaaa"}, {" ", " "}, {"  ", "  "},
    {"\n", "\n"}, {"e", "\xC3\xA9"}, {"he", "in"},     {" ", "a"}, {"n", "g"},
};
const int tok_files_n_merges =
    (int)(sizeof(tok_files_merges) / sizeof(tok_files_merges[0]));
const char tok_files_chars[] = " thenigabcx\n\xC3\xA9\xE4\xB8\x96";
const char *const tok_files_name[TOK_FILES_N] = {
    "tok.bin", "spm.gguf", "spm.json", "bpe.gguf", "bpe.json", "nfc.json", "tok.ranks"};
static const char *const specials[] = {"<|begin_of_text|>", "<|end_of_text|>"};
const struct tok_opts tok_files_rank_opts = {
    .pre = "llama-3", .specials = specials, .n_specials = 2};

static struct {
    char p[1 << 16];
    size_t n;
} file;

static void put(const void *p, size_t n)
{
    assert_true(file.n + n <= sizeof(file.p));
    memcpy(file.p + file.n, p, n);
    file.n += n;
}

static void put_u32(uint32_t v)
{
    put(&v, 4);
}

static void put_u64(uint64_t v)
{
    put(&v, 8);
}

static void put_f32(float v)
{
    put(&v, 4);
}

/* --- the vocabulary as one list */

#define MAX_TOKENS 512
static struct token {
    char text[32];
    size_t n;
    float score;
    int type; /* as in GGUF */
} list[MAX_TOKENS];
static int n_list;

static void add(const char *text, size_t n, int type, float score)
{
    struct token *k = &list[n_list++];

    assert_true(n_list <= MAX_TOKENS && n < sizeof(k->text));
    memcpy(k->text, text, n);
    k->text[n] = 0;
    k->n = n;
    k->type = type;
    k->score = score;
}

static void add_merges(void)
{
    for (int i = 0; i < tok_files_n_merges; i++) {
        char text[32];
        int n = snprintf(text, sizeof(text), "%s%s", tok_files_merges[i].left,
                         tok_files_merges[i].right);

        add(text, (size_t)n, 1, -(float)(i + 1));
    }
}

static void list_spm(void)
{
    const char *c = tok_files_chars;

    n_list = 0;
    add("<unk>", 5, 2, 0);
    add("<s>", 3, 3, 0);
    add("</s>", 4, 3, 0);
    for (int b = 0; b < 256; b++) {
        char text[8];

        snprintf(text, sizeof(text), "<0x%02X>", b);
        add(text, 6, 6, 0);
    }
    while (*c) {
        size_t len = (unsigned char)*c < 0x80 ? 1 : (unsigned char)*c < 0xE0 ? 2 : 3;

        add(c, len, 1, -1000);
        c += len;
    }
    add_merges();
}

/* A character of several bytes needs merges of its own in a byte-level vocabulary. */
static void list_bpe(void)
{
    n_list = 0;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;

        add(&c, 1, 1, 0);
    }
    add_merges();
    add(specials[0], strlen(specials[0]), 3, 0);
    add(specials[1], strlen(specials[1]), 3, 0);
    add("<ud>", 4, 4, 0);
}

/* The printable form: byte-level's alphabet, or "▁" for spaces. */
static size_t printable(const char *s, size_t n, bool spm, char *out)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned b = (unsigned char)s[i];

        if (spm) {
            if (b == ' ')
                m += (size_t)sprintf(out + m, "\xE2\x96\x81");
            else
                out[m++] = s[i];
            continue;
        }
        if (b <= 0x20)
            b += 0x100;
        else if (b >= 0x7F && b <= 0xA0)
            b = b - 0x7F + 0x121;
        else if (b == 0xAD)
            b = 0x143;
        if (b < 0x80) {
            out[m++] = (char)b;
        } else {
            out[m++] = (char)(0xC0 | b >> 6);
            out[m++] = (char)(0x80 | (b & 0x3F));
        }
    }
    out[m] = 0;
    return m;
}

/* --- formats */

static void write_llama2c(void)
{
    list_spm();
    put_u32(16);
    for (int i = 0; i < n_list; i++) {
        put_f32(list[i].score);
        put_u32((uint32_t)list[i].n);
        put(list[i].text, list[i].n);
    }
}

static void put_str(const char *s, size_t n)
{
    put_u64(n);
    put(s, n);
}

static void put_key(const char *key, uint32_t type)
{
    put_str(key, strlen(key));
    put_u32(type);
}

static void put_array(const char *key, uint32_t type, int n)
{
    put_key(key, 9);
    put_u32(type);
    put_u64((uint64_t)n);
}

static void put_token_text(const struct token *k, bool spm)
{
    char text[128];
    size_t n = printable(k->text, k->n, spm, text);

    if (k->type == 1)
        put_str(text, n);
    else
        put_str(k->text, k->n);
}

static void put_merge_text(int i, bool spm, char *out)
{
    size_t n =
        printable(tok_files_merges[i].left, strlen(tok_files_merges[i].left), spm, out);

    out[n++] = ' ';
    printable(tok_files_merges[i].right, strlen(tok_files_merges[i].right), spm, out + n);
}

/* In byte-level vocabularies "e" + "é" joins two bytes that no merge made one: left out.
 */
static bool byte_merge(int i)
{
    return (unsigned char)tok_files_merges[i].right[0] < 0x80;
}

static void put_vocab_arrays(bool spm)
{
    put_array("tokenizer.ggml.tokens", 8, n_list);
    for (int i = 0; i < n_list; i++)
        put_token_text(&list[i], spm);
    put_array("tokenizer.ggml.token_type", 5, n_list);
    for (int i = 0; i < n_list; i++)
        put_u32((uint32_t)list[i].type);
}

static void write_gguf_spm(void)
{
    list_spm();
    put("GGUF\3\0\0\0", 8);
    put_u64(0);
    put_u64(7);
    put_key("tokenizer.ggml.model", 8);
    put_str("llama", 5);
    put_vocab_arrays(true);
    put_array("tokenizer.ggml.scores", 6, n_list);
    for (int i = 0; i < n_list; i++)
        put_f32(list[i].score);
    put_key("tokenizer.ggml.bos_token_id", 4);
    put_u32(1);
    put_key("tokenizer.ggml.eos_token_id", 4);
    put_u32(2);
    put_key("tokenizer.ggml.unknown_token_id", 4);
    put_u32(0);
}

static void write_gguf_bpe(void)
{
    int n = 0;

    list_bpe();
    for (int i = 0; i < tok_files_n_merges; i++)
        n += byte_merge(i);
    put("GGUF\3\0\0\0", 8);
    put_u64(0);
    put_u64(6);
    put_key("tokenizer.ggml.model", 8);
    put_str("gpt2", 4);
    put_key("tokenizer.ggml.pre", 8);
    put_str("gpt-2", 5);
    put_vocab_arrays(false);
    put_array("tokenizer.ggml.merges", 8, n);
    for (int i = 0; i < tok_files_n_merges; i++) {
        char text[128];

        put_merge_text(i, false, text);
        if (byte_merge(i))
            put_str(text, strlen(text));
    }
    put_key("tokenizer.ggml.add_bos_token", 7);
    put("\0", 1);
}

static void put_json(json_t *j)
{
    char *text = json_dumps(j, JSON_SORT_KEYS | JSON_ENSURE_ASCII);

    assert_non_null(text);
    put(text, strlen(text));
    free(text);
    json_decref(j);
}

static json_t *json_model(bool spm)
{
    json_t *vocab = json_object(), *merges = json_array();
    char text[256];

    for (int i = 0; i < n_list; i++) {
        if (list[i].type == 3 || list[i].type == 4)
            continue;
        if (list[i].type == 1)
            printable(list[i].text, list[i].n, spm, text);
        else
            strcpy(text, list[i].text);
        json_object_set_new(vocab, text, json_integer(i));
    }
    for (int i = 0; i < tok_files_n_merges; i++) {
        put_merge_text(i, spm, text);
        if (!spm && !byte_merge(i))
            continue;
        if (i % 2) { /* both ways of writing a merge */
            json_array_append_new(merges, json_string(text));
        } else {
            char *space = strchr(text, ' ');

            json_array_append_new(
                merges, json_pack("[s%, s]", text, (size_t)(space - text), space + 1));
        }
    }
    return json_pack("{s:s, s:b, s:o, s:o}", "type", "BPE", "byte_fallback", spm, "vocab",
                     vocab, "merges", merges);
}

static json_t *json_added(void)
{
    json_t *added = json_array();

    for (int i = 0; i < n_list; i++)
        if (list[i].type == 3 || list[i].type == 4)
            json_array_append_new(added,
                                  json_pack("{s:i, s:s, s:b}", "id", i, "content",
                                            list[i].text, "special", list[i].type == 3));
    return added;
}

static void write_json_spm(void)
{
    json_t *normalizer;

    list_spm();
    normalizer =
        json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}", "type", "Sequence",
                  "normalizers", "type", "Prepend", "prepend", "\xE2\x96\x81", "type",
                  "Replace", "pattern", "String", " ", "content", "\xE2\x96\x81");
    put_json(json_pack("{s:o, s:n, s:o, s:o, s:{s:s, s:[{s:{s:s}}, {s:{s:s}}]}}",
                       "normalizer", normalizer, "pre_tokenizer", "model",
                       json_model(true), "added_tokens", json_added(), "post_processor",
                       "type", "TemplateProcessing", "single", "SpecialToken", "id",
                       "<s>", "Sequence", "id", "A"));
}

static void write_json_bpe(bool nfc)
{
    static const char qwen2[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    json_t *pre, *level = json_pack("{s:s, s:b, s:b}", "type", "ByteLevel",
                                    "add_prefix_space", 0, "use_regex", 0);

    list_bpe();
    pre = nfc ? json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence",
                          "pretokenizers", "type", "Split", "pattern", "Regex", qwen2,
                          "behavior", "Isolated", "invert", 0, level)
              : level;
    put_json(json_pack("{s:o, s:o, s:o, s:o}", "normalizer",
                       nfc ? json_pack("{s:s}", "type", "NFC") : json_null(),
                       "pre_tokenizer", pre, "model", json_model(false), "added_tokens",
                       json_added()));
}

static void write_ranks(void)
{
    static const char digit[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    list_bpe();
    for (int i = 0; list[i].type == 1; i++) {
        char line[64];
        size_t m = 0;

        for (size_t k = 0; k < list[i].n; k += 3) {
            const unsigned char *s = (const unsigned char *)list[i].text + k;
            size_t left = list[i].n - k;
            unsigned v = (unsigned)s[0] << 16 | (left > 1 ? (unsigned)s[1] << 8 : 0) |
                         (left > 2 ? s[2] : 0);

            line[m++] = digit[v >> 18];
            line[m++] = digit[v >> 12 & 63];
            line[m++] = left > 1 ? digit[v >> 6 & 63] : '=';
            line[m++] = left > 2 ? digit[v & 63] : '=';
        }
        m += (size_t)sprintf(line + m, " %d\n", i);
        put(line, m);
    }
}

const char *tok_files_write(enum tok_files_kind kind)
{
    static char path[512];

    file.n = 0;
    switch (kind) {
    case TOK_FILES_LLAMA2C:
        write_llama2c();
        break;
    case TOK_FILES_GGUF_SPM:
        write_gguf_spm();
        break;
    case TOK_FILES_JSON_SPM:
        write_json_spm();
        break;
    case TOK_FILES_GGUF_BPE:
        write_gguf_bpe();
        break;
    case TOK_FILES_JSON_BPE:
    case TOK_FILES_JSON_NFC:
        write_json_bpe(kind == TOK_FILES_JSON_NFC);
        break;
    default:
        write_ranks();
        break;
    }
    snprintf(path, sizeof(path), "%s/%s", test_dir(), tok_files_name[kind]);
    test_write(path, file.p, file.n);
    return path;
}

struct tok *tok_files_open(enum tok_files_kind kind)
{
    struct tok *t;

    assert_ok(tok_open(&t, tok_files_write(kind),
                       kind == TOK_FILES_RANKS ? &tok_files_rank_opts : NULL));
    return t;
}
