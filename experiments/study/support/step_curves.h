/* experiments/study/support/step_curves.h - what measured times of steps say: how they grow with
 * the prompt, the batch and the context, where throughput is highest, and power.
 * Paper: Splitwise III-C, D, F. */
#ifndef STUDY_STEP_CURVES_H
#define STUDY_STEP_CURVES_H

#include "cluster/perf.h"
#include "experiments/frame/frame.h"

/* Results of a study. */
#define STUDY_CURVE_RESULTS(X)                                                           \
    X(prompt_linear_r2, "", HIGHER,                                                      \
      "single prompts: share of the variance of the time that is linear in the length")  \
    X(prompt_over_linear, "", 0,                                                         \
      "time of a token of the longest single prompt / of one half as long or less")      \
    X(prompt_as_tokens, "", 0,                                                           \
      "token steps of one sequence that take as long as a prompt of prompt_tok")         \
    X(prompt_best_tok_ms, "tok/ms", HIGHER, "highest throughput of prompts")             \
    X(prompt_best_at_tok, "tok", 0, "tokens in the step that has it")                    \
    X(prompt_after_best, "", 0,                                                          \
      "throughput of the step with the most prompt tokens / the highest")                \
    X(single_best_tok_ms, "tok/ms", HIGHER, "the same of single prompts")                \
    X(single_best_at_tok, "tok", 0, "its length")                                        \
    X(single_after_best, "", 0, "throughput of the longest single prompt / the highest") \
    X(token_best_tok_s, "tok/s", HIGHER, "highest throughput of tokens")                 \
    X(token_best_at_batch, "", 0, "its batch")                                           \
    X(token_knee_batch, "", 0,                                                           \
      "smallest batch whose throughput is at least 90 % of the highest")                 \
    X(token_gain, "", HIGHER, "highest throughput of tokens / that of batch 1")          \
    X(largest_batch, "", 0, "the largest batch")                                         \
    X(token_slowdown, "", LOWER,                                                         \
      "time of a token step of the largest batch / of batch 1")                          \
    X(token_context_slowdown, "", LOWER,                                                 \
      "time of a token step after the longest single prompt / after the shortest")       \
    X(power_prompt_growth, "", 0,                                                        \
      "highest power after the longest single prompt / after the shortest")              \
    X(power_token_growth, "", 0, "mean power of the largest batch / of batch 1")

/* Set them. prompt_tok: the length of the prompt that is compared with tokens. */
void study_curves(struct frame *f, const struct cluster_point *points, int n,
                  int64_t prompt_tok);

#endif
