/* model/sampler.h - chooses the next token id from logits.
 *
 * Ids that a constraint does not allow are left out. Logits are then changed by what was there
 * before (penalties) and by what the caller wants (biases, no end yet). The likeliest is taken when
 * temperature is 0; otherwise, in this order: top-k, temperature softmax, typical-p, top-p, min-p,
 * draw. Seeded: the same seed, logits and ids before give the same id.
 * Threads: one owner. Allocates only at open. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kern.h"

struct sampler_bias {
    int32_t id;
    float bias; /* added to its logit */
};

/* What decides which ids may come next, such as a grammar. */
struct sampler_constraint {
    /* A bit for each id, [(vocab + 63) / 64], valid until the next call; NULL: it has failed. */
    const uint64_t *(*allowed)(void *ctx);
    void (*take)(void *ctx, int32_t id); /* the id was chosen */
    void *ctx;
};

struct sampler_opts {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    int64_t seed;
    /* Keep the ids whose -log(probability) is nearest to the entropy, until their probabilities
     * sum to this. 0 and 1: off. Paper: Meister et al., "Locally typical sampling". */
    double typical_p;
    /* Of ids in the prompt or chosen before: positive logits are divided by this, others
     * multiplied. 0 and 1: off. */
    double repetition_penalty;
    /* Subtracted from the logits of ids that were chosen before: once; each time. 0: off. */
    double presence_penalty, frequency_penalty;
    const struct sampler_bias *bias; /* [n_bias] copied */
    int n_bias;
    /* [n_late] copied: ids that are not chosen before min_new others were. */
    const int32_t *late;
    int n_late;
    int64_t min_new;
    struct sampler_constraint constraint; /* its functions NULL: none */
};

struct sampler;
/* ERR_ARG: an option is out of range, or an id outside of the vocabulary. */
MUST int sampler_open(struct sampler **out, const struct sampler_opts *o, int vocab,
                      const struct kern_table *kern);
void sampler_close(struct sampler **s);
/* Ids of the prompt, for repetition_penalty. */
void sampler_prompt(struct sampler *s, const int32_t *ids, int64_t n);
/* The next id, from logits [vocab]; -1 where one of them is NaN or infinite, which no sound
 * model computes; SAMPLER_NONE where the constraint allows none. */
#define SAMPLER_NONE (-2)
int32_t sampler_sample(struct sampler *s, const float *logits);
/* Another sampler with these options has chosen this id: the next one here is that which the other
 * would choose next. */
void sampler_skip(struct sampler *s, int32_t id);

#endif
