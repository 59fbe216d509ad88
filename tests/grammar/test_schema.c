/* Texts of schemas and of grammars in GBNF: what they accept and what not, what is refused with
 * which words, and damaged ones. That answers are valid by other means: tests/http/grammar.py. */
#include "base/text.h"
#include "grammar/rules.h"
#include "tests/grammar/words.h"
#include "tests/support/mutate.h"

static int open(struct grammar_matcher **m, enum grammar_kind kind, const char *text)
{
    return grammar_matcher_open(m, vocab, kind, text, strlen(text), false);
}

static bool accepts(const char *schema, const char *text)
{
    struct grammar_matcher *m;
    bool takes = true;

    assert_ok(open(&m, GRAMMAR_SCHEMA, schema));
    for (; *text && takes; text++) {
        const uint64_t *bits = grammar_allowed(m);

        assert_non_null(bits);
        takes = words_bit(bits, WORDS_BYTES + (unsigned char)*text);
        grammar_take(m, WORDS_BYTES + (unsigned char)*text);
    }
    takes = takes && words_bit(grammar_allowed(m), WORDS_EOS);
    grammar_matcher_close(&m);
    return takes;
}

/* Texts behind a tab are accepted, those behind a minus and a tab are not; in lines. */
static const struct {
    const char *schema, *texts;
} cases[] = {
    {"{}", "+1\n+{\"a\": [true, null, "
           "{}]}\n+\"\\u00e9\\n\"\n+-0.5e-3\n-01\n-\"\\ud800\"\n-tru\n-"},
    {"{\"items\": true}", "+[]\n+[1,{}]\n-[1,]"},
    {"{\"type\": \"object\"}",
     "+{}\n+{ \"a\":1}\n+{\"a\":1,\"b\":\"x\"}\n-[]\n-{\"a\"}\n-{\"a\":1,}"},
    {"{\"type\": \"integer\"}", "+0\n+-12\n-1.5\n--0\n-007"},
    {"{\"type\": [\"string\", \"null\"]}", "+null\n+\"\"\n-0"},
    {"{\"enum\": [1, \"x\\\"y\", null, {\"a\": [1]}]}",
     "+1\n+\"x\\\"y\"\n+null\n+{\"a\":[1]}\n-2"},
    {"{\"enum\": [1, \"x\", 2.5], \"type\": \"integer\"}", "+1\n-\"x\"\n-2.5"},
    {"{\"enum\": [1, 2.5], \"type\": \"number\"}", "+1\n+2.5"},
    {"{\"const\": \"\\u00e9/\"}", "+\"\u00e9/\"\n-\"e/\""},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     "-\"a\"\n+\"ab\"\n+\"\u00e9\\n\\u1234\"\n-\"abcd\""},
    {"{\"minLength\": 2}", "-\"a\"\n+\"abcdefgh\""},
    {"{\"pattern\": \"^[a-c]+/\\\\d{2}$\"}", "+\"ab/12\"\n-\"ab/1\"\n-\"ab12\""},
    {"{\"pattern\": \"b\"}", "+\"abc\"\n+\"b\"\n-\"ac\"\n+\"\\\"b\\\\\""},
    {"{\"pattern\": \"^(a|b)$|^x\"}", "+\"a\"\n-\"ab\"\n+\"xy\"\n-\"yx\""},
    {"{\"format\": \"date\"}", "+\"2024-02-28\"\n-\"2024-02-30\"\n-\"2024-13-01\""},
    {"{\"format\": \"date-time\"}",
     "+\"2024-02-28T23:59:59Z\"\n+\"2024-02-28T00:00:00.5+01:30\"\n"
     "-\"2024-02-28\""},
    {"{\"format\": \"uuid\"}",
     "+\"123e4567-e89b-12d3-a456-426614174000\"\n-\"123e4567\""},
    {"{\"format\": \"ipv4\"}", "+\"255.0.10.199\"\n-\"256.0.0.1\"\n-\"1.2.3\""},
    {"{\"type\": \"array\", \"items\": {\"type\": \"null\"}}",
     "+[]\n+[null]\n+[ null , null]\n-[1]"},
    {"{\"items\": {\"const\": 1}, \"minItems\": 2, \"maxItems\": 3}",
     "-[1]\n+[1,1]\n+[1,1,1]\n-[1,1,1,1]"},
    {"{\"items\": {\"const\": 1}, \"minItems\": 1}", "-[]\n+[1]\n+[1,1,1,1]"},
    {"{\"items\": {\"const\": 1}, \"maxItems\": 1}", "+[]\n+[1]\n-[1,1]"},
    {"{\"items\": false}", "+[]\n-[1]"},
    {"{\"type\": \"array\", \"maxItems\": 0}", "+[ ]\n-[1]"},
    {"{\"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": {\"const\": "
     "3}}, "
     "\"required\": [\"b\"]}",
     "+{\"b\":2}\n+{\"a\":1,\"b\":2}\n+{\"a\": 1, \"b\": 2, \"c\": "
     "3}\n+{\"b\":2,\"c\":3}\n-{}\n"
     "-{\"a\":1}\n-{\"c\":3}\n-{\"b\":2,\"a\":1}\n-{\"a\":1\"b\":2}\n-{,\"b\":2}\n-{"
     "\"b\":2,\"d\":4}"},
    {"{\"properties\": {\"a\": true, \"b\": {}}}",
     "+{}\n+{\"a\":1}\n+{\"b\":[]}\n+{\"a\":1,\"b\":2}"},
    {"{\"required\": [\"z\", \"a\\\"\"], \"properties\": {\"z\": {\"const\": 1}}, "
     "\"additionalProperties\": {\"const\": 2}}",
     "+{\"z\":1,\"a\\\"\":2}\n-{\"z\":1}\n-{\"z\":1,\"a\\\"\":1}"},
    {"{\"additionalProperties\": {\"const\": 2}}", "+{}\n+{\"a\":2,\"b\":2}\n-{\"a\":1}"},
    {"{\"type\": \"object\", \"additionalProperties\": false}", "+{}\n-{\"a\":1}"},
    {"{\"anyOf\": [{\"type\": \"null\"}, {\"const\": 1}]}", "+null\n+1\n-2"},
    {"{\"allOf\": [{\"$ref\": \"#/$defs/a~1b\"}], \"$defs\": {\"a/b\": {\"const\": 1}}}",
     "+1\n-2"},
    {"{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"required\": [\"v\"], "
     "\"properties\": {\"v\": "
     "{\"const\": 1}, \"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/n\"}, {\"type\": "
     "\"null\"}]}}}}}",
     "+{\"v\":1}\n+{\"v\":1,\"next\":{\"v\":1,\"next\":null}}\n-{\"next\":null}"},
    {"{\"items\": {\"$ref\": \"#\"}}", "+[[],[[]]]\n-[1]"},
    {"{\"prefix\": 1}", NULL},
};

