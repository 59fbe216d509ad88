/* experiments/cli/verb.h - a verb of the program `testbed`: one file in verb/ that ends in
 * one `const struct verb verb_<name>`. make lists the folder; main.c reads the words and
 * prints the help. Only verbs and main.c print to the terminal.   Threads: one. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/opt.h"

/* More are stated by the verbs that have them. */
enum verb_status { VERB_OK = 0, VERB_USAGE = 2, VERB_INVALID = 3 };

#define VERB_EXIT_STATUS                                                                 \
    "  0  success\n"                                                                     \
    "  2  wrong usage, or an error in the experiment's file\n"                           \
    "  3  the run is invalid or failed, or standard output could not be written\n"

/* The words behind a verb: its options, every --set, and the rest in order. */
struct verb_words {
    const void *opts; /* as the verb's table describes them */
    char **sets, **rest;
    int n_sets, n_rest;
};

struct verb {
    const char *name, *help; /* `help` is one line for the list of verbs */
    struct opt_usage usage;
    int n_args, n_optional;
    bool takes_set;             /* --set KEY=VALUE, many times */
    const struct opt_row *opts; /* of a struct that begins with `bool help` */
    size_t opts_bytes;
    int (*run)(const struct verb_words *w); /* returns the exit status */
};
extern const struct verb *const verbs[]; /* written by make */

/* Print the error that is set and return `status`. */
int verb_fail(int status);
/* The status of a call that returned `rc`, whose error is printed: wrong arguments are wrong
 * usage. */
int verb_end(int rc);

/* Do what the verb `name` does with these words, for verbs that end in others. Returns its exit
 * status; errors are printed. */
int verb_call(const char *name, int argc, char **argv);

#define VERB_SMOKE_ROW                                                                   \
    OPT_ROW(BOOL, smoke, "false", "Use the job's smoke section: small and quick.")

#endif
