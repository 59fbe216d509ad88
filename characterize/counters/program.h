/* characterize/counters/program.h - counts of a whole program run under valgrind's
 * callgrind, with its simulation of the first and last level of cache: simulated, but the
 * same to the count on every machine, with a PMU or without.
 *
 * Phases are calls of one function of the program: each call is an entry, and what happens
 * outside of it is not counted.   Threads: any; the program is a child process. */
#ifndef COUNTERS_PROGRAM_H
#define COUNTERS_PROGRAM_H

#include <stdint.h>

#include "base/err.h"

/* The counts of one call, all threads together. */
struct counters_call {
    int64_t instructions, reads, writes;
    int64_t l1_misses;                       /* of instructions, reads and writes */
    int64_t ll_read_misses, ll_write_misses; /* of data */
};

struct counters_program {
    const char *const *argv; /* the program and its arguments; NULL ends them */
    const char *function;    /* not inlined, and seen by the linker */
    /* The simulated last level; the first level is this processor's, as valgrind finds it. */
    int64_t ll_bytes; /* a power of two */
    int ll_ways, line_bytes;
    /* Its files lie in a temporary folder with a name like this one's (base/file_tmp.h). */
    const char *files;
    double limit_s; /* kill it after that long */
};

/* Run it. *calls: in order, mem_free(). ERR_NOTFOUND: no valgrind here, or the function is
 * never called. ERR_IO: it failed or took too long; the message has valgrind's last line. */
MUST int counters_program_run(const struct counters_program *p,
                              struct counters_call **calls, int *n_calls);

#endif
