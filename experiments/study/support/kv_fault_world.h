/* study/support/kv_fault_world.h - both ends of a transport in one process, for the files of
 * kv_faults: the engine's, or one that is scripted or stalls, and what they said. */
#ifndef STUDY_KV_FAULT_WORLD_H
#define STUDY_KV_FAULT_WORLD_H

#include <pthread.h>

#include "cluster/wire.h"
#include "experiments/study/support/kv_faults.h"

#define STUDY_FAULT_MAX_TOK    64
#define STUDY_FAULT_LEASE_MS   30
#define STUDY_FAULT_SILENCE_MS 60

extern const struct kv_shape study_fault_shape;

/* A prompt on its way: two pools, both ends, and what they said. */
struct study_fault_world {
    struct kv_pool *from, *to;
    struct kv_slot source, slot, other; /* other: another sequence's */
    int64_t n_tok;
    uint64_t transfer;
    bool no_checksums;
    const struct cluster_transport *transport;
    struct cluster_transport stalling; /* the same with stalling_put() */
    struct cluster_sender *sender;     /* NULL: it is scripted */
    struct cluster_receiver *receiver;
    int fd; /* of a scripted end; -1: there is none */
    void *pool;
    size_t pool_bytes;
    struct cluster_layout *layout; /* as the scripted sender was offered it */
    struct kv_slot to_slot;
    struct rng *rng;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int n_offers, n_arrived, n_dropped, n_failed;
    uint64_t named_ns; /* 0: nobody said what is wrong */
    char says[160];
    bool stalls;     /* the next copy takes until this is false */
    bool is_stalled; /* one did */
};

/* An end has said something, which *n counts; is_fault: err_msg() is what is wrong. */
void study_fault_say(struct study_fault_world *w, int *n, bool is_fault);
/* Until *n is not 0, or something is named where `or_named`. false: nothing came for 30 s. */
bool study_fault_wait(struct study_fault_world *w, const int *n, bool or_named);
void study_fault_forget(struct study_fault_world *w);
/* Whether the next piece stops in its middle, until it may go on. */
void study_fault_stall(struct study_fault_world *w, bool stalls);
/* The receiver, and a sender: the engine's, or what a script writes to w->fd, which says that its
 * keys and values are as *shown. */
MUST int study_fault_connect(struct study_fault_world *w, bool scripted,
                             const struct kv_shape *shown);
/* A sender of the engine's over `fd`, which is its own after success. */
MUST int study_fault_open_sender(struct study_fault_world *w, int fd);
/* The sender first: then nobody writes to the receiver's memory any more. */
void study_fault_disconnect(struct study_fault_world *w);

#endif
