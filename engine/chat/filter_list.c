/* Filters of sequences and mappings. */
#include "chat/impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- attributes of items ---- */

/* item.a.b of the attribute "a.b"; a number is an index. */
static struct chat_value get_attribute(struct chat_run *r, struct chat_value item,
                                       struct chat_value attribute,
                                       const struct chat_value *otherwise)
{
    struct chat_str s = attribute.s;
    size_t from = 0;

    if (attribute.kind == CHAT_INT)
        return chat_item(r, item, attribute);
    if (attribute.kind != CHAT_STR)
        return chat_fail(r, ERR_ARG, "an attribute that is a %s",
                         chat_type_name(attribute));
    for (size_t i = 0; i <= s.n && r->rc == OK; i++) {
        struct chat_value part;
        bool number = i > from;

        if (i < s.n && s.p[i] != '.')
            continue;
        part = chat_text(chat_cut(s, from, i));
        for (size_t k = from; k < i; k++)
            number = number && s.p[k] >= '0' && s.p[k] <= '9' && i - from < 10;
        if (number)
            part = chat_int(strtol(s.p + from, NULL, 10), false);
        item = chat_item(r, item, part);
        if (item.kind == CHAT_UNDEFINED && otherwise)
            item = *otherwise;
        from = i + 1;
    }
    return item;
}

/* ---- map, select and reject ---- */

/* Of what is false, such as none, these filters make nothing. */
static struct chat_list *items_of(struct chat_run *r, struct chat_value v)
{
    return chat_truth(v) ? chat_iterate(r, v) : chat_list_new(r, CHAT_PLAIN_LIST);
}

static struct chat_value f_map(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    struct chat_list *in = items_of(r, v), *out = chat_list_new(r, CHAT_GENERATOR);
    const struct chat_value *otherwise =
        a->has[1] && a->v[1].kind != CHAT_NONE ? &a->v[1] : NULL;

    if (!a->node->sub && !a->has[0])
        return chat_fail(r, ERR_ARG, "map without a filter or an attribute");
    for (size_t i = 0; in && out && i < in->n && chat_step(r, 1); i++)
        chat_push(r, out,
                  a->node->sub ? chat_apply(r, a->node->sub, in->v[i])
                               : get_attribute(r, in->v[i], a->v[0], otherwise));
    return chat_list_value(out);
}

static struct chat_value choose(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a, bool attr, bool want)
{
    struct chat_list *in = items_of(r, v), *out = chat_list_new(r, CHAT_GENERATOR);

    for (size_t i = 0; in && out && i < in->n && chat_step(r, 1); i++) {
        struct chat_value item = in->v[i];

        if (attr)
            item = get_attribute(r, item, a->v[0], NULL);
        if (a->node->sub && r->rc == OK)
            item = chat_apply(r, a->node->sub, item);
        if (chat_truth(item) == want)
            chat_push(r, out, in->v[i]);
    }
    return chat_list_value(out);
}

static struct chat_value f_select(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
{
    return choose(r, v, a, false, true);
}

static struct chat_value f_reject(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
{
    return choose(r, v, a, false, false);
}

static struct chat_value f_selectattr(struct chat_run *r, struct chat_value v,
                                      const struct chat_args *a)
{
    return choose(r, v, a, true, true);
}

static struct chat_value f_rejectattr(struct chat_run *r, struct chat_value v,
                                      const struct chat_args *a)
{
    return choose(r, v, a, true, false);
}

/* ---- parts of a sequence ---- */

static struct chat_value f_first(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    struct chat_list *l;

    (void)a;
    if (v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR)
        return v.list->n_used < v.list->n ? v.list->v[v.list->n_used++]
                                          : chat_undefined(chat_own(r, "first", 5));
    l = chat_iterate(r, v);
    return l && l->n > 0 ? l->v[0] : chat_undefined(chat_own(r, "first", 5));
}

static struct chat_value f_last(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    struct chat_list *l;

    (void)a;
    if (v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR)
        return chat_fail(r, ERR_ARG, "the last of a generator");
    l = chat_iterate(r, v);
    return l && l->n > 0 ? l->v[l->n - 1] : chat_undefined(chat_own(r, "last", 4));
}

static struct chat_value f_list(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_PLAIN_LIST);

    (void)a;
    for (size_t i = 0; in && out && i < in->n && chat_step(r, 1); i++)
        chat_push(r, out, in->v[i]);
    return chat_list_value(out);
}

static struct chat_value f_reverse(struct chat_run *r, struct chat_value v,
                                   const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v), *out;
    bool plain = v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR;

    (void)a;
    out = chat_list_new(r, plain ? CHAT_PLAIN_LIST : CHAT_GENERATOR);
    for (size_t i = in ? in->n : 0; out && i > 0 && chat_step(r, 1); i--)
        chat_push(r, out, in->v[i - 1]);
    if (v.kind == CHAT_STR && out)
        return chat_text(chat_join(r, out, chat_own(r, "", 0), false));
    return chat_list_value(out);
}

