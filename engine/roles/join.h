/* roles/join.h - machines that were not started by the front: they connect to it, over TCP or under
 * mpirun, and to each other.
 *
 * A machine says which kind it is and where it can be reached; when all are there the front tells
 * each its number and, if it is a prompt machine, where the token machines are; it connects to
 * them. From then on control and links are as between processes of one host.
 * There is no encryption and no password: for networks whose hosts trust each other. */
#ifndef ROLES_JOIN_H
#define ROLES_JOIN_H

#include "roles/control.h"

/* Front: wait until all prompt and token machines of u->spec have come to u->o.machines
 * ("HOST:PORT", or NULL: any address, which MPI tells), and fill u->control[..][0]. ERR_ARG,
 * ERR_IO, ERR_FORMAT. */
MUST int roles_join_wait(struct roles_setup *u);
/* Machine of a kind: connect, and fill what it has in u: spec.n, n, home, control[*machine][1]
 * and its ends of links. */
MUST int roles_join(struct roles_setup *u, bool is_prompt, int *machine);

#endif
