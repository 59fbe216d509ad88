#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define MSG_MAX                                                                          \
    512 /* texts are built 4 longer: a character across the end is left out  \
                     */

static _Thread_local char message[MSG_MAX];

/* What a message quotes may come from a hostile file: it stays one line, no control
 * character reaches the terminal, and it is UTF-8, so that a record can hold it as JSON.
 */
static void keep(const char *text)
{
    size_t i = 0;

    for (const char *s = text; *s;) {
        int n = utf8_len(s, strnlen(s, 4));
        bool shown = n > 0 && (unsigned char)*s >= 0x20 && *s != 0x7f;

        n = n > 0 ? n : 1;
        if (i + (size_t)n > MSG_MAX - 1)
            break;
        memcpy(message + i, shown ? s : "?", shown ? (size_t)n : 1);
        i += shown ? (size_t)n : 1;
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
