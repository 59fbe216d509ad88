/* base/child.h - a function or another program in a process of its own.
 *
 * Functions are for libraries that may crash: on damaged input, or at exit after the disk was
 * full. Whatever happens in there, the caller gets a text or one error line. Since the
 * process ends with the function, an error inside it needs no clean-up: child_exit() from
 * any depth.
 *
 * No child outlives its parent, however the parent ends: the kernel kills it when the thread
 * that started it ends. So a thread that starts a program stays until it has ended.
 * Threads: any; a function's child has the calling thread only. */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

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
    size_t memory_bytes; /* of these limits the part of memory for any size; 0: 512 MiB */
};

/* *text: owned by the caller, mem_free(); *n bytes and a NUL that is not counted. NULL on
 * error. ERR_FORMAT: the function crashed or hit a limit. ERR_IO: no process could be
 * started. Else what `fn` returned. */
MUST int child_run(const struct child *c, char **text, size_t *n);

/* Only in such a child: end it with this result, OK or an error that was set. */
_Noreturn void child_exit(int rc);

/* In a process made by fork(), before anything else: it is killed when its parent `parent`
 * ends, and ends at once where it has ended already. */
void child_follow(pid_t parent);

/* In a child that works for its parent: what the terminal or a service manager sends to the
 * whole process group, SIGINT, SIGTERM and SIGHUP, is the parent's to act on. Functions of
 * child_run() begin with it. */
void child_leave_signals(void);

struct child_program {
    const char *const *argv; /* NULL ends it; argv[0] is looked up in PATH */
    char *const *env;        /* NULL: that of this process */
    /* Become its descriptors 0 to 2, in this order; -1: the null device. It gets no
     * others. */
    int fd[3];
    const int *cpus; /* it runs on these from its start on, before main() */
    int n_cpus;      /* 0: on those of the calling thread */
    bool own_group;  /* an interrupt from the keyboard does not reach it */
};
/* *pid: child_wait() or child_kill(); 0 on error. ERR_NOTFOUND: no such program. ERR_ARG,
 * ERR_IO: it cannot be started, or not on these CPUs. */
MUST int child_start(pid_t *pid, const struct child_program *p);
/* Wait for its end for at most limit_s seconds (0: for as long as it takes). OK: it exited
 * with status 0; ERR_IO: otherwise, "exited with status 3", "ended by signal 9 (Killed)",
 * for the caller to put the name before; *pid is then 0. ERR_LIMIT: it still runs. */
MUST int child_wait(pid_t *pid, double limit_s);
/* The last line that is not empty of what it wrote to the file `fd`, fit for an error; "" where
 * there is none. */
void child_last_line(int fd, char *out, size_t n);
/* Kill it and wait for its end; *pid is 0 then. 0 is ignored. */
void child_kill(pid_t *pid);

#endif