static struct chat_value f_join(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v), *items = in;
    struct chat_str between = a->has[0] ? chat_str_of(r, a->v[0]) : chat_own(r, "", 0);

    if (a->has[1] && a->v[1].kind != CHAT_NONE) {
        items = chat_list_new(r, CHAT_PLAIN_LIST);
        for (size_t i = 0; in && items && i < in->n && r->rc == OK; i++)
            chat_push(r, items, get_attribute(r, in->v[i], a->v[1], NULL));
    }
    return chat_text(chat_join(r, items, between, true));
}

static struct chat_value f_items(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    struct chat_list *out = chat_list_new(r, CHAT_GENERATOR), *pair;

    (void)a;
    if (v.kind == CHAT_UNDEFINED)
        return chat_list_value(out);
    if (v.kind != CHAT_DICT)
        return chat_fail(r, ERR_ARG, "items of a %s", chat_type_name(v));
    for (size_t i = 0; out && i < v.dict->n && chat_step(r, 1); i++) {
        pair = chat_list_new(r, CHAT_TUPLE);
        v.dict->pair[i].read = true;
        chat_push(r, pair, v.dict->pair[i].key);
        chat_push(r, pair, v.dict->pair[i].value);
        chat_push(r, out, chat_list_value(pair));
    }
    return chat_list_value(out);
}

/* ---- orders ---- */

struct ranked {
    struct chat_value key, value;
    size_t at;
    struct chat_run *r;
    bool reverse;
};

static struct chat_value folded(struct chat_run *r, struct chat_value v,
                                bool case_sensitive)
{
    return v.kind == CHAT_STR && !case_sensitive
               ? chat_text(chat_case(r, v.s, CHAT_LOWER))
               : v;
}

static int by_rank(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    int c = a->r->rc == OK ? chat_compare(a->r, a->key, b->key) : 0;

    if (c == 0)
        return a->at < b->at ? -1 : a->at > b->at;
    return a->reverse ? -c : c;
}

/* Items with what they are ranked by; NULL: it failed. */
static struct ranked *rank(struct chat_run *r, const struct chat_list *in,
                           struct chat_value attribute, bool case_sensitive, bool reverse)
{
    struct ranked *ranks = in ? chat_new(r, in->n, sizeof(*ranks)) : NULL;
    bool whole = attribute.kind == CHAT_UNDEFINED || attribute.kind == CHAT_NONE;

    if (attribute.kind == CHAT_STR && attribute.s.n > 0 &&
        memchr(attribute.s.p, ',', attribute.s.n)) {
        chat_fail(r, ERR_UNSUPPORTED, "an order by several attributes");
        return NULL;
    }
    for (size_t i = 0; ranks && i < in->n && chat_step(r, 1); i++) {
        struct chat_value key =
            whole ? in->v[i] : get_attribute(r, in->v[i], attribute, NULL);

        ranks[i] =
            (struct ranked){folded(r, key, case_sensitive), in->v[i], i, r, reverse};
    }
    return r->rc == OK ? ranks : NULL;
}

static struct chat_value sorted(struct chat_run *r, struct ranked *ranks, size_t n)
{
    struct chat_list *out = chat_list_new(r, CHAT_PLAIN_LIST);

    if (ranks)
        qsort(ranks, n, sizeof(*ranks), by_rank);
    for (size_t i = 0; out && ranks && i < n; i++)
        chat_push(r, out, ranks[i].value);
    return chat_list_value(out);
}

static struct chat_value f_sort(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v);

    return sorted(r, rank(r, in, a->v[2], chat_truth(a->v[1]), chat_truth(a->v[0])),
                  in ? in->n : 0);
}

