/* sched/loop.h - the serving loop: which requests have memory, which wait, which are in a batch.
 *
 * A state machine over requests and an allocator of keys and values. It reads no clock,
 * computes nothing, and knows neither bytes nor threads, so that the engine, the trace
 * replayer and the cluster simulator run the same one. Its driver computes:
 *
 *     sched_loop_add()      for each request that comes
 *     sched_loop_batch()    gives memory and chooses batch[n_batch]; then the driver computes
 *                           step_tok tokens of each, and for each calls
 *     sched_loop_computed() which says whether the request has a new token; after the last
 *                           token, or to cancel it at any time, the driver sets `ended`
 *     sched_loop_age()      once per step that computed something
 *     sched_loop_drop()     returns the requests that ended to the driver
 *
 * The rules, in order of arrival throughout:
 *   - Those that have memory go first: they get more for their tokens of this step, or wait.
 *   - Nobody is admitted while one of them waits. The policy says how many are admitted; of
 *     those that wait the oldest of the bucket that was admitted last comes first, so that
 *     batches are of one kind, unless the oldest of all has waited for more than max_age steps.
 *   - A request that has waited to grow for more than `patience` steps, or while no
 *     request goes on, gets the memory of the youngest, which is preempted: it is computed again
 *     later and keeps the tokens that it has generated. The oldest can therefore always have
 *     what it needs, and ends after finitely many steps: there is no livelock.
 *
 * A loop takes memory in proportion to its live requests, in sched_loop_add() only. A step
 * takes time in proportion to them. The same calls give the same batches.
 * Paper: ODMA 3.1 (batches by tag), 3.4.   Threads: one owner. */
#ifndef SCHED_LOOP_H
#define SCHED_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

/* A request, the first member of the driver's own struct. The driver sets the first three
 * members, zeroes the others, and may set `ended`. Of a request that was begun on another
 * machine it also sets n_new, and n_ctx where its keys and values came with it. */
struct sched_request {
    int64_t id;       /* ascending in order of arrival */
    int64_t n_prompt; /* tokens, at least 1 */
    int64_t max_new;  /* the most that it may generate, at least 1 */

    int64_t n_new;  /* generated, kept over a preemption */
    int64_t n_ctx;  /* tokens whose keys and values are in its memory */
    int64_t n_done; /* the most that n_ctx has been: below it tokens are computed again */
    int64_t step_tok,
        want_tok;           /* tokens of the present step: with memory, by the policy */
    int64_t need_tok;       /* while it waits, see struct sched_alloc */
    int64_t age;            /* steps since it took part in one, or since it came */
    int64_t n_paused;       /* steps, in all, that passed it over while it decoded */
    int64_t n_waited;       /* steps for which it has been waiting to grow */
    int64_t waited_step;    /* the last of them */
    int64_t n_preempted;    /* times */
    enum sched_state state; /* SCHED_WAITING: it has no memory, all others have */
    int bucket;
    bool viewed; /* a policy saw it: only then can a step pass it over */
    bool wanted; /* the policy admits it in this step */
    bool ended;
    bool
        pinned; /* the driver's: it has all of its memory at once and is never preempted */
};

/* Its tokens that are known so far. */
static inline int64_t sched_request_n_known(const struct sched_request *r)
{
    return r->n_prompt + r->n_new;
}

/* The allocator, as far as the loop knows it. `ctx` is that of the loop's options. */
struct sched_alloc {
    int64_t (*free_tok)(void *ctx); /* tokens of memory that are not reserved */
    /* The tokens that reserve() would take of them. Asked once when a request begins to wait. */
    int64_t (*need_tok)(void *ctx, const struct sched_request *r);
    /* The kind of memory that reserve() would take now, 0 to 63. NULL: all are of one. */
    int (*bucket)(void *ctx, const struct sched_request *r);
    /* Memory for the request's known tokens, at least. It may set r->n_ctx, less than those: the
     * first keys and values are there already. ERR_NOMEM: none is free now; any other error: it
     * can never have any. */
    int (*reserve)(void *ctx, struct sched_request *r);
    /* More, for n_tok tokens in all; OK where it has that. ERR_NOMEM: none is free now.
     * ERR_UNSUPPORTED: it has to give up its memory and begin again. */
    int (*grow)(void *ctx, struct sched_request *r, int64_t n_tok);
    void (*release)(void *ctx, struct sched_request *r);
};

