/* Characters as Python sees them; operations on texts that keep the origin of each byte; and values
 * as texts, as Python writes them, and as JSON. */
#include "chat/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "chat/parse.h"

/* ---- characters ---- */

int32_t chat_code_at(struct chat_str s, size_t at, size_t *len)
{
    int n = utf8_len(s.p + at, s.n - at);

    *len = n > 0 ? (size_t)n : 1;
    return n > 0 ? utf8_code(s.p + at, n) : 0xFFFD;
}

size_t chat_n_codes(struct chat_run *r, struct chat_str s)
{
    size_t n = 0;

    (void)chat_step(r, s.n);
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}

bool chat_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool chat_is_letter(int32_t c, bool or_number)
{
    utf8proc_category_t k = utf8proc_category(c);

    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (or_number && k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

static bool is_printable(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

/* Characters whose upper case is several: Unicode's SpecialCasing.txt without conditions, for
 * Latin, Armenian and the ligatures. The last column is the title case where it differs. */
static const struct special_case {
    int32_t code;
    const char *upper, *title;
} special_cases[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\xCA\xBCN", NULL},
    {0x01F0, "J\xCC\x8C", NULL},
    {0x0390, "\xCE\x99\xCC\x88\xCC\x81", NULL},
    {0x03B0, "\xCE\xA5\xCC\x88\xCC\x81", NULL},
    {0x0587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0x1E96, "H\xCC\xB1", NULL},
    {0x1E97, "T\xCC\x88", NULL},
    {0x1E98, "W\xCC\x8A", NULL},
    {0x1E99, "Y\xCC\x8A", NULL},
    {0x1E9A, "A\xCA\xBE", NULL},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

static bool is_cased(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL ||
           k == UTF8PROC_CATEGORY_LT || utf8proc_toupper(c) != c ||
           utf8proc_tolower(c) != c;
}

static bool is_case_ignorable(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME ||
           k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_LM ||
           k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
           c == 0x2019;
}

/* A sigma ends a word where a cased letter is before it and none behind it. */
static bool is_final_sigma(struct chat_str s, size_t at)
{
    size_t i = at, len;
    int32_t c = 0;
    bool before = false;

    while (i > 0) {
        do
            i--;
        while (i > 0 && ((unsigned char)s.p[i] & 0xC0) == 0x80);
        c = chat_code_at(s, i, &len);
        if (is_case_ignorable(c))
            continue;
        before = is_cased(c);
        break;
    }
    if (!before)
        return false;
    for (i = at + 2; i < s.n; i += len) {
        c = chat_code_at(s, i, &len);
        if (!is_case_ignorable(c))
            return !is_cased(c);
    }
    return true;
}

static void put_code(struct chat_builder *b, int32_t c, bool own)
{
    char out[4];

    chat_add_like(b, out, (size_t)utf8_put(c, out), own);
}

static void put_lower(struct chat_builder *b, struct chat_str s, size_t at, int32_t c,
                      bool own)
{
    if (c == 0x3A3 && is_final_sigma(s, at))
        put_code(b, 0x3C2, own);
    else if (c == 0x130)
        chat_add_like(b, "i\xCC\x87", 3, own);
    else
        put_code(b, utf8proc_tolower(c), own);
}

static void put_upper(struct chat_builder *b, int32_t c, bool title, bool own)
{
    for (size_t i = 0; i < sizeof(special_cases) / sizeof(special_cases[0]); i++) {
        const struct special_case *k = &special_cases[i];
        const char *to = title && k->title ? k->title : k->upper;

        if (k->code == c) {
            chat_add_like(b, to, strlen(to), own);
            return;
        }
    }
    put_code(b, title ? utf8proc_totitle(c) : utf8proc_toupper(c), own);
}

struct chat_str chat_case(struct chat_run *r, struct chat_str s, enum chat_case how)
{
    struct chat_builder b = {.r = r};
    bool starts = true; /* the character begins a word */
    size_t len;

    for (size_t i = 0; i < s.n && chat_step(r, 1); i += len) {
        int32_t c = chat_code_at(s, i, &len);
        bool own = s.own && s.own[i];

        if (how == CHAT_UPPER)
            put_upper(&b, c, false, own);
        else if (how != CHAT_LOWER && starts)
            put_upper(&b, c, how != CHAT_TITLE_FILTER, own);
        else
            put_lower(&b, s, i, c, own);
        if (how == CHAT_TITLE)
            starts = !is_cased(c);
        else if (how == CHAT_TITLE_FILTER)
            starts = chat_is_space(c) || (c < 128 && strchr("-({[<", c));
        else
            starts = false;
    }
    return chat_built(&b);
}

/* ---- assembling ---- */

static bool make_space(struct chat_builder *b, size_t n)
{
    size_t capacity = 2 * (b->n + n) + 32;
    char *p;

    if (b->r->rc != OK)
        return false;
    b->r->n_steps += (int64_t)(n / 16); /* whole steps: most additions are short */
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

static bool is_in(struct chat_run *r, struct chat_str s, size_t at, size_t len,
                  const struct chat_str *set)
{
    size_t n;

    if (!set)
        return chat_is_space(chat_code_at(s, at, &n));
    for (size_t i = 0; i < set->n && chat_step(r, 0); i += n) {
        (void)chat_code_at(*set, i, &n);
        if (n == len && memcmp(set->p + i, s.p + at, len) == 0)
            return true;
    }
    return false;
}

struct chat_str chat_strip(struct chat_run *r, struct chat_str s,
                           const struct chat_str *set, int sides)
{
    size_t from = 0, to = s.n, len, at;

    while (sides & CHAT_LEFT && from < to) {
        (void)chat_code_at(s, from, &len);
        if (!is_in(r, s, from, len, set))
            break;
        from += len;
    }
    while (sides & CHAT_RIGHT && to > from) {
        for (at = to - 1; at > from && ((unsigned char)s.p[at] & 0xC0) == 0x80;)
            at--;
        if (!is_in(r, s, at, to - at, set))
            break;
        to = at;
    }
    if (r)
        (void)chat_step(r, s.n - (to - from));
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

size_t chat_search_back(struct chat_run *r, struct chat_str s, struct chat_str part,
                        size_t end)
{
    const char *at;

    if (part.n == 0 || part.n > end)
        return part.n == 0 ? end : SIZE_MAX;
    for (size_t n = end - part.n + 1; n > 0; n = (size_t)(at - s.p)) {
        at = memrchr(s.p, part.p[0], n);
        if (!chat_step(r, at ? n - (size_t)(at - s.p) + part.n : n) || !at)
            break;
        if (memcmp(at, part.p, part.n) == 0)
            return (size_t)(at - s.p);
    }
    return SIZE_MAX;
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

/* ---- values as texts ----
 *
 * Brackets and quotes count as of users, whose data they hold. */

#define INDENT_MAX 1000

static void put(struct chat_builder *b, const char *s)
{
    chat_add_user(b, s, strlen(s));
}

/* The fewest digits that give the same number, as Python writes them. */
static void add_float(char out[40], double v)
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

    (void)chat_step(b->r, v.kind == CHAT_FLOAT ? 400 : 0); /* of trying its digits */
    if (v.kind == CHAT_FLOAT)
        add_float(text, v.f);
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
        } else if (!is_printable(c)) {
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
