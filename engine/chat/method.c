/* Methods of texts, lists, mappings and loops. */
#include "chat/exec.h"

#include <string.h>

static bool need_str(struct chat_run *r, const struct chat_args *a, int i)
{
    if (a->v[i].kind == CHAT_STR)
        return true;
    chat_fail(r, ERR_ARG, "%s() of a %s", a->node->fn->name, chat_type_name(a->v[i]));
    return false;
}

/* A number that may be left out. */
static bool opt_int(struct chat_run *r, const struct chat_args *a, int i, int64_t *out)
{
    if (!a->has[i])
        return true;
    if (a->v[i].kind != CHAT_INT) {
        chat_fail(r, ERR_ARG, "%s() with a %s", a->node->fn->name,
                  chat_type_name(a->v[i]));
        return false;
    }
    *out = a->v[i].i;
    return true;
}

/* ---- texts ---- */

static struct chat_value strip(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a, int sides)
{
    struct chat_str set = a->v[0].s;
    bool own_set = a->has[0] && a->v[0].kind != CHAT_NONE;

    if (own_set && !need_str(r, a, 0))
        return v;
    return chat_text(chat_strip(r, v.s, own_set ? &set : NULL, sides));
}

CHAT_RETURNS(m_strip, strip(r, v, a, CHAT_BOTH))
CHAT_RETURNS(m_lstrip, strip(r, v, a, CHAT_LEFT))
CHAT_RETURNS(m_rstrip, strip(r, v, a, CHAT_RIGHT))

/* At whitespace: no item is empty. */
static void split_words(struct chat_run *r, struct chat_list *out, struct chat_str s,
                        int64_t max)
{
    size_t i, len;

    for (s = chat_strip(r, s, NULL, CHAT_LEFT); s.n > 0 && chat_step(r, 1);
         s = chat_strip(r, chat_cut(s, i, s.n), NULL, CHAT_LEFT)) {
        for (i = 0; max != 0 && i < s.n; i += len)
            if (chat_is_space(chat_code_at(s, i, &len)))
                break;
        if (max == 0)
            i = s.n;
        chat_push(r, out, chat_text(chat_cut(s, 0, i)));
        max -= max > 0;
        if (!chat_step(r, i))
            break;
    }
}

CHAT_BUILTIN(m_split)
{
    struct chat_list *out = chat_list_new(r, CHAT_PLAIN_LIST);
    int64_t max = -1;
    size_t from = 0, at;

    if (!out || !opt_int(r, a, 1, &max))
        return v;
    if (!a->has[0] || a->v[0].kind == CHAT_NONE) {
        split_words(r, out, v.s, max);
        return chat_list_value(out);
    }
    if (!need_str(r, a, 0))
        return v;
    if (a->v[0].s.n == 0)
        return chat_fail(r, ERR_ARG, "split at an empty text");
    for (; max != 0 && r->rc == OK; max -= max > 0) {
        at = chat_search(r, v.s, a->v[0].s, from);
        if (at == SIZE_MAX)
            break;
        chat_push(r, out, chat_text(chat_cut(v.s, from, at)));
        from = at + a->v[0].s.n;
    }
    chat_push(r, out, chat_text(chat_cut(v.s, from, v.s.n)));
    return chat_list_value(out);
}

CHAT_BUILTIN(m_rsplit)
{
    struct chat_list *back = chat_list_new(r, CHAT_PLAIN_LIST),
                     *out = chat_list_new(r, CHAT_PLAIN_LIST);
    int64_t max = -1;
    size_t end = v.s.n, at;

    if (!back || !out || !opt_int(r, a, 1, &max) || !need_str(r, a, 0))
        return v;
    if (a->v[0].s.n == 0)
        return chat_fail(r, ERR_ARG, "rsplit at an empty text");
    for (; max != 0 && r->rc == OK; max -= max > 0) {
        at = chat_search_back(r, v.s, a->v[0].s, end);
        if (at == SIZE_MAX)
            break;
        chat_push(r, back, chat_text(chat_cut(v.s, at + a->v[0].s.n, end)));
        end = at;
    }
    chat_push(r, out, chat_text(chat_cut(v.s, 0, end)));
    for (size_t i = back->n; i > 0; i--)
        chat_push(r, out, back->v[i - 1]);
    return chat_list_value(out);
}

