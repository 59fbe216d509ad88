/* Expressions and simple statements of both levels. */
#include "ir/expr.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

static bool high(const struct ir_parser *r)
{
    return r->p->level == IR_HIGH;
}

int ir_expected(const struct ir_parser *r, const char *what)
{
    const struct ir_token *t = r->t;
    const char *names[] = {[IR_T_LINE] = "the end of the line",
                           [IR_T_IN] = "an indented line",
                           [IR_T_OUT] = "the end of a block",
                           [IR_T_END] = "the end of the text"};

    if (t->kind >= IR_T_LINE)
        return err_set(ERR_FORMAT, "%s:%d: expected %s, found %s", t->file, t->line, what,
                       names[t->kind]);
    return err_set(ERR_FORMAT, "%s:%d: expected %s, found \"%.40s\"", t->file, t->line,
                   what, t->text);
}

bool ir_is(const struct ir_parser *r, const char *w)
{
    return (r->t->kind == IR_T_WORD || r->t->kind == IR_T_SIGN) &&
           strcmp(r->t->text, w) == 0;
}

bool ir_take(struct ir_parser *r, const char *w)
{
    if (!ir_is(r, w))
        return false;
    r->t++;
    return true;
}

int ir_need(struct ir_parser *r, const char *w)
{
    return ir_take(r, w) ? OK : ir_expected(r, w);
}

static bool is_word_of_language(const char *w)
{
    static const char *const words[] = {
        "if",     "else",    "for",    "while",    "do",     "switch", "goto",
        "return", "break",   "case",   "continue", "const",  "struct", "union",
        "enum",   "typedef", "static", "inline",   "sizeof", "int",    "and",
        "or",     "not",     "in",     "def",      "param",  "kernel", "pass",
        "cast",   "par",     "red",    "seq",      "then",   NULL};

    return name_index(words, w) >= 0 || ir_known_type(w);
}

int ir_need_name(struct ir_parser *r, const char **out)
{
    if (r->t->kind != IR_T_WORD || is_word_of_language(r->t->text))
        return ir_expected(r, "a name");
    /* Such names are those that lowering makes. */
    if (strncmp(r->t->text, "ir_", 3) == 0 || strstr(r->t->text, "__"))
        return ir_expected(r, "a name without \"ir_\" before it or \"__\" in it");
    *out = r->t++->text;
    return OK;
}

int ir_declare(struct ir_parser *r, const char *name)
{
    if (r->n_names == IR_SCOPE_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d names", r->t->file, r->t->line,
                       IR_SCOPE_MAX);
    r->names[r->n_names++] = name;
    return OK;
}

bool ir_at_type(const struct ir_parser *r)
{
    return r->t->kind == IR_T_WORD &&
           (strcmp(r->t->text, "const") == 0 || strcmp(r->t->text, "struct") == 0 ||
            ir_known_type(r->t->text) || ir_among(r->types, r->n_types, r->t->text));
}

int ir_need_base(struct ir_parser *r, struct ir_type *out)
{
    *out = (struct ir_type){.is_const = ir_take(r, "const")};
    if (ir_take(r, "struct")) {
        const char *name;

        TRY(ir_need_name(r, &name));
        out->base = ir_textf(r->p, "struct %s", name);
        return OK;
    }
    if (!ir_at_type(r) || ir_is(r, "const"))
        return ir_expected(r, "a type");
    out->base = r->t++->text;
    return OK;
}

void ir_take_stars(struct ir_parser *r, struct ir_type *type)
{
    while (type->ptr < 8 && ir_take(r, "*"))
        type->ptr++;
}

int ir_enter(struct ir_parser *r)
{
    if (++r->depth > IR_DEPTH_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d levels", r->t->file, r->t->line,
                       IR_DEPTH_MAX);
    return OK;
}

/* ---- expressions ---- */

static struct ir_node *node(struct ir_parser *r, enum ir_kind kind)
{
    return ir_node(r->p, kind, r->t->line);
}

int ir_need_type(struct ir_parser *r, struct ir_type *type)
{
    TRY(ir_need_base(r, type));
    ir_take_stars(r, type);
    return OK;
}

static int number(struct ir_parser *r, struct ir_node **out)
{
    const char *s = r->t->text;
    char *end;
    bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
    bool is_float = strpbrk(s, hex ? ".pP" : ".eE");
    struct ir_node *n;

    (void)strtod(s, &end);
    end += strspn(end, is_float ? "fF" : "uUlL");
    if (*end || (hex && is_float && !strpbrk(s, "pP")))
        return ir_expected(r, "a number");
    n = node(r, is_float ? IR_FLOAT : IR_INT);
    n->text = r->t++->text;
    *out = n;
    return OK;
}

