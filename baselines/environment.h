/* baselines/environment.h - the environment of a program under test: ours without the
 * settings of BLAS, OpenMP and memory allocators that the user has for other purposes.
 * Threads: any. */
#ifndef BASELINES_ENVIRONMENT_H
#define BASELINES_ENVIRONMENT_H

#include "base/err.h"

/* `set`: n_set variables "NAME=VALUE" to add. *out: mem_free(); it holds pointers to `set`
 * and to this process's environment. */
MUST int sut_environment(char ***out, char *const *set, int n_set);

#endif