static struct chat_value f_dictsort(struct chat_run *r, struct chat_value v,
                                    const struct chat_args *a)
{
    struct chat_value pairs, by = chat_int(0, false);

    if (v.kind != CHAT_DICT)
        return chat_fail(r, ERR_ARG, "dictsort of a %s", chat_type_name(v));
    if (a->has[1] && chat_is_str(a->v[1], "value"))
        by = chat_int(1, false);
    else if (a->has[1] && !chat_is_str(a->v[1], "key"))
        return chat_fail(r, ERR_ARG, "dictsort: expected by key or value");
    pairs = f_items(r, v, a);
    if (r->rc != OK)
        return pairs;
    return sorted(r, rank(r, pairs.list, by, chat_truth(a->v[0]), chat_truth(a->v[2])),
                  pairs.list->n);
}

static struct chat_value extreme(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a, int sign)
{
    struct chat_list *in = chat_iterate(r, v);
    struct ranked *ranks = rank(r, in, a->v[1], chat_truth(a->v[0]), false);
    size_t best = 0;

    if (!ranks || in->n == 0)
        return chat_undefined(chat_own(r, "no item", 7));
    for (size_t i = 1; i < in->n && r->rc == OK; i++)
        if (sign * chat_compare(r, ranks[i].key, ranks[best].key) > 0)
            best = i;
    return ranks[best].value;
}

static struct chat_value f_max(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    return extreme(r, v, a, 1);
}

static struct chat_value f_min(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    return extreme(r, v, a, -1);
}

static bool is_unhashable(struct chat_value v)
{
    return v.kind == CHAT_DICT ||
           (v.kind == CHAT_LIST && v.list->kind == CHAT_PLAIN_LIST);
}

static struct chat_value f_unique(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_GENERATOR);
    struct ranked *ranks = rank(r, in, a->v[1], chat_truth(a->v[0]), false);

    for (size_t i = 0; out && ranks && i < in->n && r->rc == OK; i++) {
        bool seen = false;

        if (is_unhashable(ranks[i].key))
            return chat_fail(r, ERR_ARG, "unique of a %s", chat_type_name(ranks[i].key));
        for (size_t k = 0; k < i && !seen && chat_step(r, 1); k++)
            seen = chat_equal(r, ranks[k].key, ranks[i].key);
        if (!seen)
            chat_push(r, out, in->v[i]);
    }
    return chat_list_value(out);
}

static struct chat_value f_sum(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    struct chat_list *in = chat_iterate(r, v);
    struct chat_value sum = a->has[1] ? a->v[1] : chat_int(0, false);
    bool whole = !a->has[0] || a->v[0].kind == CHAT_NONE;

    if (sum.kind == CHAT_STR)
        return chat_fail(r, ERR_ARG, "sum of texts");
    for (size_t i = 0; in && i < in->n && chat_step(r, 1); i++)
        sum = chat_binary(r, CHAT_ADD, sum,
                          whole ? in->v[i] : get_attribute(r, in->v[i], a->v[0], NULL));
    return sum;
}

const struct chat_builtin chat_list_filters[] = {
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
    {"first", "", 0, f_first},
    {"items", "", 0, f_items},
    {"join", "d attribute", 0, f_join},
    {"last", "", 0, f_last},
    {"list", "", 0, f_list},
    {"map", "attribute default", 0, f_map},
    {"max", "case_sensitive attribute", 0, f_max},
    {"min", "case_sensitive attribute", 0, f_min},
    {"reject", "", 0, f_reject},
    {"rejectattr", "attr", 1, f_rejectattr},
    {"reverse", "", 0, f_reverse},
    {"select", "", 0, f_select},
    {"selectattr", "attr", 1, f_selectattr},
    {"sort", "reverse case_sensitive attribute", 0, f_sort},
    {"sum", "attribute start", 0, f_sum},
    {"unique", "case_sensitive attribute", 0, f_unique},
    {0},
};

const struct chat_builtin *chat_in_table(const struct chat_builtin *table,
                                         const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

const struct chat_builtin *chat_filter_named(const char *name, size_t n)
{
    const struct chat_builtin *f = chat_in_table(chat_text_filters, name, n);

    return f ? f : chat_in_table(chat_list_filters, name, n);
}
