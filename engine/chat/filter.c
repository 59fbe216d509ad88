/* Filters, and tests: what may stand behind "|" and "is". */
#include "chat/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- of one value ---- */

#define INDENT_MAX 1000

CHAT_RETURNS(f_capitalize, chat_text(chat_case(r, chat_str_of(r, v), CHAT_CAPITALIZE)))
CHAT_RETURNS(f_lower, chat_text(chat_case(r, chat_str_of(r, v), CHAT_LOWER)))
CHAT_RETURNS(f_upper, chat_text(chat_case(r, chat_str_of(r, v), CHAT_UPPER)))
CHAT_RETURNS(f_title, chat_text(chat_case(r, chat_str_of(r, v), CHAT_TITLE_FILTER)))

CHAT_BUILTIN(f_string)
{
    if (v.kind == CHAT_STR)
        return v;
    return chat_text(chat_str_of(r, v));
}

CHAT_BUILTIN(f_safe)
{
    v = f_string(r, v, a);
    v.markup = v.kind == CHAT_STR;
    return v;
}

CHAT_BUILTIN(f_escape)
{
    static const char special[] = "&<>'\"";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct chat_str s = chat_str_of(r, v);
    struct chat_builder b = {.r = r};

    if (v.markup)
        return v;
    for (size_t i = 0; i < s.n && chat_step(r, 0); i++) {
        const char *at = s.p[i] ? strchr(special, s.p[i]) : NULL;

        if (at)
            chat_add_like(&b, entity[at - special], strlen(entity[at - special]),
                          s.own && s.own[i]);
        else
            chat_add(&b, chat_cut(s, i, i + 1));
    }
    return f_safe(r, chat_text(chat_built(&b)), a);
}

CHAT_BUILTIN(f_format)
{
    struct chat_list *values = chat_list_new(r, CHAT_TUPLE);

    for (size_t i = 0; i < chat_n_args(a); i++)
        chat_push(r, values, a->v[i]);
    return chat_binary(r, CHAT_MOD, v.markup ? v : chat_text(chat_str_of(r, v)),
                       chat_list_value(values));
}

CHAT_BUILTIN(f_trim)
{
    struct chat_str set = a->v[0].s;

    if (a->has[0] && a->v[0].kind != CHAT_STR && a->v[0].kind != CHAT_NONE)
        return chat_fail(r, ERR_ARG, "trim of a %s", chat_type_name(a->v[0]));
    return chat_text(chat_strip(r, chat_str_of(r, v),
                                a->v[0].kind == CHAT_STR ? &set : NULL, CHAT_BOTH));
}

CHAT_BUILTIN(f_replace)
{
    int64_t count = -1;

    if (a->has[2] && a->v[2].kind == CHAT_INT)
        count = a->v[2].i;
    else if (a->has[2] && a->v[2].kind != CHAT_NONE)
        return chat_fail(r, ERR_ARG, "replace: a count of %s", chat_type_name(a->v[2]));
    return chat_text(chat_replace(r, chat_str_of(r, v), chat_str_of(r, a->v[0]),
                                  chat_str_of(r, a->v[1]), count));
}

CHAT_BUILTIN(f_indent)
{
    struct chat_builder b = {.r = r}, by = {.r = r};
    struct chat_str indent;
    struct chat_list *lines;
    bool blank = chat_truth(a->v[2]);

    if (v.kind != CHAT_STR)
        return chat_fail(r, ERR_ARG, "indent of a %s", chat_type_name(v));
    if (a->has[0] && a->v[0].kind == CHAT_STR) {
        indent = a->v[0].s;
    } else if (a->has[0] && (a->v[0].kind != CHAT_INT || a->v[0].i > INDENT_MAX)) {
        return chat_fail(r, ERR_ARG, "indent: expected at most %d spaces", INDENT_MAX);
    } else {
        for (int64_t i = 0; i < (a->has[0] ? a->v[0].i : 4); i++)
            chat_add_own(&by, " ");
        indent = chat_built(&by);
    }
    chat_add(&b, v.s);
    chat_add_own(&b, "\n"); /* so that the text behind its last newline is a line */
    lines = chat_lines(r, chat_built(&b));
    b = (struct chat_builder){.r = r};
    for (size_t i = 0; lines && i < lines->n && chat_step(r, 1); i++) {
        if (i > 0)
            chat_add_own(&b, "\n");
        if (i == 0 ? chat_truth(a->v[1]) : blank || lines->v[i].s.n > 0)
            chat_add(&b, indent);
        chat_add(&b, lines->v[i].s);
    }
    return chat_text(chat_built(&b));
}

