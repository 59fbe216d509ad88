/* Functions that every template has. */
#include "chat/impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

static struct chat_value call_strftime(struct chat_run *r, const struct chat_node *call)
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
    chat_add_like(&b, text, n, !chat_is_user(v));
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

struct chat_value chat_call_function(struct chat_run *r, const char *name,
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
