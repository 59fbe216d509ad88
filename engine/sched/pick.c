#include "sched/pick.h"

#include <stdbool.h>

int sched_pick_decodes(const struct sched_view *v, int64_t *room,
                       struct sched_pick *picks, int n, int max)
{
    for (int i = 0; i < v->n_seqs && n<max && * room> 0; i++) {
        if (v->seqs[i].state != SCHED_DECODE)
            continue;
        picks[n++] = (struct sched_pick){.seq = i, .n_tok = 1};
        --*room;
    }
    return n;
}

int sched_pick_prompts(const struct sched_view *v, int64_t *room,
                       struct sched_pick *picks, int n, int max)
{
    int64_t regions = v->free_regions;

    for (int i = 0; i < v->n_seqs && n<max && * room> 0; i++) {
        const struct sched_seq *s = &v->seqs[i];
        int64_t n_tok = s->n_prompt_left < *room ? s->n_prompt_left : *room;
        bool admit = s->state == SCHED_WAITING;

        if (s->state == SCHED_DECODE || (admit && regions-- < 1))
            continue;
        picks[n++] = (struct sched_pick){.seq = i, .n_tok = n_tok, .admit = admit};
        *room -= n_tok;
    }
    return n;
}
