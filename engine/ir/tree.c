/* Nodes: made, copied, compared, searched, replaced, folded. */
#include "ir/tree.h"

#include <assert.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK_BYTES 65536
#define NODES_MAX   (1 << 20)

struct ir_arena {
    struct ir_arena *older;
    size_t used, size;
    _Alignas(16) char bytes[];
};

static _Noreturn void end_call(struct ir *p, int rc)
{
    p->rc = rc;
    assert(p->jump);
    longjmp(*(jmp_buf *)p->jump, 1);
}

int ir_guard(struct ir *p, int (*fn)(void *arg), void *arg)
{
    jmp_buf here;
    int rc;

    p->rc = OK;
    p->jump = &here;
    rc = setjmp(here) == 0 ? fn(arg) : p->rc;
    p->jump = NULL;
    return rc;
}

static void *take(struct ir *p, size_t n)
{
    struct ir_arena *a = p->arena;
    void *at;

    n = (n + 15) / 16 * 16;
    if (!a || a->size - a->used < n) {
        size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;

        a = mem_new(MEM_OTHER, 1, sizeof(*a) + size);
        if (!a)
            end_call(p, ERR_NOMEM);
        *a = (struct ir_arena){.older = p->arena, .size = size};
        p->arena = a;
    }
    at = a->bytes + a->used;
    a->used += n;
    return at;
}

void ir_fini(struct ir *p)
{
    while (p->arena) {
        struct ir_arena *older = p->arena->older;

        mem_free(p->arena);
        p->arena = older;
    }
    *p = (struct ir){0};
}

const char *ir_text(struct ir *p, const char *s, size_t n)
{
    char *at = take(p, n + 1);

    memcpy(at, s, n);
    at[n] = '\0';
    return at;
}

const char *ir_textf(struct ir *p, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    return ir_text(p, line, strlen(line));
}

struct ir_node *ir_node(struct ir *p, enum ir_kind kind, int line)
{
    struct ir_node *n;

    if (p->n_nodes++ == NODES_MAX)
        end_call(p, err_set(ERR_LIMIT, "more than %d nodes", NODES_MAX));
    n = take(p, sizeof(*n));
    *n = (struct ir_node){.kind = kind, .line = line, .text = ""};
    return n;
}

struct ir_node *ir_int(struct ir *p, int64_t x)
{
    struct ir_node *n = ir_node(p, IR_INT, 0);

    n->text = ir_textf(p, "%" PRId64, x < 0 ? -x : x);
    return x < 0 ? ir_unary(p, IR_NEG, n) : n;
}

struct ir_node *ir_name(struct ir *p, const char *name)
{
    struct ir_node *n = ir_node(p, IR_NAME, 0);

    n->text = name;
    return n;
}

struct ir_node *ir_unary(struct ir *p, enum ir_op op, struct ir_node *a)
{
    struct ir_node *n = ir_node(p, IR_UNARY, a->line);

    n->op = op;
    n->k[0] = a;
    return n;
}

struct ir_node *ir_binary(struct ir *p, enum ir_op op, struct ir_node *a,
                          struct ir_node *b)
{
    struct ir_node *n = ir_node(p, IR_BINARY, a->line);

    n->op = op;
    n->k[0] = a;
    n->k[1] = b;
    return n;
}

struct ir_node *ir_index(struct ir *p, struct ir_node *a, struct ir_node *b)
{
    struct ir_node *n = ir_node(p, IR_INDEX, a->line);

    n->k[0] = a;
    n->k[1] = b;
    return n;
}

struct ir_node *ir_call(struct ir *p, const char *name, struct ir_node *args)
{
    struct ir_node *n = ir_node(p, IR_CALL, 0);

    n->text = name;
    n->k[0] = args;
    return n;
}

struct ir_node *ir_decl(struct ir *p, struct ir_type t, const char *name,
                        struct ir_node *init)
{
    struct ir_node *n = ir_node(p, IR_DECL, 0);

