/* experiments/run/bench.h - measures a running server without a job file: one user at a time, then
 * the highest rate of requests that keeps the objectives; or a load that is given. The answer is
 * text or JSON, and with a folder a record, too. Threads: one caller. */
#ifndef RUN_BENCH_H
#define RUN_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/opt.h"

struct run_bench_opts {
    double slo_ttft_ms, slo_tpot_ms, budget_s, think_s;
    int64_t prompt_tok, output_tok, seed, users, requests;
    char *model, *api_key_env, *stages, *dataset, *limit, *clients, *client_command, *out;
    int turns; /* enum dataset_turns */
    bool any_length, replay, json;
};
extern const struct opt_row run_bench_opt_table[];

/* Measure the server at `url`, with or without its scheme, and write four sentences and a
 * table in Markdown to `out`, or JSON. ERR_ARG: the URL or the options are wrong. ERR_IO: no server
 * of the OpenAI protocol answers there, or no request of one user completed. Without a given load
 * its end is within 1.1 times budget_s, whatever the server does. */
MUST int run_bench(const char *url, const struct run_bench_opts *o, FILE *out);

/* Be a client of a run_bench() with o->clients, which is at the other end of `in` and `out`, until
 * `in` ends; it is told of errors. ERR_IO: it cannot be. */
MUST int run_bench_client(FILE *in, FILE *out);

#endif
