/* roles/join.h - machines that were not started by the front: they connect to it, over TCP or under
 * mpirun, and to each other.
 *
 * A machine announces its kind, its address and its model; when all are there the front sends
 * each its number and where the token machines are; prompt machines connect to them. From then on
 * control and links are as between processes of one host. Both ends of each connection prove by
 * HMAC that they have the key of --key-file; without one both are on this host. Nothing that
 * follows is encrypted or signed. */
#ifndef ROLES_JOIN_H
#define ROLES_JOIN_H

#include "roles/control.h"

/* Front: wait until all prompt and token machines of u->spec have come to u->o.machines
 * ("HOST:PORT", or NULL: any address, which MPI tells), and fill u->control[..][0]. ERR_ARG,
 * ERR_IO, ERR_FORMAT. */
MUST int roles_join_wait(struct roles_setup *u);
/* A machine: join the front of u->o.front, or of MPI: *machine, its number, u->spec.n, the socket
 * u->control[*machine][1], and those of its links. ERR_ARG, ERR_IO, ERR_STATE, ERR_FORMAT. */
MUST int roles_join(struct roles_setup *u, bool is_prompt, int *machine);
/* Whether the transport can be used between processes that the front did not start. */
MUST int roles_check_joining(const struct roles_setup *u);
/* If mpirun has started this process: MPI, and u->is_mpi. By all processes. */
MUST int roles_open_mpi(struct roles_setup *u);

#endif
