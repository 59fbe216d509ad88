#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MSG_MAX 512

static _Thread_local char message[MSG_MAX];

/* What a message quotes may come from a hostile file: it stays one line, and no control
 * character reaches the terminal. */
static void keep(const char *text)
{
    size_t i;

    for (i = 0; i < MSG_MAX - 1 && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];

        message[i] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    message[i] = 0;
}

int err_set(int code, const char *fmt, ...)
{
    char text[MSG_MAX]; /* an argument may be err_msg() itself */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    keep(text);
    return code;
}

int err_prefix(int code, const char *fmt, ...)
{
    char text[2 * MSG_MAX + 2];
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    vsnprintf(text, MSG_MAX, fmt, ap);
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
