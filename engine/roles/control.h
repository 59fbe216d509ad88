/* roles/control.h - what the front, a machine and the process that starts machines write to each
 * other, and what all of them know. */
#ifndef ROLES_CONTROL_H
#define ROLES_CONTROL_H

#include "cluster/transport.h"
#include "cpu/cpu.h"
#include "roles/roles.h"
#include "roles/spec.h"

#define ROLES_TEXT_BYTES 512 /* an error, with its NUL */

enum roles_message_type {
    ROLES_READY = 1, /* machine; id: max_tok */
    ROLES_CONNECT, /* front: connection `id` with the machine `peer`; its socket follows */
    ROLES_DISCONNECT, /* front: the machine `peer` has ended */
    ROLES_CONNECTED,  /* machine: connection `id` is open */
    ROLES_BROKEN,     /* machine: connection `id` has failed; a text follows */
    ROLES_REQUEST,    /* front: struct roles_request and the prompt's ids follow */
    ROLES_CANCEL,     /* front */
    ROLES_TOKEN,      /* machine: token and finish; with SERVE_ERROR a text follows */
    ROLES_RETRY, /* machine: it has lost what it had of the request; a text follows */
    ROLES_STAT,  /* machine: struct roles_stat follows */
    ROLES_LINK,  /* front: struct roles_link follows */
    ROLES_ARRIVED, /* machine: keys and values are there; token: the first one, as received */
    ROLES_N_TYPES
};

struct roles_message {
    uint32_t type, n_more; /* bytes that follow */
    int64_t id;            /* of an attempt at a request: the front counts them */
    int32_t token, finish;
    int32_t peer; /* a machine */
    int32_t
        sends; /* of a connection: keys and values go to the peer, else they come from it */
    int64_t at;         /* of a token: how many new tokens its request had before */
    uint64_t more_hash; /* of what follows */
    uint64_t hash;      /* of the other fields */
};

/* The most bytes that follow a message of a machine. */
#define ROLES_MORE_MAX ROLES_TEXT_BYTES

struct roles_request {
    int64_t n_prompt, max_new, n_drawn;
    struct serve_sampling sampling;
    int32_t ignore_eos;
    int32_t side; /* enum serve_side; 0: the request is this machine's alone */
    int32_t peer; /* the machine of the other side */
};

struct roles_stat {
    struct serve_kv_stat kv;
    struct serve_totals totals[SERVE_N_PHASES];
    /* Requests below this number have come, and n_open of them are not answered to their end. */
    int64_t end_id, n_open;
};

/* Neither end believes the other: each message has checksums, a known type and no more bytes than
 * its type may have, or it is ERR_FORMAT. */
/* Set the checksums of *m and the m->n_more bytes that follow. */
void roles_message_seal(struct roles_message *m, const void *more);
MUST int roles_message_check(const struct roles_message *m, size_t most);
MUST int roles_message_check_more(const struct roles_message *m, const void *more);
/* Make a text that a peer sent one line of plain characters. */
void roles_text_clean(char *text);

/* The setup that all processes inherit. Machines are numbered from 0: prompt machines, token
 * machines, mixed ones. */
struct roles_setup {
    struct roles_spec spec;
    struct roles_opts o;           /* lent */
    const struct serve_pace *pace; /* of machines that the front starts; NULL: none */
    const struct cluster_transport *transport;
    int n; /* machines */
    enum cluster_pool home[ROLES_MACHINES_ALL];
    int starter[2];   /* a socket pair; [0]: of the front */
    uint8_t key[256]; /* that both ends of a greeting have; n_key 0: there is none */
    size_t n_key;
    uint64_t model_id; /* what machines and front must have in common */
    bool is_joined;    /* the machines were not started by the front */
    bool is_mpi;       /* but by mpirun */
    int mpi_index; /* of this rank among the machines of its kind; -1: by when it came */
    /* The sockets of machines that have joined. */
    int control[ROLES_MACHINES_ALL][2]; /* [0]: of the front */
    int link[ROLES_MACHINES_ALL][ROLES_MACHINES_ALL]
            [2]; /* [from][to] [0]: of the sender */
    char names[ROLES_MACHINES_ALL][48];
    int cpus[ROLES_MACHINES_ALL][CPU_MAX], n_cpus[ROLES_MACHINES_ALL];
};

/* Do keys and values go from the one to the other? Where machines keep to their kinds, from prompt
 * machines to token machines only. */
static inline bool roles_is_linked(const struct roles_setup *u, int from, int to)
{
    bool keep = u->spec.n[CLUSTER_MIXED] == 0 && u->o.prompt_threshold_tok == 0 &&
                u->o.token_threshold_seqs == 0;

    if (keep)
        return u->home[from] == CLUSTER_PROMPT && u->home[to] == CLUSTER_TOKEN;
    return from != to && u->home[from] + u->home[to] != 2 * CLUSTER_MIXED;
}

static inline bool roles_sends(const struct roles_setup *u, int from)
{
    for (int to = 0; to < u->n; to++)
        if (roles_is_linked(u, from, to))
            return true;
    return false;
}

/* Which machines --roles asks for, their numbers, kinds and names; u->spec is to be freed in any
 * case. ERR_ARG. */
MUST int roles_setup_parse(struct roles_setup *u, const char *text,
                           const struct serve_opts *engine);
/* The same by u->spec.n alone. */
void roles_setup_number(struct roles_setup *u);

/* ---- the process that starts machines: of one thread, so that it may fork at any time ---- */

enum roles_starter_type {
    ROLES_START = 1, /* front: start `machine`; the socket that it gets follows */
    ROLES_KILL,      /* front: end `machine`, should it still run */
    ROLES_ENDED /* starter: `machine` does not exist any more: it ended or was stopped */
};

struct roles_starter_message {
    int32_t type, machine;
    char why
        [ROLES_TEXT_BYTES]; /* "prompt machine 1 of 1 (process 12) was killed by SIGKILL" */
};

/* The main function of that process, until the front closes its socket. Names a machine that
 * failed at the end. */
MUST int roles_starter(const struct roles_setup *u);
/* The main function of a machine's process, until the front closes its socket `fd`. */
MUST int roles_machine(const struct roles_setup *u, int machine, int fd);

#endif
