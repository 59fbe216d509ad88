/* base/json.h - jansson with limits and with errors that name the file and the key.
 *
 * Every text read has a size cap, a depth cap of 64 and no duplicate keys. Every file
 * written is complete or absent (temporary name, fsync, rename). Threads: any, distinct
 * objects. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"

#define JSON_DEPTH_MAX 64

/* Parse a file of at most `max_bytes`. *out is a new reference, NULL on error. */
MUST int json_read_file(json_t **out, const char *path, size_t max_bytes);
/* Parse n bytes; `where` begins the error line. */
MUST int json_read_text(json_t **out, const char *text, size_t n, const char *where);

/* The same where texts may hold the character U+0000: each is to be read with its length. */
MUST int json_read_text_nul(json_t **out, const char *text, size_t n, const char *where);
/* Has a text in `j`, outside of `but`, this character? */
bool json_has_nul(const json_t *j, const json_t *but);

/* The same without the depth cap (the parser's own, 2048, remains): for text that we
 * wrote ourselves and whose checksum was right. */
MUST int json_read_own(json_t **out, const char *text, size_t n, const char *where);

/* `j` as text with jansson's `flags` (JSON_COMPACT, JSON_SORT_KEYS ...). Owned by the
 * caller, mem_free(); NULL with ERR_NOMEM set. Unlike json_dumps() it never
 * returns an incomplete text. */
MUST char *json_text(const json_t *j, size_t flags);

/* A text that need not be UTF-8 (a path, a name in a file, output that was cut) as a JSON
 * string: a '?' stands for each byte that is not part of a character. New reference. NULL,
 * as of jansson's functions, means only that memory is short. */
json_t *json_string_lossy(const char *s);
json_t *json_stringn_lossy(const char *s, size_t n);

/* A number, or null where it is not finite. New reference, as above. */
json_t *json_number(double v);

/* The warnings that were kept since the last call (base/log.h), oldest first:
 * [{"code", "observed", "threshold", "text"}]. New reference; NULL: ERR_NOMEM set. */
json_t *json_warnings_take(void);

/* The FNV-1a hash (64 bits, as 16 hexadecimal digits) of `j` as compact text with sorted
 * keys: the checksum of a document that nobody should edit by hand. ERR_NOMEM. */
MUST int json_checksum(const json_t *j, char out[17]);

/* Write `j` with sorted keys and two-space indentation, ending in a newline, by
 * file_write(). */
MUST int json_write_file(const json_t *j, const char *path);

/* Members of an object, checked. The *_opt forms leave *out alone when the key is absent.
 * Errors: "where: key: expected an integer in [1, 4096], found \"x\"". Borrowed
 * references. */
MUST int json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                      int64_t *out, const char *where);
MUST int json_opt_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                      int64_t *out, const char *where);
MUST int json_get_f64(const json_t *obj, const char *key, double *out, const char *where);
MUST int json_opt_f64(const json_t *obj, const char *key, double *out, const char *where);
MUST int json_get_str(const json_t *obj, const char *key, const char **out,
                      const char *where);
MUST int json_opt_str(const json_t *obj, const char *key, const char **out,
                      const char *where);
MUST int json_opt_bool(const json_t *obj, const char *key, bool *out, const char *where);
MUST int json_get_arr(const json_t *obj, const char *key, const json_t **out,
                      const char *where);
/* A text of fewer than n bytes, copied; exactly n numbers. */
MUST int json_copy_str(const json_t *obj, const char *key, char *out, size_t n,
                       const char *where);
MUST int json_get_f64s(const json_t *obj, const char *key, double *out, int n,
                       const char *where);
/* Every key of `obj` is one of `known` (NULL-terminated). ERR_FORMAT names the nearest. */
MUST int json_check_keys(const json_t *obj, const char *const *known, const char *where);
MUST int json_get_obj(const json_t *obj, const char *key, const json_t **out,
                      const char *where);

/* Members of a document that was checked, or that we wrote ourselves. `obj` may be NULL.
 * NaN: no number. */
double json_f64_at(const json_t *obj, const char *key);
/* 0: no integer. */
json_int_t json_int_at(const json_t *obj, const char *key);
/* Borrowed; `otherwise`: no text, or an empty one. */
const char *json_str_at(const json_t *obj, const char *key, const char *otherwise);

#endif
