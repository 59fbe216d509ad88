/* Statements, scopes and what is written. */
#include "chat/impl.h"

#include <stdio.h>
#include <string.h>

struct chat_value chat_fail(struct chat_run *r, int code, const char *fmt, ...)
{
    char why[400];
    va_list args;

    if (r->rc != OK)
        return chat_none();
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    r->rc = err_set(code, "chat template: line %d, column %d: %s",
                    r->at ? r->at->line : 1, r->at ? r->at->column : 1, why);
    return chat_none();
}

bool chat_step(struct chat_run *r, size_t bytes)
{
    r->n_steps += 1 + (int64_t)(bytes / 16);
    if (r->n_steps > CHAT_STEPS_MAX)
        chat_fail(r, ERR_LIMIT, "it takes more than %d steps", CHAT_STEPS_MAX);
    return r->rc == OK;
}

void *chat_new(struct chat_run *r, size_t n, size_t size)
{
    void *p = NULL;
    int rc = OK;

    if (r->rc != OK)
        return NULL;
    if (n > CHAT_BYTES_MAX / size)
        chat_fail(r, ERR_LIMIT, "a value of more than %zu MiB", CHAT_BYTES_MAX >> 20);
    else
        p = chat_arena_new(&r->arena, n * size, &rc);
    if (rc != OK)
        r->rc = rc == ERR_LIMIT ? err_prefix(rc, "chat template") : rc;
    return p;
}

/* ---- scopes ---- */

void chat_enter(struct chat_run *r, struct chat_scope *parent)
{
    struct chat_scope *s = chat_new(r, 1, sizeof(*s));

    if (!s)
        return;
    s->parent = parent;
    r->scope = s;
}

void chat_assign(struct chat_run *r, int name, struct chat_value v)
{
    struct chat_scope *s = r->scope;
    struct chat_var *grown;

    if (r->rc != OK)
        return;
    for (int i = 0; i < s->n; i++) {
        if (s->var[i].name != name)
            continue;
        s->var[i].value = v;
        return;
    }
    if (s->n == s->capacity) {
        grown = chat_new(r, (size_t)(2 * s->capacity + 4), sizeof(*grown));
        if (!grown)
            return;
        if (s->n > 0)
            memcpy(grown, s->var, (size_t)s->n * sizeof(*grown));
        s->var = grown;
        s->capacity = 2 * s->capacity + 4;
    }
    s->var[s->n++] = (struct chat_var){.name = name, .value = v};
}

struct chat_var *chat_lookup(struct chat_run *r, int name)
{
    for (struct chat_scope *s = r->scope; s; s = s->parent)
        for (int i = 0; i < s->n; i++)
            if (s->var[i].name == name)
                return &s->var[i];
    return NULL;
}

static void assign_attr(struct chat_run *r, const struct chat_node *target,
                        struct chat_value v)
{
    struct chat_value obj = chat_eval(r, target->a);

    r->at = target;
    if (r->rc == OK && obj.kind != CHAT_NAMESPACE)
        chat_fail(r, ERR_ARG, "only a namespace has attributes that can be set, not a %s",
                  chat_type_name(obj));
    else if (r->rc == OK)
        chat_put(r, obj.dict, chat_text(target->value.s), v);
}

void chat_assign_to(struct chat_run *r, const struct chat_node *target,
                    struct chat_value v)
{
    struct chat_list *l;
    size_t i = 0, n = 0;

    if (target->kind == NODE_NAME) {
        chat_assign(r, target->name, v);
        return;
    }
    if (target->kind == NODE_ATTR) {
        assign_attr(r, target, v);
        return;
    }
    l = chat_iterate(r, v);
    for (const struct chat_node *t = target->list; t; t = t->next)
        n++;
    if (l && l->n != n)
        chat_fail(r, ERR_ARG, "%zu names get %zu values", n, l->n);
    for (const struct chat_node *t = target->list; l && t && r->rc == OK; t = t->next)
        chat_assign_to(r, t, l->v[i++]);
}

/* ---- writing ---- */

void chat_emit(struct chat_run *r, struct chat_str s)
{
    struct chat_output *o = r->out;
    size_t capacity = 2 * (o->n + s.n) + 256;
    char *p;

    if (s.n == 0 || r->rc != OK)
        return;
    if (s.n > r->in->max_bytes - o->n) {
        r->in->too_long = true;
        chat_fail(r, ERR_LIMIT, "it writes more than %zu bytes", r->in->max_bytes);
        return;
    }
    if (o->n + s.n > o->capacity) {
        p = chat_new(r, 2 * capacity, 1);
        if (!p)
            return;
        if (o->n > 0) {
            memcpy(p, o->p, o->n);
            memcpy(p + capacity, o->own, o->n);
        }
        o->p = p;
        o->own = p + capacity;
        o->capacity = capacity;
    }
    memcpy(o->p + o->n, s.p, s.n);
    if (s.own)
        memcpy(o->own + o->n, s.own, s.n);
    else
        memset(o->own + o->n, 0, s.n);
    o->n += s.n;
}

