/* model/bench_steps.h - steps of a model that are there to be timed: sequences with their keys
 * and values in place, ids that mean nothing, logits that nobody reads. Times depend on
 * lengths, not on values.   Threads: the model's owner. */
#ifndef MODEL_BENCH_STEPS_H
#define MODEL_BENCH_STEPS_H

#include <stdbool.h>

#include "cpu/cpu.h"
#include "model/model.h"

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

/* n_seqs sequences of up to max_tok tokens, zeros, touched first by all of the team's
 * threads. A prompt is cut into steps of at most step_tok tokens. ERR_LIMIT: too many to
 * count; ERR_NOMEM. On error *out is closed. */
MUST int model_bench_steps_open(struct model_bench_steps *out, struct model *m,
                                struct par_team *team, int n_seqs, int64_t max_tok,
                                int64_t step_tok, uint64_t seed);
void model_bench_steps_close(struct model_bench_steps *t); /* twice is fine */

/* The seconds of: a prompt of n_tok tokens in the first sequence, with logits of its last
 * one. */
MUST int model_bench_steps_prefill(struct model_bench_steps *t, struct model_phase *p,
                                   int64_t n_tok, double *seconds);
/* A piece of n_tok tokens, at most a step, of a prompt of which ctx_tok are done; with
 * logits of the last one. */
MUST int model_bench_steps_piece(struct model_bench_steps *t, struct model_phase *p,
                                 int64_t n_tok, int64_t ctx_tok, double *seconds);
/* One token more for each sequence of ctx_tok. */
MUST int model_bench_steps_decode(struct model_bench_steps *t, struct model_phase *p,
                                  int64_t ctx_tok, double *seconds);
/* The last, or (not decode) the first of these. */
MUST int model_bench_steps_of(struct model_bench_steps *t, struct model_phase *p,
                              bool decode, int64_t n_tok, double *seconds);

/* A model on all CPUs of this host's budget, opened to be timed. */
struct model_bench {
    struct cpu_budget budget;
    struct par_team *team; /* over the whole budget */
    struct model *model;
    struct model_bench_steps steps;
};
struct model_bench_opts {
    enum kern_precision precision;
    int n_seqs;
    int64_t max_tok;  /* of a sequence */
    int64_t step_tok; /* of a step, which has n_seqs at least */
    uint64_t seed;    /* of the ids */
};
/* `f` is lent for the call; weights keep their type. On error *out is closed. */
MUST int model_bench_open(struct model_bench *out, const struct format_file *f,
                          const struct model_bench_opts *o);
void model_bench_close(struct model_bench *b); /* twice is fine */

#endif
