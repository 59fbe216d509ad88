/* What follows a value in an expression: calls, subscripts, filters and tests. */
#include "chat/impl.h"

#include <string.h>

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

/* What a call gives to each parameter of a function. */
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
        list = chat_parse_primary(p);
        list = list ? chat_parse_postfix(p, list) : NULL;
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
    n->b = chat_parse_number(p);
    return n;
}

struct chat_node *chat_parse_postfix(struct chat_parser *p, struct chat_node *a)
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