CHAT_RETURNS(m_splitlines, chat_list_value(chat_lines(r, v.s)))

static bool is_at_end(struct chat_run *r, struct chat_str s, struct chat_str part,
                      bool front)
{
    return chat_step(r, part.n) && part.n <= s.n &&
           memcmp(front ? s.p : s.p + s.n - part.n, part.p, part.n) == 0;
}

/* With a tuple: any of its texts. */
static struct chat_value at_end(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a, bool front)
{
    const struct chat_list *any = a->v[0].list;

    if (a->v[0].kind != CHAT_LIST || any->kind != CHAT_TUPLE)
        return need_str(r, a, 0) ? chat_bool(is_at_end(r, v.s, a->v[0].s, front)) : v;
    for (size_t i = 0; i < any->n; i++)
        if (any->v[i].kind == CHAT_STR && is_at_end(r, v.s, any->v[i].s, front))
            return chat_bool(true);
    return chat_bool(false);
}

CHAT_RETURNS(m_startswith, at_end(r, v, a, true))
CHAT_RETURNS(m_endswith, at_end(r, v, a, false))

CHAT_BUILTIN(m_removeprefix)
{
    if (!need_str(r, a, 0) || !is_at_end(r, v.s, a->v[0].s, true))
        return v;
    return chat_text(chat_cut(v.s, a->v[0].s.n, v.s.n));
}

CHAT_BUILTIN(m_removesuffix)
{
    if (!need_str(r, a, 0) || !is_at_end(r, v.s, a->v[0].s, false))
        return v;
    return chat_text(chat_cut(v.s, 0, v.s.n - a->v[0].s.n));
}

CHAT_RETURNS(m_upper, chat_text(chat_case(r, v.s, CHAT_UPPER)))
CHAT_RETURNS(m_lower, chat_text(chat_case(r, v.s, CHAT_LOWER)))
CHAT_RETURNS(m_title, chat_text(chat_case(r, v.s, CHAT_TITLE)))
CHAT_RETURNS(m_capitalize, chat_text(chat_case(r, v.s, CHAT_CAPITALIZE)))

CHAT_BUILTIN(m_replace)
{
    int64_t count = -1;

    if (!need_str(r, a, 0) || !need_str(r, a, 1) || !opt_int(r, a, 2, &count))
        return v;
    return chat_text(chat_replace(r, v.s, a->v[0].s, a->v[1].s, count));
}

CHAT_RETURNS(m_join, chat_text(chat_join(r, chat_iterate(r, a->v[0]), v.s, false)))

CHAT_BUILTIN(m_find)
{
    size_t at = need_str(r, a, 0) ? chat_search(r, v.s, a->v[0].s, 0) : SIZE_MAX;

    return chat_int(at == SIZE_MAX ? -1 : (int64_t)chat_n_codes(r, chat_cut(v.s, 0, at)),
                    true);
}

CHAT_BUILTIN(m_rfind)
{
    size_t at = need_str(r, a, 0) ? chat_search_back(r, v.s, a->v[0].s, v.s.n) : SIZE_MAX;

    return chat_int(at == SIZE_MAX ? -1 : (int64_t)chat_n_codes(r, chat_cut(v.s, 0, at)),
                    true);
}

CHAT_BUILTIN(m_isdigit)
{
    for (size_t i = 0; chat_step(r, 0) && i < v.s.n; i++) {
        if ((unsigned char)v.s.p[i] >= 128)
            return chat_fail(r, ERR_UNSUPPORTED,
                             "isdigit() of other characters than ASCII");
        if (v.s.p[i] < '0' || v.s.p[i] > '9')
            return chat_bool(false);
    }
    return chat_bool(v.s.n > 0);
}

CHAT_RETURNS(m_isspace,
             chat_bool(v.s.n > 0 && chat_strip(r, v.s, NULL, CHAT_LEFT).n == 0))

/* A width, and a character that may be left out. */
static struct chat_value pad(struct chat_run *r, struct chat_value v,
                             const struct chat_args *a, char align)
{
    int64_t width = 0;

    if (!opt_int(r, a, 0, &width) || (a->has[1] && !need_str(r, a, 1)))
        return v;
    if (a->has[1] && chat_n_codes(r, a->v[1].s) != 1)
        return chat_fail(r, ERR_ARG, "%s() with other than one character",
                         a->node->fn->name);
    return chat_text(
        chat_pad(r, v.s, width, a->has[1] ? a->v[1].s : chat_own(r, " ", 1), align));
}

