/* experiments/study/support/kv_replay.h - the serving loop without its computation: requests
 * get memory of an allocator, and each step gives every running sequence one token.
 *
 * It drives sched/loop.h as the engine does, with a step of unit time. A number of clients each
 * send their next request as soon as one was answered, in the given order, so that memory is
 * what limits a batch. With the policy `chunked` and steps of any size, which odma_replay uses,
 * a prompt takes no step of its own: what is studied is who has memory, not how long a step
 * takes. The same requests and options give the same numbers.
 * Paper: ODMA 3.1.   Threads: one. */
#ifndef STUDY_KV_REPLAY_H
#define STUDY_KV_REPLAY_H

#include "base/series.h"
#include "kv/accuracy.h"
#include "kv/learn.h"
#include "sched/loop.h"

/* How requests are divided among devices: by kv/cluster.h, where those that no
 * device has the memory for wait before all devices; in turn; to the one with the fewest. */
enum { STUDY_KV_CLUSTER, STUDY_KV_IN_TURN, STUDY_KV_FEWEST };
#define STUDY_KV_DEVICES 8

struct study_kv_opts {
    const struct kv_alloc *alloc;
    const struct kv_predictor *predictor;
    struct kv_arena arena;         /* bounds: set by the replay */
    struct kv_bucket_opts buckets; /* odma */
    struct kv_predict_opts predict;
    struct kv_caution caution;
    int64_t
        calibrate; /* predictions are corrected by this many of the latest; 0: are not */
    int bounds;    /* STUDY_KV_AGAIN, _ONCE or _NEVER: when they are learned */
    const struct kv_example *earlier; /* [n_earlier] the window begins with these; lent */
    int64_t n_earlier;
    bool co_batch; /* the next request to admit is of the bucket of the one before */
    bool
        migrate; /* a sequence that outgrows its memory is copied; else it begins again */
    int64_t clients;           /* requests that wait or run at once */
    int64_t patience, max_age; /* steps, see sched/loop.h */
    const struct sched_policy *policy;
    int64_t max_step_tok; /* tokens of a step */
    int n_devices;        /* 0: one, of arena.n_tok; else at most STUDY_KV_DEVICES */
    int64_t
        device_tok[STUDY_KV_DEVICES]; /* arenas of the devices, each at least max_tok */
    int route;                        /* STUDY_KV_CLUSTER, _IN_TURN or _FEWEST */
    bool own_bounds; /* each device learns from its own requests; else from all */
    /* NULL: none. What the loop did, by the requests' numbers. */
    void (*trace)(void *ctx, enum sched_event event, const struct sched_request *r);
    void *trace_ctx;
};

enum { STUDY_KV_AGAIN, STUDY_KV_ONCE, STUDY_KV_NEVER };

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
    int64_t n_epochs;
    double least_sum,
        most_sum; /* over loaded steps: the share of its memory that the device
                                   with the least, and with the most, of it reserved has */
    struct series inner, outer, batch; /* of loaded steps */
};

/* Serve requests[n], each with a prompt and an output of at least 1 token and at most
 * arena.max_tok together.
 *   outcomes  [n] of the requests
 * ERR_LIMIT: a request is longer than max_tok. ERR_STATE: no request can go on, which is
 * a fault of the allocator or of the policy. */
MUST int study_kv_replay(struct study_kv_result *out, const struct study_kv_opts *o,
                         const struct kv_example *requests, int64_t n,
                         struct kv_outcome *outcomes);

#endif
