/* roles/impl.h - the inside of the front, for the files of this module only: start.c starts the
 * machines and closes, front.c passes requests and tokens on. */
#ifndef ROLES_IMPL_H
#define ROLES_IMPL_H

#include <pthread.h>

#include "cpu/cpu.h"
#include "par/rank.h"
#include "roles/control.h"
#include "serve/front.h"

struct roles_pending {
    int64_t id, n_prompt;
    int prompt, token; /* machines; token -1: the prompt machine has it alone */
    bool decodes;      /* it has more than one new token */
    bool has_first;    /* the prompt machine has told */
    serve_token_fn on_token;
    void *ctx;
    bool canceled;
    struct roles_pending *next;
};

struct roles_outgoing {
    int machine;
    size_t bytes;
    struct roles_outgoing *next;
    char message[]; /* struct roles_message and what follows */
};

struct roles_machine_state {
    enum cluster_pool pool;
    int64_t prompt_tok, n_seqs; /* to compute, and that it decodes or will */
    int64_t n_tasks[2];         /* by kind */
    struct roles_stat stat;
};

struct roles_front {
    struct roles_setup u;
    int n; /* machines: u.n */
    struct par_ranks *children;
    char *names[ROLES_MACHINES_ALL];
    int cpus[ROLES_MACHINES_ALL][CPU_MAX], n_cpus[ROLES_MACHINES_ALL];
    struct cluster_pools pools;
    int n_moving[ROLES_MACHINES_ALL][ROLES_MACHINES_ALL]; /* requests [from][to] */
    int wake_fd;
    pthread_t writer;
    bool writing, is_lost; /* is_lost: a machine is */

    pthread_mutex_t lock;
    pthread_cond_t queued;
    bool closing;
    int64_t n_submitted;
    struct roles_machine_state machines[ROLES_MACHINES_ALL];
    struct roles_pending *requests;
    struct roles_outgoing *out, **out_tail;
    struct serve_totals totals[SERVE_N_PHASES];
};

/* The functions of struct serve_front; ctx: struct roles_front. Without close(). */
void roles_front_api(struct serve_front *out, struct roles_front *f);
/* A message to a machine; copied. */
MUST int roles_front_tell(struct roles_front *f, int machine,
                          const struct roles_message *head, const void *more);
/* The main function of the thread that writes. */
void *roles_front_write(void *f);
/* A machine that has ended or stopped is named by who watches it. ERR_STATE. */
MUST int roles_front_name_lost(struct roles_front *f, int machine);
/* Requests that have not ended end with SERVE_CANCELED. The machines have gone. */
void roles_front_end_all(struct roles_front *f);

#endif