CHAT_BUILTIN(f_length)
{
    if (v.kind == CHAT_STR)
        return chat_int((int64_t)chat_n_codes(r, v.s), true);
    if (v.kind == CHAT_LIST && v.list->kind != CHAT_GENERATOR)
        return chat_int((int64_t)v.list->n, true);
    if (v.kind == CHAT_DICT)
        return chat_int((int64_t)v.dict->n, true);
    if (v.kind == CHAT_UNDEFINED)
        return chat_int(0, false);
    return chat_fail(r, ERR_ARG, "a %s has no length", chat_type_name(v));
}

CHAT_BUILTIN(f_default)
{
    if (v.kind != CHAT_UNDEFINED && !(chat_truth(a->v[1]) && !chat_truth(v)))
        return v;
    return a->has[0] ? a->v[0] : chat_text(chat_own(r, "", 0));
}

/* ---- numbers ---- */

/* A text as Python's int() and float() read it, without its underscores. */
static bool number_text(struct chat_run *r, struct chat_str s, char out[64])
{
    size_t n = 0;

    s = chat_strip(r, s, NULL, CHAT_BOTH);
    for (size_t i = 0; i < s.n; i++) {
        bool between = i > 0 && i + 1 < s.n && s.p[i - 1] != '_' && s.p[i + 1] != '_';

        if (n == 63 || !strchr("+-.0123456789eE_", s.p[i]) || s.p[i] == '\0' ||
            (s.p[i] == '_' && !between))
            return false;
        if (s.p[i] != '_')
            out[n++] = s.p[i];
    }
    out[n] = '\0';
    return n > 0;
}

static bool read_float(struct chat_run *r, struct chat_value v, double *out)
{
    char text[64], *end;

    if (chat_is_number(v)) {
        *out = chat_f64(v);
        return true;
    }
    if (v.kind != CHAT_STR || !number_text(r, v.s, text))
        return false;
    *out = strtod(text, &end);
    return *end == '\0' && end > text;
}

CHAT_BUILTIN(f_int)
{
    char text[64], *end;
    bool user = chat_is_user(r, v);
    double d;

    if (v.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)v.s.n, v.s.p);
    if (a->has[1] && (a->v[1].kind != CHAT_INT || a->v[1].i != 10))
        return chat_fail(r, ERR_UNSUPPORTED, "int of another base than 10");
    if (v.kind == CHAT_INT || v.kind == CHAT_BOOL)
        return chat_int(v.i, user);
    if (v.kind == CHAT_STR && number_text(r, v.s, text) && !strpbrk(text, ".eE")) {
        long long i = strtoll(text, &end, 10);

        if (*end == '\0' && (i == INT64_MAX || i == INT64_MIN))
            return chat_fail(r, ERR_LIMIT, "a whole number beyond 64 bits");
        if (*end == '\0')
            return chat_int(i, user);
    }
    if (!read_float(r, v, &d) || !isfinite(d))
        return a->has[0] ? a->v[0] : chat_int(0, false);
    if (fabs(d) >= 0x1p63)
        return chat_fail(r, ERR_LIMIT, "a whole number beyond 64 bits");
    return chat_int((int64_t)d, user);
}

CHAT_BUILTIN(f_float)
{
    double d;

    if (v.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)v.s.n, v.s.p);
    if (!read_float(r, v, &d))
        return a->has[0] ? a->v[0] : chat_float(0, false);
    return chat_float(d, chat_is_user(r, v));
}

CHAT_BUILTIN(f_abs)
{
    if (v.kind == CHAT_FLOAT)
        return chat_float(fabs(v.f), v.user);
    if (!chat_is_number(v))
        return chat_fail(r, ERR_ARG, "abs of a %s", chat_type_name(v));
    return v.i < 0 ? chat_negative(r, v) : chat_int(v.i, v.user);
}

