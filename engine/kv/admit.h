/* kv/admit.h - who gets memory next, and who loses it where it is short.
 *
 * Pure functions, for the same reason as policies in sched/sched.h: a server and a simulator
 * run the same code. Requests and sequences are in order of arrival.
 *
 * Short of memory, a sequence that outgrew its block waits, and the others go on. After
 * `patience` steps, or when all sequences wait for one another, the youngest loses its memory
 * and computes its tokens again later. The oldest is therefore never preempted while others
 * run, and has the whole arena once it is alone: every request ends.
 * Paper: ODMA 3.1 (batches by tag), 3.4.   Threads: stateless. */
#ifndef KV_ADMIT_H
#define KV_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

struct kv_waiting {
    int tag;     /* its bucket, 0 to 63 */
    int64_t age; /* steps since it came */
};

/* The index of the request to admit next; -1: none of them now. The oldest if it has waited
 * longer than max_age, and then nobody passes it; else the oldest of bucket `tag`, that of
 * the admission before, so that batches are of one kind; else the oldest.
 *   refused  bit i: a request of bucket i has been refused memory in this step */
int kv_admit_next(const struct kv_waiting *w, int n, int tag, uint64_t refused,
                  int64_t max_age);

struct kv_running {
    int64_t n_waited; /* steps for which it has been waiting for memory; 0: it is not */
};

/* The index of the sequence to preempt; -1: none. */
int kv_preempt_next(const struct kv_running *r, int n, int64_t patience);

#endif
