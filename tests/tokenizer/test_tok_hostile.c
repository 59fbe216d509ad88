/* Broken tokenizer files: cut off anywhere, with any field changed, with rules broken.
 * Each opens and then works, or is refused with one line that names the file. */
#include "tests/support/test.h"
#include "tests/support/tok_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tokenizer/tok.h"

/* Thousands of variants, so they are written to memory: one file, again and again. */
static const char *put_file(const void *data, size_t n)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("tokenizer", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, data, n, 0), n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

static const struct tok_opts *opts_of(int kind)
{
    return kind == TOK_FILES_RANKS ? &tok_files_rank_opts : NULL;
}

/* What opened must also encode and decode without harm; every id is in the vocabulary. */
static void use(const struct tok *t)
{
    static const char text[] =
        " the ing<ud></s> 12 aaaa\xC3\xA9\xFF\n\n<|end_of_text|>'s \xE4\xB8";
    char out[4096];
    struct tok_stream s;
    int32_t *ids;
    size_t n, m;
    int rc = tok_encode(t, text, sizeof(text) - 1, TOK_BOS | TOK_SPECIAL, &ids, &n);

    if (rc != OK) { /* only an expression of the file's own may give up */
        assert_int_equal(rc, ERR_LIMIT);
        return;
    }
    tok_stream_init(&s, t);
    for (size_t i = 0; i < n; i++) {
        assert_true(ids[i] >= 0 && ids[i] < tok_vocab(t));
        if (8 + 3 * tok_longest(t) <= sizeof(out))
            assert_ok(tok_stream_put(&s, ids[i], out, sizeof(out), &m));
    }
    (void)tok_stream_flush(&s, out, sizeof(out));
    mem_free(ids);
}

static bool try_file(const char *path, int kind)
{
    struct tok *t;
    int rc;

    err_clear();
    rc = tok_open(&t, path, opts_of(kind));
    if (rc == OK) {
        use(t);
    } else {
        assert_null(t);
        assert_true(rc >= ERR_CANCELED && rc < 0 && rc != ERR_NOMEM);
        if (!strstr(err_msg(), path))
            fail_msg("\"%s\" does not name %s", err_msg(), path);
        assert_null(strchr(err_msg(), '\n'));
    }
    tok_close(&t);
    return rc == OK;
}

TEST(test_truncated)
{
    for (int kind = 0; kind < TOK_FILES_N; kind++) {
        size_t n, opened = 0, steps = 0;
        char *data = test_read(tok_files_write((enum tok_files_kind)kind), &n);

        for (size_t cut = 0; cut < n; steps++) {
            opened += try_file(put_file(data, cut), kind);
            cut += cut < 512 || n - cut < 64 ? 1 : 37;
        }
        /* Rank files and tokenizer.bin may end after any token; the others must not. */
        if (kind != TOK_FILES_RANKS && kind != TOK_FILES_LLAMA2C)
            assert_int_equal(opened, 0);
        assert_true(opened < steps);
        mem_free(data);
    }
}

/* Each 4-byte and 8-byte field, wherever it may be, becomes each extreme value. */
TEST(test_fields)
{
    static const uint64_t values[] = {0,          1,     1u << 31,  1ull << 32,
                                      1ull << 63, ~0ull, 0x7fffffff};
    static const int kinds[] = {TOK_FILES_LLAMA2C, TOK_FILES_GGUF_SPM,
                                TOK_FILES_GGUF_BPE};
    int refused = 0;

    for (size_t k = 0; k < 3; k++) {
        size_t n;
        char *data = test_read(tok_files_write((enum tok_files_kind)kinds[k]), &n);

        for (size_t at = 0; at + 8 <= n; at += at < 256 ? 1 : 29)
            for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++)
                for (size_t width = 4; width <= 8; width += 4) {
                    char kept[8];

                    memcpy(kept, data + at, 8);
                    memcpy(data + at, &values[v], width);
                    refused += !try_file(put_file(data, n), kinds[k]);
                    memcpy(data + at, kept, 8);
                }
        mem_free(data);
    }
    assert_true(refused > 100);
}

TEST(test_random_bytes)
{
    struct rng r;

    rng_init(&r, test_seed(), "mutate");
    for (int kind = 0; kind < TOK_FILES_N; kind++) {
        size_t n;
        char *data = test_read(tok_files_write((enum tok_files_kind)kind), &n);

        for (int k = 0; k < 400; k++) {
            size_t at[4];
            char kept[4];

            for (int i = 0; i < 4; i++) {
                at[i] = rng_below(&r, n);
                kept[i] = data[at[i]];
                data[at[i]] = (char)rng_u64(&r);
            }
            (void)try_file(put_file(data, n), kind);
            for (int i = 3; i >= 0; i--)
                data[at[i]] = kept[i];
        }
        mem_free(data);
    }
}

/* --- rules, one by one */

