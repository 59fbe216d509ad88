/* http/stop.h - finds stop strings in text that arrives in pieces.
 *
 * One automaton of Knuth, Morris and Pratt per string: constant work per byte, and no memory
 * after http_stop_set(), since text is searched on the thread that steps the engine.
 *   Threads: one owner. */
#ifndef HTTP_STOP_H
#define HTTP_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HTTP_STOP_MAX       16
#define HTTP_STOP_BYTES_MAX 1024 /* of one string */

struct http_stop_word {
    size_t n;       /* its length */
    size_t matched; /* bytes of it that the text ends with */
    char text[HTTP_STOP_BYTES_MAX];
    uint16_t
        border[HTTP_STOP_BYTES_MAX]; /* [i]: longest border of its first i + 1 bytes */
};

struct http_stop {
    int n;                       /* strings */
    struct http_stop_word *word; /* [n] */
    size_t n_bytes;              /* searched */
    size_t found_at;             /* where the string that was found begins */
};

/* Copy one string of n bytes, 1 .. HTTP_STOP_BYTES_MAX, to s->word[i]. */
void http_stop_set(struct http_stop *s, int i, const char *text, size_t n);
/* Take n further bytes. Returns whether they complete a string: the first to be complete;
 * of several at once the longest. Bytes behind it are not searched. */
bool http_stop_feed(struct http_stop *s, const char *text, size_t n);
/* The leading bytes of the text so far that cannot be part of a match any more. */
size_t http_stop_safe(const struct http_stop *s);

#endif
