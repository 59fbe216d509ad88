/* base/utf8.h - UTF-8: the only validator, and the way between sequences and code points.
 * Threads: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the valid sequence at s (n >= 1 bytes are there); 0 when the n bytes are the
 * beginning of one; negative when they are not: minus the bytes to skip as one fault. */
int utf8_len(const char *s, size_t n);
bool utf8_valid(const char *s, size_t n);
/* The code point of a sequence of utf8_len() bytes. */
int32_t utf8_code(const char *s, int len);
/* The sequence of a code point; returns its length. */
int utf8_put(int32_t code, char out[4]);

#endif
