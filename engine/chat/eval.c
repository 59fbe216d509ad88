/* Expressions, and the calls in them. */
#include "chat/impl.h"

#include <string.h>

static struct chat_value eval_name(struct chat_run *r, const struct chat_node *n)
{
    struct chat_var *var = chat_lookup(r, n->name);
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

struct chat_value chat_call(struct chat_run *r, const struct chat_node *n,
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
        return chat_call_macro(r, callee, n, caller);
    r->at = n;
    if (caller && callee.kind == CHAT_METHOD)
        return chat_fail(r, ERR_ARG, "a call block of what is not a macro");
    if (callee.kind == CHAT_METHOD && n->a->kind == NODE_NAME && name.n < sizeof(text)) {
        memcpy(text, name.p, name.n);
        text[name.n] = '\0';
        return chat_call_function(r, text, n);
    }
    if (callee.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)name.n, name.p);
    if (callee.kind == CHAT_METHOD)
        return chat_fail(r, ERR_UNSUPPORTED,
                         "a call of a method that is not by its name");
    return chat_fail(r, ERR_ARG, "a %s cannot be called", chat_type_name(callee));
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
        return chat_is_number(a) ? chat_binary(r, CHAT_ADD, chat_int(0, false), a)
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
        return chat_call(r, n, NULL);
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
        for (const struct chat_node *j = named; j; j = j->next, k++) {
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

        for (; p; p = p->next) {
            struct chat_str name = r->t->names[p->name];

            if (j->value.s.n == name.n && memcmp(j->value.s.p, name.p, name.n) == 0)
                break;
        }
        if (!p)
            chat_fail(r, ERR_ARG, "the macro has no parameter \"%.*s\"",
                      (int)j->value.s.n, j->value.s.p);
    }
}

/* Which call block a macro is called by, if it asks. */
static void bind_caller(struct chat_run *r, const struct chat_node *macro,
                        const struct chat_value *caller)
{
    static const struct chat_str name = {"caller", NULL, 6};

    if (caller && !macro->uses_caller)
        chat_fail(r, ERR_ARG, "a call block of a macro that does not use its caller");
    else if (macro->uses_caller)
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

struct chat_value chat_call_macro(struct chat_run *r, struct chat_value macro,
                                  const struct chat_node *call,
                                  const struct chat_value *caller)
{
    struct chat_list *values = chat_list_new(r, CHAT_PLAIN_LIST);
    struct chat_value *named;
    struct chat_scope *scope = r->scope;
    struct chat_output out = {0}, *was = r->out;
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
    return chat_text(out.n > 0 ? (struct chat_str){out.p, out.own, out.n}
                               : (struct chat_str){"", NULL, 0});
}
