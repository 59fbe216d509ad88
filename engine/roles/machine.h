/* roles/machine.h - what a machine's process has. */
#ifndef ROLES_MACHINE_H
#define ROLES_MACHINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "roles/control.h"
#include "serve/handoff.h"

struct machine;

/* A request, as long as the engine or a transport has it, or the front is still to send it. */
struct entry {
    struct machine *m;
    int64_t id, engine_id;
    uint64_t transfer; /* NO_TRANSFER: not yet, or no more */
    uint64_t offer;    /* of a prompt machine: its number, once there is one */
    struct roles_request r;
    int32_t *ids;
    struct kv_slot slot;              /* with a transport in place: the offered memory */
    bool requested, submitted, ended; /* by the front, to the engine, by the engine */
    bool reported;                    /* the front knows of its end */
    struct entry *next;
};

/* This machine's ends of the transports to and from another one; NULL: there is none. */
struct link {
    struct machine *m;
    int peer;
    struct cluster_sender *sender;
    struct cluster_receiver *receiver;
};

struct machine {
    const struct roles_setup *u;
    int index;
    int fd;
    struct serve *s;
    struct link links[ROLES_MACHINES_ALL]; /* [u->n] */
    pthread_t reader;
    bool reading;
    atomic_bool closing;
    pthread_mutex_t lock; /* of entries, and of writing to fd */
    struct entry *entries;
    int64_t last_id;        /* of the requests that came: they ascend */
    struct roles_stat stat; /* as the front knows it */
    uint64_t stat_ns;
};

#endif
