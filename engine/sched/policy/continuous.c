/* Continuous batching, prompts first: a step is either of prompts, as many in order of
 * arrival as a step and the memory hold, or of one token for every sequence that decodes.
 * A step is of one phase, so that each runs on its own service configuration. */
#include "sched/sched.h"

static int prompts(const struct sched_view *v, struct sched_pick *picks, int max)
{
    int64_t room = v->max_step_tok, regions = v->free_regions;
    int n = 0;

    for (int i = 0; i < v->n_seqs && n < max && room > 0; i++) {
        const struct sched_seq *s = &v->seqs[i];
        int64_t n_tok = s->n_prompt_left < room ? s->n_prompt_left : room;

        if (s->state == SCHED_DECODE)
            continue;
        if (s->state == SCHED_WAITING && regions-- < 1)
            break; /* who came later does not overtake */
        picks[n++] = (struct sched_pick){
            .seq = i, .n_tok = n_tok, .admit = s->state == SCHED_WAITING};
        room -= n_tok;
    }
    return n;
}

static int continuous_step(const struct sched_view *v, struct sched_pick *picks, int max)
{
    int n = prompts(v, picks, max);

    if (n > 0)
        return n;
    for (int i = 0; i < v->n_seqs && n < max && n < v->max_step_tok; i++)
        if (v->seqs[i].state == SCHED_DECODE)
            picks[n++] = (struct sched_pick){.seq = i, .n_tok = 1};
    return n;
}

const struct sched_policy sched_policy_continuous = {.name = "continuous",
                                                     .step = continuous_step};