/* The file with the first `from` in it replaced. */
static const char *edited(enum tok_files_kind kind, const char *from, const char *to)
{
    size_t n, at = 0, n_from = strlen(from), n_to = strlen(to);
    char *data = test_read(tok_files_write(kind), &n);
    const char *path;
    char *out = mem_new(MEM_TEST, n + n_to, 1);

    while (at + n_from <= n && memcmp(data + at, from, n_from) != 0)
        at++;
    assert_true(at + n_from <= n);
    memcpy(out, data, at);
    memcpy(out + at, to, n_to);
    memcpy(out + at + n_to, data + at + n_from, n - at - n_from);
    path = put_file(out, n - n_from + n_to);
    mem_free(data);
    mem_free(out);
    return path;
}

TEST(test_rules)
{
    static const struct {
        enum tok_files_kind kind;
        const char *from, *to;
        int code;
        const char *part;
    } rules[] = {
        {TOK_FILES_JSON_BPE, "\"BPE\"", "\"Unigram\"", ERR_UNSUPPORTED, "Unigram"},
        {TOK_FILES_JSON_BPE, "\"normalizer\": null",
         "\"normalizer\": {\"type\": \"NFKC\"}", ERR_UNSUPPORTED, "NFKC"},
        {TOK_FILES_JSON_BPE, "\"ByteLevel\"", "\"Whitespace\"", ERR_UNSUPPORTED,
         "Whitespace"},
        {TOK_FILES_JSON_BPE, "\"a\": 97", "\"a\": 98", ERR_FORMAT,
         "id 98 is given twice"},
        {TOK_FILES_JSON_BPE, "\"a\": 97", "\"a\": -1", ERR_FORMAT, "expected an id"},
        {TOK_FILES_JSON_BPE, "\"a\": 97", "\"a\": 4000000", ERR_LIMIT, "highest id"},
        {TOK_FILES_JSON_BPE, "[\"aa\", \"aa\"]", "[\"aa\", 7]", ERR_FORMAT, "merges["},
        {TOK_FILES_JSON_BPE, "\"a a\"", "\"a zz\"", ERR_FORMAT, "merges["},
        {TOK_FILES_JSON_BPE, "\"a a\"", "\"a x\"", ERR_FORMAT, "joined text"},
        {TOK_FILES_JSON_NFC, "(?i:", "((((", ERR_FORMAT, "expression"},
        {TOK_FILES_JSON_NFC, "(?i:'s", "\\\\C(?:'s", ERR_FORMAT, "expression"},
        {TOK_FILES_JSON_NFC, "\"Isolated\"", "\"Removed\"", ERR_UNSUPPORTED, "Split"},
        {TOK_FILES_GGUF_BPE, "gpt2", "bert", ERR_UNSUPPORTED, "bert"},
        {TOK_FILES_GGUF_BPE, "gpt-2", "gpt-9", ERR_UNSUPPORTED, "gpt-9"},
        {TOK_FILES_GGUF_SPM, "tokenizer.ggml.scores", "tokenizer.ggml.scoreX",
         ERR_NOTFOUND, "scores"},
        {TOK_FILES_GGUF_SPM, "<0x41>", "<0xZZ>", ERR_FORMAT, "<0xXX>"},
        {TOK_FILES_LLAMA2C, "<0x41>", "<0x42>", ERR_FORMAT, "<0x41>"},
        {TOK_FILES_RANKS, "IQ== ", "IQ=! ", ERR_FORMAT, "base64"},
        {TOK_FILES_RANKS, "IQ== 33", "IQ== 34", ERR_FORMAT, "given twice"},
        {TOK_FILES_RANKS, "IQ== 33", "IQ== 9999", ERR_FORMAT, "highest rank"},
        {TOK_FILES_RANKS, "IQ== 33", "IQ== 99999999999999999999", ERR_FORMAT, "base64"},
    };
    struct tok *t;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const char *path = edited(rules[i].kind, rules[i].from, rules[i].to);
        int rc = tok_open(&t, path, opts_of((int)rules[i].kind));

        if (rc != rules[i].code || !strstr(err_msg(), rules[i].part) ||
            !strstr(err_msg(), path))
            fail_msg("\"%s\" for \"%s\": %s \"%s\"", rules[i].to, rules[i].from,
                     err_name(rc), err_msg());
    }
    assert_err(tok_open(&t, "absent/tokenizer", NULL), ERR_NOTFOUND, "absent");
    assert_err(tok_open(&t, test_dir(), NULL), ERR_NOTFOUND, "tokenizer.json");
    assert_err(tok_open(&t, put_file("\n\x0e\n\x05<unk>", 9), NULL), ERR_UNSUPPORTED,
               "SentencePiece");
}

