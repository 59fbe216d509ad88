/* The interpreter: scopes, statements, loops, expressions, macros, and the functions that every
 * template has. */
#include "chat/exec.h"

#include <string.h>
#include <time.h>

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

    if (!chat_step(r, (size_t)s->n))
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

static struct chat_var *lookup(struct chat_run *r, int name)
{
    struct chat_var *found = NULL;
    size_t n = 0;

    for (struct chat_scope *s = r->scope; s && !found; s = s->parent)
        for (int i = 0; i < s->n && !found; i++, n++)
            if (s->var[i].name == name)
                found = &s->var[i];
    return chat_step(r, n) ? found : NULL;
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

static void assign_to(struct chat_run *r, const struct chat_node *target,
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
        assign_to(r, t, l->v[i++]);
}

/* ---- writing ---- */

static void emit(struct chat_run *r, struct chat_str s)
{
    if (r->rc == OK && s.n > r->in->max_bytes - r->out->n) {
        r->in->too_long = true;
        chat_fail(r, ERR_LIMIT, "it writes more than %zu bytes", r->in->max_bytes);
    }
    chat_add(r->out, s);
}

/* ---- loops ----
 *
 * Items are filtered when they are needed, as jinja2 does, because the body of the loop may change
 * what the filter sees. */

static bool passes(struct chat_run *r, struct chat_loop *l, struct chat_value item)
{
    struct chat_scope *scope = r->scope;
    struct chat_value v = chat_bool(true);

    if (!l->node->c)
        return true;
    chat_enter(r, l->outer);
    if (r->rc == OK)
        assign_to(r, l->node->a, item);
    v = chat_eval(r, l->node->c);
    r->scope = scope;
    return r->rc == OK && chat_truth(v);
}

static bool pull(struct chat_run *r, struct chat_loop *l, struct chat_value *out)
{
    if (l->ahead && l->at_ahead < l->ahead->n && chat_step(r, 1)) {
        *out = l->ahead->v[l->at_ahead++];
        return true;
    }
    while (l->at < l->items->n && chat_step(r, 1)) {
        *out = l->items->v[l->at++];
        if (passes(r, l, *out))
            return true;
    }
    return false;
}

static bool peek(struct chat_run *r, struct chat_loop *l)
{
    if (!l->has_after)
        l->has_after = pull(r, l, &l->after);
    return l->has_after;
}

static bool loop_next(struct chat_run *r, struct chat_loop *l)
{
    struct chat_value next;

    if (r->rc != OK || !(l->has_after || pull(r, l, &next)))
        return false;
    if (l->has_after)
        next = l->after;
    l->has_after = false;
    l->has_before = l->index0 >= 0;
    l->before = l->current;
    l->current = next;
    l->index0++;
    return true;
}

/* The items that are left, but for `after`. */
static int64_t n_left(struct chat_run *r, struct chat_loop *l)
{
    struct chat_list *rest;
    struct chat_value v;

    if (!l->node->c)
        return (int64_t)(l->items->n - l->at);
    rest = chat_list_new(r, CHAT_PLAIN_LIST);
    while (rest && pull(r, l, &v))
        chat_push(r, rest, v);
    l->ahead = rest;
    l->at_ahead = 0;
    return rest ? (int64_t)rest->n : 0;
}

struct chat_value chat_loop_attr(struct chat_run *r, struct chat_loop *l,
                                 struct chat_str name)
{
    int64_t left;

    if (chat_str_is(name, "index0"))
        return chat_int(l->index0, false);
    if (chat_str_is(name, "index"))
        return chat_int(l->index0 + 1, false);
    if (chat_str_is(name, "first"))
        return chat_bool(l->index0 == 0);
    if (chat_str_is(name, "last"))
        return chat_bool(!peek(r, l));
    if (chat_str_is(name, "previtem"))
        return l->has_before ? l->before : chat_undefined(name);
    if (chat_str_is(name, "nextitem"))
        return peek(r, l) ? l->after : chat_undefined(name);
    left = n_left(r, l) + l->has_after;
    if (chat_str_is(name, "length"))
        return chat_int(l->index0 + 1 + left, false);
    if (chat_str_is(name, "revindex"))
        return chat_int(left + 1, false);
    if (chat_str_is(name, "revindex0"))
        return chat_int(left, false);
    if (chat_str_is(name, "depth") || chat_str_is(name, "depth0"))
        return chat_int(l->depth0 + (name.n == 5), false);
    return chat_undefined(name);
}

/* ---- functions of every template ---- */

#define RANGE_MAX 100000 /* jinja2's sandbox has the same limit */

static size_t n_given(const struct chat_node *list)
{
    size_t n = 0;

    for (; list; list = list->next)
        n++;
    return n;
}

static struct chat_value call_range(struct chat_run *r, const struct chat_node *call)
{
    int64_t v[3] = {0, 0, 1};
    size_t n = n_given(call->list), i = 0;
    struct chat_list *out = chat_list_new(r, CHAT_RANGE);
    bool user = false;