enum sched_event { SCHED_ADMITTED, SCHED_PREEMPTED, SCHED_DROPPED };

struct sched_loop_opts {
    const struct sched_policy *policy;
    struct sched_alloc alloc;
    /* The request ended, because reserve() failed with `rc`, whose message is set: it can
     * never have memory, or there is none although no request has any. */
    void (*refuse)(void *ctx, struct sched_request *r, int rc);
    void (*drop)(void *ctx,
                 struct sched_request *r); /* it has ended; the driver's again */
    /* NULL: none. What happened, in order. */
    void (*trace)(void *ctx, enum sched_event event, const struct sched_request *r);
    void *ctx, *trace_ctx;
    int n_live;           /* requests for which there is memory at once at open */
    int64_t max_seqs;     /* requests that have memory at once, and entries of a batch */
    int64_t max_step_tok; /* tokens of a step */
    int64_t max_batch_prompt_tok; /* as in struct sched_view */
    int64_t patience, max_age;    /* steps; above */
    bool mix_buckets;             /* the oldest first, of whatever bucket */
};

/* The driver reads all of it and writes nothing. */
struct sched_loop {
    struct sched_loop_opts o;
    struct sched_request **live;  /* [n_live] ascending arrival */
    struct sched_request **batch; /* [n_batch] of the present step, ascending arrival */
    int n_live, n_batch;
    int64_t n_seqs;   /* that have memory */
    int64_t n_held;   /* others that have memory, see sched_loop_hold() */
    int64_t used_tok; /* sum of their n_ctx */
    int64_t step;     /* number of the present step, from 1 */
    int64_t n_preempted, n_recomputed_tok; /* in all */
    int bucket;                            /* of the latest admission */
    int n_live_max;                        /* the arrays hold so many */
    struct sched_seq *view;
    struct sched_batch_entry *entries;
};

/* Open into the caller's storage; `o` is copied. ERR_NOMEM: sched_loop_close() is due all the
 * same. */
MUST int sched_loop_open(struct sched_loop *l, const struct sched_loop_opts *o);
void sched_loop_close(struct sched_loop *l); /* live requests stay the driver's */
/* The request waits, behind those that came before. One whose n_ctx is not 0 has memory, given
 * by the driver, and goes on at once. It stays where it is until drop().
 * ERR_NOMEM: it was not added. */
MUST int sched_loop_add(struct sched_loop *l, struct sched_request *r);
/* n requests more that are not, or not yet, the loop's have memory, or -n fewer: they count towards
 * max_seqs, and a request that is refused memory waits for theirs. */
void sched_loop_hold(struct sched_loop *l, int n);
/* How many are in the batch. 0: no request can go on, or there are none. */
int sched_loop_batch(struct sched_loop *l);
/* The step_tok tokens of a request of the batch are computed. true: it has one more token. Where
 * that was guessed and is computed, too, it is called again. */
bool sched_loop_computed(struct sched_loop *l, struct sched_request *r);
void sched_loop_age(struct sched_loop *l);
void sched_loop_drop(struct sched_loop *l);
/* The batch, of all live requests, which decode a token each, is computed n times at once; the
 * driver has given them memory. The present step goes on after that: computed() and age() are
 * still to be called for it. */
void sched_loop_skip(struct sched_loop *l, int64_t n);
/* All live requests are the driver's again, at any time, without a call of its functions. */
void sched_loop_abort(struct sched_loop *l);

#endif
