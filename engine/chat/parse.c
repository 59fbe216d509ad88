/* Statements; opening and closing a template. */
#include "chat/parse.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define TEMPLATE_BYTES_MAX ((size_t)128 << 20) /* of all nodes */

static bool is_end(const struct chat_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (chat_is_name(p, *ends))
            return true;
    return false;
}

static void end_block(struct chat_parser *p)
{
    if (p->rc != OK)
        return;
    if (p->at->kind != TOKEN_BLOCK_END)
        chat_expected(p, "%}");
    else
        p->at++;
}

/* ---- statements ---- */

static struct chat_node *parse_body(struct chat_parser *p, const char *const *ends);

/* The body of a block whose first tag is read up to its %}; the last tag, endNAME, as well. */
static struct chat_node *parse_block(struct chat_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct chat_node *body;

    end_block(p);
    body = parse_body(p, ends);
    p->at += p->rc == OK; /* end */
    end_block(p);
    return body;
}

static struct chat_node *parse_target(struct chat_parser *p, bool attribute)
{
    struct chat_node *first = NULL, *n = NULL, **link = &first;
    bool bracket = chat_skip_op(p, "("), several = bracket;

    do {
        if (bracket && chat_is_op(p, ")"))
            break;
        if (p->at->kind != TOKEN_NAME) {
            chat_expected(p, "a name");
            return NULL;
        }
        n = chat_node_new(p, NODE_NAME);
        if (!n)
            return NULL;
        n->name = chat_intern(p, p->at->p, p->at->n);
        p->assigned[n->name] = true;
        p->at++;
        *link = n;
        link = &n->next;
        if (chat_is_op(p, ","))
            several = true;
    } while (chat_skip_op(p, ","));
    if (bracket)
        chat_expect_op(p, ")");
    if (attribute && !several && chat_is_op(p, ".") && p->at[1].kind == TOKEN_NAME) {
        n = chat_node_new(p, NODE_ATTR);
        if (!n)
            return NULL;
        n->a = first;
        n->value = chat_text((struct chat_str){p->at[1].p, p->t->own, p->at[1].n});
        p->at += 2;
        return n;
    }
    if (!several)
        return first;
    n = chat_node_new(p, NODE_TUPLE);
    if (n)
        n->list = first;
    return n;
}

static void parse_for(struct chat_parser *p, struct chat_node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor",
                                                                                NULL};

    n->kind = NODE_FOR;
    n->a = parse_target(p, false);
    if (!chat_skip_name(p, "in"))
        chat_expected(p, "in");
    n->b = chat_parse_tuple(p, false);
    if (chat_skip_name(p, "if"))
        n->c = chat_parse_expr(p);
    n->name = chat_intern(p, "loop", 4);
    n->recursive = chat_skip_name(p, "recursive");
    p->assigned[n->name] = p->assigned[n->name] || n->recursive; /* it can be called */
    end_block(p);
    p->loops++;
    n->list = parse_body(p, ends);
    p->loops--;
    if (chat_skip_name(p, "else")) {
        end_block(p);
        n->d = parse_body(p, end);
    }
    p->at += p->rc == OK;
    end_block(p);
}

static void parse_if(struct chat_parser *p, struct chat_node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {
                                                                           "endif", NULL};

    for (;;) {
        n->kind = NODE_IF;
        n->a = chat_parse_tuple(p, false);
        end_block(p);
        n->list = parse_body(p, ends);
        if (p->rc != OK || !chat_is_name(p, "elif"))
            break;
        n->d = chat_node_new(p, NODE_IF);
        p->at++;
        n = n->d;
        if (!n)
            return;
    }
    if (chat_skip_name(p, "else")) {
        end_block(p);
        n->d = parse_body(p, end);
    }
    p->at += p->rc == OK;
    end_block(p);
}

/* Filters without a value, as a list in the order in which they are applied. */
static struct chat_node *parse_chain(struct chat_parser *p)
{
    struct chat_node *last = chat_parse_filters(p, NULL, false), *list = NULL, *before;

    for (; last && p->rc == OK; last = before) {
        before = last->a;
        last->a = NULL;
        last->next = list;
        list = last;
    }
    return list;
}