    if (n < 1 || n > 3 || call->b)
        return chat_fail(r, ERR_ARG, "range takes one to three whole numbers");
    for (const struct chat_node *a = call->list; a; a = a->next, i++) {
        struct chat_value x = chat_eval(r, a);

        if (r->rc != OK || (x.kind != CHAT_INT && x.kind != CHAT_BOOL))
            return chat_fail(r, ERR_ARG, "range of a %s", chat_type_name(x));
        v[n == 1 ? 1 : i] = x.i;
        user = user || x.user;
    }
    if (v[2] == 0)
        return chat_fail(r, ERR_ARG, "range with a step of zero");
    for (int64_t x = v[0]; out && (v[2] > 0 ? x < v[1] : x > v[1]) && chat_step(r, 1);) {
        if (out->n == RANGE_MAX)
            return chat_fail(r, ERR_LIMIT, "range of more than %d numbers", RANGE_MAX);
        chat_push(r, out, chat_int(x, user));
        if (__builtin_add_overflow(x, v[2], &x))
            break;
    }
    return chat_list_value(out);
}

/* dict(a=1) and namespace(a=1), of a mapping or of nothing, and named values. */
static struct chat_value call_dict(struct chat_run *r, const struct chat_node *call,
                                   enum chat_kind kind)
{
    struct chat_dict *d = chat_dict_new(r);

    if (n_given(call->list) > 1)
        return chat_fail(r, ERR_ARG, "expected one mapping, and named values");
    if (call->list) {
        struct chat_value from = chat_eval(r, call->list);

        if (r->rc == OK && from.kind != CHAT_DICT)
            return chat_fail(r, ERR_UNSUPPORTED, "a mapping of a %s",
                             chat_type_name(from));
        for (size_t i = 0; r->rc == OK && i < from.dict->n; i++) {
            from.dict->pair[i].read = true;
            chat_put(r, d, from.dict->pair[i].key, from.dict->pair[i].value);
        }
    }
    for (const struct chat_node *a = call->b; d && a && r->rc == OK; a = a->next) {
        struct chat_str key = {a->value.s.p, r->t->own, a->value.s.n};

        chat_put(r, d, chat_text(key), chat_eval(r, a->b));
    }
    return (struct chat_value){.kind = d ? kind : CHAT_NONE, .dict = d};
}

static struct chat_value one_argument(struct chat_run *r, const struct chat_node *call)
{
    if (n_given(call->list) != 1 || call->b)
        return chat_fail(r, ERR_ARG, "expected one argument");
    return chat_eval(r, call->list);
}

static struct chat_value call_raise(struct chat_run *r, const struct chat_node *call)
{
    struct chat_value v = one_argument(r, call);
    struct chat_str s = chat_str_of(r, v);

