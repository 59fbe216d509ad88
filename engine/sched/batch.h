/* sched/batch.h - what policies have in common: filling entries in order of arrival.
 *
 * Both add to entries[n ... max) and return how many there are then. *room: tokens that the
 * step still holds; it falls by what was added.   Threads: stateless. */
#ifndef SCHED_PICK_H
#define SCHED_PICK_H

#include "sched/sched.h"

/* One token for each sequence that decodes. */
int sched_add_decodes(const struct sched_view *v, int64_t *room,
                      struct sched_batch_entry *entries, int n, int max);
/* Prompts, each whole or as much of it as there is room for. The first that waits in vain
 * for memory is not overtaken by others that wait; what has memory goes on. */
int sched_add_prompts(const struct sched_view *v, int64_t *room,
                      struct sched_batch_entry *entries, int n, int max);

#endif
