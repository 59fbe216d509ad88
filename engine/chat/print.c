/* Values as texts, as Python writes them, and as JSON. Brackets and quotes count as
 * of users, whose data they hold. */
#include "chat/impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT_MAX 1000

static void put(struct chat_builder *b, const char *s)
{
    chat_add_user(b, s, strlen(s));
}

/* The fewest digits that give the same number, as Python writes them. */
void chat_add_float(char out[40], double v)
{
    char digits[40], *e;
    int precision = 0, exponent, n;

    if (!isfinite(v)) {
        snprintf(out, 40, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof(digits), "%.*e", precision, v);
    while (strtod(digits, NULL) != v && ++precision < 17);
    e = strchr(digits, 'e');
    exponent = atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        *e = '\0';
        snprintf(out, 40, "%.25se%c%02d", digits, exponent < 0 ? '-' : '+',
                 abs(exponent));
        return;
    }
    n = precision > exponent ? precision - exponent : 1;
    snprintf(out, 40, "%.*f", n, v);
}

static void put_number(struct chat_builder *b, struct chat_value v)
{
    char text[40];

    if (v.kind == CHAT_FLOAT)
        chat_add_float(text, v.f);
    else
        snprintf(text, sizeof(text), "%lld", (long long)v.i);
    chat_add_like(b, text, strlen(text), !v.user);
}

static void put_code_escape(struct chat_builder *b, int32_t c, bool own, bool json)
{
    char text[16];

    if (json && c > 0xFFFF)
        snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                 0xDC00 + ((c - 0x10000) & 0x3FF));
    else if (json || (c > 0xFF && c <= 0xFFFF))
        snprintf(text, sizeof(text), "\\u%04x", c);
    else
        snprintf(text, sizeof(text), c > 0xFFFF ? "\\U%08x" : "\\x%02x", c);
    chat_add_like(b, text, strlen(text), own);
}

