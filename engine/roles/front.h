/* roles/front.h - the front: front.c opens and closes it, answers.c reads what machines write,
 * machines.c starts machines and opens connections, again where they have failed, requests.c has
 * the requests: attempts at them and what their clients got. Each file calls only those behind
 * it. */
#ifndef ROLES_FRONT_H
#define ROLES_FRONT_H

#include <pthread.h>

#include "par/rank.h"
#include "roles/control.h"
#include "serve/serve.h"

/* A request that has not ended, of the front alone: what machines have of it may be lost. */
struct roles_pending {
    int64_t id; /* the caller's */
    /* Its id on the machines that compute it; -1: no machine does yet. */
    int64_t attempt;
    int n_attempts;
    int prompt,
        token; /* machines; token -1: the prompt machine has it alone, or none does */
    int64_t prompt_tok; /* of this attempt */
    bool decodes;       /* it has more than one new token */
    bool has_first;     /* the prompt machine has sent its token of this attempt */
    int32_t arrived; /* the first token as the token machine received it; -1: not yet */
    bool has_more;   /* and the token machine one */
    struct serve_request r; /* as it came */
    int32_t *ids;  /* [n_prompt + max_new] the prompt, and what its client got so far */
    int64_t n_new; /* how many it got */
    serve_token_fn on_token;
    void *ctx;
    bool canceled;
    struct roles_pending *next;
};

struct roles_outgoing {
    int machine, file; /* that is sent, too, and then closed; -1: none */
    size_t bytes;
    struct roles_outgoing *next;
    char message[]; /* struct roles_message and what follows */
};

enum roles_state {
    ROLES_STARTING,
    ROLES_RUNNING,
    ROLES_LOST, /* it closed its connection: the starter names it */
    ROLES_OVER  /* it has ended and is not started again */
};

/* What has come of the next message of a machine, which is never waited for. */
struct roles_inbox {
    struct roles_message head;
    char more[ROLES_MORE_MAX];
    size_t n;          /* bytes of both */
    uint64_t since_ns; /* the first one is there */
};

struct roles_machine_state {
    enum roles_state state;
    int fd;         /* -1: it has none */
    bool untrusted; /* it broke the protocol: nothing more is read */
    struct roles_inbox inbox;
    char why[ROLES_TEXT_BYTES]; /* it is lost */
    int64_t max_tok;            /* of a request */
    uint64_t lost_ns;           /* since when it is */
    int n_starts;               /* since first_ns */
    uint64_t first_ns;
    enum cluster_pool pool;
    int64_t prompt_tok, n_seqs;   /* to compute, and that it decodes or will */
    int64_t n_tasks[2];           /* by kind */
    struct roles_stat stat, past; /* of its process, and of those before */
};

/* A transport's connection from one machine to another. */
struct roles_connection {
    int64_t number;    /* 0: there is none; -1: it has failed too often */
    bool is_open[2];   /* the receiver's end and the sender's */
    uint64_t asked_ns; /* when both were told to open it */
    int n_failures;    /* since first_ns */
    uint64_t first_ns;
    uint64_t broken_ns; /* when it failed; 0: it did not */
    char why[ROLES_TEXT_BYTES];
};

struct roles_front {
    struct serve api; /* first */
    struct roles_setup u;
    int n, restarts, attempts; /* machines: u.n; options */
    struct par_ranks *starter;
    struct cluster_pools pools;
    int n_moving[ROLES_MACHINES_ALL][ROLES_MACHINES_ALL]; /* requests [from][to] */
    int wake_fd;
    pthread_t writer;
    bool writing, is_lost; /* is_lost: a machine is */
    bool started;          /* started: all machines and connections were there once */
    char why[ROLES_TEXT_BYTES]; /* of the latest failure */

