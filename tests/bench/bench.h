/* tests/bench/bench.h - what `make bench` measures and how it keeps score.
 *
 * Every figure is measured by measure/compare.h, all of a kind in turn, with its interval,
 * with the bound it cannot exceed: measured read bandwidth or the measured peak
 * of the type. Nothing here is asserted: tests prove correctness, this measures. */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"
#include "base/opt.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "measure/compare.h"
#include "measure/noise.h"
#include "par/team.h"

struct bench_opts {
    char *models;     /* "llama-160m,sheared-llama-1.3b" */
    char *types;      /* "f32,bf16,q4_0" */
    char *precisions; /* "exact,relaxed,a8" */
    char *schedules;  /* tuned schedules to compare with the default; NULL: none */
    char *out;        /* latest.json */
    int64_t rounds;
    bool ops;           /* measure single operators */
    bool deterministic; /* measure models in that mode; exact only */
    bool ranks;         /* measure the same steps with one rank per thread as well */
    bool help, version;
};
extern const struct opt_row bench_opt_table[];

struct bench {
    struct bench_opts o;
    struct par_team *team;
    const int *cpus; /* of the team */
    int n_threads;
    struct measure_noise noise;
    json_t *card;     /* of this machine */
    json_t *headline; /* name -> {value, unit, better} */
    json_t *rows;     /* everything printed, as data */
};

/* The bounds: read bandwidth now (a short run of the probe), and the card's peak. NaN
 * when they cannot be had. */
double bench_read_gbps(struct bench *b);
double bench_peak_gflops(const struct bench *b, const char *type, const char *precision);

MUST int bench_headline(struct bench *b, const char *name, double value, const char *unit,
                        bool higher_is_better);
/* Keep one printed line as data; steals `row`. */
MUST int bench_row(struct bench *b, json_t *row);

/* What is measured of a model: a token at this context, prompts of these lengths. */
#define BENCH_CONTEXT 128
#define BENCH_PREFILL_SIZES                                                              \
    {                                                                                    \
        16, 64, 128, 512                                                                 \
    }
#define BENCH_ROUNDS_MAX 1000

/* What a token decoded after ctx_tok others must read, and what a prompt of n_tok tokens
 * executes (model/cost.h). */
double bench_decode_bytes(const struct model *m, int64_t ctx_tok);
double bench_prefill_flop(const struct model *m, int64_t n_tok);

MUST int bench_ops(struct bench *b);
MUST int bench_models(struct bench *b);
/* The model in this file by as many ranks of one thread as the team has threads, as
 * threads and as processes, compared with one rank of all threads. */
MUST int bench_ranks(struct bench *b, const char *path, const char *precision,
                     const char *arch, const char *tag);

/* "(-0.1 .. +2.3 %)": the interval of a time, for a printf; one a statement. */
const char *bench_interval(const struct measure_report *r);

#endif
