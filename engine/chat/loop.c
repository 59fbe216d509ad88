/* A loop's items and its variable `loop`. Items are filtered when they are needed, as jinja2
 * does, because the body of the loop may change what the filter sees. */
#include "chat/impl.h"

static bool passes(struct chat_run *r, struct chat_loop *l, struct chat_value item)
{
    struct chat_scope *scope = r->scope;
    struct chat_value v = chat_bool(true);

    if (!l->node->c)
        return true;
    chat_enter(r, l->outer);
    if (r->rc == OK)
        chat_assign_to(r, l->node->a, item);
    v = chat_eval(r, l->node->c);
    r->scope = scope;
    return r->rc == OK && chat_truth(v);
}

static bool pull(struct chat_run *r, struct chat_loop *l, struct chat_value *out)
{
    if (l->ahead && l->at_ahead < l->ahead->n) {
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

bool chat_loop_next(struct chat_run *r, struct chat_loop *l)
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
        return chat_int(name.n == 5, false);
    return chat_undefined(name);
}
