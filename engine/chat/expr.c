/* Expressions, by recursive descent in the order of jinja2's grammar, and what follows a value in
 * one: calls, subscripts, filters and tests. */
#include "chat/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- tokens and nodes ---- */

void chat_parse_fail(struct chat_parser *p, int code, const char *fmt, ...)
{
    char why[300];
    va_list args;

    if (p->rc != OK)
        return;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    p->rc = err_set(code, "line %d, column %d: %s%s", p->at->line, p->at->column, why,
                    code == ERR_UNSUPPORTED ? ": not supported" : "");
}

struct chat_node *chat_node_new(struct chat_parser *p, enum chat_node_kind kind)
{
    struct chat_node *n;

    if (p->rc != OK)
        return NULL;
    n = chat_arena_new(&p->t->arena, sizeof(*n), &p->rc);
    if (!n)
        return NULL;
    n->kind = kind;
    n->line = p->at->line;
    n->column = p->at->column;
    return n;
}

bool chat_is_op(const struct chat_parser *p, const char *op)
{
    return p->at->kind == TOKEN_OP && p->at->n == strlen(op) &&
           memcmp(p->at->p, op, p->at->n) == 0;
}

bool chat_is_name(const struct chat_parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && p->at->n == strlen(name) &&
           memcmp(p->at->p, name, p->at->n) == 0;
}

bool chat_skip_op(struct chat_parser *p, const char *op)
{
    bool is = p->rc == OK && chat_is_op(p, op);

    p->at += is;
    return is;
}

bool chat_skip_name(struct chat_parser *p, const char *name)
{
    bool is = p->rc == OK && chat_is_name(p, name);

    p->at += is;
    return is;
}

struct chat_node *chat_expected(struct chat_parser *p, const char *what)
{
    struct chat_token t = *p->at;

    chat_parse_fail(p, ERR_FORMAT, "expected %s, found \"%.*s\"", what,
                    t.n < 40 ? (int)t.n : 40, t.p);
    return NULL;
}

void chat_expect_op(struct chat_parser *p, const char *op)
{
    if (!chat_skip_op(p, op))
        chat_expected(p, op);
}

int chat_name_of(const struct chat_template *t, const char *s, size_t n)
{
    for (int i = 0; i < t->n_names; i++)
        if (t->names[i].n == n && memcmp(t->names[i].p, s, n) == 0)
            return i;
    return -1;
}

int chat_intern(struct chat_parser *p, const char *s, size_t n)
{
    struct chat_template *t = p->t;
    int i = chat_name_of(t, s, n);

    if (i >= 0)
        return i;
    if (t->n_names == CHAT_NAMES_MAX) {
        chat_parse_fail(p, ERR_LIMIT, "more than %d names", CHAT_NAMES_MAX);
        return 0;
    }
    t->names[t->n_names] = (struct chat_str){s, t->own, n};
    return t->n_names++;
}

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
    int64_t v = 0; /* of at most 8 digits */

    for (*n = 0; *n < max && s + *n < end; ++*n) {
        int c = s[*n];
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : 99;

        if (d >= base)
            break;
        v = v * base + d;
    }
    return *n == 0 ? -1 : v < INT32_MAX ? (int32_t)v : INT32_MAX;
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

static struct chat_node *parse_number(struct chat_parser *p)
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

static struct chat_node *parse_primary(struct chat_parser *p)
{
    struct chat_node *n;

