/* baselines/bench_program.h - an engine as its own bench program measures it, by the "bench" of its
 * file in baselines/systems/. The program prints a table; speeds are read from its columns.
 *
 * The keys of "bench":
 *   program     looked for near our programs, then in PATH
 *   version     command whose first line of output is the version
 *   prefill     command that measures prompts of {n_prompt} tokens: a list "16,512", each by itself
 *   decode      command that measures {n_output} tokens of {batch} sequences at once: a list
 *   settings    {NAME: words to append}: each is worth trying
 *   env         variables of its environment
 *   isa         {NAME: {"program": .., "env": ..}}: in place of those above where no more than
 *               this instruction set may be used
 *   separator   between the columns, "," or "|"
 *   columns     {"n_prompt": .., "n_output": .., "prefill_tok_s": .., "decode_tok_s": ..} and, if
 *               there are several sequences, "batch": the titles of the columns. A row of one
 *               sequence and n_prompt > 0 has a speed of prefill, one of n_output > 0 a speed of
 *               decode, of all its sequences together.
 * Values: {program} {model} {threads} {precision}, {n_prompt} {n_output} {batch}, and {ctx}: tokens
 * of all sequences together. One program of a CPU at a time is the caller's to see to.
 * Threads: one caller, which stays until a program has ended. */
#ifndef BASELINES_BENCH_PROGRAM_H
#define BASELINES_BENCH_PROGRAM_H

#include <stdint.h>

#include "base/err.h"

struct sut_bench;

struct sut_bench_opts {
    const char *system; /* a name in baselines/systems/, or a path of such a file */
    const char *model;  /* model file */
    const char *isa;    /* "avx2": no more than this; NULL: all that the processor has */
    const char *precision; /* of this engine's products; other engines have their own */
    const int *cpus;       /* where it runs, n_threads of them; its threads are as many */
    int n_threads;
    double limit_s; /* a program that runs for longer is ended */
};

/* *out: sut_bench_close(). ERR_UNSUPPORTED: it is not installed, its file has no "bench", or it has
 * no program for this instruction set. ERR_NOTFOUND, ERR_FORMAT: the file. */
MUST int sut_bench_open(struct sut_bench **out, const struct sut_bench_opts *o);
void sut_bench_close(struct sut_bench **b);

const char *
sut_bench_version(const struct sut_bench *b);        /* "" where it reports none; lent */
int sut_bench_n_settings(const struct sut_bench *b); /* at least 1 */
const char *sut_bench_setting(const struct sut_bench *b, int i); /* its name; lent */

/* Tokens per second of prompts of n_prompt[0 .. n) tokens, and of decode of n_output tokens of
 * batch[0 .. n) sequences at once; NaN where the program printed none. ERR_IO: it failed, with its
 * last line, before it had printed every speed; afterwards, that is a warning.
 * ERR_LIMIT: it did not end in time. ERR_FORMAT: it printed no such table. */
MUST int sut_bench_prefill(struct sut_bench *b, int setting, const int64_t *n_prompt,
                           int n, double *tok_s);
MUST int sut_bench_decode(struct sut_bench *b, int setting, const int64_t *batch, int n,
                          int64_t n_output, double *tok_s);

#endif
