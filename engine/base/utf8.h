/* base/utf8.h - UTF-8: the only validator, and the way between sequences and code points.
 * Threads: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Length of the valid sequence at s (n >= 1 bytes are there); 0 when the n bytes are the
 * beginning of one; negative when they are not: minus the bytes to skip as one fault. */
int utf8_len(const char *s, size_t n);
bool utf8_valid(const char *s, size_t n);
/* The code point of a sequence of utf8_len() bytes. */
int32_t utf8_code(const char *s, int len);
/* The sequence of a code point; returns its length. */
int utf8_put(int32_t code, char out[4]);

/* Text from a file or a model may hold control characters, which a terminal obeys. Copies
 * `text` to out[capacity] (>= 1) and writes these, and bytes that are not UTF-8, as
 * "\\x1b", so that the copy is one line of UTF-8. It is cut where it does not fit, never
 * inside a character. */
void utf8_show(char *out, size_t capacity, const char *text);
/* The whole text so, to a stream. */
void utf8_print(FILE *f, const char *text);
/* The same for the first character of text[n] (n >= 1). Returns the length of `out`, which
 * gets no NUL; *used: the bytes of it in `text`. */
#define UTF8_SHOWN_BYTES 16
int utf8_show_one(char out[UTF8_SHOWN_BYTES], const char *text, size_t n, int *used);

#endif
