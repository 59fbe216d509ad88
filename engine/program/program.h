/* program/program.h - a program with verbs: `sandwich`, `testbed`. A verb is one file that ends in
 * one `const struct verb`; make lists the folder. Reading its words, its help, errors and exit
 * statuses are here.   Threads: main() only. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/opt_join.h"

/* The exit statuses that both programs have; more are stated by the verbs that have them. */
enum program_status { PROGRAM_OK = 0, PROGRAM_USAGE = 2, PROGRAM_LOST = 3 };

/* The words behind a verb: its options, every --set, and the rest in order. */
struct verb_words {
    const void *opts; /* as the verb's tables describe them */
    char **sets, **rest;
    int n_sets, n_rest;
};

#define VERB_TABLES_MAX 4

struct verb {
    const char *name, *help; /* `help` is one line for the list of verbs */
    int place;               /* in that list, from 1; 0: after those that have one */
    struct opt_usage usage;  /* exit_status NULL: that of the program */
    int n_args, n_optional;  /* words that must be left, and those that may */
    bool takes_set;          /* --set KEY=VALUE, many times */
    /* Options (OPT_STR) that words set which belong to no flag, in this order; an option that its
     * flag has set is passed over. NULL ends them. */
    const char *fills[3];
    /* The tables of the parts of one struct of opts_bytes. --help is not in them. */
    struct opt_part opts[VERB_TABLES_MAX + 1];
    size_t opts_bytes;
    /* Returns the exit status, or the code of an error that is not printed yet: wrong arguments
     * (ERR_ARG) are wrong usage, all others a failure. */
    int (*run)(const struct verb_words *w);
    /* A verb that only has verbs of its own, in place of all from `usage` on. */
    const struct verb *const *verbs; /* NULL ends the list */
    const char *text;                /* its help */
};

struct program {
    const char *name, *line, *about; /* line: "sandwich VERB [options]" */
    const struct verb *const *verbs; /* written by make */
    const char *environment;         /* lines of the help; NULL: none */
    const char *examples, *exit_status;
    int failed;      /* exit status of a failure */
    bool names_verb; /* errors begin with "sandwich run: ", not with "sandwich: " */
};

/* Returns the exit status of the program. */
int program_main(const struct program *p, int argc, char **argv);

/* For verbs: print the error that is set and return `status`. */
int verb_fail(int status);
/* The exit status for the code `rc` of a call, whose error is printed. */
int verb_end(int rc);
/* Do what the verb `name` does with these words, for verbs that end in others. Returns its exit
 * status; errors are printed. */
int verb_call(const char *name, int argc, char **argv);

#endif
