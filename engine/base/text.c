#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

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