    n->type = t;
    n->text = name;
    n->k[1] = init;
    return n;
}

struct ir_node *ir_assign(struct ir *p, enum ir_op op, struct ir_node *a,
                          struct ir_node *b)
{
    struct ir_node *n = ir_node(p, IR_ASSIGN, a->line);

    n->op = op;
    n->k[0] = a;
    n->k[1] = b;
    return n;
}

void ir_append(struct ir_list *l, struct ir_node *n)
{
    *l->end = n;
    while (*l->end)
        l->end = &(*l->end)->next;
}

struct ir_node *ir_copy(struct ir *p, const struct ir_node *n)
{
    struct ir_node *c;

    if (!n)
        return NULL;
    c = ir_node(p, n->kind, n->line);
    c->op = n->op;
    c->text = ir_text(p, n->text, strlen(n->text));
    c->type = n->type;
    if (n->type.base)
        c->type.base = ir_text(p, n->type.base, strlen(n->type.base));
    for (int i = 0; i < IR_KIDS; i++)
        c->k[i] = ir_copy_list(p, n->k[i]);
    return c;
}

struct ir_node *ir_copy_list(struct ir *p, const struct ir_node *n)
{
    IR_LIST_INIT(l);

    for (; n; n = n->next)
        ir_append(&l, ir_copy(p, n));
    return l.first;
}

static bool same_type(struct ir_type a, struct ir_type b)
{
    return !a.base == !b.base && (!a.base || strcmp(a.base, b.base) == 0) &&
           a.is_const == b.is_const && a.ptr == b.ptr;
}

bool ir_same_list(const struct ir_node *a, const struct ir_node *b)
{
    for (; a && b; a = a->next, b = b->next)
        if (!ir_same(a, b))
            return false;
    return !a && !b;
}

bool ir_same(const struct ir_node *a, const struct ir_node *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || a->op != b->op || strcmp(a->text, b->text) != 0 ||
        !same_type(a->type, b->type))
        return false;
    for (int i = 0; i < IR_KIDS; i++)
        if (!ir_same_list(a->k[i], b->k[i]))
            return false;
    return true;
}

/* ---- searching ---- */

bool ir_any_in_list(const struct ir_node *n, bool (*fn)(const struct ir_node *, void *),
                    void *arg)
{
    for (; n; n = n->next)
        if (ir_any(n, fn, arg))
            return true;
    return false;
}

bool ir_any(const struct ir_node *n, bool (*fn)(const struct ir_node *, void *),
            void *arg)
{
    if (!n)
        return false;
    if (fn(n, arg))
        return true;
    for (int i = 0; i < IR_KIDS; i++)
        if (ir_any_in_list(n->k[i], fn, arg))
            return true;
    return false;
}

static bool is_name(const struct ir_node *n, void *name)
{
    return n->kind == IR_NAME && strcmp(n->text, name) == 0;
}

bool ir_mentions(const struct ir_node *n, const char *name)
{
    return ir_any(n, is_name, (void *)name);
}

static bool is_assigned(const struct ir_node *n, void *name)
{
    if (n->kind == IR_DECL || n->kind == IR_LOOP)
        return strcmp(n->text, name) == 0;
    if (n->kind == IR_UNARY && n->op == IR_ADDRESS)
        return is_name(n->k[0], name);
    return n->kind == IR_ASSIGN && is_name(n->k[0], name);
}

bool ir_assigns(const struct ir_node *list, const char *name)
{
    return ir_any_in_list(list, is_assigned, (void *)name);
}