    r->at = call;
    return chat_fail(r, ERR_ARG, "it refuses the conversation: %.*s",
                     s.n < 300 ? (int)s.n : 300, s.p);
}

/* Not inlined: its buffers would be in the frame of every nested call. */
static __attribute__((noinline)) struct chat_value
call_strftime(struct chat_run *r, const struct chat_node *call)
{
    struct chat_value v = one_argument(r, call);
    char format[200], text[500];
    time_t at = (time_t)r->in->time_s;
    struct chat_builder b = {.r = r};
    struct tm tm;
    size_t n;

    r->at = call;
    if (r->rc != OK || v.kind != CHAT_STR)
        return chat_fail(r, ERR_ARG, "strftime_now of a %s", chat_type_name(v));
    if (v.s.n >= sizeof(format) || memchr(v.s.p, '\0', v.s.n))
        return chat_fail(r, ERR_LIMIT, "strftime_now: a format of %zu bytes", v.s.n);
    memcpy(format, v.s.p, v.s.n);
    format[v.s.n] = '\0';
    if (strstr(format, "%f") || !localtime_r(&at, &tm))
        return chat_fail(r, ERR_UNSUPPORTED, "strftime_now: \"%s\"", format);
    n = strftime(text, sizeof(text), format, &tm);
    if (n == 0 && v.s.n > 0)
        return chat_fail(r, ERR_LIMIT, "strftime_now: \"%s\" gives nothing", format);
    chat_add_like(&b, text, n, !chat_is_user(r, v));
    return chat_text(chat_built(&b));
}

static const char *const names[] = {"dict", "namespace", "raise_exception", "range",
                                    "strftime_now"};

bool chat_is_function(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return true;
    return false;
}

static struct chat_value call_function(struct chat_run *r, const char *name,
                                       const struct chat_node *call)
{
    if (strcmp(name, "range") == 0)
        return call_range(r, call);
    if (strcmp(name, "namespace") == 0)
        return call_dict(r, call, CHAT_NAMESPACE);
    if (strcmp(name, "dict") == 0)
        return call_dict(r, call, CHAT_DICT);
    if (strcmp(name, "raise_exception") == 0)
        return call_raise(r, call);
    return call_strftime(r, call);
}

/* ---- macros ---- */

/* The parameters as variables of the innermost scope. */
static void bind(struct chat_run *r, const struct chat_node *macro,
                 const struct chat_list *values, const struct chat_node *named,
                 const struct chat_value *named_values)
{
    size_t i = 0;
    int k;

    for (const struct chat_node *p = macro->a; p && r->rc == OK; p = p->next, i++) {
        struct chat_str name = r->t->names[p->name];
        bool has = i < values->n;

        if (has)
            chat_assign(r, p->name, values->v[i]);
        k = 0;
        for (const struct chat_node *j = named; j && chat_step(r, 0); j = j->next, k++) {
            if (j->value.s.n != name.n || memcmp(j->value.s.p, name.p, name.n) != 0)
                continue;
            if (has)
                chat_fail(r, ERR_ARG, "the macro gets \"%.*s\" twice", (int)name.n,
                          name.p);
            chat_assign(r, p->name, named_values[k]);
            has = true;
        }
        if (!has)
            chat_assign(r, p->name, p->a ? chat_eval(r, p->a) : chat_undefined(name));
    }
    if (values->n > i)
        chat_fail(r, ERR_ARG, "the macro takes %zu arguments, and gets %zu", i,
                  values->n);
}

static void check_named(struct chat_run *r, const struct chat_node *macro,
                        const struct chat_node *named)
{
    for (const struct chat_node *j = named; j; j = j->next) {
        const struct chat_node *p = macro->a;

        for (; p && chat_step(r, 0); p = p->next) {
            struct chat_str name = r->t->names[p->name];

            if (j->value.s.n == name.n && memcmp(j->value.s.p, name.p, name.n) == 0)
                break;
        }
        if (!p)
            chat_fail(r, ERR_ARG, "the macro has no parameter \"%.*s\"",
                      (int)j->value.s.n, j->value.s.p);
    }
}

/* Bind the call block that a macro is called by, if the macro uses it. */
static void bind_caller(struct chat_run *r, const struct chat_node *macro,
                        const struct chat_value *caller)
{
    static const struct chat_str name = {"caller", NULL, 6};

    if (caller && !macro->uses_caller)
        chat_fail(r, ERR_ARG, "a call block of a macro that does not use its caller");
    else if (macro->uses_caller && chat_step(r, (size_t)r->t->n_names))
        chat_assign(r, chat_name_of(r->t, name.p, name.n),
                    caller ? *caller : chat_undefined(name));
}

static void push_argument(struct chat_run *r, struct chat_list *values,
                          const struct chat_node *n)
{
    struct chat_list *several;

    if (n->kind != NODE_SPREAD) {
        chat_push(r, values, chat_eval(r, n));
        return;
    }
    several = chat_iterate(r, chat_eval(r, n->a));
    for (size_t i = 0; several && i < several->n && chat_step(r, 1); i++)
        chat_push(r, values, several->v[i]);
}

static struct chat_value call_macro(struct chat_run *r, struct chat_value macro,
                                    const struct chat_node *call,
                                    const struct chat_value *caller)
{
    struct chat_list *values = chat_list_new(r, CHAT_PLAIN_LIST);
    struct chat_value *named;
    struct chat_scope *scope = r->scope;
    struct chat_builder out = {.r = r}, *was = r->out;
    int k = 0;

    for (const struct chat_node *i = call->list; values && i && r->rc == OK; i = i->next)
        push_argument(r, values, i);
    for (const struct chat_node *j = call->b; j; j = j->next)
        k++;
    named = chat_new(r, (size_t)k, sizeof(*named));
    k = 0;
    for (const struct chat_node *j = call->b; named && j && r->rc == OK; j = j->next)
        named[k++] = chat_eval(r, j->b);
    r->at = call;
    check_named(r, macro.macro, call->b);
    if (r->rc != OK)
        return chat_none();
    chat_enter(r, macro.scope);
    bind_caller(r, macro.macro, caller);
    bind(r, macro.macro, values, call->b, named);
    r->out = &out;
    chat_exec(r, macro.macro->list);
    r->out = was;
    r->scope = scope;
    return chat_text(chat_built(&out));
}

static struct chat_value call_loop(struct chat_run *r, const struct chat_loop *l,
                                   const struct chat_node *call);

/* A call, also of a call block, which has a caller. */
static struct chat_value eval_call(struct chat_run *r, const struct chat_node *n,
                                   const struct chat_value *caller)
{
    struct chat_str name = {"", NULL, 0};
    struct chat_value callee = chat_eval(r, n->a);
    char text[64];

    if (n->a->kind == NODE_NAME)
        name = r->t->names[n->a->name];
    else if (n->a->kind == NODE_ATTR)
        name = n->a->value.s;
    if (r->rc != OK)
        return callee;
    if (callee.kind == CHAT_MACRO)
        return call_macro(r, callee, n, caller);
    r->at = n;
    if (!caller && callee.kind == CHAT_LOOP && callee.loop->node->recursive)
        return call_loop(r, callee.loop, n);
    if (caller && callee.kind == CHAT_METHOD)
        return chat_fail(r, ERR_ARG, "a call block of what is not a macro");
    if (callee.kind == CHAT_METHOD && n->a->kind == NODE_NAME && name.n < sizeof(text)) {
        memcpy(text, name.p, name.n);
        text[name.n] = '\0';
        return call_function(r, text, n);
    }
    if (callee.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)name.n, name.p);
    if (callee.kind == CHAT_METHOD)
        return chat_fail(r, ERR_UNSUPPORTED,
                         "a call of a method that is not by its name");
    return chat_fail(r, ERR_ARG, "a %s cannot be called", chat_type_name(callee));
}

