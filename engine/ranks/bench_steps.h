/* ranks/bench_steps.h - steps of a model for timing: sequences with keys and values in
 * place and random ids. Times depend on lengths, not on values, but for NaN and infinity: a
 * step whose logits have them is ERR_FORMAT.   Threads: the model's owner. */
#ifndef RANKS_BENCH_STEPS_H
#define RANKS_BENCH_STEPS_H

#include <stdbool.h>

#include "cpu/cpu.h"
#include "placement/open.h"
#include "ranks/phase.h"

struct model_bench_steps {
    struct model *model; /* lent */
    struct kv_pool *pool;
    struct kv_slot *kv;         /* [n_seqs] */
    struct model_chunk *chunks; /* [n_seqs] */
    int32_t *ids;               /* [max_tok] */
    float *logits;              /* [n_seqs, vocab] */
    int n_seqs;
    int64_t max_tok, step_tok;
};

/* Prepare n_seqs sequences of up to max_tok tokens, whose keys and values are zero and were
 * touched by all threads of the team. A prompt takes steps of at most step_tok tokens.
 * ERR_LIMIT: the sizes overflow. ERR_NOMEM. On error *out is closed. */
MUST int model_bench_steps_open(struct model_bench_steps *out, struct model *m,
                                struct par_team *team, int n_seqs, int64_t max_tok,
                                int64_t step_tok, uint64_t seed);
void model_bench_steps_close(struct model_bench_steps *t); /* twice is fine */

/* Time a prompt of n_tok tokens in the first sequence, with logits of its last token. */
MUST int model_bench_steps_prefill(struct model_bench_steps *t, struct model_phase *p,
                                   int64_t n_tok, double *seconds);
/* Time a piece of n_tok tokens (at most one step) of a prompt of which ctx_tok tokens are
 * done, with logits of the last token. */
MUST int model_bench_steps_piece(struct model_bench_steps *t, struct model_phase *p,
                                 int64_t n_tok, int64_t ctx_tok, double *seconds);
/* Time one further token of each sequence, all of which have ctx_tok tokens. */
MUST int model_bench_steps_decode(struct model_bench_steps *t, struct model_phase *p,
                                  int64_t ctx_tok, double *seconds);
/* The same of the first n_seqs sequences. */
MUST int model_bench_steps_batch(struct model_bench_steps *t, struct model_phase *p,
                                 int n_seqs, int64_t ctx_tok, double *seconds);
/* Decode of all sequences, or a prompt. */
MUST int model_bench_steps_of(struct model_bench_steps *t, struct model_phase *p,
                              bool decode, int64_t n_tok, double *seconds);

/* A model on CPUs of this host's budget, opened to be timed. */
struct model_bench {
    struct cpu_budget budget;
    struct par_team *team; /* over the whole budget, or opts.cpus; or opts.team */
    bool team_lent;
    struct model *model;
    struct model_bench_steps steps;
};
struct model_bench_opts {
    enum kern_precision precision;
    enum kern_kv_type kv_type;
    int n_seqs;
    bool one_rank; /* all phases will have one rank (struct model_opts) */
    bool deterministic;
    int64_t max_tok;  /* of a sequence */
    int64_t step_tok; /* of a step, which has n_seqs at least */
    int64_t
        caller_bytes; /* what the caller takes for further steps (struct model_opts) */
    uint64_t seed;    /* of the ids */
    const int *cpus;  /* [n_cpus] those of the team's threads, in this order; NULL: the
                         budget's */
    int n_cpus;
    const struct par_team_kind *kind; /* of the team; NULL: pthread */
    struct par_team *team;            /* lent; NULL: the bench opens one */
};
/* `f` is lent for the call; weights keep their type. On error *out is closed. */
MUST int model_bench_open(struct model_bench *out, const struct format_file *f,
                          const struct model_bench_opts *o);
void model_bench_close(struct model_bench *b); /* twice is fine */

#endif
