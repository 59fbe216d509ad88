/* model/sampler.h - chooses the next token id from logits.
 *
 * Greedy when temperature is 0; otherwise, in this order: top-k, temperature softmax,
 * top-p, min-p, draw. Seeded: the same seed and logits give the same id.
 * Threads: one owner. Allocates only at open. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kern.h"

struct sampler_opts {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    int64_t seed;
};

struct sampler;
MUST int sampler_open(struct sampler **out, const struct sampler_opts *o, int vocab,
                      const struct kern_table *kern);
void sampler_close(struct sampler **s);
/* The next id, from logits [vocab]; -1 where one of them is NaN or infinite, which no sound
 * model computes. */
int32_t sampler_sample(struct sampler *s, const float *logits);
/* Another sampler with these options has chosen an id: the next one here is that which the other
 * would choose next. */
void sampler_skip(struct sampler *s);

#endif