/* ---- statements ---- */

static void exec_scoped(struct chat_run *r, const struct chat_node *list)
{
    struct chat_scope *scope = r->scope;

    chat_enter(r, scope);
    chat_exec(r, list);
    r->scope = scope;
}

static void run_loop(struct chat_run *r, const struct chat_node *n,
                     struct chat_value items, int64_t depth)
{
    struct chat_scope *scope = r->scope;
    struct chat_loop *l = chat_new(r, 1, sizeof(*l));

    r->at = n;
    if (!l || r->rc != OK)
        return;
    *l = (struct chat_loop){.node = n, .outer = scope, .depth0 = depth, .index0 = -1};
    l->items = chat_iterate(r, items);
    while (l->items && loop_next(r, l) && r->jump != JUMP_BREAK) {
        r->jump = JUMP_NONE;
        chat_enter(r, scope);
        chat_assign(r, n->name, (struct chat_value){.kind = CHAT_LOOP, .loop = l});
        if (r->rc == OK)
            assign_to(r, n->a, l->current);
        chat_exec(r, n->list);
        r->scope = scope;
        if (r->jump == JUMP_BREAK)
            break;
    }
    r->jump = JUMP_NONE;
    if (l->index0 < 0 && n->d)
        exec_scoped(r, n->d);
}

/* loop(items) in a recursive loop: what the loop writes of them. */
static struct chat_value call_loop(struct chat_run *r, const struct chat_loop *l,
                                   const struct chat_node *call)
{
    struct chat_value items = one_argument(r, call);
    struct chat_scope *scope = r->scope;
    struct chat_builder out = {.r = r}, *was = r->out;

    r->out = &out;
    r->scope = l->outer;
    run_loop(r, l->node, items, l->depth0 + 1);
    r->scope = scope;
    r->out = was;
    return chat_text(chat_built(&out));
}

