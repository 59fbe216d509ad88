/* baselines/words.h - a command in a system's file: its words with the values of this run, each in
 * the place of "{name}"; "{{" is a brace. A list inside the list of words is left out as a whole
 * where one of its values is not given.   Threads: any. */
#ifndef BASELINES_WORDS_H
#define BASELINES_WORDS_H

#include <jansson.h>

#include "base/err.h"

struct sut_value {
    const char *name;  /* NULL ends a list; at most 31 of them */
    const char *value; /* NULL: not given */
};

/* A list of words with its values; *argv: mem_free() of it frees all, NULL ends it. `where` begins
 * an error. ERR_FORMAT: no list of words, or no such value. ERR_ARG: a value is not given. */
MUST int sut_words(char ***argv, int *n, const json_t *list,
                   const struct sut_value *values, const char *where);
/* The same of an object: "NAME=VALUE" of each member that has all its values. */
MUST int sut_words_env(char ***env, int *n, const json_t *object,
                       const struct sut_value *values, const char *where);

#endif