static void parse_set(struct chat_parser *p, struct chat_node *n)
{
    n->kind = NODE_SET;
    n->a = parse_target(p, true);
    if (chat_skip_op(p, "=")) {
        n->b = chat_parse_tuple(p, true);
        end_block(p);
        return;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = parse_chain(p);
    n->list = parse_block(p, "endset");
}

/* {% filter upper | trim %}: the first filter has no bar before it. */
static void parse_filter_block(struct chat_parser *p, struct chat_node *n)
{
    struct chat_token bar[2] = {{TOKEN_OP, "|", 1, p->at->line, p->at->column}, *p->at};
    const struct chat_builtin *f =
        bar[1].kind == TOKEN_NAME ? chat_filter_named(bar[1].p, bar[1].n) : NULL;

    n->kind = NODE_SET_BLOCK;
    if (!f) {
        chat_parse_fail(p, ERR_UNSUPPORTED, "the filter \"%.*s\"", (int)p->at->n,
                        p->at->p);
        return;
    }
    if (f->n_needed > 0 || (p->at[1].kind != TOKEN_BLOCK_END)) {
        chat_parse_fail(p, ERR_UNSUPPORTED, "a filter block of more than one word");
        return;
    }
    n->b = chat_node_new(p, NODE_FILTER);
    if (!n->b)
        return;
    n->b->fn = f;
    p->at++;
    n->list = parse_block(p, "endfilter");
}

/* Parameters in brackets: a list of NODE_PARAM. */
static struct chat_node *parse_params(struct chat_parser *p)
{
    struct chat_node *list = NULL, **link = &list, *one;

    chat_expect_op(p, "(");
    while (p->rc == OK && !chat_is_op(p, ")")) {
        one = chat_node_new(p, NODE_PARAM);
        if (p->at->kind != TOKEN_NAME)
            chat_expected(p, "a name");
        if (!one)
            return NULL;
        one->name = chat_intern(p, p->at->p, p->at->n);
        p->assigned[one->name] = true;
        p->at++;
        if (chat_skip_op(p, "="))
            one->a = chat_parse_expr(p);
        *link = one;
        link = &one->next;
        if (!chat_skip_op(p, ","))
            break;
    }
    chat_expect_op(p, ")");
    return list;
}

/* The body of a macro, or of a call block. */
static void parse_macro_body(struct chat_parser *p, struct chat_node *n, const char *end)
{
    static const char *const special[] = {"varargs", "kwargs"};
    bool used = p->uses_caller;
    int loops = p->loops;

    p->loops = 0;
    p->uses_caller = false;
    n->list = parse_block(p, end);
    n->uses_caller = p->uses_caller;
    p->uses_caller = p->uses_caller || used;
    p->loops = loops;
    for (int i = 0; i < 2; i++) {
        int name = chat_name_of(p->t, special[i], strlen(special[i]));

        if (name >= 0 && !p->assigned[name])
            chat_parse_fail(p, ERR_UNSUPPORTED, "the variable \"%s\" of macros",
                            special[i]);
    }
}

static void parse_macro(struct chat_parser *p, struct chat_node *n)
{
    n->kind = NODE_MACRO;
    if (p->at->kind != TOKEN_NAME)
        chat_expected(p, "a name");
    n->name = chat_intern(p, p->at->p, p->at->n);
    p->assigned[n->name] = true;
    p->at += p->rc == OK;
    n->a = parse_params(p);
    parse_macro_body(p, n, "endmacro");
}

/* {% call(parameters) macro(...) %}: the macro may write the body by its function `caller`. */
static void parse_call_block(struct chat_parser *p, struct chat_node *n)
{
    n->kind = NODE_CALL_BLOCK;
    n->b = chat_node_new(p, NODE_MACRO);
    if (!n->b)
        return;
    if (chat_is_op(p, "("))
        n->b->a = parse_params(p);
    n->a = chat_parse_expr(p);
    if (n->a && n->a->kind != NODE_CALL)
        chat_parse_fail(p, ERR_UNSUPPORTED, "a call block of what is not a macro");
    parse_macro_body(p, n->b, "endcall");
}

static void parse_with(struct chat_parser *p, struct chat_node *n)
{
    struct chat_node **link = &n->a, *one;

    n->kind = NODE_WITH;
    while (p->rc == OK && p->at->kind != TOKEN_BLOCK_END) {
        one = chat_node_new(p, NODE_SET);
        if (!one)
            return;
        one->a = parse_target(p, false);
        chat_expect_op(p, "=");
        one->b = chat_parse_expr(p);
        *link = one;
        link = &one->next;
        if (!chat_skip_op(p, ","))
            break;
    }
    n->list = parse_block(p, "endwith");
}

/* Marks the answers of the assistant for training; what is in it is written as ever. */
static void parse_generation(struct chat_parser *p, struct chat_node *n)
{
    int loops = p->loops;

    n->kind = NODE_WITH;
    p->loops = 0;
    n->list = parse_block(p, "endgeneration");
    p->loops = loops;
}

static void parse_jump(struct chat_parser *p, struct chat_node *n)
{
    p->at--;
    n->kind = chat_is_name(p, "break") ? NODE_BREAK : NODE_CONTINUE;
    if (p->loops == 0)
        chat_parse_fail(p, ERR_FORMAT, "%.*s is not in a loop", (int)p->at->n, p->at->p);
    p->at++;
    end_block(p);
}

static const struct statement {
    const char *name;
    void (*parse)(struct chat_parser *p, struct chat_node *n);
} statements[] = {
    {"call", parse_call_block}, {"for", parse_for},
    {"if", parse_if},           {"set", parse_set},
    {"macro", parse_macro},     {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
    {"break", parse_jump},      {"continue", parse_jump},
};

static struct chat_node *parse_statement(struct chat_parser *p)
{
    struct chat_node *n = chat_node_new(p, NODE_TEXT);

    if (p->at->kind != TOKEN_NAME)
        chat_expected(p, "the name of a statement");
    for (size_t i = 0; n && i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!chat_skip_name(p, statements[i].name))
            continue;
        statements[i].parse(p, n);
        return n;
    }
    chat_parse_fail(p, ERR_UNSUPPORTED, "the statement \"%.*s\"",
                    p->at->n < 60 ? (int)p->at->n : 60, p->at->p);
    return NULL;
}

static struct chat_node *parse_print(struct chat_parser *p)
{
    struct chat_node *n = chat_node_new(p, NODE_PRINT);

    if (!n)
        return NULL;
    n->a = chat_parse_tuple(p, true);
    if (p->rc == OK && p->at->kind != TOKEN_PRINT_END)
        chat_expected(p, "}}");
    p->at += p->rc == OK;
    return n;
}

/* Statements up to a tag that begins with one of `ends`, at which the parser stays; to the end
 * of the source where there is none. */
static struct chat_node *parse_body(struct chat_parser *p, const char *const *ends)
{
    struct chat_node *first = NULL, **link = &first, *n;

    if (++p->depth > CHAT_NEST_MAX)
        chat_parse_fail(p, ERR_LIMIT, "blocks are nested too deep");
    while (p->rc == OK && p->at->kind != TOKEN_END) {
        if (p->at->kind == TOKEN_TEXT) {
            n = chat_node_new(p, NODE_TEXT);
            if (n)
                n->value.s = (struct chat_str){p->at->p, p->t->own, p->at->n};
            p->at++;
        } else if (p->at++->kind == TOKEN_PRINT_BEGIN) {
            n = parse_print(p);
        } else {
            if (is_end(p, ends)) {
                p->depth--;
                return first;
            }
            n = parse_statement(p);
        }
        if (!n)
            return NULL;
        *link = n;
        link = &n->next;
    }
    if (*ends)
        chat_expected(p, *ends);
    p->depth--;
    return first;
}

/* ---- a template ---- */

/* Line ends become "\n", and one at the end of the text goes. */
static int copy_source(struct chat_template *t, const char *text, size_t n)
{
    t->source = mem_new(MEM_OTHER, n + 1, 1);
    t->own = mem_new(MEM_OTHER, n + 1, 1);
    t->names = mem_new(MEM_OTHER, CHAT_NAMES_MAX, sizeof(*t->names));
    if (!t->source || !t->own || !t->names)
        return ERR_NOMEM;
    memset(t->own, 1, n + 1);
    for (size_t i = 0; i < n; i++) {
        t->source[t->n_source++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
    }
    if (t->n_source > 0 && t->source[t->n_source - 1] == '\n')
        t->n_source--;
    return OK;
}

/* A function that is called is one of every template's, or the template defines it. */
static void check_calls(struct chat_parser *p)
{
    for (const struct chat_calls *c = p->calls; c && p->rc == OK; c = c->next) {
        struct chat_str name = p->t->names[c->node->name];
        struct chat_token at = {.line = c->node->line, .column = c->node->column};

        if (p->assigned[c->node->name] || chat_is_function(name.p, name.n) ||
            chat_str_is(name, "caller"))
            continue;
        p->at = &at;
        chat_parse_fail(p, ERR_UNSUPPORTED, "the function \"%.*s\"",
                        name.n < 60 ? (int)name.n : 60, name.p);
    }
}

static int parse(struct chat_template *t)
{
    static const char *const none[] = {NULL};
    struct chat_token *tokens = NULL;
    struct chat_parser p = {.t = t};

    p.assigned = mem_new(MEM_OTHER, CHAT_NAMES_MAX, sizeof(*p.assigned));
    p.rc = p.assigned ? chat_lex(t, &tokens) : ERR_NOMEM;
    if (p.rc == OK) {
        p.at = tokens;
        t->body = parse_body(&p, none);
        check_calls(&p);
    }
    mem_free(tokens);
    mem_free(p.assigned);
    return p.rc;
}

int chat_template_open(struct chat_template **out, const char *text, size_t n,
                       const char *where)
{
    struct chat_template *t = mem_new(MEM_OTHER, 1, sizeof(*t));
    int rc = t ? OK : ERR_NOMEM;

    *out = NULL;
    if (rc == OK) {
        t->arena.max = TEMPLATE_BYTES_MAX;
        if (n > CHAT_SOURCE_MAX)
            rc = err_set(ERR_LIMIT, "it has %zu bytes, expected at most %zu", n,
                         CHAT_SOURCE_MAX);
        else if (!utf8_valid(text, n))
            rc = err_set(ERR_FORMAT, "it is not UTF-8");
        else
            rc = copy_source(t, text, n);
    }
    if (rc == OK)
        rc = parse(t);
    if (rc == OK)
        *out = t, t = NULL;
    else if (rc != ERR_NOMEM)
        err_prefix(rc, "%s", where);
    chat_template_close(&t);
    return rc;
}

void chat_template_close(struct chat_template **pt)
{
    struct chat_template *t = *pt;

    *pt = NULL;
    if (!t)
        return;
    chat_arena_fini(&t->arena);
    mem_free(t->source);
    mem_free(t->own);
    mem_free(t->names);
    mem_free(t);
}
