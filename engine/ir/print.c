/* Programs as text, of both levels. */
#include <string.h>

#include "ir/tree.h"

const char *ir_op_text(enum ir_op op, enum ir_level level)
{
    static const char *const text[] = {
        [IR_SET] = "",     [IR_ADD] = "+",    [IR_SUB] = "-",     [IR_MUL] = "*",
        [IR_DIV] = "/",    [IR_MOD] = "%",    [IR_SHL] = "<<",    [IR_SHR] = ">>",
        [IR_LT] = "<",     [IR_GT] = ">",     [IR_LE] = "<=",     [IR_GE] = ">=",
        [IR_EQ] = "==",    [IR_NE] = "!=",    [IR_BIT_AND] = "&", [IR_BIT_XOR] = "^",
        [IR_BIT_OR] = "|", [IR_AND] = "&&",   [IR_OR] = "||",     [IR_NEG] = "-",
        [IR_NOT] = "!",    [IR_INVERT] = "~", [IR_DEREF] = "*",   [IR_ADDRESS] = "&",
        [IR_DOT] = ".",    [IR_ARROW] = "->", [IR_EITHER] = ".",  [IR_PAR] = "par",
        [IR_RED] = "red",  [IR_SEQ] = "seq"};

    if (level == IR_HIGH && (op == IR_AND || op == IR_OR || op == IR_NOT))
        return op == IR_AND ? "and" : op == IR_OR ? "or" : "not ";
    return text[op];
}

int ir_op_rank(enum ir_op op)
{
    static const int rank[] = {
        [IR_OR] = 1,   [IR_AND] = 2,  [IR_BIT_OR] = 3, [IR_BIT_XOR] = 4, [IR_BIT_AND] = 5,
        [IR_EQ] = 6,   [IR_NE] = 6,   [IR_LT] = 7,     [IR_GT] = 7,      [IR_LE] = 7,
        [IR_GE] = 7,   [IR_SHL] = 8,  [IR_SHR] = 8,    [IR_ADD] = 9,     [IR_SUB] = 9,
        [IR_MUL] = 10, [IR_DIV] = 10, [IR_MOD] = 10};

    return rank[op];
}

#define RANK_UNARY   11
#define RANK_POSTFIX 12
#define RANK_PRIMARY 13

static int rank_of(const struct ir_node *n, enum ir_level level)
{
    switch (n->kind) {
    case IR_BINARY:
        return ir_op_rank(n->op);
    case IR_COND:
        return 0;
    case IR_UNARY:
        return RANK_UNARY;
    case IR_CAST:
        return level == IR_LOW ? RANK_UNARY : RANK_PRIMARY;
    case IR_INDEX:
    case IR_MEMBER:
        return RANK_POSTFIX;
    default:
        return RANK_PRIMARY;
    }
}

void ir_print_type(struct text *t, struct ir_type type, enum ir_level level)
{
    text_printf(t, "%s%s", type.is_const ? "const " : "", type.base ? type.base : "void");
    for (int i = 0; i < type.ptr; i++)
        text_puts(t, i == 0 && level == IR_LOW ? " *" : "*");
}

typedef void (*put_fn)(struct text *t, const struct ir_node *n, enum ir_level level);

static void put_expr(struct text *t, const struct ir_node *n, enum ir_level level);

/* Nodes with commas between them. */
static void put_list(struct text *t, const struct ir_node *n, enum ir_level level,
                     put_fn put)
{
    for (; n; n = n->next) {
        put(t, n, level);
        text_puts(t, n->next ? ", " : "");
    }
}

static void put_at(struct text *t, const struct ir_node *n, enum ir_level level, int rank)
{
    bool brackets = rank_of(n, level) < rank;

    text_puts(t, brackets ? "(" : "");
    put_expr(t, n, level);
    text_puts(t, brackets ? ")" : "");
}

static void put_cond(struct text *t, const struct ir_node *n, enum ir_level level)
{
    bool high = level == IR_HIGH;

    put_at(t, n->k[high], level, 1);
    text_puts(t, high ? " if " : " ? ");
    put_at(t, n->k[!high], level, 1);
    text_puts(t, high ? " else " : " : ");
    put_at(t, n->k[2], level, 1);
}

static void put_cast(struct text *t, const struct ir_node *n, enum ir_level level)
{
    text_puts(t, level == IR_HIGH ? "cast(" : "(");
    ir_print_type(t, n->type, level);
    text_puts(t, level == IR_HIGH ? ", " : ")");
    put_at(t, n->k[0], level, level == IR_HIGH ? 0 : RANK_UNARY);
    text_puts(t, level == IR_HIGH ? ")" : "");
}

