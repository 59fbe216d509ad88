/* First come, first served, one sequence at a time: its prompt in pieces of at most one
 * step, then its tokens one by one. The single-sequence baseline of the papers. A sequence that
 * cannot have memory does not keep one that has it from going on. */
#include "sched/batch.h"

static int fcfs_step(const struct sched_view *v, struct sched_batch_entry *entries,
                     int max)
{
    struct sched_memory left = sched_memory_of(v);
    const struct sched_seq *s;
    int i = 0;

    while (i < v->n_seqs && v->seqs[i].state == SCHED_WAITING &&
           !sched_memory_take(&left, &v->seqs[i]))
        i++;
    if (i == v->n_seqs || max < 1)
        return 0;
    s = &v->seqs[i];
    entries[0].seq = i;
    entries[0].admit = s->state == SCHED_WAITING;
    if (s->state == SCHED_DECODE)
        entries[0].n_tok = 1;
    else
        entries[0].n_tok =
            s->n_prompt_left < v->max_step_tok ? s->n_prompt_left : v->max_step_tok;
    return 1;
}

const struct sched_policy sched_policy_fcfs = {.name = "fcfs", .step = fcfs_step};
