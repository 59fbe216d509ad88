/* experiments/study/support/step_curves.h - what measured times of steps say: how they grow with
 * the prompt, the batch and the context, where throughput is highest, and power.
 * Paper: Splitwise III-C, D, F. */
#ifndef STUDY_STEP_CURVES_H
#define STUDY_STEP_CURVES_H

#include "cluster/perf.h"
#include "experiments/load/study.h"

/* Rows of a study's metrics. */
#define STUDY_CURVE_METRICS                                                              \
    {"prompt_linear_r2", "", "higher",                                                   \
     "single prompts: share of the variance of the time that is linear in the length"},  \
        {"prompt_over_linear", "", "",                                                   \
         "time of a token of the longest single prompt / of one half as long or less"},  \
        {"prompt_as_tokens", "", "",                                                     \
         "token steps of one sequence that take as long as a prompt of prompt_tok"},     \
        {"prompt_best_tok_ms", "tok/ms", "higher", "highest throughput of prompts"},     \
        {"prompt_best_at_tok", "tok", "", "tokens in the step that has it"},             \
        {"prompt_after_best", "", "",                                                    \
         "throughput of the step with the most prompt tokens / the highest"},            \
        {"single_best_tok_ms", "tok/ms", "higher", "the same of single prompts"},        \
        {"single_best_at_tok", "tok", "", "its length"},                                 \
        {"single_after_best", "", "",                                                    \
         "throughput of the longest single prompt / the highest"},                       \
        {"token_best_tok_s", "tok/s", "higher", "highest throughput of tokens"},         \
        {"token_best_at_batch", "", "", "its batch"},                                    \
        {"token_knee_batch", "", "",                                                     \
         "smallest batch whose throughput is at least 90 % of the highest"},             \
        {"token_gain", "", "higher", "highest throughput of tokens / that of batch 1"},  \
        {"largest_batch", "", "", "the largest batch"},                                  \
        {"token_slowdown", "", "lower",                                                  \
         "time of a token step of the largest batch / of batch 1"},                      \
        {"token_context_slowdown", "", "lower",                                          \
         "time of a token step after the longest single prompt / after the shortest"},   \
        {"power_prompt_growth", "", "",                                                  \
         "highest power after the longest single prompt / after the shortest"},          \
    {                                                                                    \
        "power_token_growth", "", "", "mean power of the largest batch / of batch 1"     \
    }

/* Report them. prompt_tok: of the prompt that is compared with tokens. */
void study_curves(struct study_cell *out, const struct cluster_point *points, int n,
                  int64_t prompt_tok);

#endif
