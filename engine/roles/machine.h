/* roles/machine.h - the inside of a machine's process: machine.c has the process and what the front
 * wants, machine_requests.c what engine and transports say of requests, machine_ends.c the ends of
 * transports. */
#ifndef ROLES_MACHINE_H
#define ROLES_MACHINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "roles/control.h"
#include "serve/handoff.h"

#define ROLES_NO_TRANSFER 0

struct roles_machine;

/* One end of a transport to or from another machine. There is a successor where it fails, and it
 * stays until the machine ends: requests point to it. */
struct roles_end {
    struct roles_machine *m;
    int peer;
    bool sends;
    int64_t number;   /* of the connection */
    bool told_broken; /* the front knows that it has failed */
    /* NULL: it is closed. Changed under both locks of the machine, so that either is enough. */
    struct cluster_sender *sender;
    struct cluster_receiver *receiver;
    struct roles_end *next;
};

/* A request, as long as the engine or a transport has it, or the front is still to send it. */
struct roles_entry {
    struct roles_machine *m;
    int64_t id, engine_id;
    struct roles_end *end; /* of its transfer; NULL: it never had one */
    uint64_t transfer;     /* ROLES_NO_TRANSFER: not yet, or no more */
    uint64_t offer;        /* of a prompt machine: its number, once there is one */
    struct roles_request r;
    int32_t *ids;
    struct kv_slot slot;              /* with a transport in place: the offered memory */
    bool requested, submitted, ended; /* by the front, to the engine, by the engine */
    bool canceled;                    /* by the front */
    bool reported;                    /* the front knows of its end */
    char why[160];                    /* its transfer failed */
    struct roles_entry *next;
};

struct roles_machine {
    const struct roles_setup *u;
    int index;
    int fd;
    struct serve *s;
    /* From each peer; NULL: there is none now. */
    struct roles_end *from[ROLES_MACHINES_ALL];
    struct roles_end *ends; /* all */
    pthread_t reader;
    bool reading;
    atomic_bool closing;
    pthread_mutex_t lock;      /* of entries and ends, and of writing to fd */
    pthread_rwlock_t end_lock; /* of senders and receivers, for the threads of a step */
    struct roles_entry *entries;
    int64_t last_id;        /* of the requests that came: they ascend */
    struct roles_stat stat; /* as the front knows it */
    uint64_t stat_ns;
};

/* ---- machine.c; with the lock held ---- */

void roles_tell(struct roles_machine *m, struct roles_message *head, const void *more);
/* With a text. */
void roles_tell_why(struct roles_machine *m, struct roles_message *head, const char *why);

/* ---- machine_requests.c; with the lock held unless they are callbacks ---- */

struct roles_entry *roles_entry_find(struct roles_machine *m, int64_t id);
struct roles_entry *roles_entry_find_or_add(struct roles_machine *m, int64_t id);
/* When nobody has it any more. */
void roles_entry_drop_if_over(struct roles_entry *e);
void roles_entry_free(struct roles_entry *e);
/* To the engine. An error is told. */
void roles_entry_submit(struct roles_entry *e);
/* Its transfers will not go on, and nobody writes to their memory any more. */
void roles_entry_release_all(struct roles_end *l);
void roles_on_offer(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag);
void roles_on_forget(void *ctx, uint64_t transfer);
void roles_on_sent(void *ctx, uint64_t transfer, int rc);
void roles_on_arrived(void *ctx, uint64_t transfer, int32_t first_id);
void roles_on_dropped(void *ctx, uint64_t transfer, int rc);

/* ---- machine_ends.c; on the thread that reads ---- */

/* Open the end of connection `number` over `fd`, which is the function's, in place of an older one.
 * What becomes of it is told. */
void roles_end_open(struct roles_machine *m, int peer, bool sends, int64_t number,
                    int fd);
/* All that send, from now on. */
void roles_end_set_link(struct roles_machine *m, const struct roles_link *l);
/* It has failed, err_msg() says why: the front opens another one, or names the machine that has
 * gone. With the lock held. */
void roles_end_tell_broken(struct roles_end *x);
/* The peer's process has ended. */
void roles_end_close_all(struct roles_machine *m, int peer);

#endif