TEST(schemas_accept_what_is_valid)
{
    for (size_t i = 0; cases[i].texts; i++) {
        char *lines = strdup(cases[i].texts), *rest = lines, *line;

        while ((line = strsep(&rest, "\n")) != NULL)
            if (accepts(cases[i].schema, line + (*line != 0)) != (*line == '+'))
                fail_msg("%s: %s", cases[i].schema, line);
        free(lines);
    }
}

/* Each number in the bounds, and no other, is of the grammar. */
TEST(numbers_are_within_bounds)
{
    struct rng r;

    rng_init(&r, test_seed(), "bounds");
    for (int round = 0; round < 60; round++) {
        const int size = round % 3 == 0 ? 12 : round % 3 == 1 ? 150 : 2500;
        int lo = (int)rng_below(&r, (uint64_t)(2 * size)) - size,
            hi = lo + (int)rng_below(&r, (uint64_t)size);
        const bool open_lo = hi > lo + 2 && rng_below(&r, 2),
                   open_hi = hi > lo + 2 && rng_below(&r, 2), whole = round % 2;
        char schema[200], text[32];

        snprintf(schema, sizeof(schema), "{\"type\": \"%s\", \"%s\": %d, \"%s\": %d}",
                 whole ? "integer" : "number", open_lo ? "exclusiveMinimum" : "minimum",
                 lo, open_hi ? "exclusiveMaximum" : "maximum", hi);
        for (int k = 0; k < 300; k++) {
            const int at = k < 100 ? lo - 10 + k % 20
                           : k < 200
                               ? hi - 10 + k % 20
                               : (int)rng_below(&r, (uint64_t)(4 * size)) - 2 * size;
            const int tenth = whole ? 0 : (int)rng_below(&r, 10);
            const double x = at + (at < 0 ? -tenth : tenth) * 0.1;
            const bool in = (open_lo ? x > lo : x >= lo) && (open_hi ? x < hi : x <= hi);

            snprintf(text, sizeof(text), tenth ? "%d.%d" : "%d", at, tenth);
            if (accepts(schema, text) != in)
                fail_msg("seed %llu: %s: %s", (unsigned long long)test_seed(), schema,
                         text);
        }
    }
    assert_true(
        accepts("{\"type\": \"integer\", \"minimum\": 1e15}", "9000000000000000"));
    assert_true(
        accepts("{\"type\": \"integer\", \"minimum\": 0.5, \"maximum\": 1.5}", "1"));
    assert_false(
        accepts("{\"type\": \"integer\", \"minimum\": 0.5, \"maximum\": 1.5}", "0"));
    assert_true(
        accepts("{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}", "0.25"));
    assert_false(
        accepts("{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}", "1.25"));
    assert_true(
        accepts("{\"type\": \"number\", \"minimum\": -1, \"maximum\": 1}", "-0.5"));
    assert_false(accepts("{\"type\": \"number\", \"minimum\": 0}", "-0.5"));
}