CHAT_BUILTIN(f_round)
{
    int64_t digits = a->has[0] && a->v[0].kind == CHAT_INT ? a->v[0].i : 0;
    char text[400];
    double scale;

    if (!chat_is_number(v) || (a->has[0] && a->v[0].kind != CHAT_INT) || digits < 0 ||
        digits > 15 || !isfinite(chat_f64(v)))
        return chat_fail(r, ERR_UNSUPPORTED, "round of a %s to other than 0 to 15 digits",
                         chat_type_name(v));
    if (a->has[1] && (chat_is_str(a->v[1], "ceil") || chat_is_str(a->v[1], "floor"))) {
        scale = pow(10, (double)digits);
        return chat_float((chat_is_str(a->v[1], "ceil") ? ceil(chat_f64(v) * scale)
                                                        : floor(chat_f64(v) * scale)) /
                              scale,
                          v.user);
    }
    if (a->has[1] && !chat_is_str(a->v[1], "common"))
        return chat_fail(r, ERR_ARG, "round: expected common, ceil or floor");
    if (v.kind != CHAT_FLOAT)
        return chat_int(v.i, v.user);
    snprintf(text, sizeof(text), "%.*f", (int)digits, v.f);
    return chat_float(strtod(text, NULL), v.user);
}

static const struct chat_builtin text_filters[] = {
    {"abs", "", 0, f_abs},
    {"capitalize", "", 0, f_capitalize},
    {"count", "", 0, f_length},
    {"d", "default_value boolean", 0, f_default},
    {"default", "default_value boolean", 0, f_default},
    {"e", "", 0, f_escape},
    {"escape", "", 0, f_escape},
    {"float", "default", 0, f_float},
    {"format", CHAT_ANY_ARGS, 0, f_format},
    {"indent", "width first blank", 0, f_indent},
    {"int", "default base", 0, f_int},
    {"length", "", 0, f_length},
    {"lower", "", 0, f_lower},
    {"replace", "old new count", 2, f_replace},
    {"round", "precision method", 0, f_round},
    {"safe", "", 0, f_safe},
    {"string", "", 0, f_string},
    {"title", "", 0, f_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, chat_tojson},
    {"trim", "chars", 0, f_trim},
    {"upper", "", 0, f_upper},
    {0},
};

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
    (void)chat_step(r, s.n);
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

/* These filters make nothing of what is false, such as none. */
static struct chat_list *items_of(struct chat_run *r, struct chat_value v)
{
    return chat_truth(v) ? chat_iterate(r, v) : chat_list_new(r, CHAT_PLAIN_LIST);
}

CHAT_BUILTIN(f_map)
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

CHAT_RETURNS(f_select, choose(r, v, a, false, true))
CHAT_RETURNS(f_reject, choose(r, v, a, false, false))
CHAT_RETURNS(f_selectattr, choose(r, v, a, true, true))
CHAT_RETURNS(f_rejectattr, choose(r, v, a, true, false))

/* ---- parts of a sequence ---- */

CHAT_BUILTIN(f_first)
{
    struct chat_list *l;

    if (v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR)
        return v.list->n_used < v.list->n ? v.list->v[v.list->n_used++]
                                          : chat_undefined(chat_own(r, "first", 5));
    l = chat_iterate(r, v);
    return l && l->n > 0 ? l->v[0] : chat_undefined(chat_own(r, "first", 5));
}

CHAT_BUILTIN(f_last)
{
    struct chat_list *l;

    if (v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR)
        return chat_fail(r, ERR_ARG, "the last of a generator");
    l = chat_iterate(r, v);
    return l && l->n > 0 ? l->v[l->n - 1] : chat_undefined(chat_own(r, "last", 4));
}

CHAT_BUILTIN(f_list)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_PLAIN_LIST);

    for (size_t i = 0; in && out && i < in->n && chat_step(r, 1); i++)
        chat_push(r, out, in->v[i]);
    return chat_list_value(out);
}

CHAT_BUILTIN(f_reverse)
{
    struct chat_list *in = chat_iterate(r, v), *out;
    bool plain = v.kind == CHAT_LIST && v.list->kind == CHAT_GENERATOR;

    out = chat_list_new(r, plain ? CHAT_PLAIN_LIST : CHAT_GENERATOR);
    for (size_t i = in ? in->n : 0; out && i > 0 && chat_step(r, 1); i--)
        chat_push(r, out, in->v[i - 1]);
    if (v.kind == CHAT_STR && out)
        return chat_text(chat_join(r, out, chat_own(r, "", 0), false));
    return chat_list_value(out);
}

CHAT_BUILTIN(f_join)
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

CHAT_BUILTIN(f_items)
{
    struct chat_list *out = chat_list_new(r, CHAT_GENERATOR), *pair;

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
                           struct chat_value attribute,
                           const struct chat_value *otherwise, bool case_sensitive,
                           bool reverse)
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
            whole ? in->v[i] : get_attribute(r, in->v[i], attribute, otherwise);

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

