/* Operators, attributes and subscripts. */
#include "chat/exec.h"

#include <math.h>
#include <string.h>

static struct chat_value overflow(struct chat_run *r)
{
    return chat_fail(r, ERR_LIMIT, "a whole number beyond 64 bits");
}

static struct chat_value ints(struct chat_run *r, enum chat_op op, int64_t a, int64_t b,
                              bool user)
{
    int64_t v = 0;

    switch (op) {
    case CHAT_ADD:
        return __builtin_add_overflow(a, b, &v) ? overflow(r) : chat_int(v, user);
    case CHAT_SUB:
        return __builtin_sub_overflow(a, b, &v) ? overflow(r) : chat_int(v, user);
    case CHAT_MUL:
        return __builtin_mul_overflow(a, b, &v) ? overflow(r) : chat_int(v, user);
    case CHAT_FLOORDIV:
    case CHAT_MOD:
        if (b == 0)
            return chat_fail(r, ERR_ARG, "division by zero");
        if (a == INT64_MIN && b == -1)
            return op == CHAT_MOD ? chat_int(0, user) : overflow(r);
        v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        return chat_int(op == CHAT_MOD ? a - v * b : v, user);
    default: /* CHAT_POW of b >= 0 */
        for (v = 1; b > 0; b--) {
            if (!chat_step(r, 1))
                break;
            if (__builtin_mul_overflow(v, a, &v))
                return overflow(r);
            if (v == 0 || (v == 1 && a == 1))
                break;
        }
        return chat_int(v, user);
    }
}

static struct chat_value floats(struct chat_run *r, enum chat_op op, double a, double b,
                                bool user)
{
    double v, rest;

    if ((op == CHAT_DIV || op == CHAT_FLOORDIV || op == CHAT_MOD) && b == 0)
        return chat_fail(r, ERR_ARG, "division by zero");
    switch (op) {
    case CHAT_ADD:
        return chat_float(a + b, user);
    case CHAT_SUB:
        return chat_float(a - b, user);
    case CHAT_MUL:
        return chat_float(a * b, user);
    case CHAT_DIV:
        return chat_float(a / b, user);
    case CHAT_FLOORDIV: /* of the exact remainder, as CPython has it: 7 // 0.1 is 69 */
    case CHAT_MOD:
        rest = fmod(a, b);
        v = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
            rest += b;
            v -= 1;
        }
        if (op == CHAT_MOD)
            return chat_float(rest != 0 ? rest : copysign(0, b), user);
        return chat_float(v != 0 ? floor(v) + (v - floor(v) > 0.5) : copysign(0, a / b),
                          user);
    default:
        v = pow(a, b);
        if (!isfinite(v) || (a < 0 && b != floor(b)))
            return chat_fail(r, ERR_ARG, "a power that is not a finite real number");
        return chat_float(v, user);
    }
}

static struct chat_value numbers(struct chat_run *r, enum chat_op op, struct chat_value a,
                                 struct chat_value b)
{
    bool user = a.user || b.user;

    if (op != CHAT_DIV && a.kind != CHAT_FLOAT && b.kind != CHAT_FLOAT &&
        (op != CHAT_POW || b.i >= 0))
        return ints(r, op, a.i, b.i, user);
    return floats(r, op, chat_f64(a), chat_f64(b), user);
}

static struct chat_value repeat(struct chat_run *r, struct chat_value v, int64_t n)
{
    struct chat_builder b = {.r = r};
    struct chat_list *l;

    if (v.kind == CHAT_STR) {
        for (int64_t i = 0; i < n && v.s.n > 0 && chat_step(r, v.s.n); i++)
            chat_add(&b, v.s);
        return chat_text(chat_built(&b));
    }
    l = chat_list_new(r, v.list->kind);
    for (int64_t i = 0; l && i < n && v.list->n > 0 && r->rc == OK; i++)
        for (size_t k = 0; k < v.list->n && chat_step(r, 1); k++)
            chat_push(r, l, v.list->v[k]);
    return chat_list_value(l);
}

static bool is_sequence(struct chat_value v)
{
    return v.kind == CHAT_STR || (v.kind == CHAT_LIST && v.list->kind <= CHAT_TUPLE);
}

static bool is_whole(struct chat_value v)
{
    return v.kind == CHAT_INT || v.kind == CHAT_BOOL;
}

static struct chat_value concatenated(struct chat_run *r, struct chat_value a,
                                      struct chat_value b)
{
    struct chat_builder text = {.r = r};
    struct chat_list *l;

    if (a.kind == CHAT_STR) {
        chat_add(&text, a.s);
        chat_add(&text, b.s);
        return chat_text(chat_built(&text));
    }
    l = chat_list_new(r, a.list->kind);
    for (size_t i = 0; i < a.list->n && chat_step(r, 1); i++)
        chat_push(r, l, a.list->v[i]);
    for (size_t i = 0; i < b.list->n && chat_step(r, 1); i++)
        chat_push(r, l, b.list->v[i]);
    return chat_list_value(l);
}

