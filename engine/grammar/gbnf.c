/* From a text in GBNF to rules. Between slashes stands a regular expression (those of ECMA 262 that
 * have no look-around and no back-references), whose characters are those inside of a JSON string:
 * it is read by the same functions, without blanks between its parts. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/rules.h"

#define NESTED_MAX 64 /* parentheses */
#define RANGES_MAX 256
#define CODE_MAX   0x10ffff

struct named {
    size_t at, n; /* where its name is first */
    bool defined;
};
struct reader {
    const char *text;
    size_t n, at;
    int depth;
    bool regex;
    size_t origin;                                   /* of the regular expression */
    struct grammar_range ranges[2 * RANGES_MAX + 1]; /* of the class at hand */
    int n_ranges;
    struct named rules[GRAMMAR_RULES_MAX];
    struct map names;
    struct grammar_rules *out;
};

static int expected(const struct reader *r, const char *what)
{
    char found[UTF8_SHOWN_BYTES + 1] = "the end";
    int used, n;

    if (r->at < r->n) {
        n = utf8_show_one(found, r->text + r->at, r->n - r->at, &used);
        found[n] = 0;
    }
    return err_set(ERR_ARG, "%s: offset %zu: expected %s, found %s%s%s",
                   r->regex ? "regular expression" : "grammar", r->at - r->origin, what,
                   r->at < r->n ? "\"" : "", found, r->at < r->n ? "\"" : "");
}