CHAT_BUILTIN(f_sort)
{
    struct chat_list *in = chat_iterate(r, v);

    return sorted(r, rank(r, in, a->v[2], NULL, chat_truth(a->v[1]), chat_truth(a->v[0])),
                  in ? in->n : 0);
}

CHAT_BUILTIN(f_dictsort)
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
    return sorted(r,
                  rank(r, pairs.list, by, NULL, chat_truth(a->v[0]), chat_truth(a->v[2])),
                  pairs.list->n);
}

/* Tuples of what items have in common and these items, in the order of the former. */
CHAT_BUILTIN(f_groupby)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_PLAIN_LIST);
    struct chat_list *pair, *items = NULL;
    const struct chat_value *otherwise =
        a->has[1] && a->v[1].kind != CHAT_NONE ? &a->v[1] : NULL;
    struct ranked *ranks = rank(r, in, a->v[0], otherwise, chat_truth(a->v[2]), false);

    if (ranks)
        qsort(ranks, in->n, sizeof(*ranks), by_rank);
    for (size_t i = 0; out && ranks && i < in->n && r->rc == OK; i++) {
        if (i == 0 || !chat_equal(r, ranks[i].key, ranks[i - 1].key)) {
            pair = chat_list_new(r, CHAT_TUPLE);
            items = chat_list_new(r, CHAT_PLAIN_LIST);
            chat_push(r, pair, get_attribute(r, ranks[i].value, a->v[0], otherwise));
            chat_push(r, pair, chat_list_value(items));
            chat_push(r, out, chat_list_value(pair));
            if (pair)
                pair->group = true;
        }
        chat_push(r, items, ranks[i].value);
    }
    return chat_list_value(out);
}

/* Lists of `size` items; or, of slices, `size` lists, of which the first may have one more. */
static struct chat_value pieces(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a, bool slices)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_GENERATOR);
    size_t n = in ? in->n : 0, size = (size_t)a->v[0].i, i = 0;
    bool fill = a->has[1] && a->v[1].kind != CHAT_NONE;

    if (a->v[0].kind != CHAT_INT || a->v[0].i < 1)
        return chat_fail(r, ERR_ARG, "%s by other than a whole number above 0",
                         a->node->fn->name);
    for (size_t k = 0; (slices ? k < size : i < n) && chat_step(r, 0); k++) {
        struct chat_list *one = chat_list_new(r, CHAT_PLAIN_LIST);
        size_t end = slices ? i + n / size + (k < n % size) : i + size;

        for (; i < end && i < n && chat_step(r, 0); i++)
            chat_push(r, one, in->v[i]);
        for (; fill && !slices && i < end && chat_step(r, 0); i++)
            chat_push(r, one, a->v[1]);
        if (fill && slices && k >= n % size)
            chat_push(r, one, a->v[1]);
        chat_push(r, out, chat_list_value(one));
    }
    return chat_list_value(out);
}

CHAT_RETURNS(f_batch, pieces(r, v, a, false))
CHAT_RETURNS(f_slice, pieces(r, v, a, true))

static struct chat_value extreme(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a, int sign)
{
    struct chat_list *in = chat_iterate(r, v);
    struct ranked *ranks = rank(r, in, a->v[1], NULL, chat_truth(a->v[0]), false);
    size_t best = 0;

    if (!ranks || in->n == 0)
        return chat_undefined(chat_own(r, "no item", 7));
    for (size_t i = 1; i < in->n && r->rc == OK; i++)
        if (sign * chat_compare(r, ranks[i].key, ranks[best].key) > 0)
            best = i;
    return ranks[best].value;
}

CHAT_RETURNS(f_max, extreme(r, v, a, 1))
CHAT_RETURNS(f_min, extreme(r, v, a, -1))

static bool is_unhashable(struct chat_value v)
{
    return v.kind == CHAT_DICT ||
           (v.kind == CHAT_LIST && v.list->kind == CHAT_PLAIN_LIST);
}

