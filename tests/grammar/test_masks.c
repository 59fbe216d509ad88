/* Masks of tokens against another recogniser: PCRE2, whose patterns call themselves. Of all texts
 * of a few symbols, those that masks let through are those that the pattern matches, whatever
 * tokens they are of. The grammars are some by hand and many at random. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/grammar/words.h"

#define TEXTS_MAX (1 << 17)
#define LONGEST   16

struct world {
    const char *grammar, *symbols;
    int max_len, n_symbols;
    pcre2_code *pattern;
    bool seen[TEXTS_MAX], ends[TEXTS_MAX], accepted[TEXTS_MAX];
    int n_seen;
};

static int index_of(const struct world *w, const char *text, int n)
{
    int at = 0;

    for (int i = 0; i < n; i++)
        at = at * w->n_symbols + (int)(strchr(w->symbols, text[i]) - w->symbols) + 1;
    assert_true(at < TEXTS_MAX);
    return at;
}

static bool matches(const struct world *w, const char *text, int n)
{
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(w->pattern, NULL);
    int rc = pcre2_match(w->pattern, (PCRE2_SPTR)text, (PCRE2_SIZE)n, 0, 0, m, NULL);

    pcre2_match_data_free(m);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        fail_msg("%s: pcre2: %d", w->grammar, rc);
    return rc >= 0;
}

/* All texts of at most max_len symbols. */
static void recognise(struct world *w, char *text, int n)
{
    w->accepted[index_of(w, text, n)] = matches(w, text, n);
    for (int i = 0; n < w->max_len && i < w->n_symbols; i++) {
        text[n] = w->symbols[i];
        recognise(w, text, n + 1);
    }
}

static bool any_accepted(const struct world *w, char *text, int n)
{
    if (w->accepted[index_of(w, text, n)])
        return true;
    for (int i = 0; n < w->max_len && i < w->n_symbols; i++) {
        text[n] = w->symbols[i];
        if (any_accepted(w, text, n + 1))
            return true;
    }
    return false;
}

/* The mask after these tokens, and after each that it has. */
static void explore(struct world *w, int32_t *ids, int n_ids, char *text, int n)
{
    const int at = index_of(w, text, n), n_words = (tok_vocab(tok) + 5 + 63) / 64;
    struct grammar_matcher *m;
    const uint64_t *lent;
    uint64_t bits[8];

    assert_ok(grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, w->grammar,
                                   strlen(w->grammar), false));
    for (int i = 0; i < n_ids; i++)
        grammar_take(m, ids[i]);
    lent = grammar_allowed(m);
    assert_non_null(lent);
    assert_true(n_words <= 8);
    memcpy(bits, lent, (size_t)n_words * sizeof(bits[0]));
    grammar_matcher_close(&m);
    for (int32_t id = 0; id < WORDS_EOS; id++)
        assert_false(words_bit(bits, id));
    for (int32_t id = tok_vocab(tok); id < n_words * 64; id++)
        assert_false(words_bit(bits, id));
    if (w->seen[at]) { /* of other tokens */
        assert_int_equal(w->ends[at], words_bit(bits, WORDS_EOS));
        return;
    }
    w->seen[at] = true;
    w->n_seen++;
    w->ends[at] = words_bit(bits, WORDS_EOS);
    for (int32_t id = WORDS_BYTES; id < tok_vocab(tok); id++) {
        const char *piece;
        size_t len;
        char copy[3 * LONGEST];

        assert_ok(tok_piece(tok, id, false, &piece, &len));
        memcpy(text + n, piece, len);
        text[n + (int)len] = 0;
        if (n + (int)len > w->max_len || strspn(text, w->symbols) < (size_t)n + len)
            continue;
        memcpy(copy, text, (size_t)n + len);
        if (!words_bit(bits, id)) {
            if (any_accepted(w, copy, n + (int)len))
                fail_msg("%s: token \"%.*s\" is missing after \"%.*s\"", w->grammar,
                         (int)len, piece, n, text);
            continue;
        }
        ids[n_ids] = id;
        explore(w, ids, n_ids + 1, copy, n + (int)len);
    }
}

