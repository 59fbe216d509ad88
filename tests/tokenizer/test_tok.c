/* What holds for every vocabulary: merging equals its definition, nothing is lost,
 * streams are whole characters, long texts take linear time and constant stack. */
#include "tests/support/test.h"
#include "tests/support/tok_files.h"

#include <pthread.h>

#include "tokenizer/tokenizer.h"

#define N_MERGES tok_files_n_merges

/* --- the definition: join the best pair, leftmost first, until none is left */

struct piece {
    const char *s;
    size_t n;
    int id;
};

static int merge_of(const struct piece *l, const struct piece *r, int first, bool bytes)
{
    for (int i = 0; i < N_MERGES; i++) {
        const char *a = tok_files_merges[i].left, *b = tok_files_merges[i].right;
        size_t n = strlen(a);

        if (bytes && (unsigned char)b[0] >= 0x80)
            continue;
        /* SentencePiece joins whatever spells a token, however it is split. */
        if (l->n + r->n == n + strlen(b) && memcmp(l->s, a, n) == 0 &&
            memcmp(l->s + n, b, strlen(b)) == 0 && (!bytes || l->n == n))
            return first + i;
    }
    return -1;
}

static size_t join_all(struct piece *p, size_t n, int first, bool bytes)
{
    for (;;) {
        size_t best = n;
        int best_id = -1;

        for (size_t i = 0; i + 1 < n; i++) {
            int id = merge_of(&p[i], &p[i + 1], first, bytes);

            if (id >= 0 && (best_id < 0 || id < best_id)) {
                best_id = id;
                best = i;
            }
        }
        if (best_id < 0)
            return n;
        p[best].n += p[best + 1].n;
        p[best].id = best_id;
        memmove(p + best + 1, p + best + 2, (n - best - 2) * sizeof(*p));
        n--;
    }
}

static int n_chars(void)
{
    int n = 0;

    for (const char *c = tok_files_chars; *c; c++)
        n += ((unsigned char)*c & 0xC0) != 0x80;
    return n;
}

static size_t naive_spm(const char *text, size_t n, int32_t *ids)
{
    struct piece p[512];
    size_t n_p = 0, n_ids = 0;
    char buf[512];

    if (n == 0)
        return 0;
    buf[0] = ' ';
    memcpy(buf + 1, text, n++);
    for (size_t i = 0; i < n; i += p[n_p++].n) {
        size_t len = (unsigned char)buf[i] < 0x80   ? 1
                     : (unsigned char)buf[i] < 0xE0 ? 2
                                                    : 3;
        int k = 0;

        p[n_p] = (struct piece){buf + i, len, -1};
        for (const char *c = tok_files_chars; *c;
             k += ((unsigned char)*c++ & 0xC0) != 0x80)
            if (strncmp(c, buf + i, len) == 0 && p[n_p].id < 0)
                p[n_p].id = TOK_FILES_SPM_TEXT + k;
    }
    n_p = join_all(p, n_p, TOK_FILES_SPM_TEXT + n_chars(), false);
    for (size_t i = 0; i < n_p; i++) {
        if (p[i].id >= 0)
            ids[n_ids++] = p[i].id;
        for (size_t b = 0; p[i].id < 0 && b < p[i].n; b++)
            ids[n_ids++] = 3 + (unsigned char)p[i].s[b];
    }
    return n_ids;
}

static size_t naive_bpe(const char *text, size_t n, int32_t *ids)
{
    struct piece p[512];

    for (size_t i = 0; i < n; i++)
        p[i] = (struct piece){text + i, 1, (unsigned char)text[i]};
    n = join_all(p, n, TOK_FILES_BPE_TEXT, true);
    for (size_t i = 0; i < n; i++)
        ids[i] = p[i].id;
    return n;
}

/* Text of the vocabulary's own letters, so that merges meet and overlap. */
static size_t random_text(struct rng *r, char *out)
{
    static const char *const words[] = {
        "a",  "a", "aa", " ",        " the", "he", "in",           "ing",      "ng",
        "\n", "t", "e",  "\xC3\xA9", "x",    "Q",  "\xE4\xB8\x96", "\xC3\xB1", "  "};
    size_t n = 0;

    for (uint64_t k = rng_below(r, 60); k > 0; k--) {
        const char *w = words[rng_below(r, sizeof(words) / sizeof(words[0]))];

        memcpy(out + n, w, strlen(w));
        n += strlen(w);
    }
    return n;
}

