#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MSG_MAX                                                                          \
    512 /* texts are built 4 longer: a character across the end is left out  \
                     */

static _Thread_local char message[MSG_MAX];

/* Bytes of the UTF-8 character at s, 0 if there is none. */
static int utf8_bytes(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    /* No overlong form, no surrogate, nothing above U+10FFFF. */
    if (s[0] > 0xf4 || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

/* What a message quotes may come from a hostile file: it stays one line, no control
 * character reaches the terminal, and it is UTF-8, so that a record can hold it as JSON.
 */
static void keep(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;

    while (*s) {
        int n = utf8_bytes(s);

        if (i + (size_t)(n ? n : 1) > MSG_MAX - 1)
            break;
        if (n == 0 || *s < 0x20 || *s == 0x7f) {
            message[i++] = '?';
            s++;
            continue;
        }
        memcpy(message + i, s, (size_t)n);
        i += (size_t)n;
        s += n;
    }
    message[i] = 0;
}

int err_set(int code, const char *fmt, ...)
{
    char text[MSG_MAX + 4]; /* not message[] itself: an argument may be err_msg() */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    keep(text);
    return code;
}

int err_prefix(int code, const char *fmt, ...)
{
    char text[2 * MSG_MAX + 8];
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    vsnprintf(text, MSG_MAX + 4, fmt, ap);
    va_end(ap);
    n = strlen(text);
    snprintf(text + n, sizeof(text) - n, ": %s", message);
    keep(text);
    return code;
}

const char *err_msg(void)
{
    return message;
}

void err_clear(void)
{
    message[0] = 0;
}

const char *err_name(int code)
{
    switch (code) {
    case OK:
        return "OK";
    case ERR_ARG:
        return "ERR_ARG";
    case ERR_NOMEM:
        return "ERR_NOMEM";
    case ERR_IO:
        return "ERR_IO";
    case ERR_FORMAT:
        return "ERR_FORMAT";
    case ERR_UNSUPPORTED:
        return "ERR_UNSUPPORTED";
    case ERR_LIMIT:
        return "ERR_LIMIT";
    case ERR_NOTFOUND:
        return "ERR_NOTFOUND";
    case ERR_STATE:
        return "ERR_STATE";
    case ERR_CANCELED:
        return "ERR_CANCELED";
    default:
        return "ERR_?";
    }
}