/* An expression that would run for ever gives up and says so. */
TEST(test_slow_expression)
{
    static const char slow[] = "(?:\\\\p{L}+)+(?:\\\\p{L}+)+\\\\d|(?i:'s";
    const char *path = edited(TOK_FILES_JSON_NFC, "(?i:'s", slow);
    struct tok *t;
    int32_t *ids;
    size_t n;

    assert_ok(tok_open(&t, path, NULL));
    assert_string_equal(tok_kind(t), "bpe/custom");
    assert_err(tok_encode(t, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx 1", 50, 0,
                          &ids, &n),
               ERR_LIMIT, "limit");
    assert_null(ids);
    tok_close(&t);
}

/* --- tokens and merges chosen to share a slot */

/* What a file's author can compute: FNV-1a, and a multiplication by the golden ratio. Both
 * chose the slots once. */
static uint32_t known_hash(const char *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return (uint32_t)((h ^ h >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

static uint32_t known_pair_hash(int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    return (uint32_t)(pair * 0x9e3779b97f4a7c15u >> 32);
}

/* Slots that are taken one after another: no search looks at more, and one. */
static size_t longest_run(const void *table, size_t width, size_t n)
{
    size_t run = 0, longest = 0;

    for (size_t i = 0; i < 2 * n; i++) { /* twice round: a run may cross the end */
        int32_t first;

        memcpy(&first, (const char *)table + i % n * width, sizeof(first));
        run = first >= 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Random slots give runs of about 40 in tables that are half full, as these are, and never
 * one longer than RUN_MAX: each further slot is less likely by a fifth. */
enum { N_CHOSEN = 1700, N_TEXTS = 256 + N_CHOSEN, TEXT_SLOTS = 4096, RUN_MAX = 300 };

static struct tok *new_tok(enum tok_by by, int n_vocab)
{
    struct tok *t = mem_new(MEM_TEST, 1, sizeof(*t));

    assert_non_null(t);
    t->bos = t->eos = -1;
    t->by = by;
    assert_ok(tok_vocab_init(t, n_vocab, false));
    return t;
}

/* The 256 bytes, then texts of eight letters all of which have the known slot 0. */
TEST(test_chosen_texts)
{
    struct tok *t = new_tok(TOK_BY_ID, N_TEXTS);
    char text[8];
    int32_t id = 256;

    for (int b = 0; b < 256; b++) {
        text[0] = (char)b;
        assert_ok(tok_vocab_set(t, b, text, 1, TOK_NORMAL));
    }
    for (uint64_t k = 0; id < N_TEXTS; k++) {
        for (int i = 0; i < 8; i++)
            text[i] = (char)('a' + (k >> 4 * i & 15));
        if (known_hash(text, 8) % TEXT_SLOTS == 0)
            assert_ok(tok_vocab_set(t, id++, text, 8, TOK_NORMAL));
    }
    assert_ok(tok_vocab_finish(t));
    assert_int_equal(t->text_mask + 1, TEXT_SLOTS);
    assert_in_range(longest_run(t->by_text, sizeof(*t->by_text), TEXT_SLOTS), 1, RUN_MAX);
    for (id = 256; id < N_TEXTS; id++)
        assert_int_equal(tok_vocab_find(t, t->bytes + t->span[id].at, t->span[id].n), id);
    tok_close(&t);
}

/* Pairs of bytes, so many that a fourth of all pairs has the known slots. */
enum { N_PAIRS = 1000, PAIR_SLOTS = 2048, PAIR_RANGE = 64 };

TEST(test_chosen_merges)
{
    struct tok *t = new_tok(TOK_BY_PAIR, 256 + N_PAIRS);
    int32_t pair[N_PAIRS], n = 0;

    for (int32_t p = 0; p < 65536 && n < N_PAIRS; p++)
        if (known_pair_hash(p >> 8, p & 255) % PAIR_SLOTS < PAIR_RANGE)
            pair[n++] = p;
    assert_int_equal(n, N_PAIRS);
    for (int32_t id = 0; id < 256 + N_PAIRS; id++) {
        int32_t p = id < 256 ? id << 8 : pair[id - 256];
        char text[2] = {(char)(p >> 8), (char)p};

        assert_ok(tok_vocab_set(t, id, text, id < 256 ? 1 : 2, TOK_NORMAL));
    }
    assert_ok(tok_vocab_finish(t));
    assert_ok(tok_merges_init(t, N_PAIRS));
    for (int32_t i = 0; i < N_PAIRS; i++)
        assert_ok(tok_merges_add(t, pair[i] >> 8, pair[i] & 255, (uint32_t)i));
    assert_int_equal(t->merge_mask + 1, PAIR_SLOTS);
    assert_in_range(longest_run(t->merge, sizeof(*t->merge), PAIR_SLOTS), 1, RUN_MAX);
    for (int32_t i = 0; i < N_PAIRS; i++)
        assert_int_equal(tok_merges_find(t, pair[i] >> 8, pair[i] & 255)->id, 256 + i);
    tok_close(&t);
}