struct chat_value chat_binary(struct chat_run *r, enum chat_op op, struct chat_value a,
                              struct chat_value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};

    if (r->rc != OK)
        return chat_none();
    if (op == CHAT_MOD && a.kind == CHAT_STR && !a.markup)
        return chat_percent(r, a, b);
    if (a.kind == CHAT_UNDEFINED || b.kind == CHAT_UNDEFINED) {
        const struct chat_value *u = a.kind == CHAT_UNDEFINED ? &a : &b;

        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)u->s.n, u->s.p);
    }
    if (a.markup || b.markup)
        return chat_fail(r, ERR_UNSUPPORTED,
                         "the operator %s on a text of the filter \"safe\"", names[op]);
    if (chat_is_number(a) && chat_is_number(b))
        return numbers(r, op, a, b);
    if (op == CHAT_ADD && is_sequence(a) && is_sequence(b) && a.kind == b.kind &&
        (a.kind == CHAT_STR || a.list->kind == b.list->kind))
        return concatenated(r, a, b);
    if (op == CHAT_MUL && is_sequence(a) && is_whole(b))
        return repeat(r, a, b.i);
    if (op == CHAT_MUL && is_whole(a) && is_sequence(b))
        return repeat(r, b, a.i);
    return chat_fail(r, ERR_ARG, "the operator %s of %s and %s", names[op],
                     chat_type_name(a), chat_type_name(b));
}

struct chat_value chat_negative(struct chat_run *r, struct chat_value v)
{
    if (v.kind == CHAT_FLOAT)
        return chat_float(-v.f, v.user);
    if (is_whole(v))
        return v.i == INT64_MIN ? overflow(r) : chat_int(-v.i, v.user);
    return chat_fail(r, ERR_ARG, "a sign before a %s", chat_type_name(v));
}

/* ---- items ---- */

bool chat_contains(struct chat_run *r, struct chat_value box, struct chat_value v)
{
    struct chat_list *l;

    if (box.kind == CHAT_STR && v.kind == CHAT_STR)
        return chat_search(r, box.s, v.s, 0) != SIZE_MAX;
    if (box.kind == CHAT_DICT)
        return chat_find(r, box.dict, v) != NULL;
    if (box.kind != CHAT_LIST && box.kind != CHAT_UNDEFINED) {
        chat_fail(r, ERR_ARG, "\"in\" of %s and %s", chat_type_name(v),
                  chat_type_name(box));
        return false;
    }
    l = chat_iterate(r, box);
    for (size_t i = 0; l && i < l->n && r->rc == OK; i++)
        if (chat_equal(r, l->v[i], v))
            return true;
    return false;
}

struct chat_list *chat_iterate(struct chat_run *r, struct chat_value v)
{
    struct chat_list *l;

    switch (v.kind) {
    case CHAT_UNDEFINED:
        return chat_list_new(r, CHAT_PLAIN_LIST);
    case CHAT_STR:
        return chat_chars(r, v.s);
    case CHAT_LIST:
        if (v.list->kind != CHAT_GENERATOR)
            return v.list;
        l = chat_list_new(r, CHAT_PLAIN_LIST);
        for (size_t i = v.list->n_used; l && i < v.list->n && chat_step(r, 0); i++)
            chat_push(r, l, v.list->v[i]);
        v.list->n_used = v.list->n;
        return l;
    case CHAT_DICT:
        l = chat_list_new(r, CHAT_PLAIN_LIST);
        for (size_t i = 0; l && i < v.dict->n && chat_step(r, 1); i++)
            chat_push(r, l, v.dict->pair[i].key);
        return l;
    default:
        chat_fail(r, ERR_ARG, "a %s cannot be iterated", chat_type_name(v));
        return NULL;
    }
}

/* ---- attributes and subscripts ---- */

static struct chat_value missing(struct chat_run *r, struct chat_value obj,
                                 struct chat_str name)
{
    if (obj.kind == CHAT_UNDEFINED)
        return chat_fail(r, ERR_ARG, "\"%.*s\" is not defined", (int)obj.s.n, obj.s.p);
    return chat_undefined(name);
}

static struct chat_value read_pair(struct chat_pair *p)
{
    p->read = true;
    return p->value;
}

struct chat_value chat_attr(struct chat_run *r, struct chat_value obj,
                            struct chat_str name)
{
    struct chat_pair *p = NULL;

    if (obj.kind == CHAT_LOOP)
        return chat_loop_attr(r, obj.loop, name);
    if (chat_is_attribute(obj, name.p, name.n))
        return (struct chat_value){.kind = CHAT_METHOD};
    if (obj.kind == CHAT_LIST && obj.list->group &&
        (chat_str_is(name, "grouper") || chat_str_is(name, "list")))
        return obj.list->v[name.p[0] == 'l'];
    if (obj.kind == CHAT_DICT || obj.kind == CHAT_NAMESPACE)
        p = chat_find_str(r, obj.dict, name.p, name.n);
    return p ? read_pair(p) : missing(r, obj, name);
}

/* The place of index i in n items; SIZE_MAX: outside. */
static size_t place(int64_t i, size_t n)
{
    if (i < 0)
        i += (int64_t)n;
    return i >= 0 && (uint64_t)i < n ? (size_t)i : SIZE_MAX;
}