static void put_repr_str(struct chat_builder *b, struct chat_str s)
{
    const char *quote = memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? "\"" : "'";
    size_t len;

    put(b, quote);
    for (size_t i = 0; i < s.n && chat_step(b->r, 1); i += len) {
        int32_t c = chat_code_at(s, i, &len);
        bool own = s.own && s.own[i];
        char escaped[3] = {'\\', (char)c, 0};

        if (c == '\n' || c == '\r' || c == '\t') {
            escaped[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
            chat_add_like(b, escaped, 2, own);
        } else if (c == '\\' || c == quote[0]) {
            chat_add_like(b, escaped, 2, own);
        } else if (!chat_is_printable(c)) {
            put_code_escape(b, c, own, false);
        } else {
            chat_add(b, chat_cut(s, i, i + len));
        }
    }
    put(b, quote);
}

static void put_repr(struct chat_builder *b, struct chat_value v);

static bool enter(struct chat_builder *b)
{
    if (++b->r->depth > CHAT_DEPTH_MAX)
        chat_fail(b->r, ERR_LIMIT, "values are nested too deep");
    return chat_step(b->r, 1);
}

static void put_list(struct chat_builder *b, const struct chat_list *l)
{
    bool tuple = l->kind == CHAT_TUPLE;

    if (l->kind > CHAT_TUPLE) {
        chat_fail(b->r, ERR_UNSUPPORTED, "writing a %s, which is not a list",
                  chat_type_name((struct chat_value){.kind = CHAT_LIST,
                                                     .list = (struct chat_list *)l}));
        return;
    }
    put(b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && b->r->rc == OK; i++) {
        put(b, i > 0 ? ", " : "");
        put_repr(b, l->v[i]);
    }
    put(b, tuple ? l->n == 1 ? ",)" : ")" : "]");
}

static void put_dict(struct chat_builder *b, struct chat_dict *d)
{
    put(b, "{");
    for (size_t i = 0; i < d->n && b->r->rc == OK; i++) {
        d->pair[i].read = true;
        put(b, i > 0 ? ", " : "");
        put_repr(b, d->pair[i].key);
        put(b, ": ");
        put_repr(b, d->pair[i].value);
    }
    put(b, "}");
}

static void put_str(struct chat_builder *b, struct chat_value v)
{
    switch (v.kind) {
    case CHAT_UNDEFINED:
        break;
    case CHAT_NONE:
        chat_add_own(b, "None");
        break;
    case CHAT_BOOL:
        chat_add_own(b, v.i ? "True" : "False");
        break;
    case CHAT_INT:
    case CHAT_FLOAT:
        put_number(b, v);
        break;
    case CHAT_STR:
        chat_add(b, v.s);
        break;
    case CHAT_LIST:
    case CHAT_DICT:
        if (enter(b) && v.kind == CHAT_LIST)
            put_list(b, v.list);
        else if (b->r->rc == OK)
            put_dict(b, v.dict);
        b->r->depth--;
        break;
    default:
        chat_fail(b->r, ERR_UNSUPPORTED, "writing a %s", chat_type_name(v));
    }
}

static void put_repr(struct chat_builder *b, struct chat_value v)
{
    if (v.kind == CHAT_STR)
        put_repr_str(b, v.s);
    else if (v.kind == CHAT_UNDEFINED)
        chat_add_own(b, "Undefined");
    else
        put_str(b, v);
}

struct chat_str chat_str_of(struct chat_run *r, struct chat_value v)
{
    struct chat_builder b = {.r = r};

    if (v.kind == CHAT_STR)
        return v.s;
    put_str(&b, v);
    return chat_built(&b);
}

/* ---- JSON ---- */

struct json_style {
    bool ascii, sort, lines;
    struct chat_str indent, comma, colon;
};

static void put_json_str(struct chat_builder *b, struct chat_str s, bool ascii)
{
    static const char plain[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    size_t len;

    put(b, "\"");
    for (size_t i = 0; i < s.n && chat_step(b->r, 1); i += len) {
        int32_t c = chat_code_at(s, i, &len);
        bool own = s.own && s.own[i];
        const char *at = c > 0 && c < 128 ? strchr(plain, c) : NULL;
        char escaped[2] = {'\\', at ? letter[at - plain] : ' '};

        if (at)
            chat_add_like(b, escaped, 2, own);
        else if (c < 0x20 || (ascii && c > 0x7E))
            put_code_escape(b, c, own, true);
        else
            chat_add(b, chat_cut(s, i, i + len));
    }
    put(b, "\"");
}

static void put_json(struct chat_builder *b, struct chat_value v,
                     const struct json_style *y, int level);

static void put_line(struct chat_builder *b, const struct json_style *y, int level)
{
    if (!y->lines)
        return;
    put(b, "\n");
    for (int i = 0; i < level; i++)
        chat_add(b, y->indent);
}

static void put_json_scalar(struct chat_builder *b, struct chat_value v)
{
    if (v.kind == CHAT_NONE)
        put(b, "null");
    else if (v.kind == CHAT_BOOL)
        put(b, v.i ? "true" : "false");
    else if (v.kind == CHAT_FLOAT && !isfinite(v.f))
        put(b, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else if (v.kind == CHAT_INT || v.kind == CHAT_FLOAT)
        put_number(b, v);
    else
        chat_fail(b->r, ERR_ARG, "tojson of a %s", chat_type_name(v));
}

static void put_json_key(struct chat_builder *b, struct chat_value key,
                         const struct json_style *y)
{
    if (key.kind == CHAT_STR) {
        put_json_str(b, key.s, y->ascii);
        return;
    }
    put(b, "\"");
    put_json_scalar(b, key);
    put(b, "\"");
}

static int by_key(const void *pa, const void *pb, void *ctx)
{
    const struct chat_pair *const *a = pa, *const *b = pb;

    return chat_compare(ctx, (*a)->key, (*b)->key);
}

static void put_json_dict(struct chat_builder *b, const struct chat_dict *d,
                          const struct json_style *y, int level)
{
    struct chat_pair **pairs = chat_new(b->r, d->n, sizeof(struct chat_pair *));

    for (size_t i = 0; pairs && i < d->n; i++) {
        pairs[i] = &d->pair[i];
        pairs[i]->read = true;
    }
    if (pairs && y->sort)
        qsort_r(pairs, d->n, sizeof(*pairs), by_key, b->r);
    put(b, "{");
    for (size_t i = 0; pairs && i < d->n && b->r->rc == OK; i++) {
        if (i > 0)
            chat_add(b, y->comma);
        put_line(b, y, level + 1);
        put_json_key(b, pairs[i]->key, y);
        chat_add(b, y->colon);
        put_json(b, pairs[i]->value, y, level + 1);
    }
    if (d->n > 0)
        put_line(b, y, level);
    put(b, "}");
}

static void put_json_list(struct chat_builder *b, const struct chat_list *l,
                          const struct json_style *y, int level)
{
    put(b, "[");
    for (size_t i = 0; i < l->n && b->r->rc == OK; i++) {
        if (i > 0)
            chat_add(b, y->comma);
        put_line(b, y, level + 1);
        put_json(b, l->v[i], y, level + 1);
    }
    if (l->n > 0)
        put_line(b, y, level);
    put(b, "]");
}

static void put_json(struct chat_builder *b, struct chat_value v,
                     const struct json_style *y, int level)
{
    if (enter(b)) {
        if (v.kind == CHAT_STR)
            put_json_str(b, v.s, y->ascii);
        else if (v.kind == CHAT_DICT)
            put_json_dict(b, v.dict, y, level);
        else if (v.kind == CHAT_LIST && v.list->kind <= CHAT_TUPLE)
            put_json_list(b, v.list, y, level);
        else
            put_json_scalar(b, v);
    }
    b->r->depth--;
}

static bool read_indent(struct chat_run *r, struct chat_value v, struct json_style *y)
{
    struct chat_builder b = {.r = r};

    y->lines = true;
    if (v.kind == CHAT_STR) {
        y->indent = v.s;
        return true;
    }
    if ((v.kind != CHAT_INT && v.kind != CHAT_BOOL) || v.i > INDENT_MAX) {
        chat_fail(r, ERR_ARG, "tojson: an indent of %s, expected at most %d spaces",
                  chat_type_name(v), INDENT_MAX);
        return false;
    }
    for (int64_t i = 0; i < v.i; i++)
        put(&b, " ");
    y->indent = chat_built(&b);
    return true;
}

/* ensure_ascii, indent, separators, sort_keys */
struct chat_value chat_tojson(struct chat_run *r, struct chat_value v,
                              const struct chat_args *a)
{
    struct json_style y = {.ascii = chat_truth(a->v[0]), .sort = chat_truth(a->v[3])};
    struct chat_builder b = {.r = r};
    const struct chat_value *s = &a->v[2];

    if (a->has[1] && a->v[1].kind != CHAT_NONE && !read_indent(r, a->v[1], &y))
        return chat_none();
    y.comma = (struct chat_str){", ", NULL, y.lines ? 1 : 2};
    y.colon = (struct chat_str){": ", NULL, 2};
    if (a->has[2] && s->kind != CHAT_NONE) {
        if (s->kind != CHAT_LIST || s->list->n != 2 || s->list->v[0].kind != CHAT_STR ||
            s->list->v[1].kind != CHAT_STR)
            return chat_fail(r, ERR_ARG, "tojson: expected two texts as separators");
        y.comma = s->list->v[0].s;
        y.colon = s->list->v[1].s;
    }
    put_json(&b, v, &y, 0);
    return chat_text(chat_built(&b));
}
