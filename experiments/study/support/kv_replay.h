/* experiments/study/support/kv_replay.h - a serving loop without its computation: requests get
 * memory of an allocator, and each step gives every running sequence one token.
 *
 * A number of clients each send their next request as soon as one was answered, in the given
 * order, so that memory is what limits a batch. A prompt takes no step of its own: what is
 * studied is who has memory, not how long a step takes. Between two steps finished sequences
 * release their memory, those that outgrew theirs get more or wait, the youngest is
 * preempted where they wait too long, and waiting requests are admitted (kv/admit.h). The
 * same requests and options give the same numbers.   Paper: ODMA 3.1.   Threads: one. */
#ifndef STUDY_KV_REPLAY_H
#define STUDY_KV_REPLAY_H

#include "kv/admit.h"
#include "kv/buckets.h"
#include "kv/predict.h"

struct study_kv_request {
    int64_t prompt_tok, output_tok; /* at least 1 each, together at most arena.max_tok */
    const char *text;               /* of the prompt; NULL: only lengths are known */
    size_t text_bytes;
};

struct study_kv_opts {
    const struct kv_alloc *alloc;
    const struct kv_predictor *predictor;
    struct kv_arena arena;         /* bounds: set by the replay */
    struct kv_bucket_opts buckets; /* odma */
    struct kv_predict_opts predict;
    struct kv_caution caution;
    bool learn_once;           /* keep the first bounds that were learned */
    int64_t clients;           /* requests that wait or run at once */
    int64_t patience, max_age; /* steps, see kv/admit.h */
};

#define STUDY_KV_POINTS 256

/* Means of equally many steps, one after the other. */
struct study_kv_series {
    int n;
    int64_t steps_each, steps_in_last;
    double inner[STUDY_KV_POINTS], outer[STUDY_KV_POINTS], batch[STUDY_KV_POINTS];
};

/* "Loaded": while there were requests left to send, so without the last ones' end. */
struct study_kv_result {
    int64_t n_steps, n_loaded_steps;
    int64_t output_tok, loaded_tok; /* tokens generated; each counts once */
    double inner_sum, outer_sum;    /* over loaded steps */
    int64_t n_overflow;             /* requests that outgrew their memory at least once */
    int64_t n_moved, migrated_tok;  /* sequences moved, and their tokens */
    int64_t n_extended, extended_tok; /* grown in place, and the tokens that they had */
    int64_t n_preempted, recomputed_tok;
    int64_t waited_steps; /* sequence-steps without memory for the next token */
    int64_t n_safe;       /* requests that fit what they got first */
    int64_t n_bucketed, n_in_bucket; /* those that got a bucket, and ended in it */
    int64_t n_epochs;
    struct study_kv_series series;
};

/* ERR_LIMIT: a request is longer than max_tok. ERR_STATE: nobody can go on, which is a fault of
 * the allocator or of the policy. */
MUST int study_kv_replay(struct study_kv_result *out, const struct study_kv_opts *o,
                         const struct study_kv_request *requests, int64_t n);

#endif
