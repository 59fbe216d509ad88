/* The high level: parameters, a row, and functions whose loops say what they are. */
#include <string.h>

#include "ir/parse.h"

static int block(struct ir_parser *r, struct ir_node **out);

static int need_line(struct ir_parser *r)
{
    if (r->t->kind != IR_T_LINE)
        return ir_expected(r, "the end of the line");
    r->t++;
    return OK;
}

static int need_type(struct ir_parser *r, struct ir_type *type)
{
    TRY(ir_need(r, ":"));
    TRY(ir_need_base(r, type));
    ir_take_stars(r, type);
    return OK;
}

/* x: float* = ... behind the name. */
static int declared(struct ir_parser *r, struct ir_node *n)
{
    n->kind = IR_DECL;
    TRY(need_type(r, &n->type));
    TRY(ir_sizes(r, &n->k[0]));
    if (ir_take(r, "="))
        TRY(ir_initial(r, &n->k[1]));
    return ir_declare(r, n->text);
}

static int attributes(struct ir_parser *r, struct ir_node *n)
{
    IR_LIST_INIT(l);

    while (ir_take(r, ",")) {
        struct ir_node *a = ir_node(r->p, IR_ATTR, r->t->line);

        if (r->t->kind == IR_T_WORD && r->t[1].kind == IR_T_SIGN &&
            strcmp(r->t[1].text, "=") == 0) {
            TRY(ir_need_name(r, &a->text));
            if (strcmp(a->text, "tile") != 0 && strcmp(a->text, "vector") != 0 &&
                strcmp(a->text, "unroll") != 0 && strcmp(a->text, "sums") != 0 &&
                strcmp(a->text, "ahead") != 0)
                return ir_expected(r, "tile, vector, unroll, sums or ahead before this");
            r->t++;
            TRY(ir_expr(r, &a->k[0]));
            ir_append(&l, a);
        } else if (!l.first && !n->k[2]) {
            TRY(ir_expr(r, &n->k[2]));
        } else {
            return ir_expected(r, "an attribute");
        }
    }
    n->k[3] = l.first;
    return OK;
}

/* i: int in par(0, n, 4, tile=uM):   or   x: int = 0 while x < n then x += 1: */
static int loop(struct ir_parser *r, struct ir_node *n)
{
    static const char *const kinds[] = {"par", "red", "seq"};
    int n_names = r->n_names, i = 0;
    IR_LIST_INIT(steps);

    if (!ir_is(r, "while")) {
        TRY(ir_need_name(r, &n->text));
        TRY(need_type(r, &n->type));
        if (ir_take(r, "in")) {
            while (i < 3 && !ir_take(r, kinds[i]))
                i++;
            if (i == 3)
                return ir_expected(r, "par, red or seq");
            n->kind = IR_LOOP;
            n->op = (enum ir_op)(IR_PAR + i);
            TRY(ir_need(r, "("));
            TRY(ir_expr(r, &n->k[0]));
            TRY(ir_need(r, ","));
            TRY(ir_expr(r, &n->k[1]));
            TRY(attributes(r, n));
            TRY(ir_need(r, ")"));
            TRY(ir_declare(r, n->text));
            TRY(block(r, &n->k[4]));
            r->n_names = n_names;
            return OK;
        }
        n->k[0] = ir_decl(r->p, n->type, n->text, NULL);
        if (ir_take(r, "="))
            TRY(ir_initial(r, &n->k[0]->k[1]));
        TRY(ir_declare(r, n->text));
    }
    n->kind = IR_FOR;
    n->type = (struct ir_type){0};
    n->text = "";
    TRY(ir_need(r, "while"));
    TRY(ir_expr(r, &n->k[1]));
    if (ir_take(r, "then")) {
        do {
            struct ir_node *step;

            TRY(ir_simple(r, &step));
            if (step->kind != IR_ASSIGN)
                return ir_expected(r, "an assignment before this");
            ir_append(&steps, step);
        } while (ir_take(r, ","));
    }
    n->k[2] = steps.first;
    TRY(block(r, &n->k[3]));
    r->n_names = n_names;
    return OK;
}