static void check_definition(enum tok_files_kind kind,
                             size_t (*naive)(const char *, size_t, int32_t *))
{
    struct tok *t = tok_files_open(kind);
    struct rng r;

    rng_init(&r, test_seed(), "text");
    for (int k = 0; k < 400; k++) {
        char text[512];
        int32_t want[1024], *got;
        size_t n = random_text(&r, text), n_want = naive(text, n, want), n_got;

        assert_ok(tok_encode(t, text, n, 0, &got, &n_got));
        if (n_got != n_want || memcmp(got, want, n_want * sizeof(*want)) != 0)
            fail_msg("seed %llu text %d \"%.*s\": ids differ (%zu, expected %zu)",
                     (unsigned long long)test_seed(), k, (int)n, text, n_got, n_want);
        mem_free(got);
    }
    tok_close(&t);
}

TEST(test_definition)
{
    check_definition(TOK_FILES_LLAMA2C, naive_spm);
    check_definition(TOK_FILES_GGUF_SPM, naive_spm);
    check_definition(TOK_FILES_JSON_SPM, naive_spm);
    check_definition(TOK_FILES_JSON_BPE, naive_bpe);
}

/* --- nothing is lost */

static size_t put_code(uint32_t c, char *s)
{
    if (c < 0x80)
        return s[0] = (char)c, 1;
    if (c < 0x800)
        return s[0] = (char)(0xC0 | c >> 6), s[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return s[0] = (char)(0xE0 | c >> 12), s[1] = (char)(0x80 | (c >> 6 & 63)),
               s[2] = (char)(0x80 | (c & 63)), 3;
    return s[0] = (char)(0xF0 | c >> 18), s[1] = (char)(0x80 | (c >> 12 & 63)),
           s[2] = (char)(0x80 | (c >> 6 & 63)), s[3] = (char)(0x80 | (c & 63)), 4;
}

/* U+2581 is SentencePiece's space, and normal form C may change what is above U+02FF: the
 * one character and the one tokenizer are not asked to come back. */
static size_t random_utf8(struct rng *r, char *out, uint32_t below)
{
    size_t n = 0;

    for (uint64_t k = rng_below(r, 100); k > 0; k--) {
        uint32_t kind = (uint32_t)rng_below(r, 4);
        uint32_t c = (uint32_t)rng_below(r, kind == 0   ? 0x80
                                            : kind == 1 ? 0x800
                                            : kind == 2 ? 0x10000
                                                        : 0x110000);

        if (c >= below || (c >= 0xD800 && c < 0xE000) || c == 0x2581)
            c = ' ';
        n += put_code(c, out + n);
    }
    return n;
}

static void check_stream(const struct tok *t, const int32_t *ids, size_t n_ids,
                         const char *want, size_t n)
{
    struct tok_stream s;
    char got[4096], out[256];
    size_t at = 0, m;

    tok_stream_init(&s, t);
    for (size_t i = 0; i < n_ids; i++) {
        assert_ok(tok_stream_put(&s, ids[i], out, sizeof(out), &m));
        assert_true(at + m <= sizeof(got));
        /* What comes out ends on a character. */
        if (m > 0)
            assert_true(at + m == n || ((unsigned char)want[at + m] & 0xC0) != 0x80);
        memcpy(got + at, out, m);
        at += m;
    }
    assert_int_equal(tok_stream_flush(&s, out, sizeof(out)), 0);
    assert_int_equal(at, n);
    assert_memory_equal(got, want, n);
}

/* The pieces joined, without the space that SentencePiece puts first. */
static void check_pieces(const struct tok *t, bool spm, const int32_t *ids, size_t n_ids,
                         const char *want, size_t n)
{
    char got[4096];
    size_t at = 0, skip = spm && n > 0, m;
    const char *s;

    for (size_t i = 0; i < n_ids; i++) {
        assert_ok(tok_piece(t, ids[i], false, &s, &m));
        assert_true(at + m <= sizeof(got));
        memcpy(got + at, s, m);
        at += m;
    }
    assert_int_equal(at, n + skip);
    assert_memory_equal(got + skip, want, n);
}

TEST(test_roundtrip)
{
    for (int kind = 0; kind < TOK_FILES_N; kind++) {
        struct tok *t = tok_files_open(kind);
        bool spm = strncmp(tok_kind(t), "spm", 3) == 0;
        struct rng r;

        rng_init(&r, test_seed(), "roundtrip");
        for (int k = 0; k < 500; k++) {
            char text[1024];
            size_t n_ids, n;
            int32_t *ids;

            n = random_utf8(&r, text, kind == TOK_FILES_JSON_NFC ? 0x300 : 0x110000);
            assert_ok(tok_encode(t, text, n, TOK_SPECIAL, &ids, &n_ids));
            check_stream(t, ids, n_ids, text, n);
            mem_free(ids);
            n = rng_below(&r, 200);
            for (size_t i = 0; i < n; i++)
                text[i] = (char)(rng_below(&r, 3) ? rng_below(&r, 256) : 'a');
            if (kind == TOK_FILES_JSON_NFC) /* valid text among the bytes may change */
                continue;
            assert_ok(tok_encode(t, text, n, 0, &ids, &n_ids));
            check_pieces(t, spm, ids, n_ids, text, n);
            mem_free(ids);
        }
        tok_close(&t);
    }
}

/* --- streams */

static void check_bytes(const struct tok *t, const char *bytes, const char *want,
                        size_t n_flush)
{
    struct tok_stream s;
    char got[256], out[64];
    size_t at = 0, m;

    tok_stream_init(&s, t);
    for (const char *b = bytes; *b;
         b++) { /* in a byte-level vocabulary a byte is its id */
        assert_ok(tok_stream_put(&s, (unsigned char)*b, out, sizeof(out), &m));
        memcpy(got + at, out, m);
        at += m;
    }
    got[at] = 0;
    assert_string_equal(got, want);
    assert_int_equal(tok_stream_flush(&s, out, sizeof(out)), n_flush);
    assert_int_equal(tok_stream_flush(&s, out, sizeof(out)), 0);
}

TEST(test_stream_faults)
{
    static const struct {
        const char *bytes, *want;
        size_t n_flush;
    } cases[] = {
        {"abc", "abc", 0},
        {"\xE4\xB8\x96", "\xE4\xB8\x96", 0},
        {"\xF0\x9F\x98", "", 3},                       /* the rest may still come */
        {"\xE4\xB8x", "\xEF\xBF\xBDx", 0},             /* one fault of two bytes */
        {"\xFF\xFFx", "\xEF\xBF\xBD\xEF\xBF\xBDx", 0}, /* two of one */
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD", 0},   /* overlong */
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 0}, /* a surrogate */
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 0},
        {"\xE4\xE4\xB8\x96", "\xEF\xBF\xBD\xE4\xB8\x96", 0},
    };
    struct tok *t = tok_files_open(TOK_FILES_RANKS);
    struct tok_stream s;
    char out[64];
    size_t n;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_bytes(t, cases[i].bytes, cases[i].want, cases[i].n_flush);
    tok_stream_init(&s, t);
    assert_err(tok_stream_put(&s, tok_vocab(t), out, sizeof(out), &n), ERR_ARG,
               "token id");
    assert_err(tok_stream_put(&s, -1, out, sizeof(out), &n), ERR_ARG, "token id");
    assert_err(tok_stream_put(&s, 'a', out, 10, &n), ERR_ARG, "bytes for text");
    tok_close(&t);
}

