/* The low level: statements and functions of C. */
#include <string.h>

#include "ir/parse.h"

static int statement(struct ir_parser *r, struct ir_list *out);

static int unsupported(const struct ir_parser *r, const char *what)
{
    return err_set(ERR_UNSUPPORTED, "%s:%d: \"%.40s\": %s", r->t->file, r->t->line,
                   r->t->text, what);
}

/* One or more variables of a type; the end is the caller's. */
static int declaration(struct ir_parser *r, struct ir_list *out, bool only_one)
{
    struct ir_type base;

    TRY(ir_need_base(r, &base));
    do {
        struct ir_node *d = ir_node(r->p, IR_DECL, r->t->line);

        d->type = base;
        ir_take_stars(r, &d->type);
        TRY(ir_need_name(r, &d->text));
        TRY(ir_sizes(r, &d->k[0]));
        if (ir_take(r, "="))
            TRY(ir_initial(r, &d->k[1]));
        TRY(ir_declare(r, d->text));
        ir_append(out, d);
    } while (!only_one && ir_take(r, ","));
    return OK;
}

/* A block in braces, or one statement. */
static int body(struct ir_parser *r, struct ir_node **out)
{
    int n_names = r->n_names;
    IR_LIST_INIT(l);

    TRY(ir_enter(r));
    if (ir_take(r, "{")) {
        while (!ir_take(r, "}"))
            TRY(statement(r, &l));
    } else {
        TRY(statement(r, &l));
    }
    r->depth--;
    r->n_names = n_names;
    *out = l.first;
    return OK;
}

static int if_statement(struct ir_parser *r, struct ir_node *n)
{
    TRY(ir_need(r, "("));
    TRY(ir_expr(r, &n->k[0]));
    TRY(ir_need(r, ")"));
    TRY(body(r, &n->k[1]));
    return ir_take(r, "else") ? body(r, &n->k[2]) : OK;
}

static int for_statement(struct ir_parser *r, struct ir_node *n)
{
    int n_names = r->n_names;
    IR_LIST_INIT(first);
    IR_LIST_INIT(steps);

    TRY(ir_need(r, "("));
    if (!ir_is(r, ";"))
        TRY(declaration(r, &first, true));
    TRY(ir_need(r, ";"));
    TRY(ir_expr(r, &n->k[1]));
    TRY(ir_need(r, ";"));
    while (!ir_is(r, ")")) {
        struct ir_node *step;

        if (steps.first)
            TRY(ir_need(r, ","));
        TRY(ir_simple(r, &step));
        if (step->kind != IR_ASSIGN)
            return ir_expected(r, "an assignment before this");
        ir_append(&steps, step);
    }
    TRY(ir_need(r, ")"));
    TRY(body(r, &n->k[3]));
    n->k[0] = first.first;
    n->k[2] = steps.first;
    r->n_names = n_names;
    return OK;
}

static int statement(struct ir_parser *r, struct ir_list *out)
{
    struct ir_node *n = ir_node(r->p, IR_BLOCK, r->t->line);

    if (ir_is(r, "{")) {
        TRY(body(r, &n->k[0]));
    } else if (ir_take(r, "if")) {
        n->kind = IR_IF;
        TRY(if_statement(r, n));
    } else if (ir_take(r, "for")) {
        n->kind = IR_FOR;
        TRY(for_statement(r, n));
    } else if (ir_take(r, "return")) {
        n->kind = IR_RETURN;
        if (!ir_is(r, ";"))
            TRY(ir_expr(r, &n->k[0]));
        TRY(ir_need(r, ";"));
    } else if (ir_at_type(r)) {
        TRY(declaration(r, out, false));
        return ir_need(r, ";");
    } else if (r->t->kind == IR_T_WORD && !ir_known_function(r->t->text) &&
               (ir_is(r, "while") || ir_is(r, "do") || ir_is(r, "switch") ||
                ir_is(r, "goto") || ir_is(r, "break") || ir_is(r, "continue") ||
                ir_is(r, "static"))) {
        return unsupported(r, "not in the subset of C that kernels are written in");
    } else {
        TRY(ir_simple(r, &n));
        TRY(ir_need(r, ";"));
    }
    ir_append(out, n);
    return OK;
}