/* ---- what is refused ---- */

static const struct {
    enum grammar_kind kind;
    const char *text;
    int code;
    const char *words;
} refused[] = {
    {GRAMMAR_GBNF, "", ERR_ARG, "offset 0: expected a rule named root, found the end"},
    {GRAMMAR_GBNF, "a ::= \"x\"", ERR_ARG, "offset 9: expected a rule named root"},
    {GRAMMAR_GBNF, "root = \"x\"", ERR_ARG,
     "offset 5: expected ::= after the name of a rule, "
     "found \"=\""},
    {GRAMMAR_GBNF, "root ::= a", ERR_ARG,
     "offset 9: expected the name of a rule that is "
     "defined, found \"a\""},
    {GRAMMAR_GBNF, "root ::= \"x", ERR_ARG,
     "offset 11: expected \" at the end of a text"},
    {GRAMMAR_GBNF, "root ::= [a", ERR_ARG, "offset 11: expected ] at the end of a class"},
    {GRAMMAR_GBNF, "root ::= [b-a]", ERR_ARG, "a range whose end is not below"},
    {GRAMMAR_GBNF, "root ::= []", ERR_ARG, "at least one character"},
    {GRAMMAR_GBNF, "root ::= [^\\x00-\\U0010FFFF]", ERR_ARG, "at least one character"},
    {GRAMMAR_GBNF, "root ::= [\\ud800-\\udfff]", ERR_ARG, "at least one character"},
    {GRAMMAR_GBNF, "root ::= (\"a\"", ERR_ARG, "offset 13: expected ), found the end"},
    {GRAMMAR_GBNF, "root ::= \"a\")", ERR_ARG,
     "offset 12: expected the name of a rule, found \")\""},
    {GRAMMAR_GBNF, "root ::= \"\\q\"", ERR_ARG,
     "offset 11: expected an escape that is known"},
    {GRAMMAR_GBNF, "root ::= \"\\x4\"", ERR_ARG,
     "offset 13: expected a hexadecimal digit"},
    {GRAMMAR_GBNF, "root ::= \"\\U00110000\"", ERR_ARG, "a code point up to 10FFFF"},
    {GRAMMAR_GBNF, "root ::= \"\\UFFFFFFFF\"", ERR_ARG, "a code point up to 10FFFF"},
    {GRAMMAR_GBNF, "root ::= \"\xff\"", ERR_ARG, "offset 10: expected a character"},
    {GRAMMAR_GBNF, "root ::= \"a\"{3,2}", ERR_ARG, "a most that is not below the least"},
    {GRAMMAR_GBNF, "root ::= \"a\"{x}", ERR_ARG, "offset 13: expected a number"},
    {GRAMMAR_GBNF, "root ::= \"a\"{2", ERR_ARG, "expected }"},
    {GRAMMAR_GBNF, "root ::= \"a\"{5000}", ERR_LIMIT, "at most 4096 repetitions"},
    {GRAMMAR_GBNF, "root ::= (\"abc\"{4000}){4000}", ERR_LIMIT, "at most 262144 states"},
    {GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", ERR_ARG,
     "offset 13: expected a rule of "
     "another name"},
    {GRAMMAR_GBNF, "root ::= a\na ::= b \"x\"\nb ::= c | \"y\"\nc ::= \"\" b", ERR_ARG,
     "is left-recursive"},
    {GRAMMAR_GBNF, "root ::= \"x\" | root \"y\"", ERR_ARG,
     "rule \"root\" is left-recursive"},
    {GRAMMAR_GBNF, "root ::= \"x\" root", ERR_ARG, "rule \"root\" has no end"},
    {GRAMMAR_GBNF, "root ::= \"x\" | a\na ::= \"y\" a", ERR_ARG, "rule \"a\" has no end"},
    {GRAMMAR_GBNF, "root ::= /a(?=b)/", ERR_ARG,
     "regular expression: offset 3: expected no "
     "look-around"},
    {GRAMMAR_GBNF, "root ::= /a", ERR_ARG, "expected / at the end"},
    {GRAMMAR_GBNF, "root ::= /a^b/", ERR_ARG,
     "regular expression: offset 1: expected something to "
     "repeat, or an anchor"},
    {GRAMMAR_GBNF, "root ::= /(a$)/", ERR_ARG, "an anchor at the beginning or end"},
    {GRAMMAR_GBNF, "root ::= /a$b/", ERR_ARG, "expected | or / after $"},
    {GRAMMAR_GBNF, "root ::= /\\bx/", ERR_ARG, "an escape that is known"},
    {GRAMMAR_SCHEMA, "{\"type\": ", ERR_FORMAT, "schema"},
    {GRAMMAR_SCHEMA, "[]", ERR_ARG,
     "schema: #: expected an object or true, found another"},
    {GRAMMAR_SCHEMA, "false", ERR_FORMAT, "schema"},
    {GRAMMAR_SCHEMA, "{\"type\": \"text\"}", ERR_UNSUPPORTED,
     "#: type: expected object, array"},
    {GRAMMAR_SCHEMA, "{\"type\": []}", ERR_UNSUPPORTED, "at least one type"},
    {GRAMMAR_SCHEMA, "{\"properties\": {\"a\": {\"multipleOf\": 2}}}", ERR_UNSUPPORTED,
     "schema: #/a: multipleOf: this keyword is not supported"},
    {GRAMMAR_SCHEMA, "{\"oneOf\": []}", ERR_UNSUPPORTED,
     "oneOf: this keyword is not supported"},
    {GRAMMAR_SCHEMA, "{\"not\": {}}", ERR_UNSUPPORTED, "not: this keyword"},
    {GRAMMAR_SCHEMA, "{\"anyOf\": []}", ERR_UNSUPPORTED,
     "anyOf: expected an array of schemas"},
    {GRAMMAR_SCHEMA, "{\"allOf\": [{}, {}]}", ERR_UNSUPPORTED,
     "allOf: one schema is supported"},
    {GRAMMAR_SCHEMA, "{\"anyOf\": [{}], \"type\": \"null\"}", ERR_UNSUPPORTED,
     "anyOf: not together with other keywords"},
    {GRAMMAR_SCHEMA, "{\"enum\": []}", ERR_UNSUPPORTED, "enum: it leaves no value"},
    {GRAMMAR_SCHEMA, "{\"enum\": [1], \"type\": \"null\"}", ERR_UNSUPPORTED,
     "leaves no value"},
    {GRAMMAR_SCHEMA, "{\"enum\": [1], \"minimum\": 0}", ERR_UNSUPPORTED,
     "other than type"},
    {GRAMMAR_SCHEMA, "{\"$ref\": \"#/a\"}", ERR_ARG, "$ref: \"#/a\" is not a part"},
    {GRAMMAR_SCHEMA, "{\"$ref\": \"http://x\"}", ERR_ARG, "is not a part of the schema"},
    {GRAMMAR_SCHEMA, "{\"$ref\": \"#\"}", ERR_ARG, "has no end"},
    {GRAMMAR_SCHEMA,
     "{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", ERR_ARG,
     "has no end"},
    {GRAMMAR_SCHEMA, "{\"minLength\": -1}", ERR_UNSUPPORTED,
     "a whole number from 0 to 4096"},
    {GRAMMAR_SCHEMA, "{\"maxItems\": 1.5}", ERR_UNSUPPORTED,
     "a whole number from 0 to 4096"},
    {GRAMMAR_SCHEMA, "{\"minLength\": 3, \"maxLength\": 2}", ERR_UNSUPPORTED,
     "no less than"},
    {GRAMMAR_SCHEMA, "{\"minItems\": 3, \"maxItems\": 2}", ERR_UNSUPPORTED,
     "no less than"},
    {GRAMMAR_SCHEMA, "{\"pattern\": \"a(?!b)\"}", ERR_ARG,
     "schema: #: pattern: regular expression: offset 3"},
    {GRAMMAR_SCHEMA, "{\"pattern\": \"a\", \"maxLength\": 2}", ERR_UNSUPPORTED,
     "another rule"},
    {GRAMMAR_SCHEMA, "{\"format\": \"email\"}", ERR_UNSUPPORTED,
     "format: expected date, time"},
    {GRAMMAR_SCHEMA, "{\"minimum\": 1, \"maximum\": 0}", ERR_UNSUPPORTED,
     "no number is within"},
    {GRAMMAR_SCHEMA, "{\"minimum\": 0.5}", ERR_UNSUPPORTED, "for integers only"},
    {GRAMMAR_SCHEMA, "{\"minimum\": 1e17}", ERR_UNSUPPORTED, "at most 16 digits"},
    {GRAMMAR_SCHEMA, "{\"properties\": {\"a\": false}}", ERR_ARG, "found false"},
};