    switch (p->at->kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return parse_number(p);
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

/* ---- arguments ---- */

/* "name=" of a named argument at the parser. */
static bool is_named(const struct chat_parser *p)
{
    return p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OP && p->at[1].n == 1 &&
           p->at[1].p[0] == '=';
}

/* A value, or several by *. */
static struct chat_node *parse_value(struct chat_parser *p)
{
    struct chat_node *n;

    if (!chat_is_op(p, "*"))
        return chat_parse_expr(p);
    n = chat_node_new(p, NODE_SPREAD);
    p->at++;
    if (n)
        n->a = chat_parse_expr(p);
    return p->rc == OK ? n : NULL;
}

/* Arguments in brackets: values to *list, named ones to *named. */
static void parse_arguments(struct chat_parser *p, struct chat_node **list,
                            struct chat_node **named)
{
    chat_expect_op(p, "(");
    while (p->rc == OK && !chat_is_op(p, ")")) {
        struct chat_node *n;

        if (chat_is_op(p, "**")) {
            chat_parse_fail(p, ERR_UNSUPPORTED, "arguments by **");
            return;
        }
        if (is_named(p)) {
            n = chat_node_new(p, NODE_PAIR);
            if (!n)
                return;
            n->value.s = (struct chat_str){p->at->p, NULL, p->at->n};
            p->at += 2;
            n->b = chat_parse_expr(p);
            *named = n;
            named = &n->next;
        } else {
            n = parse_value(p);
            if (!n)
                return;
            *list = n;
            list = &n->next;
        }
        if (!chat_skip_op(p, ","))
            break;
    }
    chat_expect_op(p, ")");
}

/* The index of a parameter among names separated by spaces; -1: none. */
static int parameter(const char *params, struct chat_str name)
{
    int i = 0;

    for (const char *s = params; *s; i++) {
        size_t n = strcspn(s, " ");

        if (n == name.n && memcmp(s, name.p, n) == 0)
            return i;
        s += n + (s[n] == ' ');
    }
    return -1;
}

static int n_parameters(const char *params)
{
    int n = *params != '\0';

    for (; *params; params++)
        n += *params == ' ';
    return n;
}

/* Give the arguments of a call to the parameters of a function. */
static void bind(struct chat_parser *p, struct chat_node *n, struct chat_node *list,
                 struct chat_node *named)
{
    const struct chat_builtin *f = n->fn;
    int max = n_parameters(f->params), k = 0;

    for (; list && p->rc == OK; list = list->next) {
        if (list->kind == NODE_SPREAD)
            chat_parse_fail(p, ERR_UNSUPPORTED, "arguments by * of %s", f->name);
        else if (k == max)
            chat_parse_fail(p, ERR_FORMAT, "%s takes at most %d arguments", f->name, max);
        else
            n->arg[k++] = list;
    }
    for (; named && p->rc == OK; named = named->next) {
        k = parameter(f->params, named->value.s);
        if (k < 0)
            chat_parse_fail(p, ERR_UNSUPPORTED, "%s with the argument \"%.*s\"", f->name,
                            (int)named->value.s.n, named->value.s.p);
        else if (n->arg[k])
            chat_parse_fail(p, ERR_FORMAT, "%s gets \"%.*s\" twice", f->name,
                            (int)named->value.s.n, named->value.s.p);
        else
            n->arg[k] = named->b;
    }
    for (k = 0; k < f->n_needed && p->rc == OK; k++)
        if (!n->arg[k])
            chat_parse_fail(p, ERR_FORMAT, "%s takes at least %d arguments", f->name,
                            f->n_needed);
}

/* ---- calls and subscripts ---- */

static struct chat_node *parse_call(struct chat_parser *p, struct chat_node *callee)
{
    struct chat_node *list = NULL, *named = NULL, *n;
    struct chat_str name = callee->value.s;
    bool method = callee->kind == NODE_ATTR;

    n = chat_node_new(p, method ? NODE_METHOD : NODE_CALL);
    if (!n)
        return NULL;
    parse_arguments(p, &list, &named);
    n->a = callee;
    n->list = list;
    n->b = named;
    if (p->rc != OK)
        return n;
    if (method) {
        n->a = callee->a;
        n->line = callee->line, n->column = callee->column;
        n->fn = chat_method_named(name.p, name.n);
        if (n->fn) {
            bind(p, n, list, named);
            return n;
        }
        p->at--;
        chat_parse_fail(p, ERR_UNSUPPORTED, "the method \"%.*s\"",
                        name.n < 60 ? (int)name.n : 60, name.p);
    } else if (callee->kind == NODE_NAME) {
        struct chat_calls *c = chat_arena_new(&p->t->arena, sizeof(*c), &p->rc);

        if (c) {
            *c = (struct chat_calls){callee, p->calls};
            p->calls = c;
        }
    }
    return n;
}

static struct chat_node *parse_subscript(struct chat_parser *p, struct chat_node *a)
{
    struct chat_node *n = chat_node_new(p, NODE_ITEM), **part[3];

    p->at++; /* [ */
    if (!n)
        return NULL;
    n->a = a;
    part[0] = &n->b, part[1] = &n->c, part[2] = &n->d;
    for (int i = 0; i < 3 && p->rc == OK; i++) {
        if (!chat_is_op(p, ":") && !chat_is_op(p, "]"))
            *part[i] = chat_parse_expr(p);
        if (!chat_is_op(p, ":"))
            break;
        n->kind = NODE_SLICE;
        p->at += i < 2;
    }
    if (p->rc == OK && chat_is_op(p, ","))
        chat_parse_fail(p, ERR_UNSUPPORTED, "several subscripts");
    if (p->rc == OK && n->kind == NODE_ITEM && !n->b)
        return chat_expected(p, "a subscript");
    chat_expect_op(p, "]");
    return n;
}

static struct chat_node *parse_attribute(struct chat_parser *p, struct chat_node *a)
{
    struct chat_node *n;

    p->at++; /* . */
    n = chat_node_new(p, NODE_ATTR);
    if (!n)
        return NULL;
    n->a = a;
    if (p->at->kind == TOKEN_NAME) {
        n->value = chat_text((struct chat_str){p->at->p, p->t->own, p->at->n});
        p->at++;
        return n;
    }
    if (p->at->kind != TOKEN_INT)
        return chat_expected(p, "the name of an attribute");
    n->kind = NODE_ITEM;
    n->b = parse_number(p);
    return n;
}

static struct chat_node *parse_postfix(struct chat_parser *p, struct chat_node *a)
{
    while (a && p->rc == OK) {
        if (chat_is_op(p, "."))
            a = parse_attribute(p, a);
        else if (chat_is_op(p, "["))
            a = parse_subscript(p, a);
        else if (chat_is_op(p, "("))
            a = parse_call(p, a);
        else
            break;
    }
    return a;
}

/* ---- filters and tests ---- */

/* map('upper'), select('equalto', 1), selectattr('role', 'equalto', 'user'): what is applied to
 * each item is named by a text. Returns whether it is one of these. */
static bool bind_applied(struct chat_parser *p, struct chat_node *n,
                         struct chat_node *list, struct chat_node *named)
{
    const char *name = n->fn->name;
    bool map = strcmp(name, "map") == 0, attr = strstr(name, "attr") != NULL;
    const struct chat_node *word;

    if (!map && !attr && strcmp(name, "select") != 0 && strcmp(name, "reject") != 0)
        return false;
    if (attr) {
        n->arg[0] = list;
        if (!list) {
            chat_parse_fail(p, ERR_FORMAT, "%s takes the name of an attribute", name);
            return true;
        }
        list = list->next;
    }
    if (!list && (!map || named)) {
        bind(p, n, attr ? n->arg[0] : NULL, named);
        return true;
    }
    word = list;
    if (!word || word->kind != NODE_CONST || word->value.kind != CHAT_STR) {
        chat_parse_fail(p, ERR_UNSUPPORTED, "%s of what is not named by a text", name);
        return true;
    }
    n->sub = chat_node_new(p, map ? NODE_FILTER : NODE_TEST);
    if (!n->sub)
        return true;
    n->sub->fn = map ? chat_filter_named(word->value.s.p, word->value.s.n)
                     : chat_test_named(word->value.s.p, word->value.s.n);
    if (!n->sub->fn)
        chat_parse_fail(p, ERR_UNSUPPORTED, "the %s \"%.*s\"", map ? "filter" : "test",
                        (int)word->value.s.n, word->value.s.p);
    else if (!bind_applied(p, n->sub, word->next, named))
        bind(p, n->sub, word->next, named);
    if (attr)
        n->arg[0]->next = NULL;
    return true;
}

/* The name of a filter or test, which must be known. */
static const struct chat_builtin *parse_word(struct chat_parser *p, bool test)
{
    const struct chat_token *t = p->at;
    const struct chat_builtin *f;

    if (t->kind != TOKEN_NAME) {
        chat_expected(p, test ? "a test" : "a filter");
        return NULL;
    }
    f = test ? chat_test_named(t->p, t->n) : chat_filter_named(t->p, t->n);
    if (!f)
        chat_parse_fail(p, ERR_UNSUPPORTED, "the %s \"%.*s\"", test ? "test" : "filter",
                        t->n < 60 ? (int)t->n : 60, t->p);
    else
        p->at++;
    return f;
}

static struct chat_node *parse_filter(struct chat_parser *p, struct chat_node *a)
{
    struct chat_node *n = chat_node_new(p, NODE_FILTER), *list = NULL, *named = NULL;

    if (!n)
        return NULL;
    n->a = a;
    n->fn = parse_word(p, false);
    if (p->rc == OK && chat_is_op(p, "("))
        parse_arguments(p, &list, &named);
    if (p->rc == OK && !bind_applied(p, n, list, named))
        bind(p, n, list, named);
    return n;
}

static bool begins_argument(const struct chat_parser *p)
{
    switch (p->at->kind) {
    case TOKEN_NAME:
        return !chat_is_name(p, "else") && !chat_is_name(p, "or") &&
               !chat_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return true;
    default:
        return chat_is_op(p, "[") || chat_is_op(p, "{");
    }
}

static struct chat_node *parse_test(struct chat_parser *p, struct chat_node *a)
{
    bool negated = chat_skip_name(p, "not");
    struct chat_node *n = chat_node_new(p, NODE_TEST), *list = NULL, *named = NULL, *no;

    if (!n)
        return NULL;
    n->a = a;
    n->fn = parse_word(p, true);
    if (p->rc == OK && chat_is_op(p, "(")) {
        parse_arguments(p, &list, &named);
    } else if (p->rc == OK && begins_argument(p)) {
        if (chat_is_name(p, "is"))
            return chat_expected(p, "one test");
        list = parse_primary(p);
        list = list ? parse_postfix(p, list) : NULL;
    }
    if (p->rc == OK)
        bind(p, n, list, named);
    if (!negated || p->rc != OK)
        return n;
    no = chat_node_new(p, NODE_NOT);
    if (no)
        no->a = n;
    return no;
}

struct chat_node *chat_parse_filters(struct chat_parser *p, struct chat_node *a,
                                     bool tests)
{
    while (p->rc == OK) {
        if (chat_skip_op(p, "|"))
            a = parse_filter(p, a);
        else if (tests && chat_skip_name(p, "is"))
            a = parse_test(p, a);
        else if (tests && chat_is_op(p, "("))
            a = parse_call(p, a);
        else
            break;
    }
    return a;
}

/* ---- operators, from the tightest ---- */

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
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (filters && n)
        n = chat_parse_filters(p, n, true);
    p->depth--;
    return n;
}

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
