/* sched/batch.h - functions that policies share: fill a batch in order of arrival.
 *
 * The two that add do so to entries[n ... max) and return the new number of entries.
 * *token_budget: how many tokens the step can still take; it is reduced by what was
 * added.
 * Threads: stateless. */
#ifndef SCHED_BATCH_H
#define SCHED_BATCH_H

#include <stdbool.h>

#include "sched/sched.h"

/* Memory that is left while a batch is filled. */
struct sched_memory {
    int64_t n_slots, n_tok;
};
static inline struct sched_memory sched_memory_of(const struct sched_view *v)
{
    return (struct sched_memory){v->n_free_slots, v->n_free_tok};
}
/* Take what waiting sequence `s` needs. false: it does not fit. Nothing is left then, so that no
 * later one overtakes it. */
bool sched_memory_take(struct sched_memory *m, const struct sched_seq *s);

/* Add one token for each decoding sequence. */
int sched_add_decodes(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max);
/* Add prompts, each whole or as much of it as fits. When a waiting sequence cannot be given
 * memory, later waiting ones are not admitted either. Sequences that have memory continue. */
int sched_add_prompts(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max);

#endif