/* Returns the number of texts that are accepted. */
static int compare(const char *grammar, const char *pattern, const char *symbols,
                   int max_len)
{
    struct world *w = mem_new(MEM_TEST, 1, sizeof(*w));
    char text[3 * LONGEST] = "", whole[4096];
    int32_t ids[LONGEST];
    int code, n_accepted = 0;
    PCRE2_SIZE offset;

    *w = (struct world){.grammar = grammar,
                        .symbols = symbols,
                        .max_len = max_len,
                        .n_symbols = (int)strlen(symbols)};
    snprintf(whole, sizeof(whole), "\\A(?:%s)\\z", pattern);
    w->pattern = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, PCRE2_DOTALL,
                               &code, &offset, NULL);
    if (!w->pattern)
        fail_msg("%s: error %d at %d", whole, code, (int)offset);
    recognise(w, text, 0);
    explore(w, ids, 0, text, 0);
    for (int i = 0; i < TEXTS_MAX; i++) {
        if (w->ends[i] != w->accepted[i])
            fail_msg("%s: text number %d of \"%s\": %s by masks only", grammar, i,
                     symbols, w->ends[i] ? "accepted" : "refused");
        n_accepted += w->accepted[i];
    }
    pcre2_code_free(w->pattern);
    mem_free(w);
    return n_accepted;
}

TEST(masks_accept_what_a_recogniser_does)
{
    static const struct {
        const char *grammar, *pattern, *symbols;
        int max_len;
    } all[] = {
        {"root ::= \"ab\"*", "(?:ab)*", "ab", 9},
        {"root ::= (\"a\" | \"ab\" | \"aab\")+ \"b\"?", "(?:a|ab|aab)+b?", "ab", 9},
        {"root ::= (\"(\" root \")\" root)?", "(?<r>(?:\\((?&r)\\)(?&r))?)", "()", 10},
        {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\" | \"b\" | \"\"",
         "(?<r>a(?&r)a|b(?&r)b|a|b|)", "ab", 9},
        {"root ::= \"a\" root \"b\" | \"ab\"", "(?<r>a(?&r)b|ab)", "ab", 10},
        {"root ::= term ((\"+\" | \"*\") term)*\nterm ::= \"x\" | \"(\" root \")\"",
         "(?<r>(?<t>x|\\((?&r)\\))(?:[+*](?&t))*)", "x+*()", 6},
        {"root ::= [ab]{2,4} \"c\" | \"a\"{3}", "[ab]{2,4}c|a{3}", "abc", 6},
        {"root ::= (\"a\"{1,2} \"b\"){2,3} \"a\"{,2}", "(?:a{1,2}b){2,3}a{0,2}", "ab",
         11},
        {"root ::= (\"ab\"{0} \"b\"{2,})* x{1}\nx ::= \"a\"{0,0}", "(?:b{2,})*", "ab", 8},
        {"root ::= x* \"b\"?\nx ::= \"a\" | \"aa\" | \"\"", "a*b?", "ab", 8},
        {"root ::= ((x)*)+ (\"\" | \"b\")*\nx ::= \"\" | \"a\"", "a*b*", "ab", 8},
        {"root ::= [^a] . \"a\" [^b-c]", "[^a].a[^bc]", "abc", 6},
        {"root ::= [\u03b1-\u03b3]+ \"\u03b4\"?", "(?:\xce[\xb1-\xb3])+(?:\xce\xb4)?",
         "\xce\xb1\xb2\xb3\xb4", 6},
        {"root ::= \"a\" x | \"b\"\nx ::= \"b\" root | \"a\" x \"a\"",
         "(?<r>a(?<x>b(?&r)|a(?&x)a)|b)", "ab", 9},
        {"# a comment\nroot ::= \"\\x61\" # text\n | [\\u0062] (\n\"a\" |\n\"b\")\n",
         "a|ba|bb", "ab", 5},
        {"root ::= /^a+(b|x)?$/ | \"()\"", "a+[bx]?|\\(\\)", "()abx", 5},
        {"root ::= /b/", "(?:[ab]|\\\\[\"\\\\])*b(?:[ab]|\\\\[\"\\\\])*", "ab\"\\", 6},
        {"root ::= /^[^b]{1,2}?\\\\$|^\\D\\w$/",
         "(?:a|\\\\[\"\\\\]){1,2}\\\\\\\\|(?:[ab]|\\\\[\"\\\\])[ab]", "ab\"\\", 6},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_true(
            compare(all[i].grammar, all[i].pattern, all[i].symbols, all[i].max_len) > 0);
}

/* The characters that UTF-8 writes in one to four bytes: of each length the first, the last and
 * some others are in a class of these and not in one that leaves them out. */
TEST(classes_have_their_characters_only)
{
    static const int32_t codes[] = {0x1,     0x41,    0x7f,    0x80,     0x3b1,   0x7ff,
                                    0x800,   0xfff,   0x1000,  0xd7ff,   0xe000,  0xffff,
                                    0x10000, 0x1f600, 0xfffff, 0x100000, 0x10ffff};
    enum { N = sizeof(codes) / sizeof(codes[0]) };
    struct rng r;

    rng_init(&r, test_seed(), "classes");
    for (int round = 0; round < 300; round++) {
        const int32_t a = codes[rng_below(&r, N)] + (int32_t)rng_below(&r, 3) - 1,
                      b = codes[rng_below(&r, N)] + (int32_t)rng_below(&r, 3) - 1,
                      top = 0x10ffff,
                      lo = a < b     ? a
                           : b < top ? b
                                     : top,
                      hi = a < b     ? (b < top ? b : top)
                           : a < top ? a
                                     : top;
        const bool negated = round % 2;
        char text[100];

        if (negated ? lo == 0 && hi == top : lo >= 0xd800 && hi <= 0xdfff)
            continue; /* no character */
        snprintf(text, sizeof(text), "root ::= [%s\\U%08X-\\U%08X] | \"no\"",
                 negated ? "^" : "", (unsigned)lo, (unsigned)hi);
        for (int i = 0; i < N; i++) {
            const int32_t code = codes[i];
            const bool in = (code >= lo && code <= hi) != negated;
            struct grammar_matcher *m;
            unsigned char bytes[4];
            bool takes = true;
            int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

            for (int k = n - 1; k >= 0; k--)
                bytes[k] = (unsigned char)(0x80 | (code >> 6 * (n - 1 - k) & 63));
            if (n == 1)
                bytes[0] = (unsigned char)code;
            else
                bytes[0] = (unsigned char)((0xf00 >> n & 0xff) | code >> 6 * (n - 1));
            assert_ok(
                grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, text, strlen(text), false));
            for (int k = 0; k < n && takes; k++) {
                takes = words_bit(grammar_allowed(m), WORDS_BYTES + bytes[k]);
                grammar_take(m, WORDS_BYTES + bytes[k]);
            }
            takes = takes && words_bit(grammar_allowed(m), WORDS_EOS);
            if (takes != in)
                fail_msg("seed %llu: %s: U+%04X", (unsigned long long)test_seed(), text,
                         (unsigned)code);
            grammar_matcher_close(&m);
        }
    }
}

