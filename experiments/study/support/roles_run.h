/* experiments/study/support/roles_run.h - prompt and token machines that are processes
 * (roles/roles.h), or one engine in this process, and requests at given times through them, in
 * real time.
 * Threads: one. */
#ifndef STUDY_ROLES_RUN_H
#define STUDY_ROLES_RUN_H

#include <stdint.h>

#include "experiments/load/study.h"
#include "experiments/study/support/serving.h"

/* As study_serving_open(), with machines in place of an engine. Before any thread is started. */
MUST int study_roles_open(struct study_serving *s, struct serve_opts *o,
                          const char *roles, const char *transport, bool checksums);

struct roles_run_opts {
    const char *model, *roles, *transport; /* roles NULL: one engine with one thread */
    int precision;
    int64_t max_seqs, max_step_tok, max_tok;
    uint64_t seed;                 /* of the prompts' tokens */
    const struct serve_pace *pace; /* of every machine's steps; NULL: none */
};

struct roles_run_request {
    double arrival_s;
    int64_t n_prompt, n_output;
    double first_ms, last_ms; /* set: from the time of arrival */
};

/* Requests in order of arrival, each computed to its end: the first n_before of n, and then, with a
 * clock that begins again, the others. Errors of the machines.
 *   busy_ms  of both parts: how long all steps with a prompt took, and all others */
MUST int study_roles_run(struct roles_run_request *r, int n_before, int n,
                         double busy_ms[2][2], const struct roles_run_opts *o,
                         struct study_cell *cell);

#endif
