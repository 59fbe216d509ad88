/* Programs of both levels: statements, functions, rows. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ir/expr.h"

#define FILE_MAX ((size_t)1 << 20)

/* ---- both levels ---- */

static int remember(struct ir_parser *r, const char **names, int *n, const char *name)
{
    if (*n == IR_FUNCS_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d functions", r->t->file, r->t->line,
                       IR_FUNCS_MAX);
    names[(*n)++] = name;
    return OK;
}

/* An assignment between others: a step of a loop. */
static int step(struct ir_parser *r, struct ir_list *out)
{
    struct ir_node *n;

    TRY(ir_simple(r, &n));
    if (n->kind != IR_ASSIGN)
        return ir_expected(r, "an assignment before this");
    ir_append(out, n);
    return OK;
}

/* "fn.rope" and its value: a field of a row. */
static int field(struct ir_parser *r, struct ir_list *out)
{
    struct ir_node *f = ir_node(r->p, IR_FIELD, r->t->line);
    const char *name;

    TRY(ir_need_name(r, &f->text));
    while (ir_take(r, ".")) {
        TRY(ir_need_name(r, &name));
        f->text = ir_textf(r->p, "%s.%s", f->text, name);
    }
    TRY(ir_need(r, "="));
    TRY(ir_initial(r, &f->k[0]));
    ir_append(out, f);
    return OK;
}

/* ---- the low level: C ---- */

static int c_statement(struct ir_parser *r, struct ir_list *out);

static int unsupported(const struct ir_parser *r, const char *what)
{
    return err_set(ERR_UNSUPPORTED, "%s:%d: \"%.40s\": %s", r->t->file, r->t->line,
                   r->t->text, what);
}

/* One or more variables of a type; the end is the caller's. */
static int c_declaration(struct ir_parser *r, struct ir_list *out, bool only_one)
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
static int c_body(struct ir_parser *r, struct ir_node **out)
{
    int n_names = r->n_names;
    IR_LIST_INIT(l);

    TRY(ir_enter(r));
    if (ir_take(r, "{")) {
        while (!ir_take(r, "}"))
            TRY(c_statement(r, &l));
    } else {
        TRY(c_statement(r, &l));
    }
    r->depth--;
    r->n_names = n_names;
    *out = l.first;
    return OK;
}

static int c_if(struct ir_parser *r, struct ir_node *n)
{
    TRY(ir_need(r, "("));
    TRY(ir_expr(r, &n->k[0]));
    TRY(ir_need(r, ")"));
    TRY(c_body(r, &n->k[1]));
    return ir_take(r, "else") ? c_body(r, &n->k[2]) : OK;
}

static int c_for(struct ir_parser *r, struct ir_node *n)
{
    int n_names = r->n_names;
    IR_LIST_INIT(first);
    IR_LIST_INIT(steps);

    TRY(ir_need(r, "("));
    if (!ir_is(r, ";"))
        TRY(c_declaration(r, &first, true));
    TRY(ir_need(r, ";"));
    TRY(ir_expr(r, &n->k[1]));
    TRY(ir_need(r, ";"));
    while (!ir_is(r, ")")) {
        if (steps.first)
            TRY(ir_need(r, ","));
        TRY(step(r, &steps));
    }
    TRY(ir_need(r, ")"));
    TRY(c_body(r, &n->k[3]));
    n->k[0] = first.first;
    n->k[2] = steps.first;
    r->n_names = n_names;
    return OK;
}