static void put_expr(struct text *t, const struct ir_node *n, enum ir_level level)
{
    switch (n->kind) {
    case IR_UNARY:
        text_puts(t, ir_op_text(n->op, level));
        put_at(t, n->k[0], level, RANK_POSTFIX);
        break;
    case IR_BINARY:
        put_at(t, n->k[0], level, ir_op_rank(n->op));
        text_printf(t, " %s ", ir_op_text(n->op, level));
        put_at(t, n->k[1], level, ir_op_rank(n->op) + 1);
        break;
    case IR_COND:
        put_cond(t, n, level);
        break;
    case IR_CALL:
        text_printf(t, "%s(", n->text);
        put_list(t, n->k[0], level, put_expr);
        text_puts(t, ")");
        break;
    case IR_INDEX:
        put_at(t, n->k[0], level, RANK_POSTFIX);
        text_puts(t, "[");
        put_expr(t, n->k[1], level);
        text_puts(t, "]");
        break;
    case IR_MEMBER: /* a number's point would be its own */
        put_at(t, n->k[0], level,
               n->k[0]->kind == IR_INT || n->k[0]->kind == IR_FLOAT ? RANK_PRIMARY + 1
                                                                    : RANK_POSTFIX);
        text_printf(t, "%s%s", ir_op_text(n->op, level), n->text);
        break;
    case IR_CAST:
        put_cast(t, n, level);
        break;
    case IR_SIZEOF:
        text_puts(t, "sizeof(");
        if (n->k[0])
            put_expr(t, n->k[0], level);
        else
            ir_print_type(t, n->type, level);
        text_puts(t, ")");
        break;
    case IR_LIST:
        text_puts(t, level == IR_HIGH ? "[" : "{");
        put_list(t, n->k[0], level, put_expr);
        text_puts(t, level == IR_HIGH ? "]" : "}");
        break;
    case IR_STRING:
        text_printf(t, "\"%s\"", n->text);
        break;
    default:
        text_puts(t, n->text);
    }
}

/* ---- statements ---- */

static void put_indent(struct text *t, int depth)
{
    for (int i = 0; i < depth; i++)
        text_puts(t, "    ");
}

static void put_decl(struct text *t, const struct ir_node *d, enum ir_level level)
{
    if (level == IR_HIGH)
        text_printf(t, "%s: ", d->text);
    ir_print_type(t, d->type, level);
    if (level == IR_LOW)
        text_printf(t, "%s%s", d->type.ptr > 0 ? "" : " ", d->text);
    for (const struct ir_node *s = d->k[0]; s; s = s->next) {
        text_puts(t, "[");
        put_expr(t, s, level);
        text_puts(t, "]");
    }
    if (d->k[1]) {
        text_puts(t, " = ");
        put_expr(t, d->k[1], level);
    }
}

static void put_simple(struct text *t, const struct ir_node *n, enum ir_level level)
{
    put_expr(t, n->k[0], level);
    if (n->kind == IR_EXPR)
        return;
    text_printf(t, " %s= ", ir_op_text(n->op, level));
    put_expr(t, n->k[1], level);
}

static void put_statements(struct text *t, const struct ir_node *n, enum ir_level level,
                           int depth);

static void put_body(struct text *t, const struct ir_node *n, enum ir_level level,
                     int depth)
{
    text_puts(t, level == IR_HIGH ? ":\n" : " {\n");
    if (!n && level == IR_HIGH) {
        put_indent(t, depth + 1);
        text_puts(t, "pass\n");
    }
    put_statements(t, n, level, depth + 1);
    if (level == IR_HIGH)
        return;
    put_indent(t, depth);
    text_puts(t, "}\n");
}

static void put_if(struct text *t, const struct ir_node *n, enum ir_level level,
                   int depth)
{
    text_puts(t, level == IR_HIGH ? "if " : "if (");
    put_expr(t, n->k[0], level);
    text_puts(t, level == IR_HIGH ? "" : ")");
    put_body(t, n->k[1], level, depth);
    if (!n->k[2])
        return;
    put_indent(t, depth);
    text_puts(t, "else");
    put_body(t, n->k[2], level, depth);
}

static void put_for(struct text *t, const struct ir_node *n, enum ir_level level,
                    int depth)
{
    bool high = level == IR_HIGH;

    text_puts(t, high ? "for " : "for (");
    if (n->k[0])
        put_decl(t, n->k[0], level);
    text_puts(t, !high ? "; " : n->k[0] ? " while " : "while ");
    put_expr(t, n->k[1], level);
    text_puts(t, !high ? "; " : n->k[2] ? " then " : "");
    put_list(t, n->k[2], level, put_simple);
    text_puts(t, high ? "" : ")");
    put_body(t, n->k[3], level, depth);
}