static int peek(const struct reader *r)
{
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static bool next_is_one_of(const struct reader *r, const char *chars)
{
    return peek(r) > 0 && strchr(chars, peek(r));
}

static bool take(struct reader *r, int c)
{
    const bool is = peek(r) == c;

    r->at += is;
    return is;
}

static void skip_space(struct reader *r)
{
    while (!r->regex && next_is_one_of(r, " \t\r\n#")) {
        if (peek(r) == '#')
            while (peek(r) >= 0 && peek(r) != '\n')
                r->at++;
        r->at += r->at < r->n;
    }
}

static bool is_name(int c)
{
    return c >= 0 && (isalnum(c) || c == '-' || c == '_');
}

static bool is_definition(struct reader *r)
{
    const size_t at = r->at;
    bool is;

    while (is_name(peek(r)))
        r->at++;
    is = r->at > at;
    skip_space(r);
    is = is && r->n - r->at >= 3 && memcmp(r->text + r->at, "::=", 3) == 0;
    r->at = at;
    return is;
}

/* ---- characters ---- */

static int add_range(struct reader *r, int32_t lo, int32_t hi)
{
    if (hi < lo)
        return expected(r, "a range whose end is not below its beginning before this");
    if (r->n_ranges >= RANGES_MAX)
        return err_set(ERR_LIMIT, "grammar: offset %zu: expected at most %d ranges",
                       r->at, RANGES_MAX);
    r->ranges[r->n_ranges++] = (struct grammar_range){lo, hi};
    return OK;
}

static int by_lo(const void *a, const void *b)
{
    const struct grammar_range *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* What the ranges from `first` on leave up to the code point `most`, in their place. */
static void complement(struct reader *r, int first, int32_t most)
{
    const int n = r->n_ranges - first;
    struct grammar_range *in = r->ranges + first, *out = in + n;
    int32_t at = 0;

    qsort(in, (size_t)n, sizeof(*in), by_lo);
    for (int i = 0; i < n && at <= most; i++) {
        if (in[i].lo > at)
            *out++ = (struct grammar_range){at, in[i].lo - 1};
        at = in[i].hi + 1 > at ? in[i].hi + 1 : at;
    }
    if (at <= most)
        *out++ = (struct grammar_range){at, most};
    r->n_ranges = (int)(out - r->ranges) - n;
    memmove(in, in + n, (size_t)(r->n_ranges - first) * sizeof(*in));
}

/* \d and the like; of \D, \W and \S the characters of ASCII, of which all dialects agree. */
static int add_shorthand(struct reader *r, int which)
{
    static const char *const sets[] = {"d09", "w09AZ__az", "s\t\r  "};
    const int first = r->n_ranges;
    size_t i = 0;

    while (sets[i][0] != tolower(which))
        i++;
    for (const char *p = sets[i] + 1; *p; p += 2)
        TRY(add_range(r, p[0], p[1]));
    if (isupper(which))
        complement(r, first, 0x7f);
    return OK;
}

static int read_hex(struct reader *r, int n, int32_t *code)
{
    uint32_t x = 0;

    for (; n > 0; n--, r->at++) {
        const int c = peek(r);

        if (c < 0 || !isxdigit(c))
            return expected(r, "a hexadecimal digit");
        x = x * 16 + (uint32_t)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    *code = (int32_t)x;
    return x > CODE_MAX ? expected(r, "a code point up to 10FFFF before this") : OK;
}

/* A character of a text, class or expression, which may be escaped; *code -1: a shorthand for
 * several, which are added to the ranges. */
static int read_char(struct reader *r, int32_t *code)
{
    static const char from[] = "nrtfv", to[] = "\n\r\t\f\v";
    const int len = r->at < r->n ? utf8_len(r->text + r->at, r->n - r->at) : 0;
    int c;

    if (len <= 0)
        return expected(r, "a character");
    if (!take(r, '\\')) {
        *code = utf8_code(r->text + r->at, len);
        r->at += (size_t)len;
        return OK;
    }
    c = peek(r);
    if (r->regex && next_is_one_of(r, "dDwWsS")) {
        *code = -1;
        return add_shorthand(r, r->text[r->at++]);
    }
    if (c < 0 || !(ispunct(c) || strchr(r->regex ? "nrtfvxu" : "nrtxuU", c)))
        return expected(r, "an escape that is known, such as \\n or \\x0A, after a \\");
    r->at++;
    if (c == 'x' || c == 'u' || c == 'U')
        return read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, code);
    *code = ispunct(c) ? c : to[strchr(from, c) - from];
    return OK;
}

static struct grammar_part new_part(struct reader *r)
{
    const int32_t out = grammar_state_add(r->out, GRAMMAR_SPLIT, -1, -1);

    return (struct grammar_part){-1, out};
}

static void link(struct reader *r, int32_t from, int32_t to)
{
    if (r->out->rc == OK)
        r->out->states[from].next = to;
}

/* One of the characters that were read. In a regular expression: as a JSON string has it. */
static int put_ranges(struct reader *r, struct grammar_part *p)
{
    static const struct grammar_range all[] = {{0, CODE_MAX}},
                                      plain[] = {{' ', '!'}, {'#', '['}, {']', CODE_MAX}};
    static const char special[] = "\"\\\n\t\r", escape[] = "\"\\ntr";
    const struct grammar_range *within = r->regex ? plain : all;

    *p = new_part(r);
    for (int i = 0; i < r->n_ranges; i++) {
        const struct grammar_range x = r->ranges[i];

        for (int k = 0; k < (r->regex ? 3 : 1); k++)
            grammar_part_chars(r->out, p, x.lo > within[k].lo ? x.lo : within[k].lo,
                               x.hi < within[k].hi ? x.hi : within[k].hi);
        for (int k = 0; r->regex && special[k]; k++)
            if (x.lo <= special[k] && special[k] <= x.hi)
                grammar_part_or(
                    r->out, p,
                    grammar_state_add(r->out, GRAMMAR_BYTES,
                                      grammar_state_add(r->out, GRAMMAR_BYTES, p->out,
                                                        escape[k] | escape[k] << 8),
                                      '\\' | '\\' << 8));
    }
    if (p->in < 0 && r->out->rc == OK)
        return expected(r, "a class of at least one character before this");
    r->n_ranges = 0;
    return r->out->rc;
}

static void append(struct reader *r, struct grammar_part *p, struct grammar_part next)
{
    link(r, p->out, next.in);
    p->out = next.out;
}

static int read_text(struct reader *r, struct grammar_part *p)
{
    *p = new_part(r);
    p->in = p->out;
    while (!take(r, '"')) {
        struct grammar_part one;
        int32_t code;

        if (peek(r) < 0 || peek(r) == '\n')
            return expected(r, "\" at the end of a text");
        TRY(read_char(r, &code));
        TRY(add_range(r, code, code));
        TRY(put_ranges(r, &one));
        append(r, p, one);
    }
    return OK;
}

static int read_class(struct reader *r, struct grammar_part *p)
{
    const bool negated = take(r, '^');

    while (!take(r, ']')) {
        int32_t lo, hi;

        if (peek(r) < 0)
            return expected(r, "] at the end of a class");
        TRY(read_char(r, &lo));
        hi = lo;
        if (lo >= 0 && peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            TRY(read_char(r, &hi));
        }
        if (lo >= 0)
            TRY(add_range(r, lo, hi));
    }
    if (negated)
        complement(r, 0, CODE_MAX);
    return put_ranges(r, p);
}

/* ---- parts ---- */

static int read_either(struct reader *r, struct grammar_part *p);

static int read_group(struct reader *r, struct grammar_part *p)
{
    if (r->regex && peek(r) == '?') {
        r->at++;
        if (!take(r, ':'))
            return expected(r, "no look-around and no name of a group");
    }
    if (++r->depth > NESTED_MAX)
        return err_set(ERR_LIMIT,
                       "grammar: offset %zu: expected at most %d parentheses "
                       "inside each other",
                       r->at, NESTED_MAX);
    TRY(read_either(r, p));
    r->depth--;
    return take(r, ')') ? OK : expected(r, ")");
}

static int read_number(struct reader *r, int *out)
{
    if (peek(r) < '0' || peek(r) > '9')
        return expected(r, "a number");
    for (*out = 0; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        if ((*out = *out * 10 + peek(r) - '0') > GRAMMAR_REPEAT_MAX)
            return err_set(ERR_LIMIT,
                           "grammar: offset %zu: expected at most %d "
                           "repetitions",
                           r->at, GRAMMAR_REPEAT_MAX);
    return OK;
}

/* What stands behind a part and repeats it: * + ? {2} {2,} {,3} {2,3} */
static int read_repeats(struct reader *r, struct grammar_part *p, int32_t from)
{
    while (next_is_one_of(r, "*+?{")) {
        int least = peek(r) == '+', most = peek(r) == '?' ? 1 : -1;

        if (r->text[r->at++] == '{') {
            if (peek(r) != ',')
                TRY(read_number(r, &least));
            most = take(r, ',') ? -1 : least;
            if (most < 0 && peek(r) != '}')
                TRY(read_number(r, &most));
            if (!take(r, '}'))
                return expected(r, "}");
            if (most >= 0 && most < least)
                return expected(r, "a most that is not below the least before this");
        }
        grammar_part_repeat(r->out, p, from, least, most);
        TRY(r->out->rc);
        if (r->regex)
            (void)take(r, '?'); /* lazily or not: the same texts */
    }
    return OK;
}

static int read_name(struct reader *r, int *rule)
{
    const size_t at = r->at;
    int64_t known;
    uint64_t hash;

    while (is_name(peek(r)))
        r->at++;
    if (r->at == at)
        return expected(r, "the name of a rule");
    hash = hash_bytes(r->text + at, r->at - at);
    if (!map_find(&r->names, hash, &known)) {
        known = r->out->n_rules++;
        if (known == GRAMMAR_RULES_MAX)
            return err_set(ERR_LIMIT, "grammar: expected at most %d rules",
                           GRAMMAR_RULES_MAX);
        TRY(map_put(&r->names, hash, known));
        r->rules[known] = (struct named){.at = at, .n = r->at - at};
    }
    *rule = (int)known;
    return OK;
}

/* Any characters of a string, before and behind an expression that is not anchored. */
static int put_anything(struct reader *r, struct grammar_part *p)
{
    const int32_t from = r->out->n_states;

    TRY(add_range(r, 0, CODE_MAX));
    TRY(put_ranges(r, p));
    grammar_part_repeat(r->out, p, from, 0, -1);
    return r->out->rc;
}

static int read_regex(struct reader *r, struct grammar_part *p)
{
    const int depth = r->depth;

    if (r->regex)
        return expected(r, "\\/ for a slash");
    r->regex = true;
    r->origin = r->at;
    r->depth = 0;
    TRY(read_either(r, p));
    r->regex = false;
    r->origin = 0;
    r->depth = depth;
    return take(r, '/') ? OK : expected(r, "/ at the end of a regular expression");
}

/* One part of a regular expression. *any: there is one. */
static int read_atom(struct reader *r, struct grammar_part *p, bool *any)
{
    int32_t code;

    *any = peek(r) >= 0 && !next_is_one_of(r, "|)/");
    if (!*any)
        return OK;
    if (next_is_one_of(r, "*+?{^$"))
        return expected(r, "something to repeat, or an anchor at the beginning or end");
    if (take(r, '.')) {
        TRY(add_range(r, '\n', '\n'));
        TRY(add_range(r, '\r', '\r'));
        TRY(add_range(r, 0x2028, 0x2029));
        complement(r, 0, CODE_MAX);
        return put_ranges(r, p);
    }
    TRY(read_char(r, &code));
    if (code >= 0)
        TRY(add_range(r, code, code));
    return put_ranges(r, p);
}

static int read_part(struct reader *r, struct grammar_part *p, bool *any)
{
    const int32_t from = r->out->n_states;
    int rule;

    *any = true;
    skip_space(r);
    if (!r->regex && take(r, '"')) {
        TRY(read_text(r, p));
    } else if (take(r, '[')) {
        TRY(read_class(r, p));
    } else if (take(r, '(')) {
        TRY(read_group(r, p));
    } else if (r->regex) {
        TRY(read_atom(r, p, any));
    } else if (take(r, '/')) {
        TRY(read_regex(r, p));
    } else if (take(r, '.')) {
        TRY(add_range(r, 0, CODE_MAX));
        TRY(put_ranges(r, p));
    } else if (is_name(peek(r)) && !is_definition(r)) {
        TRY(read_name(r, &rule));
        p->in = p->out = grammar_state_add(r->out, GRAMMAR_CALL, -1, rule);
    } else {
        *any = false;
    }
    return *any ? read_repeats(r, p, from) : r->out->rc;
}

static int read_sequence(struct reader *r, struct grammar_part *p)
{
    const bool top = r->regex && r->depth == 0;
    struct grammar_part one;
    bool any;

    *p = new_part(r);
    p->in = p->out;
    if (top && !take(r, '^')) {
        TRY(put_anything(r, &one));
        append(r, p, one);
    }
    for (;;) {
        if (top && take(r, '$'))
            return next_is_one_of(r, "|/") ? OK : expected(r, "| or / after $");
        TRY(read_part(r, &one, &any));
        if (!any)
            break;
        append(r, p, one);
    }
    if (top) {
        TRY(put_anything(r, &one));
        append(r, p, one);
    }
    return r->out->rc;
}

static int read_either(struct reader *r, struct grammar_part *p)
{
    struct grammar_part one;

    *p = new_part(r);
    do {
        TRY(read_sequence(r, &one));
        link(r, one.out, p->out);
        grammar_part_or(r->out, p, one.in);
    } while (take(r, '|'));
    return r->out->rc;
}

static int read_rule(struct reader *r)
{
    const size_t at = r->at;
    struct grammar_part p;
    int rule;

    TRY(read_name(r, &rule));
    if (r->rules[rule].defined) {
        r->at = at;
        return expected(r, "a rule of another name than one before");
    }
    skip_space(r);
    if (r->n - r->at < 3 || memcmp(r->text + r->at, "::=", 3) != 0)
        return expected(r, "::= after the name of a rule");
    r->at += 3;
    TRY(read_either(r, &p));
    link(r, p.out, 0);
    r->out->entry[rule] = p.in;
    r->rules[rule].defined = true;
    return OK;
}

static int read_all(struct reader *r)
{
    const char *why;
    int rule, rc;

    (void)grammar_state_add(r->out, GRAMMAR_END, 0, 0);
    TRY(r->out->rc);
    r->rules[0].at = r->n;
    TRY(map_put(&r->names, hash_bytes("root", 4), 0));
    r->out->n_rules = 1;
    for (skip_space(r); r->at < r->n; skip_space(r)) {
        if (!is_name(peek(r)))
            return expected(r, "the name of a rule");
        TRY(read_rule(r));
    }
    for (int i = 0; i < r->out->n_rules; i++)
        if (!r->rules[i].defined) {
            r->at = r->rules[i].at;
            return expected(r, i == 0 ? "a rule named root"
                                      : "the name of a rule that is defined");
        }
    rc = grammar_rules_check(r->out, &rule, &why);
    if (rc != ERR_ARG)
        return rc;
    return err_set(ERR_ARG, "grammar: rule \"%.*s\" %s",
                   rule == 0               ? 4
                   : r->rules[rule].n < 64 ? (int)r->rules[rule].n
                                           : 64,
                   rule == 0 ? "root" : r->text + r->rules[rule].at, why);
}

int grammar_rules_read(struct grammar_rules *out, const char *text, size_t n)
{
    struct reader *r = mem_new(MEM_OTHER, 1, sizeof(*r));
    int rc = ERR_NOMEM;

    out->entry = mem_new(MEM_OTHER, GRAMMAR_RULES_MAX, sizeof(*out->entry));
    if (r && out->entry) {
        r->text = text;
        r->n = n;
        r->out = out;
        rc = read_all(r);
        map_fini(&r->names);
    }
    mem_free(r);
    return rc;
}