bool ir_affine(const struct ir_node *n, const char *var, int64_t *coef)
{
    int64_t a = 0, b = 0, x = 0;

    *coef = 0;
    if (!ir_mentions(n, var))
        return true;
    if (n->kind == IR_NAME) {
        *coef = 1;
        return true;
    }
    if (n->kind != IR_BINARY || !ir_affine(n->k[0], var, &a) ||
        !ir_affine(n->k[1], var, &b))
        return false;
    if (n->op == IR_ADD || n->op == IR_SUB) {
        *coef = n->op == IR_ADD ? a + b : a - b;
        return true;
    }
    if (n->op != IR_MUL || !(ir_int_value(n->k[0], &x) || ir_int_value(n->k[1], &x)))
        return false;
    *coef = (a + b) * x;
    return true;
}

bool ir_among(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

const char *ir_root(const struct ir_node *n)
{
    while (n && (n->kind == IR_BINARY || n->kind == IR_CAST || n->kind == IR_INDEX ||
                 (n->kind == IR_UNARY && n->op == IR_ADDRESS)))
        n = n->k[0];
    return n && n->kind == IR_NAME ? n->text : NULL;
}

/* ---- changing ---- */

int ir_each(struct ir_node **list,
            int (*fn)(void *arg, struct ir_node *n, struct ir_list *out), void *arg)
{
    struct ir_node *next;
    IR_LIST_INIT(out);

    for (struct ir_node *n = *list; n; n = next) {
        next = n->next;
        n->next = NULL;
        TRY(fn(arg, n, &out));
    }
    *list = out.first;
    return OK;
}

void ir_change(struct ir *p, struct ir_node **n, ir_change_fn fn, void *arg)
{
    for (; *n; n = &(*n)->next) {
        struct ir_node *by = fn(p, *n, arg);

        if (by != *n) { /* what replaces it is left as it is */
            struct ir_node *rest = (*n)->next;

            by->next = rest;
            *n = by;
            continue;
        }
        for (int i = 0; i < IR_KIDS; i++)
            if ((*n)->k[i])
                ir_change(p, &(*n)->k[i], fn, arg);
    }
}

struct pair {
    const char *from, *to;
    const struct ir_node *by;
};

static struct ir_node *rename_one(struct ir *p, struct ir_node *n, void *arg)
{
    const struct pair *x = arg;

    (void)p;
    if ((n->kind == IR_NAME || n->kind == IR_DECL || n->kind == IR_LOOP) &&
        strcmp(n->text, x->from) == 0)
        n->text = x->to;
    return n;
}

void ir_rename(struct ir *p, struct ir_node **list, const char *from, const char *to)
{
    struct pair x = {.from = from, .to = to};

    ir_change(p, list, rename_one, &x);
}

static struct ir_node *substitute_one(struct ir *p, struct ir_node *n, void *arg)
{
    const struct pair *x = arg;

    return is_name(n, (void *)x->from) ? ir_copy(p, x->by) : n;
}

void ir_substitute(struct ir *p, struct ir_node **list, const char *name,
                   const struct ir_node *by)
{
    struct pair x = {.from = name, .by = by};

    ir_change(p, list, substitute_one, &x);
}

bool ir_int_value(const struct ir_node *n, int64_t *out)
{
    char *end;

    if (!n || n->kind != IR_INT)
        return false;
    *out = strtoll(n->text, &end, 0);
    return *end == '\0' && *out < INT32_MAX;
}

static bool fold_ints(enum ir_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case IR_ADD:
        *out = a + b;
        return true;
    case IR_SUB:
        *out = a - b;
        return true;
    case IR_MUL:
        *out = a * b;
        return true;
    case IR_DIV:
        *out = b ? a / b : 0;
        return b != 0;
    case IR_MOD:
        *out = b ? a % b : 0;
        return b != 0;
    case IR_LT:
        *out = a < b;
        return true;
    case IR_GT:
        *out = a > b;
        return true;
    case IR_LE:
        *out = a <= b;
        return true;
    case IR_GE:
        *out = a >= b;
        return true;
    case IR_EQ:
        *out = a == b;
        return true;
    case IR_NE:
        *out = a != b;
        return true;
    case IR_AND:
        *out = a && b;
        return true;
    case IR_OR:
        *out = a || b;
        return true;
    default:
        return false;
    }
}

