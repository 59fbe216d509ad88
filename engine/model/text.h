/* model/text.h - bytes that grow: file heads and reports are put together here.
 *
 * The first failure sticks in rc, and what is put after it is dropped, so that a run of
 * puts is checked once, at its end.   Threads: one owner. */
#ifndef MODEL_TEXT_H
#define MODEL_TEXT_H

#include <stddef.h>

#include "base/err.h"

struct model_text { /* all zero: empty */
    char *p;        /* mem_free */
    size_t n, room;
    int rc;
};

void model_text_put(struct model_text *b, const void *p, size_t n);
void model_text_puts(struct model_text *b, const char *s);
/* A line of at most 1023 bytes; longer is ERR_LIMIT. */
void model_text_printf(struct model_text *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void model_text_pad(struct model_text *b, size_t align, char with);
void model_text_fini(struct model_text *b);

#endif
