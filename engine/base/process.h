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
 * ERR_IO: the null device cannot be opened. */
MUST int process_start(void);

/* The last thing: flush and close standard output. ERR_IO: something that was printed is
 * lost, which must not look like success either. */
MUST int process_end(void);

#endif