/* Arguments behind the bracket. */
static int arguments(struct ir_parser *r, const char *closing, struct ir_node **out)
{
    IR_LIST_INIT(l);

    while (!ir_take(r, closing)) {
        struct ir_node *a;

        if (l.first)
            TRY(ir_need(r, ","));
        TRY(ir_initial(r, &a));
        ir_append(&l, a);
    }
    *out = l.first;
    return OK;
}

static int named(struct ir_parser *r, struct ir_node **out)
{
    const struct ir_token *at = r->t;
    struct ir_node *n = node(r, IR_NAME);
    bool has_value;
    int64_t value;

    TRY(ir_need_name(r, &n->text));
    *out = n;
    if (ir_take(r, "(")) {
        if (!ir_known_function(n->text) &&
            !ir_among(r->functions, r->n_functions, n->text) &&
            !ir_among(r->names, r->n_names, n->text))
            return err_set(ERR_UNSUPPORTED, "%s:%d: %.60s() is no function that is known",
                           at->file, at->line, n->text);
        n->kind = IR_CALL;
        return arguments(r, ")", &n->k[0]);
    }
    if (ir_among(r->names, r->n_names, n->text) ||
        ir_among(r->functions, r->n_functions, n->text))
        return OK;
    if (!ir_known_constant(n->text, &value, &has_value))
        return err_set(ERR_UNSUPPORTED, "%s:%d: \"%.60s\" is not declared", at->file,
                       at->line, n->text);
    if (has_value)
        *out = ir_int(r->p, value);
    return OK;
}

/* cast(float*, x) */
static int high_cast(struct ir_parser *r, struct ir_node **out)
{
    struct ir_node *n = node(r, IR_CAST);

    TRY(ir_need(r, "("));
    TRY(ir_need_type(r, &n->type));
    TRY(ir_need(r, ","));
    TRY(ir_expr(r, &n->k[0]));
    *out = n;
    return ir_need(r, ")");
}

static int unary(struct ir_parser *r, struct ir_node **out);

static int size_of(struct ir_parser *r, struct ir_node **out)
{
    struct ir_node *n = node(r, IR_SIZEOF);

    TRY(ir_need(r, "("));
    if (ir_at_type(r))
        TRY(ir_need_type(r, &n->type));
    else
        TRY(ir_expr(r, &n->k[0]));
    *out = n;
    return ir_need(r, ")");
}

static int primary(struct ir_parser *r, struct ir_node **out)
{
    if (r->t->kind == IR_T_NUMBER)
        return number(r, out);
    if (r->t->kind == IR_T_STRING) {
        *out = node(r, IR_STRING);
        (*out)->text = r->t++->text;
        return OK;
    }
    if (ir_take(r, "sizeof"))
        return size_of(r, out);
    if (high(r) && ir_take(r, "cast"))
        return high_cast(r, out);
    if (ir_take(r, "(")) {
        TRY(ir_expr(r, out));
        return ir_need(r, ")");
    }
    return named(r, out);
}

static int postfix(struct ir_parser *r, struct ir_node **out)
{
    struct ir_node *n;

    TRY(primary(r, out));
    for (int steps = 0;; steps++) {
        if (steps > IR_DEPTH_MAX)
            return ir_expected(r, "a shorter expression");
        if (ir_is(r, "[")) {
            n = node(r, IR_INDEX);
            r->t++;
            TRY(ir_expr(r, &n->k[1]));
            TRY(ir_need(r, "]"));
        } else if (ir_is(r, ".") || (!high(r) && ir_is(r, "->"))) {
            n = node(r, IR_MEMBER);
            n->op = high(r) ? IR_EITHER : ir_is(r, ".") ? IR_DOT : IR_ARROW;
            r->t++;
            TRY(ir_need_name(r, &n->text));
        } else {
            return OK;
        }
        n->k[0] = *out;
        *out = n;
    }
}

static int unary_inside(struct ir_parser *r, struct ir_node **out)
{
    static const struct {
        const char *low, *high;
        enum ir_op op;
    } ops[] = {{"-", "-", IR_NEG},
               {"!", "not", IR_NOT},
               {"~", "~", IR_INVERT},
               {"*", "*", IR_DEREF},
               {"&", "&", IR_ADDRESS}};
    struct ir_node *n;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (!ir_is(r, high(r) ? ops[i].high : ops[i].low))
            continue;
        n = node(r, IR_UNARY);
        n->op = ops[i].op;
        r->t++;
        *out = n;
        return unary(r, &n->k[0]);
    }
    if (!high(r) && ir_is(r, "(")) {
        r->t++;
        if (ir_at_type(r)) {
            n = node(r, IR_CAST);
            TRY(ir_need_type(r, &n->type));
            TRY(ir_need(r, ")"));
            *out = n;
            return unary(r, &n->k[0]);
        }
        r->t--;
    }
    return postfix(r, out);
}

