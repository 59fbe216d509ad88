/* Expressions, by recursive descent in the order of jinja2's grammar. */
#include "chat/impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static struct chat_node *failed(struct chat_parser *p, int code, const char *what)
{
    chat_parse_fail(p, code, "%s", what);
    return NULL;
}

/* ---- constants ---- */

static struct chat_node *constant(struct chat_parser *p, struct chat_value v)
{
    struct chat_node *n = chat_node_new(p, NODE_CONST);

    if (n)
        n->value = v;
    return n;
}

/* A number of at most `max` digits of this base; *n: how many. -1: none. */
static int32_t digits(const char *s, const char *end, int base, int max, int *n)
{
    int32_t v = 0;

    for (*n = 0; *n < max && s + *n < end; ++*n) {
        int c = s[*n];
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : 99;

        if (d >= base)
            break;
        v = v * base + d;
    }
    return *n > 0 ? v : -1;
}

/* One escape sequence of Python behind its backslash. Returns the bytes read, or 0. */
static size_t escape(const char *s, const char *end, char *out, size_t *n_out)
{
    static const char letters[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    const char *at = strchr(letters, *s);
    int n = 0, want = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    int32_t code;

    *n_out = 1;
    if (at && *s) {
        *out = values[at - letters];
        return 1;
    }
    if (*s == '\n') {
        *n_out = 0;
        return 1;
    }
    if (want > 0) {
        code = digits(s + 1, end, 16, want, &n);
        if (n != want || code > 0x10FFFF || code < 0 || (code >= 0xD800 && code < 0xE000))
            return 0;
        *n_out = (size_t)utf8_put(code, out);
        return 1 + (size_t)n;
    }
    code = digits(s, end, 8, 3, &n);
    if (code >= 0) {
        *n_out = (size_t)utf8_put(code, out);
        return (size_t)n;
    }
    if (*s == 'N')
        return 0;
    out[0] = '\\'; /* an unknown sequence stays as it is */
    out[1] = *s;
    *n_out = 2;
    return 1;
}

/* The text of a string token, appended to buf[*n]. No escape is shorter than its character. */
static void unescape(struct chat_parser *p, char *buf, size_t *n)
{
    const char *s = p->at->p + 1, *end = p->at->p + p->at->n - 1;
    size_t used, put;

    while (s < end && p->rc == OK) {
        if (*s != '\\') {
            buf[(*n)++] = *s++;
            continue;
        }
        used = escape(s + 1, end, buf + *n, &put);
        if (used == 0)
            failed(p, ERR_UNSUPPORTED, "this escape sequence");
        *n += put;
        s += 1 + used;
    }
}

/* Neighbouring string tokens are one text. */
static struct chat_node *parse_string(struct chat_parser *p)
{
    struct chat_node *node = constant(p, chat_none());
    size_t capacity = 0, n = 0;
    char *buf;

    for (const struct chat_token *t = p->at; t->kind == TOKEN_STRING; t++)
        capacity += t->n;
    buf = chat_arena_new(&p->t->arena, capacity + 4, &p->rc);
    for (; buf && p->at->kind == TOKEN_STRING && p->rc == OK; p->at++)
        unescape(p, buf, &n);
    if (node && p->rc == OK)
        node->value = chat_text((struct chat_str){buf, p->t->own, n});
    return node;
}

struct chat_node *chat_parse_number(struct chat_parser *p)
{
    char text[64];
    size_t n = 0;
    struct chat_value v;

    for (size_t i = 0; i < p->at->n && n < sizeof(text) - 1; i++)
        if (p->at->p[i] != '_')
            text[n++] = p->at->p[i];
    text[n] = '\0';
    errno = 0;
    v = p->at->kind == TOKEN_INT ? chat_int(strtoll(text, NULL, 10), false)
                                 : chat_float(strtod(text, NULL), false);
    if (n == sizeof(text) - 1 || (v.kind == CHAT_INT ? errno != 0 : isinf(v.f)))
        return failed(p, ERR_UNSUPPORTED, "a number beyond 64 bits");
    p->at++;
    return constant(p, v);
}

/* ---- what an expression is made of ---- */

static struct chat_node *parse_items(struct chat_parser *p, enum chat_node_kind kind,
                                     const char *close)
{
    struct chat_node *n = chat_node_new(p, kind), **link = n ? &n->list : NULL, *item;

    p->at++; /* the opening bracket */
    while (n && p->rc == OK && !chat_is_op(p, close)) {
        item = kind == NODE_DICT ? chat_node_new(p, NODE_PAIR) : chat_parse_expr(p);
        if (!item)
            return NULL;
        if (kind == NODE_DICT) {
            item->a = chat_parse_expr(p);
            chat_expect_op(p, ":");
            item->b = chat_parse_expr(p);
        }
        *link = item;
        link = &item->next;
        if (!chat_skip_op(p, ","))
            break;
    }
    chat_expect_op(p, close);
    return n;
}

static struct chat_node *parse_name(struct chat_parser *p)
{
    static const struct {
        const char *word;
        enum chat_kind kind;
        bool v;
    } words[] = {{"true", CHAT_BOOL, true},   {"True", CHAT_BOOL, true},
                 {"false", CHAT_BOOL, false}, {"False", CHAT_BOOL, false},
                 {"none", CHAT_NONE, false},  {"None", CHAT_NONE, false}};
    struct chat_node *n;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!chat_skip_name(p, words[i].word))
            continue;
        p->at--;
        n = constant(p, (struct chat_value){.kind = words[i].kind, .i = words[i].v});
        p->at++;
        return n;
    }
    n = chat_node_new(p, NODE_NAME);
    if (n)
        n->name = chat_intern(p, p->at->p, p->at->n);
    p->uses_caller = p->uses_caller || chat_is_name(p, "caller");
    p->at++;
    return n;
}

