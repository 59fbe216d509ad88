#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

/* The first byte decides the length and the range of the second; the rest are 80..BF.
 * (Unicode, table 3-7: neither overlong forms, nor surrogates, nor beyond 10FFFF.) */
int utf8_len(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned lo = 0x80, hi = 0xBF;
    int len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return -1;
    len = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (s[0] == 0xE0)
        lo = 0xA0;
    else if (s[0] == 0xED)
        hi = 0x9F;
    else if (s[0] == 0xF0)
        lo = 0x90;
    else if (s[0] == 0xF4)
        hi = 0x8F;
    for (int i = 1; i < len; i++, lo = 0x80, hi = 0xBF) {
        if ((size_t)i >= n)
            return 0;
        if (s[i] < lo || s[i] > hi)
            return -i;
    }
    return len;
}

bool utf8_valid(const char *s, size_t n)
{
    int len = 1;

    for (size_t i = 0; i < n && len > 0; i += (size_t)len)
        len = utf8_len(s + i, n - i);
    return len > 0;
}

int32_t utf8_code(const char *text, int len)
{
    const unsigned char *s = (const unsigned char *)text;
    static const unsigned char first_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    int32_t code = s[0] & first_bits[len];

    for (int i = 1; i < len; i++)
        code = code << 6 | (s[i] & 0x3F);
    return code;
}

int utf8_put(int32_t code, char out[4])
{
    int len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first_mark[5] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (int i = len - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(first_mark[len] | code);
    return len;
}

/* C0, delete and C1: U+009B begins a sequence as ESC [ does. */
static bool is_control(int32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

int utf8_show_one(char out[UTF8_SHOWN_BYTES], const char *text, size_t n, int *used)
{
    static const char digits[] = "0123456789abcdef";
    int len = utf8_len(text, n), put = 0;

    *used = len > 0 ? len : 1;
    if (len > 0 && !is_control(utf8_code(text, len))) {
        memcpy(out, text, (size_t)len);
        return len;
    }
    for (int i = 0; i < *used; i++) {
        out[put++] = '\\';
        out[put++] = 'x';
        out[put++] = digits[(unsigned char)text[i] >> 4];
        out[put++] = digits[text[i] & 15];
    }
    return put;
}

void utf8_show(char *out, size_t capacity, const char *text)
{
    size_t n = strlen(text), at = 0;

    while (n > 0) {
        char shown[UTF8_SHOWN_BYTES];
        int used, len = utf8_show_one(shown, text, n, &used);

        if (at + (size_t)len >= capacity)
            break;
        memcpy(out + at, shown, (size_t)len);
        at += (size_t)len;
        text += used;
        n -= (size_t)used;
    }
    out[at] = 0;
}

void utf8_print(FILE *f, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        char one[UTF8_SHOWN_BYTES];
        int used, len = utf8_show_one(one, text, n, &used);

        fwrite(one, 1, (size_t)len, f);
        text += used;
        n -= (size_t)used;
    }
}
