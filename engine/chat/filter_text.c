/* Filters of one value. */
#include "chat/impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT_MAX 1000

static struct chat_value f_capitalize(struct chat_run *r, struct chat_value v,
                                      const struct chat_args *a)
{
    (void)a;
    return chat_text(chat_case(r, chat_str_of(r, v), CHAT_CAPITALIZE));
}

static struct chat_value f_lower(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    (void)a;
    return chat_text(chat_case(r, chat_str_of(r, v), CHAT_LOWER));
}

static struct chat_value f_upper(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    (void)a;
    return chat_text(chat_case(r, chat_str_of(r, v), CHAT_UPPER));
}

static struct chat_value f_title(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    (void)a;
    return chat_text(chat_case(r, chat_str_of(r, v), CHAT_TITLE_FILTER));
}

static struct chat_value f_string(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
{
    (void)a;
    if (v.kind == CHAT_STR)
        return v;
    return chat_text(chat_str_of(r, v));
}

static struct chat_value f_safe(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    v = f_string(r, v, a);
    v.markup = v.kind == CHAT_STR;
    return v;
}

static struct chat_value f_trim(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    struct chat_str set = a->v[0].s;

    if (a->has[0] && a->v[0].kind != CHAT_STR && a->v[0].kind != CHAT_NONE)
        return chat_fail(r, ERR_ARG, "trim of a %s", chat_type_name(a->v[0]));
    return chat_text(
        chat_strip(chat_str_of(r, v), a->v[0].kind == CHAT_STR ? &set : NULL, CHAT_BOTH));
}

static struct chat_value f_replace(struct chat_run *r, struct chat_value v,
                                   const struct chat_args *a)
{
    int64_t count = -1;

    if (a->has[2] && a->v[2].kind == CHAT_INT)
        count = a->v[2].i;
    else if (a->has[2] && a->v[2].kind != CHAT_NONE)
        return chat_fail(r, ERR_ARG, "replace: a count of %s", chat_type_name(a->v[2]));
    return chat_text(chat_replace(r, chat_str_of(r, v), chat_str_of(r, a->v[0]),
                                  chat_str_of(r, a->v[1]), count));
}

static struct chat_value f_indent(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
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

static struct chat_value f_length(struct chat_run *r, struct chat_value v,
                                  const struct chat_args *a)
{
    (void)a;
    if (v.kind == CHAT_STR)
        return chat_step(r, v.s.n) ? chat_int((int64_t)chat_n_codes(v.s), true) : v;
    if (v.kind == CHAT_LIST && v.list->kind != CHAT_GENERATOR)
        return chat_int((int64_t)v.list->n, true);
    if (v.kind == CHAT_DICT)
        return chat_int((int64_t)v.dict->n, true);
    if (v.kind == CHAT_UNDEFINED)
        return chat_int(0, false);
    return chat_fail(r, ERR_ARG, "a %s has no length", chat_type_name(v));
}

static struct chat_value f_default(struct chat_run *r, struct chat_value v,
                                   const struct chat_args *a)
{
    if (v.kind != CHAT_UNDEFINED && !(chat_truth(a->v[1]) && !chat_truth(v)))
        return v;
    return a->has[0] ? a->v[0] : chat_text(chat_own(r, "", 0));
}

/* ---- numbers ---- */

/* A text as Python's int() and float() read it, without its underscores. */
static bool number_text(struct chat_str s, char out[64])
{
    size_t n = 0;

    s = chat_strip(s, NULL, CHAT_BOTH);
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

static bool read_float(struct chat_value v, double *out)
{
    char text[64], *end;

    if (chat_is_number(v)) {
        *out = chat_f64(v);
        return true;
    }
    if (v.kind != CHAT_STR || !number_text(v.s, text))
        return false;
    *out = strtod(text, &end);
    return *end == '\0' && end > text;
}

static struct chat_value f_int(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    char text[64], *end;
    bool user = chat_is_user(v);
    double d;

    if (v.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)v.s.n, v.s.p);
    if (a->has[1] && (a->v[1].kind != CHAT_INT || a->v[1].i != 10))
        return chat_fail(r, ERR_UNSUPPORTED, "int of another base than 10");
    if (v.kind == CHAT_INT || v.kind == CHAT_BOOL)
        return chat_int(v.i, user);
    if (v.kind == CHAT_STR && number_text(v.s, text) && !strpbrk(text, ".eE")) {
        long long i = strtoll(text, &end, 10);

        if (*end == '\0' && (i == INT64_MAX || i == INT64_MIN))
            return chat_fail(r, ERR_LIMIT, "a whole number beyond 64 bits");
        if (*end == '\0')
            return chat_int(i, user);
    }
    if (!read_float(v, &d) || !isfinite(d))
        return a->has[0] ? a->v[0] : chat_int(0, false);
    if (fabs(d) >= 0x1p63)
        return chat_fail(r, ERR_LIMIT, "a whole number beyond 64 bits");
    return chat_int((int64_t)d, user);
}

static struct chat_value f_float(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
{
    double d;

    if (v.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)v.s.n, v.s.p);
    if (!read_float(v, &d))
        return a->has[0] ? a->v[0] : chat_float(0, false);
    return chat_float(d, chat_is_user(v));
}

static struct chat_value f_abs(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    (void)a;
    if (v.kind == CHAT_FLOAT)
        return chat_float(fabs(v.f), v.user);
    if (!chat_is_number(v))
        return chat_fail(r, ERR_ARG, "abs of a %s", chat_type_name(v));
    return v.i < 0 ? chat_negative(r, v) : chat_int(v.i, v.user);
}

static struct chat_value f_round(struct chat_run *r, struct chat_value v,
                                 const struct chat_args *a)
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

const struct chat_builtin chat_text_filters[] = {
    {"abs", "", 0, f_abs},
    {"capitalize", "", 0, f_capitalize},
    {"count", "", 0, f_length},
    {"d", "default_value boolean", 0, f_default},
    {"default", "default_value boolean", 0, f_default},
    {"float", "default", 0, f_float},
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