static void exec_set_block(struct chat_run *r, const struct chat_node *n)
{
    struct chat_builder out = {.r = r}, *was = r->out;
    struct chat_value v;

    r->out = &out;
    exec_scoped(r, n->list);
    r->out = was;
    v = chat_text(chat_built(&out));
    for (const struct chat_node *f = n->b; f && r->rc == OK; f = f->next)
        v = chat_apply(r, f, v);
    if (r->rc != OK || r->jump != JUMP_NONE)
        return;
    if (n->a)
        assign_to(r, n->a, v);
    else
        emit(r, chat_str_of(r, v));
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
            assign_to(r, s->a, v);
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
        emit(r, n->value.s);
        break;
    case NODE_PRINT:
        v = chat_eval(r, n->a);
        emit(r, chat_str_of(r, v));
        break;
    case NODE_FOR:
        run_loop(r, n, chat_eval(r, n->b), 0);
        break;
    case NODE_IF:
        exec_if(r, n);
        break;
    case NODE_SET:
        v = chat_eval(r, n->b);
        if (r->rc == OK)
            assign_to(r, n->a, v);
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
        emit(r, chat_str_of(r, eval_call(r, n->a, &v)));
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

/* ---- expressions ---- */

static struct chat_value eval_name(struct chat_run *r, const struct chat_node *n)
{
    struct chat_var *var = lookup(r, n->name);
    struct chat_str name = r->t->names[n->name];

    if (var) {
        var->read = true;
        return var->value;
    }
    return chat_is_function(name.p, name.n) ? (struct chat_value){.kind = CHAT_METHOD}
                                            : chat_undefined(name);
}

static struct chat_value eval_list(struct chat_run *r, const struct chat_node *n)
{
    struct chat_list *l =
        chat_list_new(r, n->kind == NODE_TUPLE ? CHAT_TUPLE : CHAT_PLAIN_LIST);

    for (const struct chat_node *i = n->list; l && i && r->rc == OK; i = i->next)
        chat_push(r, l, chat_eval(r, i));
    return chat_list_value(l);
}

static struct chat_value eval_dict(struct chat_run *r, const struct chat_node *n)
{
    struct chat_dict *d = chat_dict_new(r);

    for (const struct chat_node *i = n->list; d && i && r->rc == OK; i = i->next) {
        struct chat_value key = chat_eval(r, i->a);

        chat_put(r, d, key, chat_eval(r, i->b));
    }
    return (struct chat_value){.kind = d ? CHAT_DICT : CHAT_NONE, .dict = d};
}

static struct chat_value eval_concat(struct chat_run *r, const struct chat_node *n)
{
    struct chat_builder b = {.r = r};

    for (const struct chat_node *i = n->list; i && r->rc == OK; i = i->next)
        chat_add(&b, chat_str_of(r, chat_eval(r, i)));
    return chat_text(chat_built(&b));
}

static bool holds(struct chat_run *r, enum chat_op op, struct chat_value a,
                  struct chat_value b)
{
    const struct chat_value *u = a.kind == CHAT_UNDEFINED ? &a : &b;

    switch (op) {
    case CHAT_EQ:
        return chat_equal(r, a, b);
    case CHAT_NE:
        return !chat_equal(r, a, b);
    case CHAT_IN:
        return chat_contains(r, b, a);
    case CHAT_NOT_IN:
        return !chat_contains(r, b, a);
    default:
        break;
    }
    if (u->kind == CHAT_UNDEFINED) {
        chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)u->s.n, u->s.p);
        return false;
    }
    return op == CHAT_LT   ? chat_compare(r, a, b) < 0
           : op == CHAT_LE ? chat_compare(r, a, b) <= 0
           : op == CHAT_GT ? chat_compare(r, a, b) > 0
                           : chat_compare(r, a, b) >= 0;
}

/* a < b < c: each pair in turn. */
static struct chat_value eval_compare(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value left = chat_eval(r, n->a), right;

    for (const struct chat_node *i = n->list; i && r->rc == OK; i = i->next) {
        right = chat_eval(r, i->a);
        if (r->rc == OK && !holds(r, i->op, left, right))
            return chat_bool(false);
        left = right;
    }
    return chat_bool(true);
}

