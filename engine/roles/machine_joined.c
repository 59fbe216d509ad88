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
            u->transport->name, 1 + u->n);
    if (u->transport->lend && !u->transport->mpi)
        return err_set(ERR_UNSUPPORTED,
                       "transport %s: only between processes that the front starts; "
                       "machines that connect use socket, or mpi_put under mpirun",
                       u->transport->name);
    if (u->spec.n[CLUSTER_MIXED] > 0 || u->o.prompt_threshold_tok > 0 ||
        u->o.token_threshold_seqs > 0)
        return err_set(
            ERR_UNSUPPORTED,
            "roles: mixed machines and thresholds: only between processes that "
            "the front starts; machines that connect keep to their kind");
    return OK;
}

int roles_open_mpi(struct roles_setup *u)
{
    int n_prompt = u->spec.n[CLUSTER_PROMPT], n_token = u->spec.n[CLUSTER_TOKEN];
    char text[128];
    int rank, size;

    if (cluster_mpi_rank() < 0)
        return OK;
    TRY(cluster_mpi_open(&rank, &size, text, sizeof(text)));
    u->is_mpi = true;
    u->mpi_index = rank <= n_prompt ? rank - 1 : rank - 1 - n_prompt;
    if (size != 1 + n_prompt + n_token)
        return err_set(ERR_ARG,
                       "mpirun has started %d processes: expected %d: the front, %d "
                       "prompt and %d token machines",
                       size, 1 + n_prompt + n_token, n_prompt, n_token);
    if (rank == 0)
        log_info("machines of %s", text);
    else
        for (int i = 0; i < 3; i++) /* mpirun passes it on; the front ends its machines */
            signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    return OK;
}

static int join_and_serve(struct roles_setup *u, const struct serve_opts *engine)
{
    const struct roles_opts *o = &u->o;
    bool is_prompt = o->role == ROLES_AS_PROMPT;
    int machine = -1;

    TRY(cluster_transport_find(o->transport, &u->transport));
    /* One that connects has the options of its own command. */
    TRY(roles_setup_parse(u, o->role == ROLES_AS_FRONT ? o->roles : "prompt=1,token=1",
                          engine));
    TRY(roles_check_joining(u));
    if (o->role == ROLES_AS_FRONT)
        TRY(roles_open_mpi(u));
    if (u->is_mpi)
        is_prompt = cluster_mpi_rank() <= u->spec.n[CLUSTER_PROMPT];
    TRY(roles_join(u, is_prompt, &machine));
    TRY(roles_machine(u, machine, u->control[machine][1]));
    cluster_mpi_close();
    return OK;
}

int roles_machine_serve(const struct serve_opts *engine, const struct roles_opts *o)
{
    struct roles_setup u = {.o = *o, .is_joined = true, .mpi_index = -1};
    int rc;

    memset(u.control, -1, sizeof(u.control));
    memset(u.link, -1, sizeof(u.link));
    rc = join_and_serve(&u, engine);
    roles_spec_free(&u.spec);
    return rc;
}