TEST(what_is_wrong_is_said_in_one_line)
{
    struct grammar_matcher *m;

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const int rc = open(&m, refused[i].kind, refused[i].text);

        if (rc != refused[i].code || !strstr(err_msg(), refused[i].words) ||
            strchr(err_msg(), '\n'))
            fail_msg("%s: %s \"%s\"", refused[i].text, err_name(rc), err_msg());
        assert_null(m);
    }
}

/* Rules, parts and depth that are too many. */
TEST(limits)
{
    struct text t = {0};
    struct grammar_matcher *m;

    text_puts(&t, "root ::= r1\n");
    for (int i = 1; i < 5000; i++)
        text_printf(&t, "r%d ::= r%d\n", i, i + 1);
    text_put(&t, "", 1);
    assert_err(open(&m, GRAMMAR_GBNF, t.p), ERR_LIMIT, "at most 4096 rules");
    t.n = 0;
    for (int i = 0; i < 70; i++)
        text_puts(&t, i ? "(" : "root ::= ");
    text_put(&t, "", 1);
    assert_err(open(&m, GRAMMAR_GBNF, t.p), ERR_LIMIT, "at most 64 parentheses");
    t.n = 0;
    text_puts(&t, "{\"$defs\": {");
    for (int i = 0; i < 200; i++)
        text_printf(&t, "\"%d\": {\"anyOf\": [{\"$ref\": \"#/$defs/%d\"}]},", i, i + 1);
    text_puts(&t, "\"200\": true}, \"$ref\": \"#/$defs/0\"}");
    text_put(&t, "", 1);
    assert_err(open(&m, GRAMMAR_SCHEMA, t.p), ERR_LIMIT, "at most 128 parts inside each");
    text_fini(&t);
}