static int statement(struct ir_parser *r, struct ir_list *out)
{
    struct ir_node *n = ir_node(r->p, IR_IF, r->t->line);

    if (ir_take(r, "if")) {
        TRY(ir_expr(r, &n->k[0]));
        TRY(block(r, &n->k[1]));
        if (ir_take(r, "else"))
            TRY(block(r, &n->k[2]));
        ir_append(out, n);
        return OK;
    }
    if (ir_take(r, "for")) {
        TRY(loop(r, n));
        ir_append(out, n);
        return OK;
    }
    if (ir_take(r, "pass"))
        return need_line(r);
    if (ir_take(r, "return")) {
        n->kind = IR_RETURN;
        if (r->t->kind != IR_T_LINE)
            TRY(ir_expr(r, &n->k[0]));
    } else if (r->t->kind == IR_T_WORD && r->t[1].kind == IR_T_SIGN &&
               strcmp(r->t[1].text, ":") == 0) {
        TRY(ir_need_name(r, &n->text));
        TRY(declared(r, n));
    } else {
        TRY(ir_simple(r, &n));
    }
    ir_append(out, n);
    return need_line(r);
}

/* ":" and indented lines. */
static int block(struct ir_parser *r, struct ir_node **out)
{
    int n_names = r->n_names;
    IR_LIST_INIT(l);

    TRY(ir_enter(r));
    TRY(ir_need(r, ":"));
    TRY(need_line(r));
    if (r->t->kind != IR_T_IN)
        return ir_expected(r, "an indented line");
    r->t++;
    while (r->t->kind != IR_T_OUT)
        TRY(statement(r, &l));
    r->t++;
    r->depth--;
    r->n_names = n_names;
    *out = l.first;
    return OK;
}

static int function(struct ir_parser *r, struct ir_node *n)
{
    int n_names = r->n_names; /* the program's parameters stay */
    IR_LIST_INIT(l);

    TRY(ir_need_name(r, &n->text));
    TRY(ir_need(r, "("));
    while (!ir_take(r, ")")) {
        struct ir_node *a = ir_node(r->p, IR_DECL, r->t->line);

        if (l.first)
            TRY(ir_need(r, ","));
        TRY(ir_need_name(r, &a->text));
        TRY(declared(r, a));
        ir_append(&l, a);
    }
    n->k[0] = l.first;
    TRY(ir_need(r, "->"));
    TRY(ir_need_base(r, &n->type));
    ir_take_stars(r, &n->type);
    TRY(block(r, &n->k[1]));
    r->n_names = n_names;
    if (r->n_functions == IR_FUNCS_MAX)
        return ir_expected(r, "no more functions");
    r->functions[r->n_functions++] = n->text;
    return OK;
}

/* kernel gemm_f32: and its fields, a line each. */
static int kernel(struct ir_parser *r, struct ir_node *n)
{
    IR_LIST_INIT(l);

    n->kind = IR_VARIANT;
    TRY(ir_need_name(r, &n->text));
    TRY(ir_need(r, ":"));
    TRY(need_line(r));
    if (r->t->kind != IR_T_IN)
        return ir_expected(r, "an indented line");
    r->t++;
    while (r->t->kind != IR_T_OUT) {
        struct ir_node *f = ir_node(r->p, IR_FIELD, r->t->line);
        const char *name;

        if (ir_take(r, "pass")) {
            TRY(need_line(r));
            continue;
        }
        TRY(ir_need_name(r, &f->text));
        while (ir_take(r, ".")) {
            TRY(ir_need_name(r, &name));
            f->text = ir_textf(r->p, "%s.%s", f->text, name);
        }
        TRY(ir_need(r, "="));
        TRY(ir_initial(r, &f->k[0]));
        TRY(need_line(r));
        ir_append(&l, f);
    }
    r->t++;
    n->k[0] = l.first;
    return OK;
}

static int param(struct ir_parser *r, struct ir_node *n)
{
    int64_t value;

    n->kind = IR_PARAM;
    TRY(ir_need_name(r, &n->text));
    TRY(ir_need(r, "="));
    TRY(ir_expr(r, &n->k[0]));
    if (!ir_int_value(n->k[0], &value) || value > IR_PARAM_MAX)
        return ir_expected(r, "an integer up to 65536 before this");
    TRY(ir_declare(r, n->text));
    return need_line(r);
}

int ir_parse_high(struct ir_parser *r)
{
    IR_LIST_INIT(l);

    while (r->t->kind != IR_T_END) {
        struct ir_node *n = ir_node(r->p, IR_FUNCTION, r->t->line);

        if (ir_take(r, "param"))
            TRY(param(r, n));
        else if (ir_take(r, "kernel"))
            TRY(kernel(r, n));
        else if (ir_take(r, "def"))
            TRY(function(r, n));
        else
            return ir_expected(r, "param, def or kernel");
        ir_append(&l, n);
    }
    r->p->top = l.first;
    return OK;
}
