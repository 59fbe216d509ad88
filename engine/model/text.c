#include "model/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void model_text_put(struct model_text *b, const void *p, size_t n)
{
    char *grown;

    if (b->rc != OK || n == 0)
        return;
    if (n > b->room - b->n) {
        grown = mem_resize(MEM_MODEL_FILE, b->p, 2 * (b->n + n) + 4096, 1);
        if (!grown) {
            b->rc = ERR_NOMEM;
            return;
        }
        b->p = grown;
        b->room = 2 * (b->n + n) + 4096;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void model_text_puts(struct model_text *b, const char *s)
{
    model_text_put(b, s, strlen(s));
}

void model_text_printf(struct model_text *b, const char *fmt, ...)
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
        model_text_put(b, line, (size_t)n);
}

void model_text_pad(struct model_text *b, size_t align, char with)
{
    while (b->rc == OK && b->n % align != 0)
        model_text_put(b, &with, 1);
}

void model_text_fini(struct model_text *b)
{
    mem_free(b->p);
    *b = (struct model_text){0};
}