    pthread_mutex_t lock;
    pthread_cond_t queued, written;
    bool closing;
    int writing_to; /* machine; -1: none */
    int64_t n_submitted, n_attempts, n_connections;
    struct roles_machine_state machines[ROLES_MACHINES_ALL];
    struct roles_connection connections[ROLES_MACHINES_ALL][ROLES_MACHINES_ALL];
    struct roles_pending *requests;
    struct roles_outgoing *out, **out_tail;
    struct serve_totals totals[SERVE_N_PHASES];
};

static inline struct roles_front *roles_front_of(struct serve *s)
{
    return (struct roles_front *)s;
}

/* ---- requests.c; with the lock held, but for the operations of serve.h ---- */

/* A message and what follows, a and b; `file` is the function's, -1: none. */
MUST int roles_front_send(struct roles_front *f, int machine,
                          const struct roles_message *head, const void *a, size_t n_a,
                          const void *b, int file);
/* Whether a machine is there, or will be. */
bool roles_front_has_machines(const struct roles_front *f);
/* Whether keys and values can go from one machine to another. */
bool roles_front_is_open(const struct roles_front *f, int from, int to);
MUST int roles_front_submit(struct serve *s, const struct serve_request *r, int64_t *id);
void roles_front_cancel(struct serve *s, int64_t id);
struct roles_pending *roles_front_find(struct roles_front *f, int64_t attempt);
/* Its prompt machine has computed the prompt. */
void roles_front_computed_prompt(struct roles_front *f, struct roles_pending *q);
/* The lock is released during the callback. After its last token q is freed. */
void roles_front_give_token(struct roles_front *f, struct roles_pending *q, int32_t token,
                            enum serve_finish finish);
void roles_front_give_error(struct roles_front *f, struct roles_pending *q,
                            const char *why);
/* Another attempt, unless it is not wanted any more, or there were enough. */
void roles_front_retry(struct roles_front *f, struct roles_pending *q, const char *why);
/* Compute all requests again that `machine` and its peer `other`, -1: any, had. On the stepping
 * thread, without the lock. Returns how many. */
int roles_front_again(struct roles_front *f, int machine, int other, const char *why);
/* Requests that wait for machines. On the stepping thread, without the lock. */
void roles_front_dispatch_waiting(struct roles_front *f);

/* ---- answers.c; on the stepping thread ---- */

/* Act on the next message of a machine, if there is one: *any. ERR_IO: it closed its connection.
 * ERR_FORMAT: it broke the protocol. ERR_STATE: it cannot start. */
MUST int roles_front_read(struct roles_front *f, int machine, bool *any);

/* ---- machines.c; on the stepping thread ---- */

void roles_front_kv_stat(const struct serve *s, struct serve_kv_stat *out);
const struct serve_totals *roles_front_totals(const struct serve *s,
                                              enum serve_phase phase);
/* Start a machine. */
MUST int roles_front_start(struct roles_front *f, int machine);
/* The same, where it has not ended too often. */
MUST int roles_front_start_again(struct roles_front *f, int machine, const char *why);
/* READY, CONNECTED and BROKEN. */
MUST int roles_front_on_ready(struct roles_front *f, int machine,
                              const struct roles_message *head);
MUST int roles_front_on_connected(struct roles_front *f, int machine,
                                  const struct roles_message *head);
MUST int roles_front_on_broken(struct roles_front *f, int machine,
                               const struct roles_message *head, const char *why);
/* It has failed, as a machine says or as the front sees: it is opened again, or given up. */
void roles_front_break(struct roles_connection *c, const char *why);
/* It closed its connection, or writes what no machine would: it will have ended soon. */
void roles_front_lost(struct roles_front *f, int machine, int rc);
/* Its process has ended. */
void roles_front_close_machine(struct roles_front *f, int machine);
MUST int roles_front_tell_starter(struct roles_front *f, int type, int machine,
                                  const char *why);
/* Open it again, and compute again what went over it. */
void roles_front_repair_connection(struct roles_front *f, int from, int to);

#endif
