/* experiments/conformance/conform.h - does a server of the OpenAI protocol answer rightly?
 *
 * What is right is not known, but how answers are related is: the same request gets the same
 * answer whether its prompt is in a cache or not, is computed in pieces or among others, and
 * by one process or by several. How often the same request gets another answer for no reason,
 * the noise floor, is measured first; with a floor of 0 each difference is a wrong answer.
 * Splitwise IV moves keys and values between machines, where a wrong byte shows only here.
 * Threads: one caller. */
#ifndef CONFORM_CONFORM_H
#define CONFORM_CONFORM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/opt.h"

struct conform_opts {
    double budget;
    int64_t rounds, prompt_tok, output_tok, concurrency, seed;
    bool exact, ids;
    char *roles, *model, *serve_words, *roles_words, *reference, *api_key_env, *json;
};
extern const struct opt_row conform_opt_table[];

/* The result of a run. */
struct conform_result {
    int n_wrong, n_silent, n_hangs;
    int n_unchecked;  /* relations that apply, but of which no case ended */
    int64_t n_failed; /* requests that ended with an error, which every client sees */
};

/* Check the server at `url`, or where o->roles is given the program `sandwich`, started here
 * with these roles, against one process. Writes a report to `out`, and to o->json where given,
 * with findings or without. Its end is within 1.1 times o->budget, but for the time that servers
 * started here take to load. ERR_ARG: options are wrong. ERR_IO: no server answers. */
MUST int conform_run(struct conform_result *r, const char *url,
                     const struct conform_opts *o, FILE *out);

#endif
