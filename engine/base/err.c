#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Texts are built 4 longer: a character across the end is left out. */
#define MSG_MAX 512

/* A message may quote a hostile file. It is kept as utf8_show() writes it, so that it stays one
 * line, no control character reaches the terminal, and a record can hold it as JSON. */
static _Thread_local char message[MSG_MAX];

int err_set(int code, const char *fmt, ...)
{
    char text[MSG_MAX + 4]; /* not message[] itself: an argument may be err_msg() */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    utf8_show(message, sizeof(message), text);
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
    utf8_show(message, sizeof(message), text);
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
