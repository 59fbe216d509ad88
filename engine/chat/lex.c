/* A template's text as tokens, with jinja2's rules of whitespace: trim_blocks (a newline behind
 * a block goes) and lstrip_blocks (spaces before a block that begins a line go). */
#include "chat/parse.h"

#include <string.h>

#include "base/mem.h"
#include "chat/text.h"

#define STACK_MAX 128 /* open brackets */

struct lexer {
    const char *begin, *s, *end;
    struct chat_token *tokens;
    size_t n, capacity;
    bool line_starts;    /* what was read last ended in a newline */
    const char *line_at; /* position up to which lines were counted */
    int line;
    const char *line_begin;
};

static size_t space_at(const char *s, const char *end)
{
    size_t len = 0;

    if (s >= end)
        return 0;
    return chat_is_space(
               chat_code_at((struct chat_str){s, NULL, (size_t)(end - s)}, 0, &len))
               ? len
               : 0;
}

static void skip_space(struct lexer *l)
{
    for (size_t n; (n = space_at(l->s, l->end)) > 0;)
        l->s += n;
}

static void locate(struct lexer *l, const char *p)
{
    for (; l->line_at < p; l->line_at++) {
        if (*l->line_at != '\n')
            continue;
        l->line++;
        l->line_begin = l->line_at + 1;
    }
}

static int fail(struct lexer *l, const char *p, const char *what)
{
    locate(l, p);
    return err_set(ERR_FORMAT, "line %d, column %d: %s", l->line,
                   (int)(p - l->line_begin) + 1, what);
}

static int put(struct lexer *l, enum chat_token_kind kind, const char *p, size_t n)
{
    struct chat_token *grown;

    if (kind == TOKEN_TEXT && n == 0)
        return OK;
    if (l->n == l->capacity) {
        grown = mem_resize(MEM_OTHER, l->tokens, 2 * l->capacity + 64, sizeof(*grown));
        if (!grown)
            return ERR_NOMEM;
        l->tokens = grown;
        l->capacity = 2 * l->capacity + 64;
    }
    locate(l, p);
    l->tokens[l->n++] =
        (struct chat_token){kind, p, n, l->line, (int)(p - l->line_begin) + 1};
    return OK;
}

static bool begins(const struct lexer *l, const char *s, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(l->end - s) >= n && memcmp(s, word, n) == 0;
}

/* The text up to a tag at `tag`, whose sign may strip it. */
static int put_text(struct lexer *l, const char *from, const char *tag, char sign,
                    bool block)
{
    struct chat_str all = {from, NULL, (size_t)(tag - from)}, cut;
    const char *line = tag;

    if (sign == '-') {
        cut = chat_strip(NULL, all, NULL, CHAT_RIGHT);
        return put(l, TOKEN_TEXT, from, cut.n);
    }
    if (sign != '+' && block) {
        while (line > from && line[-1] != '\n')
            line--;
        cut = chat_strip(NULL, (struct chat_str){line, NULL, (size_t)(tag - line)}, NULL,
                         CHAT_RIGHT);
        if ((line > from || l->line_starts) && cut.n == 0)
            return put(l, TOKEN_TEXT, from, (size_t)(line - from));
    }
    return put(l, TOKEN_TEXT, from, all.n);
}

/* Behind the end of a tag: the sign before it, and a newline if it is a block's. */
static void after_tag(struct lexer *l, char sign, bool newline)
{
    const char *before = l->s;

    if (sign == '-')
        skip_space(l);
    else if (newline && sign != '+' && l->s < l->end && *l->s == '\n')
        l->s++;
    l->line_starts = l->s > before && l->s[-1] == '\n';
}

static int comment(struct lexer *l, const char *tag)
{
    const char *p = l->s;
    char sign;

    while (p < l->end && !begins(l, p, "#}"))
        p++;
    if (p == l->end)
        return fail(l, tag, "the comment has no end");
    sign = p > l->s ? p[-1] : ' ';
    l->s = p + 2;
    after_tag(l, sign == '-' || sign == '+' ? sign : ' ', true);
    return OK;
}

/* If a tag {% word %} is at l->s, step over it. *sign: before its end. */
static bool word_tag(struct lexer *l, const char *word, char *sign)
{
    const char *was = l->s;
    size_t n = strlen(word);

    skip_space(l);
    if (begins(l, l->s, word)) {
        l->s += n;
        skip_space(l);
        *sign = l->s < l->end && (*l->s == '-' || *l->s == '+') ? *l->s : ' ';
        l->s += *sign != ' ';
        if (begins(l, l->s, "%}")) {
            l->s += 2;
            return true;
        }
    }
    l->s = was;
    return false;
}