/* --- special tokens */

static void check_ids(const struct tok *t, const char *text, unsigned flags,
                      const int32_t *want, size_t n_want)
{
    int32_t *ids;
    size_t n;

    assert_ok(tok_encode(t, text, strlen(text), flags, &ids, &n));
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n_want * sizeof(*want));
    mem_free(ids);
}

TEST(test_specials)
{
    struct tok *t = tok_files_open(TOK_FILES_GGUF_BPE);
    int bos = TOK_FILES_BPE_TEXT + N_MERGES, eos = bos + 1, ud = bos + 2;
    const char *s;
    size_t n;

    assert_int_equal(tok_bos(t), bos);
    assert_int_equal(tok_eos(t), eos);
    assert_false(tok_adds_bos(t));
    check_ids(t, "x<ud>x", 0, (int32_t[]){'x', ud, 'x'}, 3);
    check_ids(t, "<|begin_of_text|>x<|end_of_text|>", TOK_SPECIAL | TOK_BOS,
              (int32_t[]){bos, bos, 'x', eos}, 4);
    check_ids(t, "<|", TOK_SPECIAL, (int32_t[]){'<', '|'}, 2);
    check_ids(t, "", 0, NULL, 0);
    check_ids(t, "", TOK_BOS, (int32_t[]){bos}, 1);
    assert_ok(tok_piece(t, bos, false, &s, &n));
    assert_int_equal(n, 0);
    assert_ok(tok_piece(t, bos, true, &s, &n));
    assert_int_equal(n, strlen("<|begin_of_text|>"));
    assert_ok(tok_piece(t, ud, false, &s, &n));
    assert_int_equal(n, 4);
    tok_close(&t);
    t = tok_files_open(TOK_FILES_JSON_SPM);
    assert_true(tok_adds_bos(t));
    assert_int_equal(tok_bos(t), 1);
    assert_int_equal(tok_eos(t), 2);
    tok_close(&t);
}

/* A control token starts a new text: a space is put before what follows, and decoding
 * drops it again. */
TEST(test_prefix)
{
    struct tok *t = tok_files_open(TOK_FILES_LLAMA2C);
    int32_t *ids;
    size_t n;

    assert_ok(tok_encode(t, "the</s>the", 10, TOK_SPECIAL, &ids, &n));
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], ids[2]);
    assert_int_equal(ids[1], 2);
    check_stream(t, ids, n, "thethe", 6);
    mem_free(ids);
    tok_close(&t);
}