/* ---- grammars at random: the same in both languages ---- */

struct both {
    char gbnf[2000], pcre[2000];
};

static void put(struct both *b, const char *gbnf, const char *pcre)
{
    strcat(b->gbnf, gbnf);
    strcat(b->pcre, pcre);
}

static void random_part(struct rng *r, struct both *b, int depth)
{
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,2}"};
    const int n = 1 + (int)rng_below(r, 3);
    char name[8];

    switch (rng_below(r, depth > 0 ? 7 : 3)) {
    case 0:
        put(b, "\"a\" ", "a");
        return;
    case 1:
        put(b, "\"b\" ", "b");
        return;
    case 2:
        put(b, "[ab] ", "[ab]");
        return;
    case 3: /* behind a byte: not left-recursive */
        snprintf(name, sizeof(name), "r%d", (int)rng_below(r, 3));
        put(b, "(\"b\" ", "(?:b(?&");
        put(b, name, name);
        put(b, ")", "))");
        return;
    case 4:
        put(b, "(", "(?:");
        random_part(r, b, depth - 1);
        put(b, ")", ")");
        put(b, repeats[n], repeats[n]);
        return;
    case 5:
        put(b, "(", "(?:");
        for (int i = 0; i < n; i++)
            random_part(r, b, depth - 1);
        put(b, ")", ")");
        return;
    default:
        put(b, "(", "(?:");
        for (int i = 0; i <= n; i++) {
            put(b, i ? " | " : "", i ? "|" : "");
            if (i > 0 || n > 1)
                random_part(r, b, depth - 1);
        }
        put(b, ")", ")");
    }
}

