/* Operations on texts that keep the origin of each byte. */
#include "chat/impl.h"

#include <string.h>

/* ---- assembling ---- */

static bool make_space(struct chat_builder *b, size_t n)
{
    size_t capacity = 2 * (b->n + n) + 32;
    char *p;

    if (b->r->rc != OK)
        return false;
    if (b->n + n <= b->capacity)
        return true;
    p = chat_new(b->r, 2 * capacity, 1);
    if (!p)
        return false;
    if (b->n > 0) {
        memcpy(p, b->p, b->n);
        memcpy(p + capacity, b->own, b->n);
    }
    b->p = p;
    b->own = p + capacity;
    b->capacity = capacity;
    return true;
}

void chat_add(struct chat_builder *b, struct chat_str s)
{
    if (s.n == 0 || !make_space(b, s.n))
        return;
    memcpy(b->p + b->n, s.p, s.n);
    if (s.own)
        memcpy(b->own + b->n, s.own, s.n);
    else
        memset(b->own + b->n, 0, s.n);
    b->n += s.n;
}

void chat_add_like(struct chat_builder *b, const char *s, size_t n, bool own)
{
    if (n == 0 || !make_space(b, n))
        return;
    memcpy(b->p + b->n, s, n);
    memset(b->own + b->n, own, n);
    b->n += n;
}

void chat_add_own(struct chat_builder *b, const char *s)
{
    chat_add_like(b, s, strlen(s), true);
}

void chat_add_user(struct chat_builder *b, const char *s, size_t n)
{
    chat_add_like(b, s, n, false);
}

struct chat_str chat_built(struct chat_builder *b)
{
    return b->r->rc == OK && b->n > 0 ? (struct chat_str){b->p, b->own, b->n}
                                      : (struct chat_str){"", NULL, 0};
}

/* ---- taking apart ---- */

static bool is_in(struct chat_str s, size_t at, size_t len, const struct chat_str *set)
{
    size_t n;

    if (!set)
        return chat_is_space(chat_code_at(s, at, &n));
    for (size_t i = 0; i < set->n; i += n) {
        (void)chat_code_at(*set, i, &n);
        if (n == len && memcmp(set->p + i, s.p + at, len) == 0)
            return true;
    }
    return false;
}

struct chat_str chat_strip(struct chat_str s, const struct chat_str *set, int sides)
{
    size_t from = 0, to = s.n, len, at;

    while (sides & CHAT_LEFT && from < to) {
        (void)chat_code_at(s, from, &len);
        if (!is_in(s, from, len, set))
            break;
        from += len;
    }
    while (sides & CHAT_RIGHT && to > from) {
        for (at = to - 1; at > from && ((unsigned char)s.p[at] & 0xC0) == 0x80;)
            at--;
        if (!is_in(s, at, to - at, set))
            break;
        to = at;
    }
    return chat_cut(s, from, to);
}

/* Bytes of the line end at s[at]; 0: none. */
static size_t line_end(struct chat_str s, size_t at)
{
    size_t len;
    int32_t c = chat_code_at(s, at, &len);

    if (c == '\r' && at + 1 < s.n && s.p[at + 1] == '\n')
        return 2;
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                   c == 0x2028 || c == 0x2029
               ? len
               : 0;
}

struct chat_list *chat_lines(struct chat_run *r, struct chat_str s)
{
    struct chat_list *l = chat_list_new(r, CHAT_PLAIN_LIST);
    size_t from = 0, len, end;

    for (size_t i = 0; l && i < s.n && chat_step(r, 1); i += end ? end : len) {
        (void)chat_code_at(s, i, &len);
        end = line_end(s, i);
        if (end == 0)
            continue;
        chat_push(r, l, chat_text(chat_cut(s, from, i)));
        from = i + end;
    }
    if (l && from < s.n)
        chat_push(r, l, chat_text(chat_cut(s, from, s.n)));
    return l;
}

struct chat_list *chat_chars(struct chat_run *r, struct chat_str s)
{
    struct chat_list *l = chat_list_new(r, CHAT_PLAIN_LIST);
    size_t len;

    for (size_t i = 0; l && i < s.n && chat_step(r, 1); i += len) {
        (void)chat_code_at(s, i, &len);
        chat_push(r, l, chat_text(chat_cut(s, i, i + len)));
    }
    return l;
}

size_t chat_search(struct chat_run *r, struct chat_str s, struct chat_str part,
                   size_t from)
{
    const char *at;

    if (from > s.n)
        return SIZE_MAX;
    if (part.n == 0)
        return from;
    if (!chat_step(r, part.n))
        return SIZE_MAX;
    at = memmem(s.p + from, s.n - from, part.p, part.n);
    if (!chat_step(r, at ? (size_t)(at - s.p) - from : s.n - from))
        return SIZE_MAX;
    return at ? (size_t)(at - s.p) : SIZE_MAX;
}

struct chat_str chat_replace(struct chat_run *r, struct chat_str s, struct chat_str from,
                             struct chat_str to, int64_t count)
{
    struct chat_builder b = {.r = r};
    size_t at = 0, found, len;

    while (count != 0 && r->rc == OK) {
        found = chat_search(r, s, from, at);
        if (found == SIZE_MAX)
            break;
        chat_add(&b, chat_cut(s, at, found));
        chat_add(&b, to);
        at = found + from.n;
        count -= count > 0;
        if (from.n > 0)
            continue;
        if (at == s.n) /* nothing is before, between and behind all characters */
            return chat_built(&b);
        (void)chat_code_at(s, at, &len);
        chat_add(&b, chat_cut(s, at, at + len));
        at += len;
    }
    chat_add(&b, chat_cut(s, at, s.n));
    return chat_built(&b);
}

struct chat_str chat_join(struct chat_run *r, struct chat_list *items,
                          struct chat_str between, bool convert)
{
    struct chat_builder b = {.r = r};

    for (size_t i = 0; items && i < items->n && chat_step(r, 1); i++) {
        if (i > 0)
            chat_add(&b, between);
        if (!convert && items->v[i].kind != CHAT_STR)
            chat_fail(r, ERR_ARG, "join() of a %s", chat_type_name(items->v[i]));
        else
            chat_add(&b, chat_str_of(r, items->v[i]));
    }
    return chat_built(&b);
}
