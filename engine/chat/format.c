/* Values formatted into texts: Python's operator % and str.format(). */
#include "chat/exec.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 100 /* of a width and a precision */

struct chat_str chat_pad(struct chat_run *r, struct chat_str body, int64_t width,
                         struct chat_str fill, char align)
{
    struct chat_builder b = {.r = r};
    int64_t n = width - (int64_t)chat_n_codes(r, body), left = n;
    size_t sign = align == '=' && body.n > 0 && memchr("+-", body.p[0], 2) != NULL;

    if (align == '<' || align == '^') /* as Python divides an odd number */
        left = align == '<' ? 0 : n / 2 + (n & width & 1);
    chat_add(&b, chat_cut(body, 0, sign));
    for (int64_t i = 0; i < left && chat_step(r, 0); i++)
        chat_add(&b, fill);
    chat_add(&b, chat_cut(body, sign, body.n));
    for (int64_t i = left; i < n && chat_step(r, 0); i++)
        chat_add(&b, fill);
    return chat_built(&b);
}

static bool is_at(struct chat_str s, size_t at, const char *set)
{
    return at < s.n && s.p[at] != '\0' && strchr(set, s.p[at]);
}

static size_t read_number(struct chat_str s, size_t at, int64_t *out)
{
    for (*out = 0; is_at(s, at, "0123456789") && *out <= DIGITS_MAX; at++)
        *out = 10 * *out + s.p[at] - '0';
    return at;
}

/* One value for %s, %d, %i, %f or %x. Not inlined: its buffer would be in the frame of every
 * nested call. */
static __attribute__((noinline)) struct chat_str
converted(struct chat_run *r, struct chat_value v, char type, int precision)
{
    char text[320 + DIGITS_MAX];
    struct chat_builder b = {.r = r};
    bool whole = v.kind == CHAT_INT || v.kind == CHAT_BOOL;

    if (type == 's' && precision < 0)
        return chat_str_of(r, v);
    if (type == 'f' && chat_is_number(v))
        snprintf(text, sizeof(text), "%.*f", precision < 0 ? 6 : precision, chat_f64(v));
    else if ((type == 'd' || type == 'i') && whole && precision < 0)
        snprintf(text, sizeof(text), "%lld", (long long)v.i);
    else if (type == 'x' && whole && precision < 0 && v.i >= 0)
        snprintf(text, sizeof(text), "%llx", (long long)v.i);
    else
        return chat_fail(r, ERR_UNSUPPORTED, "the format %%%c of a %s", type,
                         chat_type_name(v))
            .s;
    chat_add_like(&b, text, strlen(text), !v.user);
    return chat_built(&b);
}

/* Behind a %: [-0][width][.precision]type. */
static size_t put_percent(struct chat_builder *b, struct chat_str s, size_t at,
                          const struct chat_value *v, size_t n, size_t *used)
{
    bool left = is_at(s, at, "-"), zeros = is_at(s, at, "0");
    int64_t width, precision = -1;
    struct chat_str body;
    char type;

    at = read_number(s, at + left, &width);
    if (is_at(s, at, "."))
        at = read_number(s, at + 1, &precision);
    type = at < s.n ? s.p[at] : '\0';
    if (width > DIGITS_MAX || precision > DIGITS_MAX || !is_at(s, at, "sdifx%"))
        chat_fail(b->r, ERR_UNSUPPORTED, "the format \"%%%.*s\"",
                  (int)(s.n - at < 20 ? s.n - at : 20), s.p + at);
    else if (type == '%')
        chat_add_own(b, "%");
    else if (*used == n)
        chat_fail(b->r, ERR_ARG, "a format of more values than the %zu that it gets", n);
    if (b->r->rc != OK || type == '%')
        return at + 1;
    body = converted(b->r, v[(*used)++], type, (int)precision);
    zeros = zeros && type != 's';
    chat_add(b, chat_pad(b->r, body, width, chat_own(b->r, zeros ? "0" : " ", 1),
                         left    ? '<'
                         : zeros ? '='
                                 : '>'));
    return at + 1;
}

struct chat_value chat_percent(struct chat_run *r, struct chat_value format,
                               struct chat_value values)
{
    bool tuple = values.kind == CHAT_LIST && values.list->kind == CHAT_TUPLE;
    const struct chat_value *v = tuple ? values.list->v : &values;
    size_t n = tuple ? values.list->n : 1, used = 0, from = 0, at;
    struct chat_builder b = {.r = r};
    struct chat_str s = format.s;

    while ((at = chat_search(r, s, (struct chat_str){"%", NULL, 1}, from)) != SIZE_MAX) {
        chat_add(&b, chat_cut(s, from, at));
        from = put_percent(&b, s, at + 1, v, n, &used);
    }
    if (used < n && values.kind != CHAT_DICT)
        chat_fail(r, ERR_ARG, "a format of %zu values gets %zu", used, n);
    if (r->rc == OK)
        chat_add(&b, chat_cut(s, from, s.n));
    return chat_text(chat_built(&b));
}

struct chat_value chat_format(struct chat_run *r, struct chat_str s,
                              const struct chat_value *values, size_t n)
{
    struct chat_builder b = {.r = r};
    size_t from = 0, used = 0, end;
    int64_t number;

    for (size_t at = 0; at < s.n && chat_step(r, 0); at++) {
        if (s.p[at] != '{' && s.p[at] != '}')
            continue;
        chat_add(&b, chat_cut(s, from, at));
        from = at + 1;
        if (from < s.n && s.p[from] == s.p[at]) { /* a brace written twice is one */
            at++;
            continue;
        }
        end = read_number(s, from, &number);
        if (s.p[at] == '}' || !is_at(s, end, "}"))
            return chat_fail(r, ERR_UNSUPPORTED, "a field other than {} and {0}");
        if (end == from)
            number = (int64_t)used++;
        if (number >= (int64_t)n)
            return chat_fail(r, ERR_ARG, "a format of field %lld of %zu values",
                             (long long)number, n);
        chat_add(&b, chat_str_of(r, values[number]));
        from = end + 1;
        at = end;
    }
    chat_add(&b, chat_cut(s, from, s.n));
    return chat_text(chat_built(&b));
}