TEST(masks_of_random_grammars)
{
    int n_compared = 0, n_accepted = 0, n_endless = 0;

    for (int seed = 0; seed < 150; seed++) {
        struct both b = {"root ::= r0\n", "(?&r0)(?(DEFINE)"};
        struct grammar_matcher *m;
        struct rng r;
        int rc;

        rng_init(&r, test_seed() * 1000 + (uint64_t)seed, "grammar");
        for (int i = 0; i < 3; i++) {
            char head[2][16];

            snprintf(head[0], sizeof(head[0]), "r%d ::= ", i);
            snprintf(head[1], sizeof(head[1]), "(?<r%d>", i);
            put(&b, head[0], head[1]);
            random_part(&r, &b, 3);
            put(&b, "\n", ")");
        }
        put(&b, "", ")");
        rc = grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, b.gbnf, strlen(b.gbnf), false);
        grammar_matcher_close(&m);
        if (rc == ERR_ARG && strstr(err_msg(), "has no end")) {
            n_endless++;
            continue;
        }
        assert_ok(rc);
        n_accepted += compare(b.gbnf, b.pcre, "ab", 6);
        n_compared++;
    }
    assert_true(n_compared > 50 && n_accepted > 500 && n_endless > 0);
}

/* ---- the first token, and limits ---- */

static const uint64_t *first_mask(struct grammar_matcher **m, const char *text,
                                  bool drops)
{
    assert_ok(grammar_matcher_open(m, vocab, GRAMMAR_GBNF, text, strlen(text), drops));
    return grammar_allowed(*m);
}

static int32_t id_of(const char *word)
{
    for (int i = 0; i < N_WORDS; i++)
        if (strcmp(words[i], word) == 0)
            return WORDS_TEXT + i;
    fail_msg("no word %s", word);
    return -1;
}

/* A space that would not be shown is no part of the text. */
TEST(the_first_space_may_be_dropped)
{
    static const char text[] = "root ::= \" \"? \"a\" \" a\"*";
    struct grammar_matcher *m;
    const uint64_t *bits = first_mask(&m, text, false);

    assert_true(words_bit(bits, id_of(" a")) && words_bit(bits, id_of("a")));
    grammar_matcher_close(&m);
    bits = first_mask(&m, text, true);
    assert_true(!words_bit(bits, id_of(" a")) && words_bit(bits, id_of("a")));
    assert_true(grammar_allowed(m) == bits && !words_bit(bits, id_of(" a")));
    grammar_take(m, id_of("a"));
    assert_true(words_bit(grammar_allowed(m), id_of(" a")));
    grammar_take(m, WORDS_EOS);
    bits = grammar_allowed(m);
    for (int i = 0; i < (tok_vocab(tok) + 5 + 63) / 64; i++)
        assert_true(bits[i] == 0);
    assert_string_equal(grammar_why(m), "");
    grammar_matcher_close(&m);
}

/* The mask after this text, byte by byte, and a token. */
static bool mask_after(const char *grammar, const char *text, int32_t id,
                       uint64_t bits[8])
{
    struct grammar_matcher *m;
    const uint64_t *lent;
    bool any = false;

    assert_ok(
        grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, grammar, strlen(grammar), false));
    for (const char *c = text; *c; c++)
        grammar_take(m, WORDS_BYTES + (uint8_t)*c);
    if (id >= 0)
        grammar_take(m, id);
    assert_non_null(lent = grammar_allowed(m));
    memcpy(bits, lent, (size_t)(tok_vocab(tok) + 5 + 63) / 64 * sizeof(*bits));
    for (int32_t i = 0; i < tok_vocab(tok); i++)
        any |= words_bit(bits, i);
    grammar_matcher_close(&m);
    return any;
}

/* A mask has the tokens after which a text goes on, also where one copy of a part stands for
 * others, and for tokens that are longer than those for which it does. */