/* ---- statements ---- */

static void exec_scoped(struct chat_run *r, const struct chat_node *list)
{
    struct chat_scope *scope = r->scope;

    chat_enter(r, scope);
    chat_exec(r, list);
    r->scope = scope;
}

static void exec_for(struct chat_run *r, const struct chat_node *n)
{
    static const struct chat_str loop_name = {"loop", NULL, 4};
    struct chat_scope *scope = r->scope;
    struct chat_loop *l = chat_new(r, 1, sizeof(*l));
    struct chat_value items = chat_eval(r, n->b);
    int name = chat_name_of(r->t, loop_name.p, loop_name.n);

    r->at = n;
    if (!l || r->rc != OK)
        return;
    *l = (struct chat_loop){.node = n, .outer = scope, .index0 = -1};
    l->items = chat_iterate(r, items);
    while (l->items && chat_loop_next(r, l) && r->jump != JUMP_BREAK) {
        r->jump = JUMP_NONE;
        chat_enter(r, scope);
        if (name >= 0)
            chat_assign(r, name, (struct chat_value){.kind = CHAT_LOOP, .loop = l});
        if (r->rc == OK)
            chat_assign_to(r, n->a, l->current);
        chat_exec(r, n->list);
        r->scope = scope;
        if (r->jump == JUMP_BREAK)
            break;
    }
    r->jump = JUMP_NONE;
    if (l->index0 < 0 && n->d)
        exec_scoped(r, n->d);
}

static void exec_set_block(struct chat_run *r, const struct chat_node *n)
{
    struct chat_output out = {0}, *was = r->out;
    struct chat_value v;

    r->out = &out;
    exec_scoped(r, n->list);
    r->out = was;
    v = chat_text(out.n > 0 ? (struct chat_str){out.p, out.own, out.n}
                            : (struct chat_str){"", NULL, 0});
    for (const struct chat_node *f = n->b; f && r->rc == OK; f = f->next)
        v = chat_apply(r, f, v);
    if (r->rc != OK || r->jump != JUMP_NONE)
        return;
    if (n->a)
        chat_assign_to(r, n->a, v);
    else
        chat_emit(r, chat_str_of(r, v));
}

static void exec_with(struct chat_run *r, const struct chat_node *n)
{
    struct chat_scope *scope = r->scope, *inner;

    chat_enter(r, scope);
    inner = r->scope;
    for (const struct chat_node *s = n->a; s && r->rc == OK; s = s->next) {
        struct chat_value v;

        r->scope = scope; /* values do not see each other */
        v = chat_eval(r, s->b);
        r->scope = inner;
        if (r->rc == OK)
            chat_assign_to(r, s->a, v);
    }
    chat_exec(r, n->list);
    r->scope = scope;
}

/* A chain of elif is an if in the else of another. */
static void exec_if(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value v = chat_eval(r, n->a);

    while (r->rc == OK && !chat_truth(v) && n->d && n->d->kind == NODE_IF &&
           !n->d->next) {
        n = n->d;
        v = chat_eval(r, n->a);
    }
    if (r->rc == OK)
        chat_exec(r, chat_truth(v) ? n->list : n->d);
}

static void exec_one(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value v;

    switch (n->kind) {
    case NODE_TEXT:
        chat_emit(r, n->value.s);
        break;
    case NODE_PRINT:
        v = chat_eval(r, n->a);
        chat_emit(r, chat_str_of(r, v));
        break;
    case NODE_FOR:
        exec_for(r, n);
        break;
    case NODE_IF:
        exec_if(r, n);
        break;
    case NODE_SET:
        v = chat_eval(r, n->b);
        if (r->rc == OK)
            chat_assign_to(r, n->a, v);
        break;
    case NODE_SET_BLOCK:
        exec_set_block(r, n);
        break;
    case NODE_MACRO:
        chat_assign(
            r, n->name,
            (struct chat_value){.kind = CHAT_MACRO, .macro = n, .scope = r->scope});
        break;
    case NODE_CALL_BLOCK:
        v = (struct chat_value){.kind = CHAT_MACRO, .macro = n->b, .scope = r->scope};
        chat_emit(r, chat_str_of(r, chat_call(r, n->a, &v)));
        break;
    case NODE_WITH:
        exec_with(r, n);
        break;
    case NODE_BREAK:
        r->jump = JUMP_BREAK;
        break;
    default:
        r->jump = JUMP_CONTINUE;
        break;
    }
}

void chat_exec(struct chat_run *r, const struct chat_node *list)
{
    if (r->rc == OK && ++r->depth > CHAT_DEPTH_MAX)
        chat_fail(r, ERR_LIMIT, "it is nested too deep");
    for (; list && r->rc == OK && r->jump == JUMP_NONE; list = list->next) {
        r->at = list;
        if (chat_step(r, 1))
            exec_one(r, list);
    }
    r->depth--;
}
