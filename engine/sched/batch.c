#include "sched/batch.h"

bool sched_memory_take(struct sched_memory *m, const struct sched_seq *s)
{
    if (m->n_slots < 1 || m->n_tok < s->n_reserve) {
        *m = (struct sched_memory){0, 0};
        return false;
    }
    m->n_slots--;
    m->n_tok -= s->n_reserve;
    return true;
}

int sched_add_decodes(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max)
{
    for (int i = 0; i < v->n_seqs && n < max && 0 < *token_budget; i++) {
        if (v->seqs[i].state != SCHED_DECODE)
            continue;
        entries[n++] = (struct sched_batch_entry){.seq = i, .n_tok = 1};
        --*token_budget;
    }
    return n;
}

int sched_add_prompts(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max)
{
    struct sched_memory left = sched_memory_of(v);

    for (int i = 0; i < v->n_seqs && n < max && 0 < *token_budget; i++) {
        const struct sched_seq *s = &v->seqs[i];
        int64_t n_tok =
            s->n_prompt_left < *token_budget ? s->n_prompt_left : *token_budget;
        bool admit = s->state == SCHED_WAITING;

        if (s->state == SCHED_DECODE || (admit && !sched_memory_take(&left, s)))
            continue;
        entries[n++] =
            (struct sched_batch_entry){.seq = i, .n_tok = n_tok, .admit = admit};
        *token_budget -= n_tok;
    }
    return n;
}