TEST(copies_of_a_part_stand_for_others)
{
    static const char *const grammars[] = {
        "root ::= [ab]{0,70} \"x\"", "root ::= ([ab]{3,60} \"x\"){1,3}",
        "root ::= (\"a\"? \"b\"?){0,60} \"x\"",
        "root ::= r{5,50} \"x\"\nr ::= \"a\" \"b\"? | \"b\"",
        "root ::= r{0,40} \"x\"\nr ::= [ab]{1,40} \"1\""};
    uint64_t bits[8], after[8];

    for (size_t g = 0; g < sizeof(grammars) / sizeof(grammars[0]); g++) {
        char text[80] = "";

        for (int n = 0; n < 72 && mask_after(grammars[g], text, -1, bits); n++) {
            for (int32_t id = WORDS_BYTES; id < tok_vocab(tok); id++)
                if (words_bit(bits, id) != mask_after(grammars[g], text, id, after))
                    fail_msg("%s: after %d bytes: token %d", grammars[g], n, id);
            text[n] = n % 3 ? 'a' : 'b';
            text[n + 1] = 0;
        }
        assert_true(strlen(text) > 35);
    }
}

/* ---- other vocabularies: how many places of a repetition a token fills is counted ---- */

#define PLACES 40
#define LONG   28 /* bytes; some more than tokens for which one mask serves many places */

static struct grammar_vocab *open_words(struct tok **t, const char *const *text, int n)
{
    *t = words_open(text, n);
    return words_vocab(*t);
}

static void take_text(struct grammar_matcher *m, const char *text)
{
    for (; *text; text++)
        grammar_take(m, WORDS_BYTES + (unsigned char)*text);
}

/* Words are a unit once, twice and so on; unit i is a place of the repetition. One unit's words are
 * shorter than the other's, so that the longest of them begins no longer one. */
static const char *const units[] = {"a", "b", ",1"};
struct unit_words {
    char text[3 * LONG][LONG + 1];
    const char *list[3 * LONG];
    int unit[3 * LONG], times[3 * LONG], n;
};

static void add_words(struct unit_words *w, int unit, int longest)
{
    const int len = (int)strlen(units[unit]);

    for (int times = 1; times * len <= longest; times++) {
        char *text = w->text[w->n];

        for (int i = 0; i < times; i++)
            memcpy(text + i * len, units[unit], (size_t)len + 1);
        w->unit[w->n] = unit;
        w->times[w->n] = times;
        w->list[w->n++] = text;
    }
}

/* The words of a unit that the mask has are those that fit into the places that are left. */
static void fill_places(struct grammar_vocab *v, const struct unit_words *w,
                        enum grammar_kind kind, const char *text, const char *before,
                        int unit)
{
    struct grammar_matcher *m;

    assert_ok(grammar_matcher_open(&m, v, kind, text, strlen(text), false));
    take_text(m, before);
    for (int left = PLACES; left >= 0; left--) {
        const uint64_t *bits = grammar_allowed(m);

        assert_non_null(bits);
        for (int i = 0; i < w->n; i++)
            if (w->unit[i] == unit &&
                words_bit(bits, WORDS_TEXT + i) != (w->times[i] <= left))
                fail_msg("%s: words of %d bytes: \"%s\" with %d places left", text,
                         (int)strlen(w->list[w->n - 1]), w->list[i], left);
        take_text(m, units[unit]);
    }
    grammar_matcher_close(&m);
}

/* One mask serves the places of a repetition from which no token reaches the last one, and not one
 * place more, whatever the length of the longest token is. The words of the other tests are short,
 * or begin one that is so long that each place has its own mask of it. */