static int c_statement(struct ir_parser *r, struct ir_list *out)
{
    struct ir_node *n = ir_node(r->p, IR_BLOCK, r->t->line);

    if (ir_is(r, "{")) {
        TRY(c_body(r, &n->k[0]));
    } else if (ir_take(r, "if")) {
        n->kind = IR_IF;
        TRY(c_if(r, n));
    } else if (ir_take(r, "for")) {
        n->kind = IR_FOR;
        TRY(c_for(r, n));
    } else if (ir_take(r, "return")) {
        n->kind = IR_RETURN;
        if (!ir_is(r, ";"))
            TRY(ir_expr(r, &n->k[0]));
        TRY(ir_need(r, ";"));
    } else if (ir_at_type(r)) {
        TRY(c_declaration(r, out, false));
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

static int c_parameters(struct ir_parser *r, struct ir_node **out)
{
    IR_LIST_INIT(l);

    TRY(ir_need(r, "("));
    while (!ir_take(r, ")")) {
        if (l.first)
            TRY(ir_need(r, ","));
        TRY(c_declaration(r, &l, true));
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
        if (l.first)
            TRY(ir_need(r, ","));
        if (ir_take(r, "}"))
            break;
        TRY(ir_need(r, "."));
        TRY(field(r, &l));
    }
    v->k[0] = l.first;
    return ir_need(r, ";");
}

/* typedef void (*sub_fn)(...); */
static int typedef_part(struct ir_parser *r, struct ir_node *n)
{
    int n_names = r->n_names;

    n->kind = IR_TYPEDEF;
    TRY(ir_need_type(r, &n->type));
    TRY(ir_need(r, "("));
    TRY(ir_need(r, "*"));
    TRY(ir_need_name(r, &n->text));
    TRY(ir_need(r, ")"));
    TRY(c_parameters(r, &n->k[0]));
    r->n_names = n_names;
    TRY(remember(r, r->types, &r->n_types, n->text));
    return ir_need(r, ";");
}

static int c_part(struct ir_parser *r, struct ir_node *n)
{
    if (ir_take(r, "typedef"))
        return typedef_part(r, n);
    if (ir_take(r, "static"))
        (void)ir_take(r, "inline");
    TRY(ir_need_type(r, &n->type));
    TRY(ir_need_name(r, &n->text));
    if (ir_take(r, "=")) {
        if (n->type.ptr > 0 || strcmp(n->type.base, "struct kern_variant") != 0)
            return ir_expected(r, "a function, or a struct kern_variant");
        n->kind = IR_VARIANT;
        n->type = (struct ir_type){0};
        return variant_fields(r, n);
    }
    TRY(c_parameters(r, &n->k[0]));
    if (!ir_is(r, "{"))
        return ir_expected(r, "{");
    TRY(c_body(r, &n->k[1]));
    r->n_names = 0;
    return remember(r, r->functions, &r->n_functions, n->text);
}

/* ---- the high level: loops that say what they are ---- */

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
    return ir_need_type(r, type);
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
        do
            TRY(step(r, &steps));
        while (ir_take(r, ","));
    }
    n->k[2] = steps.first;
    TRY(block(r, &n->k[3]));
    r->n_names = n_names;
    return OK;
}

static int line(struct ir_parser *r, struct ir_list *out)
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
        TRY(line(r, &l));
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
    TRY(ir_need_type(r, &n->type));
    TRY(block(r, &n->k[1]));
    r->n_names = n_names;
    return remember(r, r->functions, &r->n_functions, n->text);
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
        if (!ir_take(r, "pass"))
            TRY(field(r, &l));
        TRY(need_line(r));
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

static int part(struct ir_parser *r, struct ir_node *n)
{
    if (ir_take(r, "param"))
        return param(r, n);
    if (ir_take(r, "kernel"))
        return kernel(r, n);
    return ir_take(r, "def") ? function(r, n) : ir_expected(r, "param, def or kernel");
}

/* ---- a text ---- */

struct parsing {
    struct ir_parser r;
    struct ir_lexer *x;
    const char *text, *name;
    size_t n;
};

static int parse(void *arg)
{
    struct parsing *a = arg;
    struct ir_parser *r = &a->r;
    IR_LIST_INIT(l);

    TRY(ir_lex(a->x, a->text, a->n, a->name, &r->t));
    while (r->t->kind != IR_T_END) {
        struct ir_node *n = ir_node(r->p, IR_FUNCTION, r->t->line);

        TRY(r->p->level == IR_HIGH ? part(r, n) : c_part(r, n));
        ir_append(&l, n);
    }
    r->p->top = l.first;
    return OK;
}

int ir_parse(struct ir *out, enum ir_level level, const char *text, size_t n,
             const char *name)
{
    struct parsing *a = mem_new(MEM_OTHER, 1, sizeof(*a));
    struct ir_lexer *x = ir_lexer_open(out);
    int rc = ERR_NOMEM;

    *out = (struct ir){.level = level};
    if (a && x) {
        *a = (struct parsing){.r.p = out, .x = x, .text = text, .name = name, .n = n};
        rc = ir_guard(out, parse, a);
    }
    ir_lexer_close(x);
    mem_free(a);
    if (rc != OK)
        ir_fini(out);
    return rc;
}

int ir_read(struct ir *out, const char *path)
{
    size_t n, len = strlen(path);
    char *text;
    int rc;

    *out = (struct ir){0};
    TRY(file_read(&text, &n, path, FILE_MAX));
    rc = ir_parse(out, len > 2 && strcmp(path + len - 2, ".c") == 0 ? IR_LOW : IR_HIGH,
                  text, n, path);
    mem_free(text);
    return rc;
}
