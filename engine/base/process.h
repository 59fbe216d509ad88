/* base/process.h - what a program of this project does first and last.
 *
 * A process inherits descriptors and signal settings from the one that started it, and
 * these may be unusable: `testbed ... 2>&-` starts it without a standard error, and cron
 * jobs and container entry points are started with SIGCHLD ignored. The rest of the code
 * relies on what is established here.   Threads: main() only, before it starts others. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include "base/err.h"

/* Standard input, output and error are open afterwards, so that no file opened later gets
 * one of their numbers and receives what is meant for a person. A closed one becomes the
 * null device. Reading the input and writing the output then fail with EBADF, since an
 * empty input or a lost result must not look like success; messages are discarded.
 * SIGCHLD has its default action, since the system discards the exit status of children
 * while it is ignored.
 * What is printed on standard output where that is a terminal is shown as utf8_show()
 * writes it, but for newlines and tabs, since it holds words of files and of models, which
 * must not control the terminal. As with ls and git, a file or a pipe gets the very bytes,
 * which are data to the program that reads them.
 * ERR_IO: the null device cannot be opened. ERR_NOMEM. */
MUST int process_start(void);

/* Call fn when SIGINT, SIGTERM or SIGHUP ends this process, before their default action: fn
 * may call what a signal handler may. A signal that is ignored (nohup) or handled otherwise
 * stays so. A process made by fork() does not call what its parent asked for. At most 4
 * functions, for the life of the process; one may be given again. Threads: any. */
void process_at_signal(void (*fn)(int sig));

/* Where mem_when_short() ends this process: print "PROGRAM: out of memory ..." on standard
 * error, do what process_at_signal() was asked for, and exit with `status`. */
void process_exit_when_short(const char *program, int status);

/* The last thing: flush and close standard output. ERR_IO: something that was printed is
 * lost, which must not look like success either. */
MUST int process_end(void);

#endif