/* The text of {% raw %} ... {% endraw %}; l->s is behind the first tag. */
static int raw(struct lexer *l, const char *tag, char end_sign)
{
    const char *from;
    char sign, begin_sign;

    if (end_sign == '+') /* as jinja2 has it; of endraw it is one */
        return fail(l, tag, "raw ends in +%}");
    after_tag(l, end_sign, false);
    from = l->s;
    for (const char *p = from; p < l->end; p++) {
        if (!begins(l, p, "{%"))
            continue;
        l->s = p + 2;
        begin_sign = l->s < l->end && (*l->s == '-' || *l->s == '+') ? *l->s : ' ';
        l->s += begin_sign != ' ';
        if (!word_tag(l, "endraw", &sign))
            continue;
        TRY(put_text(l, from, p, begin_sign, true));
        after_tag(l, sign, true);
        return OK;
    }
    return fail(l, tag, "raw has no endraw");
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(int c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int number(struct lexer *l)
{
    const char *from = l->s, *p = from;
    bool real = false;

    while (p < l->end &&
           (is_digit(*p) || (*p == '_' && p + 1 < l->end && is_digit(p[1]))))
        p++;
    if (p + 1 < l->end && *p == '.' && is_digit(p[1])) {
        real = true;
        for (p++; p < l->end && is_digit(*p);)
            p++;
    }
    if (p < l->end && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1;

        e += e < l->end && (*e == '+' || *e == '-');
        if (e < l->end && is_digit(*e)) {
            real = true;
            for (p = e; p < l->end && is_digit(*p);)
                p++;
        }
    }
    if (p < l->end && is_word(*p))
        return fail(l, from, "expected a decimal number");
    if (!real && *from == '0' && p - from > 1)
        return fail(l, from, "expected a decimal number without a leading zero");
    l->s = p;
    return put(l, real ? TOKEN_FLOAT : TOKEN_INT, from, (size_t)(p - from));
}

static int string(struct lexer *l)
{
    const char *from = l->s++;

    while (l->s < l->end && *l->s != *from)
        l->s += *l->s == '\\' && l->s + 1 < l->end ? 2 : 1;
    if (l->s >= l->end)
        return fail(l, from, "the text has no closing quote");
    l->s++;
    return put(l, TOKEN_STRING, from, (size_t)(l->s - from));
}

static int op(struct lexer *l)
{
    static const char *const twos[] = {"//", "**", "==", "!=", ">=", "<="};
    static const char ones[] = "+-/*%~[](){}><=.:|,;";

    for (size_t i = 0; i < sizeof(twos) / sizeof(twos[0]); i++) {
        if (!begins(l, l->s, twos[i]))
            continue;
        l->s += 2;
        return put(l, TOKEN_OP, l->s - 2, 2);
    }
    if (!strchr(ones, *l->s) || *l->s == '\0')
        return fail(l, l->s, "a character that no expression has");
    l->s++;
    return put(l, TOKEN_OP, l->s - 1, 1);
}

static int bracket(struct lexer *l, char *stack, int *n)
{
    const char *opening = "([{", *closing = ")]}", *at;

    if ((at = strchr(opening, *l->s)) != NULL) {
        if (*n == STACK_MAX)
            return fail(l, l->s, "too many open brackets");
        stack[(*n)++] = closing[at - opening];
    } else if (strchr(closing, *l->s)) {
        if (*n == 0 || stack[*n - 1] != *l->s)
            return fail(l, l->s, "a closing bracket without its opening one");
        --*n;
    }
    return OK;
}

/* The tokens of a tag, up to its end. */
static int tag(struct lexer *l, bool block, const char *begin)
{
    const char *end = block ? "%}" : "}}";
    char stack[STACK_MAX];
    int n = 0;

    for (;;) {
        skip_space(l);
        if (l->s == l->end)
            return fail(l, begin, block ? "{% has no %}" : "{{ has no }}");
        if (n == 0) {
            char sign = *l->s == '-' || (block && *l->s == '+') ? *l->s : ' ';
            const char *p = l->s + (sign != ' ');

            if (begins(l, p, end)) {
                TRY(put(l, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, l->s, 2));
                l->s = p + 2;
                after_tag(l, sign, block);
                return OK;
            }
        }
        if (is_digit(*l->s)) {
            TRY(number(l));
        } else if (is_word(*l->s)) {
            const char *from = l->s;

            while (l->s < l->end && is_word(*l->s))
                l->s++;
            TRY(put(l, TOKEN_NAME, from, (size_t)(l->s - from)));
        } else if (*l->s == '\'' || *l->s == '"') {
            TRY(string(l));
        } else {
            TRY(bracket(l, stack, &n));
            TRY(op(l));
        }
    }
}

static int run(struct lexer *l)
{
    while (l->s < l->end) {
        const char *from = l->s, *p = from;
        char sign, end_sign;

        while (p + 1 < l->end &&
               !(p[0] == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#')))
            p++;
        if (p + 1 >= l->end) {
            l->s = l->end;
            return put(l, TOKEN_TEXT, from, (size_t)(l->end - from));
        }
        l->s = p + 2;
        sign = l->s < l->end && (*l->s == '-' || *l->s == '+') ? *l->s : ' ';
        TRY(put_text(l, from, p, sign, p[1] != '{'));
        l->s += sign != ' ';
        if (p[1] == '#') {
            l->s -= sign != ' '; /* "{#-#}" */
            TRY(comment(l, p));
        } else if (p[1] == '%' && word_tag(l, "raw", &end_sign)) {
            TRY(raw(l, p, end_sign));
        } else {
            TRY(put(l, p[1] == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN, p, 2));
            TRY(tag(l, p[1] == '%', p));
        }
    }
    return OK;
}

int chat_lex(const struct chat_template *t, struct chat_token **out)
{
    struct lexer l = {.begin = t->source,
                      .s = t->source,
                      .end = t->source + t->n_source,
                      .line_starts = true,
                      .line_at = t->source,
                      .line = 1,
                      .line_begin = t->source};
    int rc = run(&l);

    if (rc == OK)
        rc = put(&l, TOKEN_END, l.end, 0);
    if (rc == OK)
        *out = l.tokens, l.tokens = NULL;
    mem_free(l.tokens);
    return rc;
}
