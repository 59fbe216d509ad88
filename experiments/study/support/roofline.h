/* experiments/study/support/roofline.h - the arithmetic of MNN-LLM section V: what a model
 * computes and moves by class of operator, and the tokens a second that a machine's peaks
 * allow. The counts keep the paper's formulas, its slips included, where asked for.
 * Threads: any. */
#ifndef STUDY_ROOFLINE_H
#define STUDY_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

/* The paper counts in units of 2^30 and divides by rates in units of 10^9. */
#define ROOFLINE_G ((double)(1 << 30))

/* A model as the paper describes it: h, i, v, and blocks. */
struct study_roofline_model {
    double hidden, inner, vocab, n_blocks;
    double weight_bytes; /* of one: 0.5 for 4 bits */
    double act_bytes;    /* of an activation: 2 */
};
extern const struct study_roofline_model
    study_roofline_qwen_1_8b; /* with 4-bit weights */

struct study_roofline_work {
    double linear_flop, linear_bytes;
    double attention_flop, attention_bytes;
    double other_bytes;
};
/* `head_rows`: rows that go through the output projection: the paper counts all of a
 * prompt, one is enough. `other_factor`: bytes of the other operators are that times l * h
 * a block: the text says 200, the printed numbers need 400. */
struct study_roofline_opts {
    double head_rows, other_factor;
};
/* A prompt of l tokens. */
void study_roofline_prefill(struct study_roofline_work *out,
                            const struct study_roofline_model *m, double l,
                            const struct study_roofline_opts *o);
/* One token, with a context of ctx tokens. */
void study_roofline_decode(struct study_roofline_work *out,
                           const struct study_roofline_model *m, double ctx,
                           const struct study_roofline_opts *o);

/* The rates of the machine, in units of `g` a second: 1e9, or with 2^30 the paper's mix. */
struct study_roofline_machine {
    double linear_rate, attention_rate, gbps;
};
/* Seconds: of each class the larger of computing and moving, added up. */
double study_roofline_seconds(const struct study_roofline_work *w,
                              const struct study_roofline_machine *m, double g);

#endif
