/* experiments/study/support/program.h - another program, of which a study reads the JSON that it
 * prints.   Threads: the one that starts it stays until it has ended (base/child.h). */
#ifndef STUDY_PROGRAM_H
#define STUDY_PROGRAM_H

#include <stdio.h>
#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"

struct study_program {
    const char *name; /* begins error lines: "sandwich run" */
    /* NULL ends it. argv[0] is looked up in PATH, but "sandwich" is this project's. */
    const char *const *argv;
    char *const *env; /* NULL: that of this process */
    /* Private. */
    pid_t pid;
    FILE *answer, *log;
};

/* Start it; what it prints is kept. study_program_close() also after an error. */
MUST int study_program_start(struct study_program *p);
/* Wait for its end for at most limit_s seconds; 0: for as long as it takes.
 *   answer  NULL, or a new reference to the JSON that it printed
 * ERR_LIMIT: it still runs; wait again, or close it. ERR_IO: it failed; the error holds the last
 * line that it wrote to its standard error. ERR_FORMAT: it did not print JSON. */
MUST int study_program_wait(struct study_program *p, double limit_s, json_t **answer);
void study_program_close(struct study_program *p); /* a program that runs is killed */

/* All of it: start, wait for the end, close. */
MUST int study_program_run(struct study_program *p, json_t **answer);

#endif