struct chat_node *chat_parse_primary(struct chat_parser *p)
{
    struct chat_node *n;

    switch (p->at->kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return chat_parse_number(p);
    default:
        break;
    }
    if (chat_is_op(p, "["))
        return parse_items(p, NODE_LIST, "]");
    if (chat_is_op(p, "{"))
        return parse_items(p, NODE_DICT, "}");
    if (!chat_is_op(p, "("))
        return chat_expected(p, "an expression");
    if (p->at[1].kind == TOKEN_OP && p->at[1].p[0] == ')')
        return parse_items(p, NODE_TUPLE, ")");
    p->at++;
    n = chat_parse_tuple(p, true);
    chat_expect_op(p, ")");
    return n;
}

static struct chat_node *parse_unary(struct chat_parser *p, bool filters)
{
    struct chat_node *n = NULL, *a;

    if (p->rc != OK)
        return NULL;
    if (++p->depth > CHAT_NEST_MAX)
        return failed(p, ERR_LIMIT, "the expression is nested too deep");
    if (chat_is_op(p, "-") || chat_is_op(p, "+")) {
        n = chat_node_new(p, chat_is_op(p, "-") ? NODE_NEG : NODE_POS);
        p->at++;
        a = parse_unary(p, false);
        if (n)
            n->a = a;
    } else {
        n = chat_parse_primary(p);
    }
    n = chat_parse_postfix(p, n);
    if (filters && n)
        n = chat_parse_filters(p, n, true);
    p->depth--;
    return n;
}

/* ---- operators, from the tightest ---- */

struct op {
    const char *text;
    enum chat_op op;
};
static const struct op powers[] = {{"**", CHAT_POW}, {NULL, 0}};
static const struct op products[] = {
    {"*", CHAT_MUL}, {"/", CHAT_DIV}, {"//", CHAT_FLOORDIV}, {"%", CHAT_MOD}, {NULL, 0}};
static const struct op sums[] = {{"+", CHAT_ADD}, {"-", CHAT_SUB}, {NULL, 0}};
static const struct op orders[] = {{"==", CHAT_EQ}, {"!=", CHAT_NE}, {"<", CHAT_LT},
                                   {"<=", CHAT_LE}, {">", CHAT_GT},  {">=", CHAT_GE},
                                   {NULL, 0}};

static const struct op *skip_one(struct chat_parser *p, const struct op *ops)
{
    for (; ops->text; ops++)
        if (chat_skip_op(p, ops->text))
            return ops;
    return NULL;
}

static struct chat_node *parse_operators(struct chat_parser *p, int level);

/* a ~ b ~ c, whose operands are products. */
static struct chat_node *parse_concat(struct chat_parser *p)
{
    struct chat_node *a = parse_operators(p, 1), *n, **link;

    if (!a || !chat_is_op(p, "~"))
        return a;
    n = chat_node_new(p, NODE_CONCAT);
    if (!n)
        return NULL;
    n->list = a;
    link = &a->next;
    while (p->rc == OK && chat_skip_op(p, "~")) {
        *link = parse_operators(p, 1);
        if (*link)
            link = &(*link)->next;
    }
    return n;
}

