/* cpu/program.h - main() of a program with verbs: help, version, environment, dispatch, and
 * errors of these.   Threads: main() only. */
#ifndef CPU_PROGRAM_H
#define CPU_PROGRAM_H

#include <stdio.h>

#include "base/err.h"

struct cpu_program {
    const char *name;
    const char *(*verb)(int i); /* the name of the i-th verb, NULL after the last */
    void (*help)(FILE *f);      /* the help text of the program */
    /* Runs a verb with the words after it; returns the exit status. */
    int (*run)(int verb, int argc, char **argv);
    int exit_usage; /* exit status of wrong usage */
    int exit_lost;  /* exit status of a success whose output was lost */
};

/* Returns the exit status of the program. */
int cpu_program_main(const struct cpu_program *p, int argc, char **argv);

#endif