CHAT_BUILTIN(f_unique)
{
    struct chat_list *in = chat_iterate(r, v), *out = chat_list_new(r, CHAT_GENERATOR);
    struct ranked *ranks = rank(r, in, a->v[1], NULL, chat_truth(a->v[0]), false);

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

CHAT_BUILTIN(f_sum)
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

static const struct chat_builtin list_filters[] = {
    {"batch", "linecount fill_with", 1, f_batch},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
    {"first", "", 0, f_first},
    {"groupby", "attribute default case_sensitive", 1, f_groupby},
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
    {"slice", "slices fill_with", 1, f_slice},
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
    const struct chat_builtin *f = chat_in_table(text_filters, name, n);

    return f ? f : chat_in_table(list_filters, name, n);
}

/* ---- tests ---- */

#define TEST(name, condition) CHAT_RETURNS(t_##name, chat_bool(condition))

TEST(boolean, v.kind == CHAT_BOOL)
TEST(callable, v.kind == CHAT_MACRO || v.kind == CHAT_METHOD || v.kind == CHAT_LOOP ||
                   v.kind == CHAT_UNDEFINED)
TEST(defined, v.kind != CHAT_UNDEFINED)
TEST(eq, chat_equal(r, v, a->v[0]))
TEST(false, v.kind == CHAT_BOOL && !v.i)
TEST(float, v.kind == CHAT_FLOAT)
TEST(ge, chat_compare(r, v, a->v[0]) >= 0)
TEST(gt, chat_compare(r, v, a->v[0]) > 0)
TEST(in, chat_contains(r, a->v[0], v))
TEST(integer, v.kind == CHAT_INT)
TEST(iterable, v.kind == CHAT_STR || v.kind == CHAT_LIST || v.kind == CHAT_DICT ||
                   v.kind == CHAT_UNDEFINED || v.kind == CHAT_LOOP)
TEST(le, chat_compare(r, v, a->v[0]) <= 0)
TEST(lt, chat_compare(r, v, a->v[0]) < 0)
TEST(mapping, v.kind == CHAT_DICT)
TEST(ne, !chat_equal(r, v, a->v[0]))
TEST(none, v.kind == CHAT_NONE)
TEST(number, chat_is_number(v))
TEST(sameas, v.kind == a->v[0].kind && chat_equal(r, v, a->v[0]) &&
                 ((v.kind != CHAT_LIST && v.kind != CHAT_DICT) || v.list == a->v[0].list))
TEST(sequence, v.kind == CHAT_STR || v.kind == CHAT_DICT || v.kind == CHAT_UNDEFINED ||
                   (v.kind == CHAT_LIST && v.list->kind < CHAT_VIEW))
TEST(string, v.kind == CHAT_STR)
TEST(true, v.kind == CHAT_BOOL && v.i)
TEST(undefined, v.kind == CHAT_UNDEFINED)

static struct chat_value divides(struct chat_run *r, struct chat_value v,
                                 struct chat_value by, int64_t rest)
{
    v = chat_binary(r, CHAT_MOD, v, by);
    return r->rc == OK ? chat_bool(chat_equal(r, v, chat_int(rest, false))) : v;
}

CHAT_RETURNS(t_divisibleby, divides(r, v, a->v[0], 0))
CHAT_RETURNS(t_even, divides(r, v, chat_int(2, false), 0))
CHAT_RETURNS(t_odd, divides(r, v, chat_int(2, false), 1))

static const struct chat_builtin tests[] = {
    {"boolean", "", 0, t_boolean},
    {"callable", "", 0, t_callable},
    {"defined", "", 0, t_defined},
    {"divisibleby", "num", 1, t_divisibleby},
    {"==", "other", 1, t_eq},
    {"eq", "other", 1, t_eq},
    {"equalto", "other", 1, t_eq},
    {"even", "", 0, t_even},
    {"false", "", 0, t_false},
    {"float", "", 0, t_float},
    {">=", "other", 1, t_ge},
    {"ge", "other", 1, t_ge},
    {">", "other", 1, t_gt},
    {"greaterthan", "other", 1, t_gt},
    {"gt", "other", 1, t_gt},
    {"in", "seq", 1, t_in},
    {"integer", "", 0, t_integer},
    {"iterable", "", 0, t_iterable},
    {"<=", "other", 1, t_le},
    {"le", "other", 1, t_le},
    {"<", "other", 1, t_lt},
    {"lessthan", "other", 1, t_lt},
    {"lt", "other", 1, t_lt},
    {"mapping", "", 0, t_mapping},
    {"!=", "other", 1, t_ne},
    {"ne", "other", 1, t_ne},
    {"none", "", 0, t_none},
    {"number", "", 0, t_number},
    {"odd", "", 0, t_odd},
    {"sameas", "other", 1, t_sameas},
    {"sequence", "", 0, t_sequence},
    {"string", "", 0, t_string},
    {"true", "", 0, t_true},
    {"undefined", "", 0, t_undefined},
    {0},
};

const struct chat_builtin *chat_test_named(const char *name, size_t n)
{
    return chat_in_table(tests, name, n);
}
