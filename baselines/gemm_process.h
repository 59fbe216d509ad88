/* baselines/gemm_process.h - a child process that answers in lines of JSON.
 *
 * The process is born on the CPUs given, with an environment cleaned of every setting of
 * BLAS and OpenMP that the user has for other purposes, and holds none of our files but
 * one socket and its log. It may crash, hang or answer nonsense: each is an error that
 * names it, with the signal and the last line of its standard error.
 * Threads: one caller, which must live as long as the process: the child is killed when
 * its parent's thread ends. */
#ifndef GEMM_PROCESS_H
#define GEMM_PROCESS_H

#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"

struct gemm_process;

struct gemm_process_opts {
    const char *const
        *argv;       /* NULL ends it; the last word of the program's path names the
                                process in errors */
    const char *env; /* "NAME=VALUE" to add, or NULL */
    const int *cpus; /* OpenMP's thread i is bound to cpus[i] */
    int n_threads;
};

/* ERR_NOTFOUND: no such program. *out: gemm_process_stop(). */
MUST int gemm_process_start(struct gemm_process **out, const struct gemm_process_opts *o);
/* Kill it and wait for its end. */
void gemm_process_stop(struct gemm_process **p);

/* Its next answer, an object, as a new reference. `ask`: it waits to be asked, with a line.
 * ERR_UNSUPPORTED: it answers {"error": WHY}. ERR_LIMIT: no answer within limit_s seconds.
 * ERR_IO: it ended. ERR_FORMAT: not one line of JSON. After the last three the process is of
 * no more use. */
MUST int gemm_process_answer(struct gemm_process *p, bool ask, double limit_s,
                             json_t **out);

#endif