static int unary(struct ir_parser *r, struct ir_node **out)
{
    TRY(ir_enter(r));
    TRY(unary_inside(r, out));
    r->depth--;
    return OK;
}

/* The operator at r->t that binds at least as tightly as `rank`; IR_SET: there is none. */
static enum ir_op operator_at(const struct ir_parser *r, int rank)
{
    for (enum ir_op op = IR_ADD; op <= IR_OR; op++)
        if (ir_is(r, ir_op_text(op, r->p->level)) && ir_op_rank(op) >= rank)
            return op;
    return IR_SET;
}

static int binary(struct ir_parser *r, struct ir_node **out, int rank)
{
    enum ir_op op;

    TRY(unary(r, out));
    for (int steps = 0; (op = operator_at(r, rank)) != IR_SET; steps++) {
        struct ir_node *n = node(r, IR_BINARY);

        if (steps > 4 * IR_DEPTH_MAX)
            return ir_expected(r, "a shorter expression");
        r->t++;
        n->op = op;
        n->k[0] = *out;
        TRY(ir_enter(r));
        TRY(binary(r, &n->k[1], ir_op_rank(op) + 1));
        r->depth--;
        *out = n;
    }
    return OK;
}

static int conditional(struct ir_parser *r, struct ir_node **out)
{
    struct ir_node *n;

    TRY(binary(r, out, 0));
    if (!ir_is(r, high(r) ? "if" : "?"))
        return OK;
    n = node(r, IR_COND);
    r->t++;
    if (high(r)) { /* a if c else b */
        n->k[1] = *out;
        TRY(binary(r, &n->k[0], 0));
        TRY(ir_need(r, "else"));
    } else {
        n->k[0] = *out;
        TRY(ir_expr(r, &n->k[1]));
        TRY(ir_need(r, ":"));
    }
    *out = n;
    return ir_expr(r, &n->k[2]);
}

int ir_expr(struct ir_parser *r, struct ir_node **out)
{
    TRY(ir_enter(r));
    TRY(conditional(r, out));
    r->depth--;
    return OK;
}

int ir_initial(struct ir_parser *r, struct ir_node **out)
{
    struct ir_node *n;

    if (!ir_is(r, high(r) ? "[" : "{"))
        return ir_expr(r, out);
    n = node(r, IR_LIST);
    r->t++;
    *out = n;
    TRY(ir_enter(r));
    TRY(arguments(r, high(r) ? "]" : "}", &n->k[0]));
    r->depth--;
    return OK;
}

int ir_sizes(struct ir_parser *r, struct ir_node **out)
{
    IR_LIST_INIT(l);

    while (ir_take(r, "[")) {
        struct ir_node *n;

        TRY(ir_expr(r, &n));
        TRY(ir_need(r, "]"));
        ir_append(&l, n);
    }
    *out = l.first;
    return OK;
}

int ir_simple(struct ir_parser *r, struct ir_node **out)
{
    static const char *const ops[] = {
        "=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="};
    static const enum ir_op op_of[] = {IR_SET,     IR_ADD,     IR_SUB,   IR_MUL,
                                       IR_DIV,     IR_MOD,     IR_SHL,   IR_SHR,
                                       IR_BIT_AND, IR_BIT_XOR, IR_BIT_OR};
    struct ir_node *n, *left;

    TRY(unary(r, &left));
    n = node(r, IR_ASSIGN);
    n->k[0] = left;
    *out = n;
    if (ir_is(r, "++") || ir_is(r, "--")) {
        n->op = ir_is(r, "++") ? IR_ADD : IR_SUB;
        r->t++;
        n->k[1] = ir_int(r->p, 1);
    } else {
        size_t i = 0;

        while (i < sizeof(ops) / sizeof(ops[0]) && !ir_is(r, ops[i]))
            i++;
        if (i == sizeof(ops) / sizeof(ops[0])) {
            if (left->kind != IR_CALL)
                return ir_expected(r, "an assignment or a call");
            n->kind = IR_EXPR;
            return OK;
        }
        r->t++;
        n->op = op_of[i];
        TRY(ir_expr(r, &n->k[1]));
    }
    if (left->kind != IR_NAME && left->kind != IR_INDEX && left->kind != IR_MEMBER &&
        (left->kind != IR_UNARY || left->op != IR_DEREF))
        return ir_expected(r, "no assignment to such an expression before this");
    return OK;
}
