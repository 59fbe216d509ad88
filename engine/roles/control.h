/* roles/control.h - what the front and a machine write to each other, and what both know. */
#ifndef ROLES_CONTROL_H
#define ROLES_CONTROL_H

#include "cluster/transport.h"
#include "roles/roles.h"

enum roles_message_type {
    ROLES_READY = 1, /* machine: max_tok */
    ROLES_REQUEST,   /* front: struct roles_request and the prompt's ids follow */
    ROLES_CANCEL,    /* front */
    ROLES_TOKEN,     /* machine: token and finish; with SERVE_ERROR a text follows */
    ROLES_STAT,      /* machine: struct roles_stat follows */
    ROLES_LINK       /* front: struct roles_link follows */
};

struct roles_message {
    uint32_t type, n_more; /* bytes that follow */
    int64_t id;            /* of the request, as the front counts; ROLES_READY: max_tok */
    int32_t token, finish;
};

struct roles_request {
    int64_t n_prompt, max_new;
    struct serve_sampling sampling;
    int32_t ignore_eos;
    int32_t peer; /* the machine of the other kind; -1: the request is this one's alone */
};

struct roles_stat {
    struct serve_kv_stat kv;
    struct serve_totals totals[SERVE_N_PHASES];
};

/* What all processes inherit. Machines are numbered from 0, prompt machines first. */
struct roles_setup {
    struct serve_opts engine; /* lent */
    struct roles_opts o;      /* lent */
    const struct cluster_transport *transport;
    int n_prompt, n_token;
    int control[2 * ROLES_MACHINES_MAX][2];              /* [0]: of the front */
    int link[ROLES_MACHINES_MAX][ROLES_MACHINES_MAX][2]; /* [0]: of the prompt machine */
    char names[2 * ROLES_MACHINES_MAX][32];
    bool is_joined; /* the machines were not started by the front */
    bool is_mpi;    /* but by mpirun */
    int mpi_index;  /* of this rank among the machines of its kind; -1: by when it came */
};

static inline bool roles_is_prompt(const struct roles_setup *u, int machine)
{
    return machine < u->n_prompt;
}

/* The main function of a machine's process, until the front closes its socket. */
MUST int roles_machine(const struct roles_setup *u, int machine);

/* "prompt=1,token=1" into u->n_prompt, u->n_token. ERR_ARG. */
MUST int roles_parse(struct roles_setup *u, const char *text);
/* Whether the transport can be used between processes that the front did not start. */
MUST int roles_check_joining(const struct roles_setup *u);
/* If mpirun has started this process: MPI, and u->is_mpi. By all processes. */
MUST int roles_open_mpi(struct roles_setup *u);

#endif