TEST(tokens_fill_the_places_that_are_left)
{
    static const struct {
        enum grammar_kind kind;
        const char *text, *before;
    } all[] = {{GRAMMAR_GBNF, "root ::= [ab]{0,40} \"x\"", ""},
               {GRAMMAR_GBNF, "root ::= r{2,40} \"x\"\nr ::= [ab]", ""},
               {GRAMMAR_GBNF,
                "root ::= \"(\" q \")\"\nq ::= r{0,40} \"x\"\nr ::= s\ns ::= [ab]{1}",
                "("},
               {GRAMMAR_GBNF, "root ::= (\"a\"? \"b\"?){0,40} \"x\"", ""},
               {GRAMMAR_SCHEMA, "{\"type\": \"string\", \"maxLength\": 40}", "\""},
               {GRAMMAR_SCHEMA, "{\"items\": {\"const\": 1}, \"maxItems\": 41}", "[1"}};
    enum { N = sizeof(all) / sizeof(all[0]) };

    for (int longest = 1; longest <= LONG; longest++)
        for (int shorter = longest; shorter > 0; shorter -= 1 + longest / 8) {
            struct unit_words w = {.n = 0};
            struct grammar_vocab *v;
            struct tok *t;

            add_words(&w, 1, shorter);
            add_words(&w, 2, shorter);
            add_words(&w, 0, longest);
            v = open_words(&t, w.list, w.n);
            for (int i = 0; i < N; i++)
                for (int unit = i == N - 1 ? 2 : 0; unit <= (i == N - 1 ? 2 : 1); unit++)
                    fill_places(v, &w, all[i].kind, all[i].text, all[i].before, unit);
            grammar_vocab_close(&v);
            tok_close(&t);
        }
}

/* As many tokens as the largest vocabularies of today have. */
TEST(masks_of_200_thousand_tokens)
{
    enum { N = 200000, MOST = 60, LONGEST_WORD = 30 };
    static const char schema[] = "{\"type\": \"string\", \"maxLength\": 60}";
    char(*text)[LONGEST_WORD + 1] = mem_new(MEM_TEST, N, sizeof(*text));
    const char **list = mem_new(MEM_TEST, N, sizeof(*list));
    struct grammar_vocab *v;
    struct grammar_matcher *m;
    struct tok *t;
    struct rng r;

    rng_init(&r, test_seed(), "words");
    for (int i = 0; i < N; i++) {
        const int n = 1 + (int)rng_below(&r, LONGEST_WORD);

        for (int k = 0; k < n; k++)
            text[i][k] = (char)('a' + rng_below(&r, 26));
        list[i] = text[i];
    }
    v = open_words(&t, list, N);
    for (int round = 0; round < 2; round++) { /* then with masks that were kept */
        assert_ok(
            grammar_matcher_open(&m, v, GRAMMAR_SCHEMA, schema, strlen(schema), false));
        take_text(m, "\"");
        for (int left = MOST; left >= 0; left--) {
            const uint64_t *bits = grammar_allowed(m);

            assert_non_null(bits);
            for (int i = 0; i < N; i++)
                if (words_bit(bits, WORDS_TEXT + i) != ((int)strlen(text[i]) <= left))
                    fail_msg("seed %llu: \"%s\" with %d characters left",
                             (unsigned long long)test_seed(), text[i], left);
            take_text(m, "q");
        }
        grammar_matcher_close(&m);
    }
    grammar_vocab_close(&v);
    tok_close(&t);
    mem_free(list);
    mem_free(text);
}

/* What needs more stacks than there may be fails then, and not before. */
TEST(too_many_stacks_are_an_error)
{
    char text[20000] = "root ::= (x \"b\")+\nx ::= ";
    struct grammar_matcher *m;

    for (int i = 0; i < 1000; i++)
        sprintf(text + strlen(text), "%s[a]*", i ? " | " : "");
    assert_non_null(first_mask(&m, text, false));
    grammar_take(m, id_of("aa"));
    assert_true(words_bit(grammar_allowed(m), WORDS_BYTES + 'b'));
    grammar_matcher_close(&m);
    assert_null(first_mask(&m, "root ::= [ab] x{4000}\nx ::= \"a\"? \"a\"?", false));
    assert_true(strstr(grammar_why(m), "too many stacks"));
    grammar_take(m, id_of("a"));
    assert_null(grammar_allowed(m));
    grammar_matcher_close(&m);
    strcpy(text, "root ::= x{4000}\nx ::= \"a\"? \"a\"?");
    assert_err(grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, text, strlen(text), false),
               ERR_LIMIT, "too many stacks");
    assert_null(m);
}

