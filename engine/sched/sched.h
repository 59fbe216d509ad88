/* sched/sched.h - which tokens of which sequences go into the next step.
 *
 * A policy is a pure function of a view: it reads no clock, takes no lock, allocates
 * nothing, so that the server, the trace replayer and the cluster simulator run the same
 * file. One file in sched/policy/ ends in one `const struct sched_policy
 * sched_policy_<stem>`.
 * Threads: stateless. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdint.h>

#include "base/err.h"

enum sched_state {
    SCHED_WAITING, /* it has no memory: new, or preempted */
    SCHED_PREFILL, /* some prompt tokens still to do */
    SCHED_DECODE
};

struct sched_seq {
    int64_t id;
    enum sched_state state;
    int64_t n_prompt_left; /* tokens of the prompt not yet computed; after a preemption
                              also those that it had generated */
    int64_t n_ctx;         /* tokens computed */
    int64_t n_max;         /* prompt + the most it may generate */
    int64_t n_reserve;     /* while it waits: tokens of memory that admission takes */
    int64_t arrival;       /* order of arrival */
    int64_t age;           /* steps since it last took part in one, or since it came */
    int64_t
        n_paused; /* steps, in all, for which the policy passed it over while it decoded */
};

struct sched_view {
    const struct sched_seq *seqs; /* ascending arrival */
    int n_seqs;
    int64_t max_step_tok; /* tokens one step may hold */
    int64_t n_free_slots; /* further sequences that can be given memory */
    int64_t n_free_tok;   /* tokens of memory that are not reserved */
    /* Prompt tokens up to which several prompts share a step; 0: the policy's own value. */
    int64_t max_batch_prompt_tok;
};

struct sched_batch_entry {
    int seq;       /* index into view.seqs */
    int64_t n_tok; /* prompt tokens to do now; 1 for decode */
    int admit;     /* 1: reserve memory first */
};

struct sched_policy {
    const char *name;
    /* Fill entries[0..max); returns how many (0: nothing to do). */
    int (*step)(const struct sched_view *v, struct sched_batch_entry *entries, int max);
};
extern const struct sched_policy *const sched_policies[];
MUST int sched_policy_find(const char *name, const struct sched_policy **out);

#endif
