/* Values as Python has them: made, compared and read; and the memory and the first error of a
 * rendering. */
#include "chat/value.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "chat/parse.h"

/* ---- memory ---- */

#define BLOCK_BYTES ((size_t)32 << 10)

struct chat_block {
    struct chat_block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
};

void *chat_arena_new(struct chat_arena *a, size_t n, int *rc)
{
    struct chat_block *b = a->blocks;
    size_t size;

    n = (n + 15) & ~(size_t)15;
    if (n > a->max || a->used > a->max - n) {
        *rc = err_set(ERR_LIMIT, "it needs more than %zu MiB of memory", a->max >> 20);
        return NULL;
    }
    if (!b || b->size - b->used < n) {
        size = n > BLOCK_BYTES / 4 ? n : BLOCK_BYTES;
        b = mem_new(MEM_OTHER, sizeof(*b) + size, 1);
        if (!b) {
            *rc = ERR_NOMEM;
            return NULL;
        }
        b->size = size;
        if (a->blocks &&
            size == n) { /* its own block, behind the one that has space left */
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    b->used += n;
    a->used += n;
    return b->bytes + b->used - n;
}

void chat_arena_fini(struct chat_arena *a)
{
    struct chat_block *next;

    for (struct chat_block *b = a->blocks; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    *a = (struct chat_arena){.max = a->max};
}

/* ---- a rendering ---- */

struct chat_value chat_fail(struct chat_run *r, int code, const char *fmt, ...)
{
    char why[400];
    va_list args;

    if (r->rc != OK)
        return chat_none();
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    r->rc = err_set(code, "chat template: line %d, column %d: %s",
                    r->at ? r->at->line : 1, r->at ? r->at->column : 1, why);
    return chat_none();
}

bool chat_step(struct chat_run *r, size_t bytes)
{
    r->n_steps += 1 + (int64_t)(bytes / 16);
    if (r->n_steps > CHAT_STEPS_MAX)
        chat_fail(r, ERR_LIMIT, "it takes more than %d steps", CHAT_STEPS_MAX);
    return r->rc == OK;
}

void *chat_new(struct chat_run *r, size_t n, size_t size)
{
    void *p = NULL;
    int rc = OK;

    if (r->rc != OK)
        return NULL;
    if (n > CHAT_BYTES_MAX / size)
        chat_fail(r, ERR_LIMIT, "a value of more than %zu MiB", CHAT_BYTES_MAX >> 20);
    else
        p = chat_arena_new(&r->arena, n * size, &rc);
    if (rc != OK)
        r->rc = rc == ERR_LIMIT ? err_prefix(rc, "chat template") : rc;
    return p;
}

/* ---- making ---- */

struct chat_value chat_undefined(struct chat_str name)
{
    return (struct chat_value){.kind = CHAT_UNDEFINED, .s = name};
}

struct chat_value chat_none(void)
{
    return (struct chat_value){.kind = CHAT_NONE};
}

struct chat_value chat_bool(bool v)
{
    return (struct chat_value){.kind = CHAT_BOOL, .i = v};
}

struct chat_value chat_int(int64_t v, bool user)
{
    return (struct chat_value){.kind = CHAT_INT, .user = user, .i = v};
}

struct chat_value chat_float(double v, bool user)
{
    return (struct chat_value){.kind = CHAT_FLOAT, .user = user, .f = v};
}

struct chat_value chat_text(struct chat_str s)
{
    return (struct chat_value){.kind = CHAT_STR, .s = s};
}

struct chat_str chat_own(struct chat_run *r, const char *s, size_t n)
{
    if (n > r->n_ones) {
        size_t grown = 2 * n + 256;
        char *ones = chat_new(r, grown, 1);

        if (!ones)
            return (struct chat_str){"", NULL, 0};
        memset(ones, 1, grown);
        r->ones = ones;
        r->n_ones = grown;
    }
    return (struct chat_str){s, r->ones, n};
}

struct chat_str chat_cut(struct chat_str s, size_t from, size_t to)
{
    return (struct chat_str){s.p + from, s.own ? s.own + from : NULL, to - from};
}

struct chat_list *chat_list_new(struct chat_run *r, enum chat_list_kind kind)
{
    struct chat_list *l = chat_new(r, 1, sizeof(*l));

    if (l)
        l->kind = kind;
    return l;
}

/* Twice the capacity for an array of n; what was there stays in the arena. */
static void *grown(struct chat_run *r, const void *old, size_t n, size_t *capacity,
                   size_t size)
{
    size_t to = 2 * *capacity + 4;
    void *p = chat_new(r, to, size);

    if (!p)
        return NULL;
    if (n > 0)
        memcpy(p, old, n * size);
    *capacity = to;
    return p;
}

void chat_push(struct chat_run *r, struct chat_list *l, struct chat_value v)
{
    struct chat_value *p;

    if (!l || r->rc != OK)
        return;
    if (l->n == l->capacity) {
        p = grown(r, l->v, l->n, &l->capacity, sizeof(*p));
        if (!p)
            return;
        l->v = p;
    }
    l->v[l->n++] = v;
}

struct chat_value chat_list_value(struct chat_list *l)
{
    return l ? (struct chat_value){.kind = CHAT_LIST, .list = l} : chat_none();
}

struct chat_dict *chat_dict_new(struct chat_run *r)
{
    return chat_new(r, 1, sizeof(struct chat_dict));
}

struct chat_pair *chat_find_str(struct chat_run *r, const struct chat_dict *d,
                                const char *s, size_t n)
{
    size_t i = 0, bytes = 0;

    for (; i < d->n; i++) {
        const struct chat_value *k = &d->pair[i].key;

        if (k->kind != CHAT_STR || k->s.n != n)
            continue;
        bytes += n;
        if (memcmp(k->s.p, s, n) == 0)
            break;
    }
    return chat_step(r, i + bytes) && i < d->n ? &d->pair[i] : NULL;
}

struct chat_pair *chat_find(struct chat_run *r, const struct chat_dict *d,
                            struct chat_value key)
{
    if (key.kind == CHAT_LIST || key.kind == CHAT_DICT) {
        if (key.kind == CHAT_DICT || key.list->kind == CHAT_PLAIN_LIST)
            chat_fail(r, ERR_ARG, "a %s cannot be the key of a mapping",
                      chat_type_name(key));
        return NULL;
    }
    if (key.kind == CHAT_STR)
        return chat_find_str(r, d, key.s.p, key.s.n);
    for (size_t i = 0; i < d->n; i++)
        if (chat_equal(r, d->pair[i].key, key))
            return &d->pair[i];
    return NULL;
}

void chat_put(struct chat_run *r, struct chat_dict *d, struct chat_value key,
              struct chat_value v)
{
    struct chat_pair *p = d ? chat_find(r, d, key) : NULL;

    if (!d || r->rc != OK)
        return;
    if (p) {
        p->value = v;
        return;
    }
    if (d->n == d->capacity) {
        p = grown(r, d->pair, d->n, &d->capacity, sizeof(*p));
        if (!p)
            return;
        d->pair = p;
    }
    d->pair[d->n++] = (struct chat_pair){.key = key, .value = v};
}

/* An object's keys are different already. */
static struct chat_value from_object(struct chat_run *r, const json_t *j)
{
    struct chat_dict *d = chat_dict_new(r);
    size_t n = json_object_size(j);
    const char *key;
    json_t *member;

    if (!d || !(d->pair = chat_new(r, n, sizeof(*d->pair))))
        return chat_none();
    d->capacity = n;
    json_object_foreach((json_t *)j, key, member)
    {
        struct chat_pair *p = &d->pair[d->n++];

        p->key = chat_text((struct chat_str){key, NULL, strlen(key)});
        p->value = chat_from_json(r, member);
    }
    return (struct chat_value){.kind = CHAT_DICT, .dict = d};
}

struct chat_value chat_from_json(struct chat_run *r, const json_t *j)
{
    struct chat_value v = chat_none();
    struct chat_list *l;

    if (!j || r->rc != OK)
        return v;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        if (++r->depth > CHAT_DEPTH_MAX)
            return chat_fail(r, ERR_LIMIT, "a variable is nested too deep");
        v = from_object(r, j);
        r->depth--;
        break;
    case JSON_ARRAY:
        if (++r->depth > CHAT_DEPTH_MAX)
            return chat_fail(r, ERR_LIMIT, "a variable is nested too deep");
        l = chat_list_new(r, CHAT_PLAIN_LIST);
        for (size_t i = 0; l && i < json_array_size(j) && r->rc == OK; i++)
            chat_push(r, l, chat_from_json(r, json_array_get(j, i)));
        v = chat_list_value(l);
        r->depth--;
        break;
    case JSON_STRING:
        return chat_text(
            (struct chat_str){json_string_value(j), NULL, json_string_length(j)});
    case JSON_INTEGER:
        return chat_int(json_integer_value(j), true);
    case JSON_REAL:
        return chat_float(json_real_value(j), true);
    case JSON_TRUE:
    case JSON_FALSE:
        return chat_bool(json_is_true(j));
    case JSON_NULL:
        break;
    }
    return v;
}

/* ---- asking ---- */

bool chat_str_is(struct chat_str s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

bool chat_is_str(struct chat_value v, const char *s)
{
    return v.kind == CHAT_STR && chat_str_is(v.s, s);
}

bool chat_is_number(struct chat_value v)
{
    return v.kind == CHAT_BOOL || v.kind == CHAT_INT || v.kind == CHAT_FLOAT;
}

double chat_f64(struct chat_value v)
{
    return v.kind == CHAT_FLOAT ? v.f : (double)v.i;
}

bool chat_is_user(struct chat_run *r, struct chat_value v)
{
    if (v.kind != CHAT_STR)
        return v.user;
    return v.s.n > 0 && chat_step(r, v.s.n) && (!v.s.own || memchr(v.s.own, 0, v.s.n));
}

const char *chat_type_name(struct chat_value v)
{
    static const char *const lists[] = {"list", "tuple", "range", "view", "generator"};
    static const char *const names[] = {"undefined", "None",  "bool",   "int",
                                        "float",     "str",   "list",   "dict",
                                        "namespace", "macro", "method", "loop"};

    return v.kind == CHAT_LIST ? lists[v.list->kind] : names[v.kind];
}

bool chat_truth(struct chat_value v)
{
    switch (v.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return false;
    case CHAT_BOOL:
    case CHAT_INT:
        return v.i != 0;
    case CHAT_FLOAT:
        return v.f != 0;
    case CHAT_STR:
        return v.s.n > 0;
    case CHAT_LIST:
        return v.list->n > 0 || v.list->kind == CHAT_GENERATOR;
    case CHAT_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

static int str_compare(struct chat_str a, struct chat_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;

    return c != 0 ? c : a.n < b.n ? -1 : a.n > b.n;
}

/* A whole number of 64 bits or a double, without rounding: the types of long double that we build
 * for have at least 64 bits of mantissa. */
static long double exact(struct chat_value v)
{
    return v.kind == CHAT_FLOAT ? (long double)v.f : (long double)v.i;
}

static bool equal_lists(struct chat_run *r, const struct chat_list *a,
                        const struct chat_list *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->n != b->n || a->kind >= CHAT_VIEW)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!chat_equal(r, a->v[i], b->v[i]))
            return false;
    return true;
}

static bool equal_dicts(struct chat_run *r, struct chat_dict *a, struct chat_dict *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        struct chat_pair *p = chat_find(r, b, a->pair[i].key);

        if (!p || !chat_equal(r, a->pair[i].value, p->value))
            return false;
    }
    return true;
}

bool chat_equal(struct chat_run *r, struct chat_value a, struct chat_value b)
{
    bool equal;

    if (!chat_step(r, 1))
        return false;
    if (chat_is_number(a) && chat_is_number(b))
        return exact(a) == exact(b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return true;
    case CHAT_STR:
        return a.s.n == b.s.n && chat_step(r, a.s.n) && str_compare(a.s, b.s) == 0;
    case CHAT_LIST:
    case CHAT_DICT:
        if (++r->depth > CHAT_DEPTH_MAX) {
            chat_fail(r, ERR_LIMIT, "values are nested too deep");
            return false;
        }
        equal = a.kind == CHAT_LIST ? equal_lists(r, a.list, b.list)
                                    : equal_dicts(r, a.dict, b.dict);
        r->depth--;
        return equal;
    case CHAT_MACRO:
        return a.macro == b.macro && a.scope == b.scope;
    default:
        return a.dict == b.dict;
    }
}

int chat_compare(struct chat_run *r, struct chat_value a, struct chat_value b)
{
    int c = 0;

    if (!chat_step(r, 1))
        return 0;
    if (chat_is_number(a) && chat_is_number(b))
        return exact(a) < exact(b) ? -1 : exact(a) > exact(b);
    if (a.kind == CHAT_STR && b.kind == CHAT_STR)
        return chat_step(r, a.s.n < b.s.n ? a.s.n : b.s.n) ? str_compare(a.s, b.s) : 0;
    if (a.kind != CHAT_LIST || b.kind != CHAT_LIST || a.list->kind != b.list->kind ||
        a.list->kind > CHAT_TUPLE || ++r->depth > CHAT_DEPTH_MAX) {
        chat_fail(r, ERR_ARG, "%s and %s have no order", chat_type_name(a),
                  chat_type_name(b));
        return 0;
    }
    for (size_t i = 0; i < a.list->n && i < b.list->n && c == 0 && r->rc == OK; i++)
        if (!chat_equal(r, a.list->v[i], b.list->v[i]))
            c = chat_compare(r, a.list->v[i], b.list->v[i]);
    r->depth--;
    return c != 0 ? c : a.list->n < b.list->n ? -1 : a.list->n > b.list->n;
}