static struct chat_value eval_slice(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value obj = chat_eval(r, n->a), bound[3];

    bound[0] = n->b ? chat_eval(r, n->b) : chat_none();
    bound[1] = n->c ? chat_eval(r, n->c) : chat_none();
    bound[2] = n->d ? chat_eval(r, n->d) : chat_none();
    return r->rc == OK ? chat_slice(r, obj, bound) : obj;
}

struct chat_value chat_apply(struct chat_run *r, const struct chat_node *n,
                             struct chat_value self)
{
    struct chat_args a = {.node = n};

    for (int i = 0; i < CHAT_ARGS_MAX; i++) {
        if (!n->arg[i])
            continue;
        a.v[i] = chat_eval(r, n->arg[i]);
        a.has[i] = true;
    }
    if (r->rc != OK)
        return chat_none();
    r->at = n;
    return n->fn->fn(r, self, &a);
}

/* A mapping's own member goes before a method that Python's mappings do not have. */
static struct chat_value eval_method(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value self = chat_eval(r, n->a);
    struct chat_value callee;

    if (r->rc != OK)
        return self;
    if (chat_is_attribute(self, n->fn->name, strlen(n->fn->name)))
        return chat_apply(r, n, self);
    callee = chat_attr(r, self, chat_own(r, n->fn->name, strlen(n->fn->name)));
    if (r->rc != OK)
        return callee;
    r->at = n;
    return chat_fail(r, ERR_ARG, "%s has no method \"%s\"", chat_type_name(self),
                     n->fn->name);
}

static struct chat_value eval(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value a, b;

    switch (n->kind) {
    case NODE_CONST:
        return n->value;
    case NODE_NAME:
        return eval_name(r, n);
    case NODE_ATTR:
        a = chat_eval(r, n->a);
        r->at = n;
        return r->rc == OK ? chat_attr(r, a, n->value.s) : a;
    case NODE_ITEM:
        a = chat_eval(r, n->a);
        b = chat_eval(r, n->b);
        r->at = n;
        return r->rc == OK ? chat_item(r, a, b) : a;
    case NODE_SLICE:
        return eval_slice(r, n);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(r, n);
    case NODE_DICT:
        return eval_dict(r, n);
    case NODE_NEG:
        a = chat_eval(r, n->a);
        return chat_negative(r, a);
    case NODE_POS:
        a = chat_eval(r, n->a);
        return a.kind == CHAT_FLOAT ? a
               : chat_is_number(a)  ? chat_int(a.i, a.user)
                                    : chat_negative(r, a);
    case NODE_NOT:
        a = chat_eval(r, n->a);
        return chat_bool(!chat_truth(a));
    case NODE_AND:
        a = chat_eval(r, n->a);
        return chat_truth(a) ? chat_eval(r, n->b) : a;
    case NODE_OR:
        a = chat_eval(r, n->a);
        return chat_truth(a) ? a : chat_eval(r, n->b);
    case NODE_BINARY:
        a = chat_eval(r, n->a);
        b = chat_eval(r, n->b);
        r->at = n;
        return chat_binary(r, n->op, a, b);
    case NODE_CONCAT:
        return eval_concat(r, n);
    case NODE_COMPARE:
        return eval_compare(r, n);
    case NODE_IF_ELSE:
        a = chat_eval(r, n->a);
        if (r->rc == OK && chat_truth(a))
            return chat_eval(r, n->b);
        return n->c ? chat_eval(r, n->c) : chat_undefined(chat_own(r, "else", 4));
    case NODE_FILTER:
    case NODE_TEST:
        a = chat_eval(r, n->a);
        return r->rc == OK ? chat_apply(r, n, a) : a;
    case NODE_METHOD:
        return eval_method(r, n);
    case NODE_CALL:
        return eval_call(r, n, NULL);
    case NODE_SPREAD:
        return chat_fail(r, ERR_UNSUPPORTED, "an argument by * of a function");
    default:
        return chat_none();
    }
}

struct chat_value chat_eval(struct chat_run *r, const struct chat_node *n)
{
    struct chat_value v;

    if (r->rc != OK)
        return chat_none();
    r->at = n;
    if (++r->depth > CHAT_DEPTH_MAX)
        return chat_fail(r, ERR_LIMIT, "it is nested too deep");
    v = chat_step(r, 1) ? eval(r, n) : chat_none();
    r->depth--;
    return r->rc == OK ? v : chat_none();
}
