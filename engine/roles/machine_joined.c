/* A machine that joins a front: by --role, or as a rank of MPI. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/mpi/mpi.h"
#include "roles/join.h"

bool roles_is_machine(const struct roles_opts *o)
{
    return o->role != ROLES_AS_FRONT || (o->roles && cluster_mpi_rank() > 0);
}

int roles_check_joining(const struct roles_setup *u)
{
    if (u->transport->mpi && cluster_mpi_rank() < 0)
        return err_set(
            ERR_STATE,
            "transport %s: start all processes with mpirun: mpirun -n %d sandwich "
            "serve --roles prompt=N,token=N",
            u->transport->name, 1 + u->n_prompt + u->n_token);
    if (u->transport->lend && !u->transport->mpi)
        return err_set(ERR_UNSUPPORTED,
                       "transport %s: only between processes that the front starts; "
                       "machines that connect use socket, or mpi_put under mpirun",
                       u->transport->name);
    return OK;
}

int roles_open_mpi(struct roles_setup *u)
{
    char text[128];
    int rank, size;

    if (cluster_mpi_rank() < 0)
        return OK;
    TRY(cluster_mpi_open(&rank, &size, text, sizeof(text)));
    u->is_mpi = true;
    u->mpi_index = rank <= u->n_prompt ? rank - 1 : rank - 1 - u->n_prompt;
    if (size != 1 + u->n_prompt + u->n_token)
        return err_set(ERR_ARG,
                       "mpirun has started %d processes: expected %d: the front, %d "
                       "prompt and %d token machines",
                       size, 1 + u->n_prompt + u->n_token, u->n_prompt, u->n_token);
    if (rank == 0)
        log_info("machines of %s", text);
    else
        for (int i = 0; i < 3; i++) /* mpirun passes it on; the front ends its machines */
            signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    return OK;
}

int roles_machine_serve(const struct serve_opts *engine, const struct roles_opts *o)
{
    struct roles_setup u = {
        .engine = *engine, .o = *o, .is_joined = true, .mpi_index = -1};
    bool is_prompt = o->role == ROLES_AS_PROMPT;
    int machine = -1, rc;

    memset(u.control, -1, sizeof(u.control));
    memset(u.link, -1, sizeof(u.link));
    TRY(cluster_transport_find(o->transport, &u.transport));
    if (o->role == ROLES_AS_FRONT)
        TRY(roles_parse(&u, o->roles));
    rc = roles_check_joining(&u);
    if (rc == OK && o->role == ROLES_AS_FRONT)
        rc = roles_open_mpi(&u);
    if (u.is_mpi)
        is_prompt = cluster_mpi_rank() <= u.n_prompt;
    if (rc == OK)
        rc = roles_join(&u, is_prompt, &machine);
    if (rc == OK)
        rc = roles_machine(&u, machine);
    if (rc == OK)
        cluster_mpi_close();
    return rc;
}