CHAT_RETURNS(m_ljust, pad(r, v, a, '<'))
CHAT_RETURNS(m_rjust, pad(r, v, a, '>'))
CHAT_RETURNS(m_center, pad(r, v, a, '^'))

CHAT_BUILTIN(m_zfill)
{
    int64_t width = 0;

    return opt_int(r, a, 0, &width)
               ? chat_text(chat_pad(r, v.s, width, chat_own(r, "0", 1), '='))
               : v;
}

CHAT_RETURNS(m_format, chat_format(r, v.s, a->v, chat_n_args(a)))

static struct chat_value letters(struct chat_run *r, struct chat_str s, bool numbers)
{
    size_t len;

    for (size_t i = 0; i < s.n && chat_step(r, 0); i += len)
        if (!chat_is_letter(chat_code_at(s, i, &len), numbers))
            return chat_bool(false);
    return chat_bool(s.n > 0);
}

CHAT_RETURNS(m_isalpha, letters(r, v.s, false))
CHAT_RETURNS(m_isalnum, letters(r, v.s, true))

static struct chat_value partition(struct chat_run *r, struct chat_value v,
                                   const struct chat_args *a, bool back)
{
    struct chat_list *out = chat_list_new(r, CHAT_TUPLE);
    struct chat_str s = v.s, part = a->v[0].s;
    size_t at;

    if (!need_str(r, a, 0))
        return v;
    if (part.n == 0)
        return chat_fail(r, ERR_ARG, "%s() at an empty text", a->node->fn->name);
    at = back ? chat_search_back(r, s, part, s.n) : chat_search(r, s, part, 0);
    if (at == SIZE_MAX) { /* all of it is before, or behind */
        at = back ? 0 : s.n;
        part = chat_cut(s, at, at);
    }
    chat_push(r, out, chat_text(chat_cut(s, 0, at)));
    chat_push(r, out, chat_text(part));
    chat_push(r, out, chat_text(chat_cut(s, at + part.n, s.n)));
    return chat_list_value(out);
}

CHAT_RETURNS(m_partition, partition(r, v, a, false))
CHAT_RETURNS(m_rpartition, partition(r, v, a, true))

/* ---- texts and lists ---- */

CHAT_BUILTIN(m_count)
{
    int64_t n = 0;
    size_t at = 0;

    if (v.kind == CHAT_LIST) {
        for (size_t i = 0; i < v.list->n && chat_step(r, 1); i++)
            n += chat_equal(r, v.list->v[i], a->v[0]);
        return chat_int(n, true);
    }
    if (!need_str(r, a, 0))
        return v;
    if (a->v[0].s.n == 0)
        return chat_int((int64_t)chat_n_codes(r, v.s) + 1, true);
    for (; (at = chat_search(r, v.s, a->v[0].s, at)) != SIZE_MAX; at += a->v[0].s.n)
        n++;
    return chat_int(n, true);
}

CHAT_BUILTIN(m_index)
{
    struct chat_value at = v;

    if (v.kind == CHAT_STR) {
        at = m_find(r, v, a);
        return at.i >= 0 ? at : chat_fail(r, ERR_ARG, "index() of what is not there");
    }
    for (size_t i = 0; i < v.list->n && chat_step(r, 1); i++)
        if (chat_equal(r, v.list->v[i], a->v[0]))
            return chat_int((int64_t)i, true);
    return chat_fail(r, ERR_ARG, "index() of what is not there");
}

/* ---- mappings ---- */

CHAT_BUILTIN(m_get)
{
    struct chat_pair *p = chat_find(r, v.dict, a->v[0]);

    if (p) {
        p->read = true;
        return p->value;
    }
    return a->has[1] ? a->v[1] : chat_none();
}

