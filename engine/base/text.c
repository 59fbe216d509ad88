#include "base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void text_put(struct text *b, const void *p, size_t n)
{
    char *grown;

    if (b->rc != OK || n == 0)
        return;
    if (n > b->capacity - b->n) {
        grown = mem_resize(MEM_OTHER, b->p, 2 * (b->n + n) + 4096, 1);
        if (!grown) {
            b->rc = ERR_NOMEM;
            return;
        }
        b->p = grown;
        b->capacity = 2 * (b->n + n) + 4096;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void text_puts(struct text *b, const char *s)
{
    text_put(b, s, strlen(s));
}

void text_printf(struct text *b, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof(line))
        b->rc = b->rc != OK
                    ? b->rc
                    : err_set(ERR_LIMIT, "a line of %d bytes: expected at most 1023", n);
    else
        text_put(b, line, (size_t)n);
}

static void put_char(struct text *out, enum text_place place, const char *c, size_t n,
                     bool in_word)
{
    if (place == TEXT_CODE && *c == '`') {
        text_puts(out, "'"); /* code knows no escapes but that of a table's bar */
        return;
    }
    if (place != TEXT_CODE && strchr("&<>", *c)) {
        text_puts(out, *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : "&gt;");
        return;
    }
    if (place == TEXT_XML) {
        text_put(out, c, n);
        return;
    }
    if (place == TEXT_CODE ? *c == '|'
                           : strchr("\\`*_[]#|~$", *c) && !(*c == '_' && in_word))
        text_puts(out, "\\");
    text_put(out, c, n);
}

void text_put_shown(struct text *out, enum text_place place, const char *s, size_t n)
{
    const char *begin = s;

    while (n > 0) {
        const bool in_word = s > begin && n > 1 && isalnum((unsigned char)s[-1]) &&
                             isalnum((unsigned char)s[1]);
        char shown[UTF8_SHOWN_BYTES];
        int used, len = utf8_show_one(shown, s, n, &used);

        if (*s == '\n' || *s == '\t' || *s == '\r')
            text_puts(out, " ");
        else if (used == len)
            put_char(out, place, shown, (size_t)len, in_word);
        else /* "\x1b" */
            for (int i = 0; i < len; i++)
                put_char(out, place, shown + i, 1, false);
        s += used;
        n -= (size_t)used;
    }
}

void text_pad(struct text *b, size_t align, char with)
{
    while (b->rc == OK && b->n % align != 0)
        text_put(b, &with, 1);
}

int text_take(struct text *b, char **out)
{
    int rc;

    text_put(b, "", 1);
    rc = b->rc;
    *out = rc == OK ? b->p : NULL;
    if (rc != OK)
        text_fini(b);
    return rc;
}

void text_fini(struct text *b)
{
    mem_free(b->p);
    *b = (struct text){0};
}