static int parameters(struct ir_parser *r, struct ir_node **out)
{
    IR_LIST_INIT(l);

    TRY(ir_need(r, "("));
    while (!ir_take(r, ")")) {
        if (l.first)
            TRY(ir_need(r, ","));
        TRY(declaration(r, &l, true));
    }
    *out = l.first;
    return OK;
}

/* { .name = "ref", .fn.gemm = gemm_ref, .rows = {4, 4}, } */
static int variant_fields(struct ir_parser *r, struct ir_node *v)
{
    IR_LIST_INIT(l);

    TRY(ir_need(r, "{"));
    while (!ir_take(r, "}")) {
        struct ir_node *f = ir_node(r->p, IR_FIELD, r->t->line);
        const char *name;

        if (l.first)
            TRY(ir_need(r, ","));
        if (ir_take(r, "}"))
            break;
        TRY(ir_need(r, "."));
        TRY(ir_need_name(r, &f->text));
        while (ir_take(r, ".")) {
            TRY(ir_need_name(r, &name));
            f->text = ir_textf(r->p, "%s.%s", f->text, name);
        }
        TRY(ir_need(r, "="));
        TRY(ir_initial(r, &f->k[0]));
        ir_append(&l, f);
    }
    v->k[0] = l.first;
    return ir_need(r, ";");
}

static int remember(struct ir_parser *r, const char **names, int *n, const char *name)
{
    if (*n == IR_FUNCS_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d functions", r->t->file, r->t->line,
                       IR_FUNCS_MAX);
    names[(*n)++] = name;
    return OK;
}

/* typedef void (*sub_fn)(...); */
static int typedef_part(struct ir_parser *r, struct ir_node *n)
{
    int n_names = r->n_names;

    n->kind = IR_TYPEDEF;
    TRY(ir_need_base(r, &n->type));
    ir_take_stars(r, &n->type);
    TRY(ir_need(r, "("));
    TRY(ir_need(r, "*"));
    TRY(ir_need_name(r, &n->text));
    TRY(ir_need(r, ")"));
    TRY(parameters(r, &n->k[0]));
    r->n_names = n_names;
    TRY(remember(r, r->types, &r->n_types, n->text));
    return ir_need(r, ";");
}

static int part(struct ir_parser *r, struct ir_node *n)
{
    if (ir_take(r, "typedef"))
        return typedef_part(r, n);
    if (ir_take(r, "static"))
        (void)ir_take(r, "inline");
    TRY(ir_need_base(r, &n->type));
    ir_take_stars(r, &n->type);
    TRY(ir_need_name(r, &n->text));
    if (ir_take(r, "=")) {
        if (n->type.ptr > 0 || strcmp(n->type.base, "struct kern_variant") != 0)
            return ir_expected(r, "a function, or a struct kern_variant");
        n->kind = IR_VARIANT;
        n->type = (struct ir_type){0};
        return variant_fields(r, n);
    }
    TRY(parameters(r, &n->k[0]));
    if (!ir_is(r, "{"))
        return ir_expected(r, "{");
    TRY(body(r, &n->k[1]));
    r->n_names = 0;
    return remember(r, r->functions, &r->n_functions, n->text);
}

int ir_parse_low(struct ir_parser *r)
{
    IR_LIST_INIT(l);

    while (r->t->kind != IR_T_END) {
        struct ir_node *n = ir_node(r->p, IR_FUNCTION, r->t->line);

        TRY(part(r, n));
        ir_append(&l, n);
    }
    r->p->top = l.first;
    return OK;
}
