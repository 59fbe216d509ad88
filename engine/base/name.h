/* base/name.h - looking things up by name: plug-ins, keys, words of a list. An error about a
 * name that is not there suggests the nearest one; no other module does that by itself.
 * Threads: any. */
#ifndef BASE_NAME_H
#define BASE_NAME_H

#include "base/err.h"

/* The index of `name` in the NULL-terminated `words`, or -1. */
int name_index(const char *const *words, const char *name);

/* The entry of a registry (a NULL-terminated list of pointers to structs that begin with
 * their name) that is called `name`. NULL, with ERR_NOTFOUND set: `no WHAT "NAME"`, the
 * nearest where one is near, and all names. */
const void *name_find(const void *registry, const char *name, const char *what);

/* err_set(code, ...), with `; did you mean "X"?` after the message where one of the
 * NULL-terminated `words` is near `name`. Returns `code`. */
int name_unknown(int code, const char *name, const char *const *words, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

/* The same with ERR_NOTFOUND, for a name out of a short list: the message also has all
 * `words`. */
int name_not_in(const char *name, const char *const *words, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The word of `words` closest to `name` by edit distance, NULL if none is close. For
 * messages that name_unknown() cannot write. */
const char *name_nearest(const char *name, const char *const *words);

#endif
