/* Broken tokenizer files: cut off anywhere, with any field changed, with rules broken.
 * Each opens and then works, or is refused with one line that names the file. */
#include "tests/support/faults.h"
#include "tests/support/tok_files.h"

#include "tokenizer/tok.h"

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

static enum tok_files_kind kind; /* of the document in hand */

static int parse(const char *path)
{
    struct tok *t;
    int rc = tok_open(&t, path, kind == TOK_FILES_RANKS ? &tok_files_rank_opts : NULL);

    if (rc == OK)
        use(t);
    else
        assert_true(!t && rc >= ERR_CANCELED && rc < 0 && rc != ERR_NOMEM);
    tok_close(&t);
    return rc;
}

/* A valid file of this kind, lent until the next call. */
static struct test_document document(enum tok_files_kind its_kind)
{
    static char *data;
    struct test_document d = {.path = test_memory_file(), .parse = parse};

    mem_free(data);
    kind = its_kind;
    d.data = data = test_read(tok_files_write(kind), &d.n);
    return d;
}

TEST(test_truncated)
{
    for (int k = 0; k < TOK_FILES_N; k++) {
        const struct test_document d = document((enum tok_files_kind)k);
        int n_read;

        assert_true(test_cuts(&d, d.n, &n_read) > 0);
        /* Rank files and tokenizer.bin may end after any token; the others must not. */
        if (k != TOK_FILES_RANKS && k != TOK_FILES_LLAMA2C)
            assert_int_equal(n_read, 0);
    }
}

TEST(test_extremes)
{
    static const enum tok_files_kind kinds[] = {TOK_FILES_LLAMA2C, TOK_FILES_GGUF_SPM,
                                                TOK_FILES_GGUF_BPE};

    for (size_t k = 0; k < 3; k++) {
        const struct test_document d = document(kinds[k]);

        assert_true(test_fields(&d, d.n, NULL) > 40);
    }
}

TEST(test_damaged)
{
    for (int k = 0; k < TOK_FILES_N; k++) {
        const struct test_document d = document((enum tok_files_kind)k);

        assert_true(test_mutants(&d, 400) > 0);
    }
}

/* --- rules, one by one */

TEST(test_rules)
{
    static const struct {
        enum tok_files_kind kind;
        struct test_fault fault;
    } rules[] = {
        {TOK_FILES_JSON_BPE, {"\"BPE\"", "\"Unigram\"", ERR_UNSUPPORTED, "Unigram"}},
        {TOK_FILES_JSON_BPE,
         {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}", ERR_UNSUPPORTED,
          "NFKC"}},
        {TOK_FILES_JSON_BPE,
         {"\"ByteLevel\"", "\"Whitespace\"", ERR_UNSUPPORTED, "Whitespace"}},
        {TOK_FILES_JSON_BPE,
         {"\"a\": 97", "\"a\": 98", ERR_FORMAT, "id 98 is given twice"}},
        {TOK_FILES_JSON_BPE, {"\"a\": 97", "\"a\": -1", ERR_FORMAT, "expected an id"}},
        {TOK_FILES_JSON_BPE, {"\"a\": 97", "\"a\": 4000000", ERR_LIMIT, "highest id"}},
        {TOK_FILES_JSON_BPE, {"[\"aa\", \"aa\"]", "[\"aa\", 7]", ERR_FORMAT, "merges["}},
        {TOK_FILES_JSON_BPE, {"\"a a\"", "\"a zz\"", ERR_FORMAT, "merges["}},
        {TOK_FILES_JSON_BPE, {"\"a a\"", "\"a x\"", ERR_FORMAT, "joined text"}},
        {TOK_FILES_JSON_NFC, {"(?i:", "((((", ERR_FORMAT, "expression"}},
        {TOK_FILES_JSON_NFC, {"(?i:'s", "\\\\C(?:'s", ERR_FORMAT, "expression"}},
        {TOK_FILES_JSON_NFC, {"\"Isolated\"", "\"Removed\"", ERR_UNSUPPORTED, "Split"}},
        {TOK_FILES_GGUF_BPE, {"gpt2", "bert", ERR_UNSUPPORTED, "bert"}},
        {TOK_FILES_GGUF_BPE, {"gpt-2", "gpt-9", ERR_UNSUPPORTED, "gpt-9"}},
        {TOK_FILES_GGUF_SPM,
         {"tokenizer.ggml.scores", "tokenizer.ggml.scoreX", ERR_NOTFOUND, "scores"}},
        {TOK_FILES_GGUF_SPM, {"<0x41>", "<0xZZ>", ERR_FORMAT, "<0xXX>"}},
        {TOK_FILES_LLAMA2C, {"<0x41>", "<0x42>", ERR_FORMAT, "<0x41>"}},
        {TOK_FILES_RANKS, {"IQ== ", "IQ=! ", ERR_FORMAT, "base64"}},
        {TOK_FILES_RANKS, {"IQ== 33", "IQ== 34", ERR_FORMAT, "given twice"}},
        {TOK_FILES_RANKS, {"IQ== 33", "IQ== 9999", ERR_FORMAT, "highest rank"}},
        {TOK_FILES_RANKS, {"IQ== 33", "IQ== 99999999999999999999", ERR_FORMAT, "base64"}},
    };
    struct test_document d;
    struct tok *t;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        d = document(rules[i].kind);
        test_faults_of(&d, &rules[i].fault, 1);
    }
    assert_err(tok_open(&t, "absent/tokenizer", NULL), ERR_NOTFOUND, "absent");
    assert_err(tok_open(&t, test_dir(), NULL), ERR_NOTFOUND, "tokenizer.json");
    assert_err(test_parse(&d, "\n\x0e\n\x05<unk>", 9), ERR_UNSUPPORTED, "SentencePiece");
}

/* An expression that would run for ever gives up and says so. */
TEST(test_slow_expression)
{
    static const char slow[] = "(?:\\\\p{L}+)+(?:\\\\p{L}+)+\\\\d|(?i:'s";
    const struct test_document d = document(TOK_FILES_JSON_NFC);
    struct tok *t;
    int32_t *ids;
    size_t n;

    assert_ok(test_edited(&d, "(?i:'s", slow));
    assert_ok(tok_open(&t, d.path, NULL));
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

/* The 256 bytes, then texts of eight letters all of which have the known slot 0.
 * Regression: tokens or merges chosen to share slots of a hash table made loading a
 * vocabulary take minutes. */
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
