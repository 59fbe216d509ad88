/* Continuous batching, prompts first: a step is either of prompts, as many in order of
 * arrival as a step and the memory hold, or of one token for every sequence that decodes.
 * A step is of one phase, so that each runs on its own service configuration. */
#include "sched/batch.h"

static int continuous_step(const struct sched_view *v, struct sched_batch_entry *entries,
                           int max)
{
    int64_t token_budget = v->max_step_tok;
    int n = sched_add_prompts(v, &token_budget, entries, 0, max);

    return n > 0 ? n : sched_add_decodes(v, &token_budget, entries, 0, max);
}

const struct sched_policy sched_policy_continuous = {.name = "continuous",
                                                     .step = continuous_step};