static void put_loop(struct text *t, const struct ir_node *n, enum ir_level level,
                     int depth)
{
    text_printf(t, "for %s: ", n->text);
    ir_print_type(t, n->type, level);
    text_printf(t, " in %s(", ir_op_text(n->op, level));
    for (int i = 0; i < 3 && n->k[i]; i++) {
        text_puts(t, i ? ", " : "");
        put_expr(t, n->k[i], level);
    }
    for (const struct ir_node *a = n->k[3]; a; a = a->next) {
        text_printf(t, ", %s=", a->text);
        put_expr(t, a->k[0], level);
    }
    text_puts(t, ")");
    put_body(t, n->k[4], level, depth);
}

static void put_statements(struct text *t, const struct ir_node *n, enum ir_level level,
                           int depth)
{
    for (; n; n = n->next) {
        put_indent(t, depth);
        switch (n->kind) {
        case IR_IF:
            put_if(t, n, level, depth);
            continue;
        case IR_FOR:
            put_for(t, n, level, depth);
            continue;
        case IR_LOOP:
            put_loop(t, n, level, depth);
            continue;
        case IR_BLOCK:
            text_puts(t, "{\n");
            put_statements(t, n->k[0], level, depth + 1);
            put_indent(t, depth);
            text_puts(t, "}\n");
            continue;
        case IR_RETURN:
            text_puts(t, n->k[0] ? "return " : "return");
            put_list(t, n->k[0], level, put_expr);
            break;
        case IR_DECL:
            put_decl(t, n, level);
            break;
        default:
            put_simple(t, n, level);
        }
        text_puts(t, level == IR_HIGH ? "\n" : ";\n");
    }
}

/* ---- parts ---- */

static void put_parameters(struct text *t, const struct ir_node *f, enum ir_level level)
{
    text_printf(t, "%s(", f->text);
    put_list(t, f->k[0], level, put_decl);
    text_puts(t, ")");
}

void ir_print_function(struct text *t, const struct ir_node *f, enum ir_level level)
{
    if (level == IR_LOW) {
        text_puts(t, "static ");
        ir_print_type(t, f->type, level);
        text_puts(t, f->type.ptr > 0 ? "" : " ");
        put_parameters(t, f, level);
    } else {
        text_puts(t, "def ");
        put_parameters(t, f, level);
        text_puts(t, " -> ");
        ir_print_type(t, f->type, level);
    }
    put_body(t, f->k[1], level, 0);
}

static void put_variant(struct text *t, const struct ir_node *v, enum ir_level level)
{
    bool high = level == IR_HIGH;

    text_printf(t, high ? "kernel %s:\n" : "const struct kern_variant %s = {\n", v->text);
    if (!v->k[0] && high)
        text_puts(t, "    pass\n");
    for (const struct ir_node *f = v->k[0]; f; f = f->next) {
        text_printf(t, high ? "    %s = " : "    .%s = ", f->text);
        put_expr(t, f->k[0], level);
        text_puts(t, high ? "\n" : ",\n");
    }
    text_puts(t, high ? "" : "};\n");
}

static void put_typedef(struct text *t, const struct ir_node *n)
{
    text_puts(t, "typedef ");
    ir_print_type(t, n->type, IR_LOW);
    text_printf(t, "%s(*%s)(", n->type.ptr > 0 ? "" : " ", n->text);
    put_list(t, n->k[0], IR_LOW, put_decl);
    text_puts(t, ");\n");
}

int ir_print(char **out, const struct ir *p)
{
    struct text t = {0};

    for (const struct ir_node *n = p->top; n; n = n->next) {
        if (n->kind == IR_PARAM) {
            text_printf(&t, "param %s = %s\n", n->text, n->k[0]->text);
        } else if (n->kind == IR_VARIANT) {
            text_puts(&t, "\n");
            put_variant(&t, n, p->level);
        } else if (n->kind == IR_TYPEDEF) {
            put_typedef(&t, n);
        } else {
            text_puts(&t, t.n > 0 ? "\n" : "");
            ir_print_function(&t, n, p->level);
        }
    }
    text_put(&t, "", 1); /* the NUL */
    *out = t.rc == OK ? t.p : NULL;
    if (t.rc != OK)
        text_fini(&t);
    return t.rc;
}