/* `whole`: the node is an integer or an address. Not so for floats: 0 * x may be a NaN, and
 * -0 + 0 is not -0. */
static struct ir_node *fold_binary(struct ir *p, struct ir_node *n, bool whole)
{
    int64_t a = 0, b = 0, x = 0;
    bool has_a = ir_int_value(n->k[0], &a), has_b = ir_int_value(n->k[1], &b);

    if (has_a && has_b && fold_ints(n->op, a, b, &x) && x < INT32_MAX && x >= 0)
        return ir_int(p, x);
    if (n->op == IR_AND && has_a && a == 0)
        return ir_int(p, 0);
    if (!whole)
        return n;
    if (n->op == IR_DIV && has_a && a == 0)
        return ir_int(p, 0);
    if (n->op == IR_MUL && ((has_a && a == 0) || (has_b && b == 0)))
        return ir_int(p, 0);
    if ((n->op == IR_ADD && has_a && a == 0) || (n->op == IR_MUL && has_a && a == 1))
        return n->k[1];
    if (((n->op == IR_ADD || n->op == IR_SUB) && has_b && b == 0) ||
        ((n->op == IR_MUL || n->op == IR_DIV) && has_b && b == 1))
        return n->k[0];
    return n;
}

static struct ir_node *fold_node(struct ir *p, struct ir_node *n, bool whole)
{
    int64_t x;

    if (n->kind == IR_BINARY)
        return fold_binary(p, n, whole);
    if (n->kind == IR_COND && ir_int_value(n->k[0], &x))
        return x ? n->k[1] : n->k[2];
    if (n->kind == IR_UNARY && n->op == IR_NOT && ir_int_value(n->k[0], &x))
        return ir_int(p, !x);
    return n;
}

/* Is child i of this node an integer or an address? `whole`: is the node? */
static bool whole_kid(const struct ir_node *n, int i, bool whole)
{
    switch (n->kind) {
    case IR_INDEX:
    case IR_ATTR:
        return true;
    case IR_LOOP:
    case IR_FOR:
        return i < 3;
    case IR_DECL:
        return n->type.ptr > 0 || !n->type.base || strncmp(n->type.base, "float", 5) != 0;
    case IR_UNARY:
        return whole || n->op == IR_ADDRESS;
    case IR_BINARY:
    case IR_COND:
        return whole;
    case IR_CAST:
        return n->type.ptr > 0;
    default:
        return false;
    }
}

static void fold_list(struct ir *p, struct ir_node **n, bool whole)
{
    for (; *n; n = &(*n)->next) {
        struct ir_node *by, *rest = (*n)->next;

        for (int i = 0; i < IR_KIDS; i++)
            if ((*n)->k[i])
                fold_list(p, &(*n)->k[i], whole_kid(*n, i, whole));
        by = fold_node(p, *n, whole);
        if (by != *n) {
            by->next = rest;
            *n = by;
        }
    }
}

void ir_fold(struct ir *p, struct ir_node **n)
{
    fold_list(p, n, false);
}

/* ---- parts ---- */

struct ir_node *ir_attr(const struct ir_node *loop, const char *name)
{
    for (struct ir_node *a = loop->k[3]; a; a = a->next)
        if (strcmp(a->text, name) == 0)
            return a->k[0];
    return NULL;
}

struct ir_node *ir_find_function(const struct ir *p, const char *name)
{
    for (struct ir_node *f = p->top; f; f = f->next)
        if (f->kind == IR_FUNCTION && strcmp(f->text, name) == 0)
            return f;
    return NULL;
}

struct ir_node *ir_part(const struct ir *p, enum ir_kind kind)
{
    for (struct ir_node *f = p->top; f; f = f->next)
        if (f->kind == kind)
            return f;
    return NULL;
}
