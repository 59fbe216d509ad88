/* Characters as Python sees them. */
#include "chat/impl.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

int32_t chat_code_at(struct chat_str s, size_t at, size_t *len)
{
    int n = utf8_len(s.p + at, s.n - at);

    *len = n > 0 ? (size_t)n : 1;
    return n > 0 ? utf8_code(s.p + at, n) : 0xFFFD;
}

size_t chat_n_codes(struct chat_str s)
{
    size_t n = 0;

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

bool chat_is_printable(int32_t c)
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