/* ---- damaged ones ---- */

/* They are refused in one line, or let texts through up to an end. */
static int try(const uint8_t *data, size_t n, enum grammar_kind kind, struct rng *r)
{
    struct grammar_matcher *m;

    err_clear();
    if (grammar_matcher_open(&m, vocab, kind, (const char *)data, n, false) != OK) {
        assert_true(*err_msg() && !strchr(err_msg(), '\n'));
        return 0;
    }
    for (int i = 0; i < 30; i++) {
        const uint64_t *bits = grammar_allowed(m);
        int32_t ids[WORDS_TEXT + 64], n_ids = 0;

        for (int32_t id = 0; bits && id < tok_vocab(tok) + 5; id++)
            if (words_bit(bits, id))
                ids[n_ids++] = id;
        if (n_ids == 0) {
            assert_true(bits || *grammar_why(m));
            break;
        }
        grammar_take(m, ids[rng_below(r, (uint64_t)n_ids)]);
    }
    grammar_matcher_close(&m);
    return 1;
}

/* What stands behind a NUL was looked for behind the end of a copy that ended at it. */
TEST(a_text_may_have_nul)
{
    static const char text[] = "root ::= \"a\0b\" | \"c";
    struct grammar_matcher *m;

    assert_err(
        grammar_matcher_open(&m, vocab, GRAMMAR_GBNF, text, sizeof(text) - 1, false),
        ERR_ARG, "offset 19: expected \" at the end of a text, found the end");
    assert_err(grammar_matcher_open(&m, vocab, GRAMMAR_SCHEMA, "{}\0", 3, false),
               ERR_FORMAT, "schema");
}