TEST(test_nfc)
{
    struct tok *t = tok_files_open(TOK_FILES_JSON_NFC);
    /* e + acute; two marks out of order under a letter; Hangul; a singleton */
    static const char *const pairs[][2] = {
        {"xe\xCC\x81x", "x\xC3\xA9x"},
        {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},
        {"\xE1\x84\x80\xE1\x85\xA1", "\xEA\xB0\x80"},
        {"a\xE2\x84\xAB!", "a\xC3\x85!"},
        {"\xCC\x81", "\xCC\x81"},
        {"e\xFF\xCC\x81", "e\xFF\xCC\x81"},
    };

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        int32_t *a;
        size_t n;

        assert_ok(tok_encode(t, pairs[i][0], strlen(pairs[i][0]), 0, &a, &n));
        check_pieces(t, false, a, n, pairs[i][1], strlen(pairs[i][1]));
        mem_free(a);
    }
    tok_close(&t);
}

/* --- long texts on a small stack */

struct job {
    const struct tok *t;
    const char *text;
    size_t n, n_ids;
    int32_t *ids;
    int rc;
};

static void *encode_job(void *arg)
{
    struct job *j = arg;

    j->rc = tok_encode(j->t, j->text, j->n, TOK_SPECIAL, &j->ids, &j->n_ids);
    return NULL;
}

static void run_job(struct job *j)
{
    pthread_attr_t attr;
    pthread_t thread;

    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, encode_job, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

/* Regression: 10 MB of spaces exceeded the pre-tokenizer's step limit, which did not
 * grow with the text. */
TEST(test_long)
{
    static const char *const units[] = {"a",    "\n", " ", "\xCC\x81\xCC\xA3",
                                        "\xFF", "<",  "'"};
    const char *san = getenv("SAN");
    size_t most = (size_t)(san && *san ? 1 : 10) << 20;
    char *text = mem_new(MEM_TEST, most, 1);

    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t len = strlen(units[u]), n = u == 0 ? most : most / 8,
               whole = n / len * len;

        for (size_t i = 0; i < whole; i++)
            text[i] = units[u][i % len];
        for (int kind = 0; kind < TOK_FILES_N; kind++) {
            struct tok *t = tok_files_open(kind);
            struct job j = {.t = t, .text = text, .n = whole};
            size_t total = 0, m;
            const char *s;

            run_job(&j);
            assert_ok(j.rc);
            for (size_t i = 0; i < j.n_ids; i++) {
                assert_ok(tok_piece(t, j.ids[i], false, &s, &m));
                total += m;
            }
            assert_int_equal(total, whole + (kind <= TOK_FILES_JSON_SPM));
            mem_free(j.ids);
            tok_close(&t);
        }
    }
    mem_free(text);
}

TEST(test_threads)
{
    struct tok *t = tok_files_open(TOK_FILES_JSON_NFC);
    static const char text[] = "the e\xCC\x81 in the <ud> aaaa \xFF ing";
    struct job j[4];
    pthread_t thread[4];

    for (int i = 0; i < 4; i++) {
        j[i] = (struct job){.t = t, .text = text, .n = sizeof(text) - 1};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_job, &j[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_ok(j[i].rc);
        assert_int_equal(j[i].n_ids, j[0].n_ids);
        assert_memory_equal(j[i].ids, j[0].ids, j[0].n_ids * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++)
        mem_free(j[i].ids);
    tok_close(&t);
}

/* --- every allocation fails in turn */

static void walk(const char *path, const struct tok_opts *o, bool once)
{
    static const char text[] = "the e\xCC\x81 in\xFF <ud>";
    size_t before = mem_used_bytes(MEM_TOKENIZER);
    int rc = ERR_NOMEM;

    for (long k = 0; rc != OK; k++) {
        struct tok *t = NULL;
        int32_t *ids = NULL;
        size_t n;

        assert_true(k < 20000);
        mem_fail_after(k, once);
        rc = tok_open(&t, path, o);
        if (rc == OK)
            rc = tok_encode(t, text, sizeof(text) - 1, 0, &ids, &n);
        mem_fail_after(-1, 0);
        if (rc != OK && rc != ERR_NOMEM)
            fail_msg("%s: allocation %ld: %s: %s", path, k, err_name(rc), err_msg());
        mem_free(ids);
        tok_close(&t);
        assert_int_equal(mem_used_bytes(MEM_TOKENIZER), before);
    }
}

TEST(test_out_of_memory)
{
    for (int kind = 0; kind < TOK_FILES_N; kind++)
        for (int once = 0; once < 2; once++)
            walk(tok_files_write(kind),
                 kind == TOK_FILES_RANKS ? &tok_files_rank_opts : NULL, once);
}
