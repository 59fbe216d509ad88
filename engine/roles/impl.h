/* roles/impl.h - the inside of the front, for the files of this module only: start.c opens and
 * closes, front.c passes requests and tokens on, recover.c starts machines and connections, again
 * where they have failed, stat.c adds up, choose.c
 * chooses machines. */
#ifndef ROLES_IMPL_H
#define ROLES_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "par/rank.h"
#include "roles/control.h"
#include "serve/front.h"

/* A request that has not ended, of the front alone: what machines have of it may be lost. */
struct roles_pending {
    int64_t id; /* the caller's */
    /* What the machines that compute it call it; -1: none does, until there are some. */
    int64_t attempt;
    int n_attempts;
    int prompt,
        token; /* machines; token -1: the prompt machine has it alone, or none does */
    int64_t prompt_tok;     /* of this attempt */
    bool decodes;           /* it has more than one new token */
    bool has_first;         /* the prompt machine has told its token of this attempt */
    bool has_more;          /* and the token machine one */
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

struct roles_machine_state {
    enum roles_state state;
    int fd;           /* -1: it has none */
    int64_t max_tok;  /* of a request */
    uint64_t lost_ns; /* since when it is */
    int n_starts;     /* since first_ns */
    uint64_t first_ns;
    enum cluster_pool pool;
    int64_t prompt_tok, n_seqs;   /* to compute, and that it decodes or will */
    int64_t n_tasks[2];           /* by kind */
    struct roles_stat stat, past; /* of its process, and of those before */
};

/* Of a transport from one machine to another. */
struct roles_connection {
    int64_t number; /* 0: there is none; -1: it has failed too often */
    int n_open;     /* how many of both ends are */
    int n_failures; /* since first_ns */
    uint64_t first_ns;
    uint64_t broken_ns; /* when it failed; 0: it did not */
    char why[ROLES_TEXT_BYTES];
};

struct roles_front {
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

/* ---- front.c ---- */

/* The functions of struct serve_front; ctx: struct roles_front. Without close(). */
void roles_front_api(struct serve_front *out, struct roles_front *f);
/* A message to a machine; copied. */
MUST int roles_front_tell(struct roles_front *f, int machine,
                          const struct roles_message *head, const void *more);
/* The main function of the thread that writes. */
void *roles_front_write(void *f);
/* A message and what follows, a and b; `file` is the function's, -1: none. With the lock held. */
MUST int roles_front_send(struct roles_front *f, int machine,
                          const struct roles_message *head, const void *a, size_t n_a,
                          const void *b, int file);
/* Requests that have not ended end with SERVE_CANCELED. The machines have gone. */
void roles_front_end_all(struct roles_front *f);
/* Compute all requests again that `machine` and its peer `other`, -1: any, had. On the stepping
 * thread. Returns how many. */
int roles_front_again(struct roles_front *f, int machine, int other, const char *why);
/* What machines have said, after poll(): fds as by roles_front_poll(). */
int roles_front_poll(struct roles_front *f, struct pollfd *fds, int timeout_ms);
MUST int roles_front_read(struct roles_front *f, const struct pollfd *fds, bool *busy);
/* Read on until the machine, which has ended, has said all. */
void roles_front_drain(struct roles_front *f, int machine);

/* ---- choose.c; with the lock held ---- */

/* The machines of a request; prompt -1: none runs. Nothing is counted yet. */
void roles_front_choose(struct roles_front *f, struct roles_pending *q);
/* Count its prompt, and its tokens, with those of its machines; sign -1: not any more. */
void roles_front_count_prompt(struct roles_front *f, const struct roles_pending *q,
                              int sign);
void roles_front_count_tokens(struct roles_front *f, const struct roles_pending *q,
                              int sign);
void roles_front_computed_prompt(struct roles_front *f, struct roles_pending *q);

/* ---- stat.c ---- */

void roles_front_kv_stat(void *ctx, struct serve_kv_stat *out);
const struct serve_totals *roles_front_totals(void *ctx, enum serve_phase phase);
/* Its process has ended: what it counted stays. With the lock held. */
void roles_front_keep_stat(struct roles_machine_state *m);

/* ---- recover.c; on the stepping thread ---- */

/* Start a machine. */
MUST int roles_front_start(struct roles_front *f, int machine);
/* What the starter says. ERR_STATE: it has gone. */
MUST int roles_front_read_starter(struct roles_front *f);
/* READY, CONNECTED and BROKEN. */
MUST int roles_front_on_ready(struct roles_front *f, int machine,
                              const struct roles_message *head);
MUST int roles_front_on_connected(struct roles_front *f, int machine,
                                  const struct roles_message *head);
MUST int roles_front_on_broken(struct roles_front *f, int machine,
                               const struct roles_message *head, const char *why);
/* It closed its connection, or says what no machine would: it will have ended soon. */
void roles_front_lost(struct roles_front *f, int machine, int rc);
/* End machines that are lost and do not end, and open connections again that have failed. */
MUST int roles_front_repair(struct roles_front *f);
/* Whether a machine is there, or will be. With the lock held. */
bool roles_front_has_machines(const struct roles_front *f);
/* Whether keys and values can go from one machine to another. */
bool roles_front_is_open(const struct roles_front *f, int from, int to);

#endif
