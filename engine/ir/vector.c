/* The body of a loop for several iterations at once, as vectors of f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower.h"

struct ir_type ir_vector_type(struct ir *p, int lanes)
{
    return (struct ir_type){.base = ir_textf(p, "f32x%d", lanes)};
}

struct ir_node *ir_vector_call(struct ir *p, const char *what, int lanes,
                               struct ir_node *args)
{
    return ir_call(p, ir_textf(p, "ir_%s_f32x%d", what, lanes), args);
}

int ir_vector_lanes(const struct ir_node *n, const char *what)
{
    char begin[32];
    size_t len = (size_t)snprintf(begin, sizeof(begin), "ir_%s_f32x", what);

    return n->kind == IR_CALL && strncmp(n->text, begin, len) == 0 ? atoi(n->text + len)
                                                                   : 0;
}

/* ---- types ---- */

struct lookup {
    const char *name;
    struct ir_type type;
};

static bool is_declaration(const struct ir_node *n, void *arg)
{
    struct lookup *x = arg;

    if ((n->kind != IR_DECL && n->kind != IR_LOOP) || strcmp(n->text, x->name) != 0)
        return false;
    x->type = n->type;
    for (const struct ir_node *s = n->kind == IR_DECL ? n->k[0] : NULL; s; s = s->next)
        x->type.ptr++;
    return true;
}

struct ir_type ir_type_of(const struct ir_lowering *w, const struct ir_node *n)
{
    struct lookup x = {.name = n->text};
    struct ir_type t = {0}, u;

    switch (n->kind) {
    case IR_NAME:
        (void)ir_any(w->function, is_declaration, &x);
        return x.type;
    case IR_INT:
        return (struct ir_type){.base = "int"};
    case IR_CAST:
        return n->type;
    case IR_INDEX:
        t = ir_type_of(w, n->k[0]);
        if (t.ptr == 0)
            return (struct ir_type){0};
        t.ptr--;
        return t;
    case IR_BINARY:
        t = ir_type_of(w, n->k[0]);
        u = ir_type_of(w, n->k[1]);
        if (t.ptr > 0)
            return t;
        if (u.ptr > 0 || (u.base && strcmp(u.base, "float") == 0))
            return u;
        return t;
    case IR_UNARY:
        return n->op == IR_NEG ? ir_type_of(w, n->k[0]) : t;
    case IR_CALL:
        if (strcmp(n->text, "kern_bf16_to") == 0 || strcmp(n->text, "expf") == 0 ||
            strcmp(n->text, "kern_q8_scale") == 0 || strcmp(n->text, "sqrtf") == 0)
            t.base = "float";
        return t;
    case IR_MEMBER:
        if (strcmp(n->text, "scale") == 0)
            t.base = "float";
        return t;
    default:
        return t;
    }
}

static bool is_type(struct ir_type t, const char *base, int ptr)
{
    return t.base && strcmp(t.base, base) == 0 && t.ptr == ptr;
}

/* ---- expressions ---- */

#define NAMES_MAX 32

struct vectors {
    struct ir_lowering *w;
    const char *var;
    int lanes, n_names;
    const char *names[NAMES_MAX]; /* that are vectors here */
};

static bool is_vector_name(const struct vectors *v, const char *name)
{
    return ir_among(v->names, v->n_names, name);
}

static bool is_varying(const struct ir_node *n, void *arg)
{
    const struct vectors *v = arg;

    return n->kind == IR_NAME &&
           (strcmp(n->text, v->var) == 0 || is_vector_name(v, n->text));
}

static int not_possible(const struct vectors *v, const struct ir_node *n,
                        const char *what)
{
    return err_set(ERR_UNSUPPORTED, "line %d: the loop over %s cannot have vectors: %s",
                   n ? n->line : 0, v->var, what);
}

/* &x[i] of consecutive elements of this type. */
static int address(struct vectors *v, const struct ir_node *n, const char *type,
                   struct ir_node **out)
{
    int64_t coef;

    if (!n || n->kind != IR_INDEX || ir_any(n->k[0], is_varying, v) ||
        !ir_affine(n->k[1], v->var, &coef) || coef != 1)
        return not_possible(v, n, "its elements are not next to each other");
    if (!is_type(ir_type_of(v->w, n->k[0]), type, 1))
        return not_possible(v, n, "elements of another type");
    *out = ir_unary(v->w->p, IR_ADDRESS, ir_copy(v->w->p, n));
    return OK;
}

/* A number that is the same in all lanes. */
static struct ir_node *same_in_all(struct vectors *v, const struct ir_node *n)
{
    struct ir_node *cast = ir_node(v->w->p, IR_CAST, n->line);

    cast->type = (struct ir_type){.base = "float"};
    cast->k[0] = ir_copy(v->w->p, n);
    return cast;
}

