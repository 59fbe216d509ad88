/* tests/support/step_model.h - small models of every shape trait, each with its float64
 * reference, and steps drawn at random through them. */
#ifndef TESTS_SUPPORT_STEP_MODEL_H
#define TESTS_SUPPORT_STEP_MODEL_H

#include "kv/buckets.h"
#include "kv/kv.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "tests/support/ref_model.h"

#define STEP_MODEL_TOK    48 /* of a sequence */
#define STEP_MODEL_SEQS   8
#define STEP_MODEL_PHASES 16
/* How far a logit may be off, in parts of the largest: with activations, or keys and values, in
 * bf16, and with keys and values in q8. Rounding once in a while tips a softmax: of 40 seeds the
 * worst logit was off by 4e-2, where the root mean square of a trait was at most 3.7e-3. */
#define STEP_MODEL_BF16  5e-2
#define STEP_MODEL_Q8_KV 6e-2

struct step_trait {
    const char *name;
    int dim, n_layers, n_heads, n_kv_heads, head_dim, hidden, vocab;
    enum kern_type type;
    bool tied, bias, o_bias, qk_norm, interleaved;
    enum ref_mixed mixed;
    float scale_factor; /* of the lower rotary frequencies */
    /* A mixture of experts; hidden is that of a shared expert, or 0. */
    int n_experts, n_active, expert_hidden;
    bool norm_topk, flat_router;
    void (*family)(struct model_config *c); /* NULL, or sets what else is different */
};
extern const struct step_trait step_traits[];
extern const int step_n_traits;
/* The same with quantised weights. */
extern const struct step_trait step_quant_traits[];
extern const int step_n_quant_traits;
/* Mixtures of experts of which a token has some, plain and quantised: a small error may change
 * which, so they are for exact arithmetic. */
extern const struct step_trait step_expert_traits[];
extern const int step_n_expert_traits;

void step_trait_config(const struct step_trait *t, struct model_config *c);
/* Exact, f32 keys and values, steps of at most 96 tokens. */
struct model_opts step_model_opts(void);

/* One opened model with its reference. */
struct step_model {
    struct ref_model ref;
    struct par_team *team;
    struct model *model;
    /* Each step is computed by one of these, drawn at random. */
    struct model_phase *phases[STEP_MODEL_PHASES];
    char phase_names[STEP_MODEL_PHASES][16];
    int n_phases;
    struct kv_pool *pool;
    struct kv_bounds bounds; /* of the pool, by step_model_kv() */
    int vocab;
    double *want[STEP_MODEL_SEQS]; /* [STEP_MODEL_TOK, vocab] */
    int32_t ids[STEP_MODEL_SEQS][STEP_MODEL_TOK];
    double max_abs;
    /* NULL, or what step_model_run() must find to the last bit. */
    float *bits[STEP_MODEL_SEQS]; /* [STEP_MODEL_TOK, vocab] */
};

/* Call fn for "ref" and for every ISA level this machine executes, with the limit set. */
void step_model_each_isa(void (*fn)(const char *isa));
/* With a team of n_threads threads, not pinned, and no phase. Fails the test on error. */
void step_model_open(struct step_model *x, const struct step_trait *t,
                     const struct model_opts *o, int n_threads);
void step_model_close(struct step_model *x);
/* One phase more, of the team's first threads. */
void step_model_phase(struct step_model *x, int n_ranks, int n_threads);
void step_model_close_phases(struct step_model *x);
/* Another pool, by another allocator: blocks of 16 tokens, or buckets of 16 and 32 tokens that
 * longer sequences outgrow. */
void step_model_kv(struct step_model *x, const char *alloc, bool shared);
/* From now on each rank of the phases, of a shared model, is a process. */
void step_model_multiprocess(struct step_model *x);

/* Keep the logits of every sequence, one token at a time, alone, by phase 0. */
void step_model_keep_bits(struct step_model *x);

/* Run n_seqs sequences to their end in steps of random chunks, with and without logits,
 * in random company and with memory that grows between the steps; check every row of
 * logits that was asked for: none off by more than tolerance of the largest logit, nor their root
 * mean square by more than a sixth of it. */
void step_model_run(struct step_model *x, int n_seqs, int64_t max_step_tok,
                    double tolerance, uint64_t seed, const char *what);

#endif