/* Level 0: powers; 1: products; 2: sums. */
static struct chat_node *parse_operators(struct chat_parser *p, int level)
{
    static const struct op *const ops[] = {powers, products, sums};
    const struct op *op;
    struct chat_node *a, *at;

    a = level == 0   ? parse_unary(p, true)
        : level == 1 ? parse_operators(p, 0)
                     : parse_concat(p);
    while (a && p->rc == OK) {
        op = skip_one(p, ops[level]);
        if (!op)
            break;
        p->at--; /* errors name the operator's place */
        at = chat_node_new(p, NODE_BINARY);
        p->at++;
        if (!at)
            return NULL;
        at->op = op->op;
        at->a = a;
        at->b = level == 0   ? parse_unary(p, true)
                : level == 1 ? parse_operators(p, 0)
                             : parse_concat(p);
        a = at;
    }
    return a;
}

static bool skip_order(struct chat_parser *p, enum chat_op *op)
{
    const struct op *o = skip_one(p, orders);

    if (o) {
        *op = o->op;
        return true;
    }
    if (chat_skip_name(p, "in")) {
        *op = CHAT_IN;
        return true;
    }
    if (!chat_is_name(p, "not") || p->at[1].kind != TOKEN_NAME || p->at[1].n != 2 ||
        memcmp(p->at[1].p, "in", 2) != 0)
        return false;
    p->at += 2;
    *op = CHAT_NOT_IN;
    return true;
}

static struct chat_node *parse_compare(struct chat_parser *p)
{
    struct chat_node *a = parse_operators(p, 2), *n = NULL, **link = NULL, *one;
    enum chat_op op;

    while (a && p->rc == OK && skip_order(p, &op)) {
        if (!n) {
            n = chat_node_new(p, NODE_COMPARE);
            if (!n)
                return NULL;
            n->a = a;
            link = &n->list;
        }
        one = chat_node_new(p, NODE_COMPARE);
        if (!one)
            return NULL;
        one->op = op;
        one->a = parse_operators(p, 2);
        *link = one;
        link = &one->next;
    }
    return n ? n : a;
}

static struct chat_node *parse_not(struct chat_parser *p)
{
    struct chat_node *n;

    if (!chat_is_name(p, "not"))
        return parse_compare(p);
    if (++p->depth > CHAT_NEST_MAX)
        return failed(p, ERR_LIMIT, "the expression is nested too deep");
    n = chat_node_new(p, NODE_NOT);
    p->at++;
    if (n)
        n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct chat_node *parse_logic(struct chat_parser *p, bool any)
{
    struct chat_node *a = any ? parse_logic(p, false) : parse_not(p), *at;

    while (a && p->rc == OK && chat_is_name(p, any ? "or" : "and")) {
        at = chat_node_new(p, any ? NODE_OR : NODE_AND);
        p->at++;
        if (!at)
            return NULL;
        at->a = a;
        at->b = any ? parse_logic(p, false) : parse_not(p);
        a = at;
    }
    return a;
}

struct chat_node *chat_parse_expr(struct chat_parser *p)
{
    struct chat_node *n, *a;

    if (++p->depth > CHAT_NEST_MAX)
        return failed(p, ERR_LIMIT, "the expression is nested too deep");
    a = parse_logic(p, true);
    while (a && p->rc == OK && chat_is_name(p, "if")) {
        n = chat_node_new(p, NODE_IF_ELSE);
        p->at++;
        if (!n)
            return NULL;
        n->b = a;
        n->a = parse_logic(p, true);
        if (chat_skip_name(p, "else"))
            n->c = chat_parse_expr(p);
        a = n;
    }
    p->depth--;
    return p->rc == OK ? a : NULL;
}

static bool ends_tuple(const struct chat_parser *p)
{
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END ||
           chat_is_op(p, ")");
}

struct chat_node *chat_parse_tuple(struct chat_parser *p, bool conditions)
{
    struct chat_node *first, *n, **link;

    first = conditions ? chat_parse_expr(p) : parse_logic(p, true);
    if (!first || !chat_is_op(p, ","))
        return p->rc == OK ? first : NULL;
    n = chat_node_new(p, NODE_TUPLE);
    if (!n)
        return NULL;
    n->list = first;
    link = &first->next;
    while (p->rc == OK && chat_skip_op(p, ",") && !ends_tuple(p)) {
        *link = conditions ? chat_parse_expr(p) : parse_logic(p, true);
        if (*link)
            link = &(*link)->next;
    }
    return p->rc == OK ? n : NULL;
}