TEST(damaged_texts)
{
    static const char *const grammars[] = {
        "root ::= (x | [^a-c\\x00-\\x1F]{2,3} \"\\n\\\"\")* y? # z\nx ::= \"(\" root "
        "\")\"\ny ::= .",
        "root ::= /^([a-c]+|\\d{2,}?|(?:\\w\\s)*)\\/$/ | \"\\U0001F600\" x\nx ::= \"1\" "
        "| \"2\" x",
    };
    uint8_t out[2000 + MUTATE_EXTRA];
    int n_read = 0, n = 0;
    struct rng r;

    rng_init(&r, test_seed(), "mutants");
    for (int i = 0; i < 3000; i++, n++) {
        const char *text = grammars[i % 2];

        n_read += try(out, mutate(&r, (const uint8_t *)text, strlen(text), out),
                      GRAMMAR_GBNF, &r);
    }
    assert_in_range(n_read, 1, n - 1);
    n_read = 0;
    for (int i = 0; i < 3000; i++) {
        const char *text = cases[(size_t)i % (sizeof(cases) / sizeof(cases[0]))].schema;

        n_read += try(out, mutate(&r, (const uint8_t *)text, strlen(text), out),
                      GRAMMAR_SCHEMA, &r);
    }
    assert_in_range(n_read, 1, n - 1);
}

TEST_GROUP(words_setup, words_teardown);