/* The byte where character `at` begins. */
static size_t byte_of(struct chat_str s, size_t at)
{
    size_t i = 0, len;

    for (; at > 0 && i < s.n; at--, i += len)
        (void)chat_code_at(s, i, &len);
    return i;
}

static struct chat_value char_at(struct chat_run *r, struct chat_str s, int64_t index)
{
    size_t at = place(index, chat_n_codes(r, s)), len;

    if (at == SIZE_MAX)
        return chat_undefined(chat_own(r, "index", 5));
    at = byte_of(s, at);
    (void)chat_code_at(s, at, &len);
    return chat_text(chat_cut(s, at, at + len));
}

struct chat_value chat_item(struct chat_run *r, struct chat_value obj,
                            struct chat_value key)
{
    struct chat_pair *p;
    size_t at;

    if (obj.kind == CHAT_DICT && key.kind != CHAT_LIST && key.kind != CHAT_DICT) {
        p = chat_find(r, obj.dict, key);
        if (p)
            return read_pair(p);
    } else if (obj.kind == CHAT_STR && is_whole(key)) {
        return char_at(r, obj.s, key.i);
    } else if (obj.kind == CHAT_LIST && obj.list->kind < CHAT_VIEW && is_whole(key)) {
        at = place(key.i, obj.list->n);
        return at == SIZE_MAX ? chat_undefined(chat_own(r, "index", 5)) : obj.list->v[at];
    }
    if (key.kind != CHAT_STR)
        return missing(r, obj, chat_own(r, "subscript", 9));
    if (obj.kind == CHAT_DICT && !chat_is_attribute(obj, key.s.p, key.s.n))
        return missing(r, obj, key.s);
    return chat_attr(r, obj, key.s);
}

/* Python's rule for the three parts of a slice of n items: from, to and step. */
static bool bounds(struct chat_run *r, const struct chat_value bound[3], int64_t n,
                   int64_t out[3])
{
    int64_t step = 1, low, high;

    for (int i = 0; i < 3; i++) {
        if (bound[i].kind == CHAT_NONE || is_whole(bound[i]))
            continue;
        chat_fail(r, ERR_ARG, "a slice by %s", chat_type_name(bound[i]));
        return false;
    }
    if (bound[2].kind != CHAT_NONE)
        step = bound[2].i;
    if (step == 0 || step == INT64_MIN) {
        chat_fail(r, ERR_ARG, "a slice of step %s",
                  step == 0 ? "zero" : "beyond 63 bits");
        return false;
    }
    low = step > 0 ? 0 : -1;
    high = step > 0 ? n : n - 1;
    for (int i = 0; i < 2; i++) {
        int64_t v = bound[i].kind == CHAT_NONE ? 0 : bound[i].i;

        if (bound[i].kind == CHAT_NONE)
            out[i] = (i == 0) == (step > 0) ? low : high;
        else if (v < 0)
            out[i] = v < -n ? low : v + n;
        else
            out[i] = v > high ? high : v;
    }
    out[2] = step;
    return true;
}

static bool in_slice(int64_t i, const int64_t at[3])
{
    return at[2] > 0 ? i < at[1] : i > at[1];
}

static int64_t after(int64_t i, const int64_t at[3])
{
    int64_t next;

    return __builtin_add_overflow(i, at[2], &next) ? at[1] : next;
}

static struct chat_value slice_text(struct chat_run *r, struct chat_str s,
                                    const int64_t at[3])
{
    struct chat_builder b = {.r = r};
    struct chat_list *chars;
    size_t from;

    if (at[2] == 1) {
        if (at[1] <= at[0])
            return chat_text(chat_cut(s, 0, 0));
        from = byte_of(s, (size_t)at[0]);
        s = chat_cut(s, from, s.n);
        return chat_text(chat_cut(s, 0, byte_of(s, (size_t)(at[1] - at[0]))));
    }
    chars = chat_chars(r, s);
    for (int64_t i = at[0]; chars && r->rc == OK && in_slice(i, at); i = after(i, at))
        chat_add(&b, chars->v[i].s);
    return chat_text(chat_built(&b));
}

struct chat_value chat_slice(struct chat_run *r, struct chat_value obj,
                             const struct chat_value bound[3])
{
    struct chat_list *l;
    int64_t at[3];

    if (obj.kind == CHAT_STR) {
        if (!bounds(r, bound, (int64_t)chat_n_codes(r, obj.s), at))
            return chat_none();
        return slice_text(r, obj.s, at);
    }
    if (obj.kind != CHAT_LIST || obj.list->kind >= CHAT_VIEW)
        return chat_fail(r, ERR_ARG, "a slice of %s", chat_type_name(obj));
    if (!bounds(r, bound, (int64_t)obj.list->n, at))
        return chat_none();
    l = chat_list_new(r, obj.list->kind);
    for (int64_t i = at[0]; l && in_slice(i, at) && chat_step(r, 1); i = after(i, at))
        chat_push(r, l, obj.list->v[i]);
    return chat_list_value(l);
}
