/* base/child.h - a function in a process of its own, and what it printed.
 *
 * For libraries that may crash: on damaged input, or at exit after the disk was full.
 * Whatever happens in there, the caller gets a text or one error line. Since the process
 * ends with the function, an error inside it needs no clean-up: child_exit() from any
 * depth. Threads: the child has the calling thread only. */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

struct child {
    /* Runs in the child and prints its answer, without NUL characters, to `out`. What it
     * returns child_run() returns, with its message. */
    int (*fn)(void *ctx, FILE *out);
    void *ctx;
    const char *where;    /* begins the line about a crash: the file that fn works on */
    const char *if_crash; /* ends it: what a crash means, "the file is damaged" */
    /* The input is foreign and of this many bytes: memory, processor time and the answer
     * are limited to what a sound input of this size can need, and what libraries write
     * to standard error is thrown away. 0: our own data, without limits. */
    size_t foreign_bytes;
};

/* *text: owned by the caller, mem_free(); *n bytes and a NUL that is not counted. NULL on
 * error. ERR_FORMAT: the function crashed or hit a limit. ERR_IO: no process could be
 * started. Else what `fn` returned. */
MUST int child_run(const struct child *c, char **text, size_t *n);

/* Only in a child: end it with this result, OK or an error that was set. */
_Noreturn void child_exit(int rc);

#endif
