/* Chunked prefill: every step holds one token of each sequence that decodes, then pieces
 * of prompts in order of arrival until it is full. No decoding sequence ever waits for
 * another's prompt; a prompt takes as many steps as it must.   Paper: Sarathi-Serve. */
#include "sched/batch.h"

static int chunked_step(const struct sched_view *v, struct sched_batch_entry *entries,
                        int max)
{
    int64_t token_budget = v->max_step_tok;
    int n = sched_add_decodes(v, &token_budget, entries, 0, max);

    return sched_add_prompts(v, &token_budget, entries, n, max);
}

const struct sched_policy sched_policy_chunked = {.name = "chunked",
                                                  .step = chunked_step};