static int expression(struct vectors *v, const struct ir_node *n, struct ir_node **out,
                      bool *is_vector)
{
    struct ir *p = v->w->p;
    struct ir_node *a, *b;
    bool va, vb;

    *is_vector = ir_any(n, is_varying, v);
    if (!*is_vector) {
        if (is_type(ir_type_of(v->w, n), "double", 0))
            return not_possible(v, n, "a double");
        *out = same_in_all(v, n);
        return OK;
    }
    if (n->kind == IR_NAME && is_vector_name(v, n->text)) {
        *out = ir_copy(p, n);
        return OK;
    }
    if (n->kind == IR_INDEX) {
        TRY(address(v, n, "float", &a));
        *out = ir_vector_call(p, "load", v->lanes, a);
        return OK;
    }
    if (n->kind == IR_BINARY && n->op >= IR_ADD && n->op <= IR_DIV) {
        TRY(expression(v, n->k[0], &a, &va));
        TRY(expression(v, n->k[1], &b, &vb));
        *out = ir_binary(p, n->op, a, b);
        return OK;
    }
    if (n->kind == IR_UNARY && n->op == IR_NEG) {
        TRY(expression(v, n->k[0], &a, &va));
        *out = ir_unary(p, IR_NEG, a);
        return OK;
    }
    if (n->kind == IR_CALL && strcmp(n->text, "kern_bf16_to") == 0) {
        TRY(address(v, n->k[0], "uint16_t", &a));
        *out = ir_vector_call(p, "bf16", v->lanes, a);
        return OK;
    }
    if (n->kind == IR_CAST && is_type(n->type, "float", 0)) {
        TRY(address(v, n->k[0], "int8_t", &a));
        *out = ir_vector_call(p, "i8", v->lanes, a);
        return OK;
    }
    return not_possible(v, n, "an operation that has none");
}

/* The same as a vector in any case. */
static int vector(struct vectors *v, const struct ir_node *n, struct ir_node **out)
{
    bool is_vector;

    TRY(expression(v, n, out, &is_vector));
    if (!is_vector)
        *out = ir_vector_call(v->w->p, "splat", v->lanes, *out);
    return OK;
}

/* ---- statements ---- */

static int store(struct vectors *v, const struct ir_node *n, struct ir_list *out)
{
    struct ir *p = v->w->p;
    struct ir_node *at, *x, *e;

    TRY(address(v, n->k[0], "float", &at));
    TRY(vector(v, n->k[1], &x));
    if (n->op != IR_SET) {
        if (n->op > IR_DIV)
            return not_possible(v, n, "such an assignment");
        x = ir_binary(p, n->op, ir_vector_call(p, "load", v->lanes, ir_copy(p, at)), x);
    }
    at->next = x;
    e = ir_node(p, IR_EXPR, n->line);
    e->k[0] = ir_vector_call(p, "store", v->lanes, at);
    ir_append(out, e);
    return OK;
}

static int statement(struct vectors *v, const struct ir_node *n, struct ir_list *out)
{
    struct ir *p = v->w->p;
    struct ir_node *x;

    if (n->kind == IR_DECL && n->k[1] && !n->k[0] && is_type(n->type, "float", 0)) {
        if (v->n_names == NAMES_MAX)
            return not_possible(v, n, "too many variables");
        TRY(vector(v, n->k[1], &x));
        v->names[v->n_names++] = n->text;
        ir_append(out, ir_decl(p, ir_vector_type(p, v->lanes), n->text, x));
        return OK;
    }
    if (n->kind == IR_ASSIGN && n->k[0]->kind == IR_INDEX)
        return store(v, n, out);
    if (n->kind == IR_ASSIGN && n->k[0]->kind == IR_NAME && n->op <= IR_DIV &&
        is_vector_name(v, n->k[0]->text)) {
        TRY(vector(v, n->k[1], &x));
        ir_append(out, ir_assign(p, n->op, ir_copy(p, n->k[0]), x));
        return OK;
    }
    return not_possible(v, n, "such a statement");
}

/* A sum of lanes is a vector of the same name. */
int ir_vector(struct ir_lowering *w, struct ir_node **out, const struct ir_node *loop,
              int lanes)
{
    struct vectors v = {.w = w, .var = loop->text, .lanes = lanes};
    const struct ir_node *n = loop->k[4];
    IR_LIST_INIT(l);

    if (loop->op == IR_SEQ)
        return not_possible(&v, loop, "its order matters");
    if (loop->op == IR_RED) {
        if (!n || n->next || n->kind != IR_ASSIGN || n->op != IR_ADD ||
            n->k[0]->kind != IR_NAME || !is_type(ir_type_of(w, n->k[0]), "float", 0))
            return not_possible(&v, loop, "it is not one sum");
        v.names[v.n_names++] = n->k[0]->text;
    }
    for (; n; n = n->next)
        TRY(statement(&v, n, &l));
    *out = l.first;
    return OK;
}
