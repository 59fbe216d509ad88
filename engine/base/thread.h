/* base/thread.h - starting threads and making locks, each of which may be refused: by a limit of
 * processes, a cgroup, or for want of memory. Threads: any.
 *
 * A mutex or condition in memory of zeros, as mem_new() gives it, may be locked, signalled and
 * destroyed like one that was made, so that one function closes what was opened half. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/err.h"

/* Start run(arg). `who` begins the error line. stack_bytes 0: the system's choice.
 * ERR_NOMEM: no thread, nor memory for its stack, is to be had; *out is not changed. */
MUST int thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *arg,
                      const char *who);

/* Call run(ctx, i) for i from 0 to n - 1, each on a thread of its own, i = 0 on the caller's,
 * and return when all have returned. n is at most THREAD_FORK_MAX, or that counts. Threads that
 * cannot be had are left out, and their i with them: run() takes its work from a shared counter. */
#define THREAD_FORK_MAX 256
void thread_fork_join(int n, void (*run)(void *ctx, int i), void *ctx);

/* ERR_NOMEM: as above. */
MUST int thread_mutex_init(pthread_mutex_t *m);
/* A wait with a timeout ends by clock_ns(), which nobody sets. */
MUST int thread_cond_init(pthread_cond_t *c);

/* Test hook: of the calls above, and the pthread calls in them, let n succeed, then fail one. n < 0
 * switches it off. */
void thread_fail_after(long n);

#endif
