/* experiments/run/bench_answer.h - what run_bench() found, for people and for programs.
 * Threads: one. */
#ifndef RUN_BENCH_ANSWER_H
#define RUN_BENCH_ANSWER_H

#include <stdio.h>
#include <jansson.h>

#include "experiments/load/search.h"
#include "experiments/load/stages.h"
#include "experiments/run/bench.h"

#define RUN_BENCH_TARGET_FRAC 0.9 /* of requests within the objectives */
#define RUN_BENCH_MAX_TRIALS  (LOAD_STAGES_MAX + 1)

/* One measurement, or the part of one that is a stage. Numbers are NaN where there are none. */
struct run_bench_trial {
    char load[64];   /* "one user", "4 requests/s" */
    double rate_rps; /* 0: the load has none */
    double n, n_failed, ttft_ms, p90_ttft_ms, tpot_ms, tok_s, rps, within_frac,
        lateness_ms;
    char error[96]; /* of the first request that failed, "" */
};

struct run_bench_answer {
    const char *url;
    const struct run_bench_opts *o;
    json_t *described;          /* by the system, itself; NULL: not yet */
    json_t *clients;            /* run_clients_json(); NULL: there are none */
    bool is_given;              /* the load is; else it was searched */
    size_t n_not_sent;          /* of a given load, when its time was over */
    struct run_bench_trial one; /* of a search: one user */
    /* Of a search each rate; of a given load all of it, and then its stages. */
    struct run_bench_trial trials[RUN_BENCH_MAX_TRIALS];
    int n_trials;
    struct load_bracket bracket; /* of a search: the rates at which the objectives hold */
    char *record;                /* path; NULL: none */
};

/* Sentences, and a table in Markdown. */
void run_bench_print(const struct run_bench_answer *a, FILE *out);
/* The same as an object; new reference. */
json_t *run_bench_json(const struct run_bench_answer *a);

#endif