static struct chat_value view(struct chat_run *r, struct chat_value v, bool keys,
                              bool values)
{
    struct chat_list *out = chat_list_new(r, CHAT_VIEW), *pair;

    for (size_t i = 0; out && i < v.dict->n && chat_step(r, 1); i++) {
        struct chat_pair *p = &v.dict->pair[i];

        p->read = p->read || values;
        if (keys && values) {
            pair = chat_list_new(r, CHAT_TUPLE);
            chat_push(r, pair, p->key);
            chat_push(r, pair, p->value);
            chat_push(r, out, chat_list_value(pair));
        } else {
            chat_push(r, out, keys ? p->key : p->value);
        }
    }
    return chat_list_value(out);
}

CHAT_RETURNS(m_items, view(r, v, true, true))
CHAT_RETURNS(m_keys, view(r, v, true, false))
CHAT_RETURNS(m_values, view(r, v, false, true))

/* ---- loops ---- */

CHAT_BUILTIN(m_cycle)
{
    return a->v[(size_t)v.loop->index0 % chat_n_args(a)];
}

static const struct chat_builtin methods[] = {
    {"capitalize", "", 0, m_capitalize},
    {"center", "width fillchar", 1, m_center},
    {"count", "value", 1, m_count},
    {"cycle", CHAT_ANY_ARGS, 1, m_cycle},
    {"endswith", "suffix", 1, m_endswith},
    {"find", "sub", 1, m_find},
    {"format", CHAT_ANY_ARGS, 0, m_format},
    {"get", "key default", 1, m_get},
    {"index", "value", 1, m_index},
    {"isalnum", "", 0, m_isalnum},
    {"isalpha", "", 0, m_isalpha},
    {"isdecimal", "", 0, m_isdigit},
    {"isdigit", "", 0, m_isdigit},
    {"isnumeric", "", 0, m_isdigit},
    {"isspace", "", 0, m_isspace},
    {"items", "", 0, m_items},
    {"join", "iterable", 1, m_join},
    {"keys", "", 0, m_keys},
    {"ljust", "width fillchar", 1, m_ljust},
    {"lower", "", 0, m_lower},
    {"lstrip", "chars", 0, m_lstrip},
    {"partition", "sep", 1, m_partition},
    {"removeprefix", "prefix", 1, m_removeprefix},
    {"removesuffix", "suffix", 1, m_removesuffix},
    {"replace", "old new count", 2, m_replace},
    {"rfind", "sub", 1, m_rfind},
    {"rjust", "width fillchar", 1, m_rjust},
    {"rpartition", "sep", 1, m_rpartition},
    {"rsplit", "sep maxsplit", 1, m_rsplit},
    {"rstrip", "chars", 0, m_rstrip},
    {"split", "sep maxsplit", 0, m_split},
    {"splitlines", "", 0, m_splitlines},
    {"startswith", "prefix", 1, m_startswith},
    {"strip", "chars", 0, m_strip},
    {"title", "", 0, m_title},
    {"upper", "", 0, m_upper},
    {"values", "", 0, m_values},
    {"zfill", "width", 1, m_zfill},
    {0},
};

const struct chat_builtin *chat_method_named(const char *name, size_t n)
{
    return chat_in_table(methods, name, n);
}

bool chat_is_attribute(struct chat_value v, const char *name, size_t n)
{
    static const char texts[] =
        " capitalize casefold center count encode endswith expandtabs find format "
        "format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
        "isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans "
        "partition removeprefix removesuffix replace rfind rindex rjust rpartition "
        "rsplit "
        "rstrip split splitlines startswith strip swapcase title translate upper zfill ";
    static const char lists[] =
        " append clear copy count extend index insert pop remove reverse sort ";
    static const char dicts[] =
        " clear copy fromkeys get items keys pop popitem setdefault update values ";
    static const char numbers[] =
        " as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex "
        "hex imag is_integer numerator real to_bytes ";
    const char *all = v.kind == CHAT_STR ? texts : v.kind == CHAT_DICT ? dicts : "";

    if (v.kind == CHAT_LIST && v.list->kind < CHAT_VIEW)
        all = v.list->kind == CHAT_PLAIN_LIST ? lists : " count index ";
    else if (v.kind == CHAT_LOOP)
        all = " cycle ";
    else if (chat_is_number(v))
        all = numbers;
    for (size_t len; *all; all += len) {
        all++; /* the space before a word */
        len = strcspn(all, " ");
        if (len == n && memcmp(all, name, n) == 0)
            return true;
        if (all[len + 1] == '\0')
            break;
    }
    return false;
}
