/* sched/batch.h - functions that policies share: fill a batch in order of arrival.
 *
 * Both add to entries[n ... max) and return the new number of entries. *token_budget: how
 * many tokens the step can still take; it is reduced by what was added.
 * Threads: stateless. */
#ifndef SCHED_BATCH_H
#define SCHED_BATCH_H

#include "sched/sched.h"

/* Add one token for each decoding sequence. */
int sched_add_decodes(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max);
/* Add prompts, each whole or as much of it as fits. When a waiting sequence cannot be given
 * memory, later waiting ones are not admitted either. Sequences that have memory continue. */
int sched_add_prompts(const struct sched_view *v, int64_t *token_budget,
                      struct sched_batch_entry *entries, int n, int max);

#endif
