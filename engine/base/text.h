/* base/text.h - a growing byte buffer, in which file heads and reports are assembled.
 *
 * The first failure is kept in rc and later puts do nothing, so that a sequence of puts is
 * checked once, at its end.   Threads: one owner. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

#include "base/err.h"

struct text { /* all zero: empty */
    char *p;  /* mem_free */
    size_t n, capacity;
    int rc;
};

void text_put(struct text *b, const void *p, size_t n);
void text_puts(struct text *b, const char *s);
/* A line of at most 1023 bytes; longer is ERR_LIMIT. */
void text_printf(struct text *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* n bytes of words as one line of the language that is being written: control characters as
 * utf8_show(), line breaks as blanks, markup and a table's bar escaped. */
enum text_place { TEXT_MARKDOWN, TEXT_CODE, TEXT_XML };
void text_put_shown(struct text *out, enum text_place place, const char *s, size_t n);
void text_pad(struct text *b, size_t align, char with);
/* *out: the text, NUL-terminated, the caller's, mem_free(); after a failure NULL, and the
 * buffer is freed. Returns rc. */
MUST int text_take(struct text *b, char **out);
void text_fini(struct text *b);

#endif