/* Rules are nested as deep as there may be, and no deeper. */
TEST(depth_has_a_limit)
{
    struct grammar_matcher *m;
    int n = 0;

    (void)first_mask(&m, "root ::= \"(\" root \")\" | \"a\"", false);
    while (words_bit(grammar_allowed(m), WORDS_BYTES + '(') && n++ < 1000)
        grammar_take(m, WORDS_BYTES + '(');
    assert_in_range(n, GRAMMAR_DEPTH_MAX - 2, GRAMMAR_DEPTH_MAX);
    grammar_matcher_close(&m);
    n = 0;
    (void)first_mask(&m, "root ::= \"(\" root | \"a\"", false); /* which nests nothing */
    while (words_bit(grammar_allowed(m), WORDS_BYTES + '(') && n++ < 1000)
        grammar_take(m, WORDS_BYTES + '(');
    assert_int_equal(n, 1001);
    grammar_matcher_close(&m);
}

/* As many grammars as one likes are used; what is kept does not grow. */
TEST(grammars_go_when_others_come)
{
    size_t before = 0;

    for (int i = 0; i < 40; i++) {
        struct grammar_matcher *m, *other;
        char text[64];

        snprintf(text, sizeof(text), "root ::= \"%03d\" .*", i);
        (void)first_mask(&m, text, false);
        (void)first_mask(&other, text, false);
        for (int k = 0; k < 20; k++)
            grammar_take(m, WORDS_BYTES + '0' + (k == 2 ? i % 10 : k == 1 ? i / 10 : 0));
        assert_true(words_bit(grammar_allowed(m), WORDS_EOS));
        assert_false(words_bit(grammar_allowed(other), WORDS_EOS));
        grammar_matcher_close(&m);
        grammar_matcher_close(&other);
        if (i == 10)
            before = mem_used_bytes(MEM_OTHER);
    }
    assert_true(mem_used_bytes(MEM_OTHER) <= before + before / 10);
}

/* A grammar whose tables fill up is made again for later texts, which it takes like the first. */
TEST(tables_that_are_full_are_left)
{
    static const char grammar[] = "root ::= [ab]* \"a\" [ab]{20}"; /* 2^20 sets */
    struct rng r;

    rng_init(&r, test_seed(), "full");
    for (int i = 0; i < 3000; i++) {
        struct grammar_matcher *m;
        char text[40];

        (void)first_mask(&m, grammar, false);
        for (int k = 0; k < 40; k++) {
            assert_non_null(grammar_allowed(m));
            assert_int_equal(words_bit(grammar_allowed(m), WORDS_EOS),
                             k > 20 && text[k - 21] == 'a');
            text[k] = rng_below(&r, 2) ? 'a' : 'b';
            grammar_take(m, WORDS_BYTES + text[k]);
        }
        grammar_matcher_close(&m);
    }
}

static int use(struct grammar_vocab **v)
{
    static const char text[] =
        "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": "
        "{\"a\": {\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": "
        "\"null\"}]}, \"b\": {\"pattern\": \"x\"}}}",
                      other[] = "root ::= \"a\" [bc] x*\nx ::= \"d\" | \"\"";
    struct grammar_matcher *m;
    int rc;

    TRY(grammar_vocab_open(v, tok, tok_vocab(tok), &(int32_t){WORDS_EOS}, 1));
    rc = grammar_matcher_open(&m, *v, GRAMMAR_GBNF, other, strlen(other), false);
    grammar_matcher_close(&m);
    if (rc == OK)
        rc = grammar_matcher_open(&m, *v, GRAMMAR_SCHEMA, text, strlen(text), false);
    if (rc == OK) {
        for (const char *c = "{\"a\": {\"b"; *c && grammar_allowed(m); c++)
            grammar_take(m, WORDS_BYTES + *c);
        rc = grammar_allowed(m) ? OK : ERR_NOMEM;
        assert_true(rc == OK || *grammar_why(m));
        grammar_matcher_close(&m);
    }
    if (rc != OK)
        grammar_vocab_close(v);
    return rc;
}

TEST(memory_runs_out)
{
    struct grammar_vocab *v;
    size_t before = mem_used_bytes(MEM_OTHER);

    assert_true(test_allocations(use(&v), !v && mem_used_bytes(MEM_OTHER) == before) >
                30);
    grammar_vocab_close(&v);
    assert_int_equal(mem_used_bytes(MEM_OTHER), before);
}

TEST_GROUP(words_setup, words_teardown);
