/* baselines/gemm_process.h - a child process that answers one line for each line it reads.
 *
 * The process is born on the CPUs given, with an environment cleaned of every setting of
 * BLAS and OpenMP that the user has for other purposes, and holds none of our files but
 * one socket and its log. It may crash, hang or answer nonsense: each is an error that
 * names it, with the signal and the last line of its standard error.
 * Threads: one caller, which must live as long as the process: the child is killed when
 * its parent's thread ends. */
#ifndef GEMM_PROCESS_H
#define GEMM_PROCESS_H

#include <stddef.h>

#include "base/err.h"

struct gemm_process;

#define GEMM_LINE_MAX 512 /* an answer and its end of line */

struct gemm_process_opts {
    const char *path; /* the program; its last word names the process in errors */
    const char *arg;  /* its argument */
    const char *env;  /* "NAME=VALUE" to add, or NULL */
    const int *cpus;  /* OpenMP's thread i is bound to cpus[i] */
    int n_threads;
};

/* ERR_NOTFOUND: no such program. *out: gemm_process_stop(). */
MUST int gemm_process_start(struct gemm_process **out, const struct gemm_process_opts *o);
/* Kill it and wait for its end. */
void gemm_process_stop(struct gemm_process **p);

/* Say `line` (NULL: nothing) and read one line, without its end, into answer[n].
 * ERR_LIMIT: no answer within limit_s seconds.  ERR_IO: it ended.  ERR_FORMAT: more than a
 * line, a longer one than GEMM_LINE_MAX, or bytes that are not text.  After an error the
 * process is of no more use. */
MUST int gemm_process_ask(struct gemm_process *p, const char *line, char *answer,
                          size_t n, double limit_s);
int gemm_process_pid(const struct gemm_process *p);

#endif
