/* experiments/cli/compare_rounds.h - run A and B in turn, each time in a process of its
 * own, so that a drift of the machine meets both alike: A B, B A, A B ... With an A/A a third
 * takes part, A again: every two rounds mirror each other, and in six rounds each of the three
 * has been first, second and third twice.   Threads: one. */
#ifndef CLI_COMPARE_ROUNDS_H
#define CLI_COMPARE_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct compare_variant {
    const char *program; /* a `testbed`; NULL: this one */
    const char *job;     /* a name, or a file */
    const char *sets;    /* "KEY=VALUE" in lines; NULL: none */
};

struct compare_rounds {
    struct compare_variant side[2];
    char *const *sets; /* of both */
    int n_sets;
    bool smoke;
    bool aa; /* run A a second time in each round */
    int64_t n_rounds;
    int64_t n_rounds_max; /* there may be more later, up to these; 0: there will not */
    const char *
        dir; /* A's records go to `dir`/a, B's to `dir`/b, those of A again to `dir`/aa */
};

/* Run until each side has n_rounds records in its folder: what is there counts, so that an
 * interrupted comparison goes on. Progress goes to the log. ERR_IO: a run left no record. */
MUST int compare_rounds_run(const struct compare_rounds *r);
/* The rounds of which each side has its record. */
int64_t compare_rounds_done(const struct compare_rounds *r);

#endif
