#include "roles/join.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cluster/mpi/mpi.h"
#include "cluster/tcp.h"
#include "cluster/wire.h"

#define MAGIC 0x524f4c45u

struct join_hello { /* machine to front; prompt machine to token machine: index */
    uint32_t magic, is_prompt;
    int32_t index, port;
};
struct join_welcome { /* then n_token struct join_address to a prompt machine */
    uint32_t magic;
    int32_t index, n_prompt, n_token;
};
struct join_address {
    char host[CLUSTER_TCP_HOST_BYTES];
    int32_t port;
};

static int n_prompt(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_PROMPT];
}

static int n_token(const struct roles_setup *u)
{
    return u->spec.n[CLUSTER_TOKEN];
}

/* ---- the front ---- */

static int welcome(const struct roles_setup *u, int machine,
                   const struct join_address *tokens)
{
    bool is_prompt = u->home[machine] == CLUSTER_PROMPT;
    struct join_welcome w = {.magic = MAGIC,
                             .index = is_prompt ? machine : machine - n_prompt(u),
                             .n_prompt = n_prompt(u),
                             .n_token = n_token(u)};
    int fd = u->control[machine][0];

    TRY(cluster_wire_write(fd, &w, sizeof(w)));
    return is_prompt
               ? cluster_wire_write(fd, tokens, (size_t)n_token(u) * sizeof(*tokens))
               : OK;
}

/* One that says hello; others are turned away. Where ranks of MPI are machines, they have their
 * number already. */
static int admit(struct roles_setup *u, int fd, int *n, struct join_address *tokens)
{
    struct join_hello h;
    int machine;

    if (cluster_wire_read(fd, &h, sizeof(h)) != OK || h.magic != MAGIC) {
        log_warn("a connection that is not a machine's was closed");
        close(fd);
        return OK;
    }
    machine = h.is_prompt ? n[0] : n_prompt(u) + n[1];
    if (h.index >= 0)
        machine = h.is_prompt ? h.index : n_prompt(u) + h.index;
    else if (n[!h.is_prompt] >= (h.is_prompt ? n_prompt(u) : n_token(u)))
        machine = -1;
    if (machine < 0 || machine >= n_prompt(u) + n_token(u) ||
        (u->home[machine] == CLUSTER_PROMPT) != (bool)h.is_prompt ||
        u->control[machine][0] >= 0) {
        log_warn("one %s machine too many was turned away",
                 h.is_prompt ? "prompt" : "token");
        close(fd);
        return OK;
    }
    u->control[machine][0] = fd;
    n[!h.is_prompt]++;
    if (h.is_prompt)
        return OK;
    tokens[machine - n_prompt(u)].port = h.port;
    return cluster_tcp_host(fd, true, tokens[machine - n_prompt(u)].host);
}

static int listen_front(const struct roles_setup *u, int *listener)
{
    char host[CLUSTER_TCP_HOST_BYTES], port[16];

    if (u->o.machines) {
        TRY(cluster_tcp_split(u->o.machines, host, port));
        return cluster_tcp_listen(host, port, listener);
    }
    return cluster_tcp_listen(NULL, "0", listener);
}

/* Under mpirun ranks ask rank 0 for the address. */
static int tell_address(const struct roles_setup *u, int listener)
{
    struct join_address a = {.port = cluster_tcp_port(listener)};

    if (!u->is_mpi)
        return OK;
    if (gethostname(a.host, sizeof(a.host) - 1) != 0)
        return err_set(ERR_IO, "this host has no name: %m");
    return cluster_mpi_bcast(&a, sizeof(a));
}

int roles_join_wait(struct roles_setup *u)
{
    struct join_address tokens[ROLES_MACHINES_MAX] = {{.port = 0}};
    int listener, fd, n[2] = {0, 0}, rc;

    TRY(listen_front(u, &listener));
    rc = tell_address(u, listener);
    if (rc == OK && u->o.machines)
        log_info("waiting at %s for %d prompt and %d token machines", u->o.machines,
                 n_prompt(u), n_token(u));
    while (rc == OK && n[0] + n[1] < n_prompt(u) + n_token(u)) {
        rc = cluster_tcp_accept(listener, &fd);
        if (rc == OK)
            rc = admit(u, fd, n, tokens);
    }
    close(listener);
    for (int i = 0; i < n_prompt(u) + n_token(u) && rc == OK; i++)
        rc = welcome(u, i, tokens);
    return rc;
}

/* ---- a machine ---- */

static int front_address(const struct roles_setup *u, char host[CLUSTER_TCP_HOST_BYTES],
                         char port[16])
{
    struct join_address a;

    if (!u->is_mpi)
        return cluster_tcp_split(u->o.front, host, port);
    TRY(cluster_mpi_bcast(&a, sizeof(a)));
    snprintf(host, CLUSTER_TCP_HOST_BYTES, "%s", a.host);
    snprintf(port, 16, "%d", a.port);
    return OK;
}

static int connect_links(struct roles_setup *u, int index, int control)
{
    struct join_address tokens[ROLES_MACHINES_MAX];
    const struct join_hello h = {.magic = MAGIC, .is_prompt = 1, .index = index};
    char port[16];

    TRY(cluster_wire_read(control, tokens, (size_t)n_token(u) * sizeof(tokens[0])));
    for (int t = 0; t < n_token(u); t++) {
        tokens[t].host[CLUSTER_TCP_HOST_BYTES - 1] = 0;
        snprintf(port, sizeof(port), "%d", tokens[t].port);
        TRY(cluster_tcp_connect(tokens[t].host, port,
                                &u->link[index][n_prompt(u) + t][0]));
        TRY(cluster_wire_write(u->link[index][n_prompt(u) + t][0], &h, sizeof(h)));
    }
    return OK;
}

static int accept_links(struct roles_setup *u, int index, int listener)
{
    struct join_hello h;
    int fd;

    for (int n = 0; n < n_prompt(u);) {
        TRY(cluster_tcp_accept(listener, &fd));
        if (cluster_wire_read(fd, &h, sizeof(h)) != OK || h.magic != MAGIC ||
            h.index < 0 || h.index >= n_prompt(u) ||
            u->link[h.index][n_prompt(u) + index][1] >= 0) {
            log_warn("a connection that is not a prompt machine's was closed");
            close(fd);
            continue;
        }
        u->link[h.index][n_prompt(u) + index][1] = fd;
        n++;
    }
    return OK;
}

static int read_welcome(struct roles_setup *u, int control, int *index)
{
    struct join_welcome w;

    if (cluster_wire_read(control, &w, sizeof(w)) != OK)
        return err_set(ERR_STATE,
                       "the front does not want this machine: it has others, or "
                       "went away");
    if (w.magic != MAGIC || w.n_prompt < 1 || w.n_prompt > ROLES_MACHINES_MAX ||
        w.n_token < 1 || w.n_token > ROLES_MACHINES_MAX || w.index < 0 ||
        w.index >= ROLES_MACHINES_MAX)
        return err_set(ERR_FORMAT, "the front did not say hello");
    *index = w.index;
    u->spec.n[CLUSTER_PROMPT] = w.n_prompt;
    u->spec.n[CLUSTER_TOKEN] = w.n_token;
    u->spec.n[CLUSTER_MIXED] = 0;
    roles_setup_number(u);
    return OK;
}

int roles_join(struct roles_setup *u, bool is_prompt, int *machine)
{
    struct join_hello h = {.magic = MAGIC, .is_prompt = is_prompt, .index = u->mpi_index};
    char host[CLUSTER_TCP_HOST_BYTES], port[16];
    int control, listener = -1, rc;

    TRY(front_address(u, host, port));
    TRY(cluster_tcp_connect(host, port, &control));
    rc = cluster_tcp_host(control, false, host);
    if (rc == OK && !is_prompt)
        rc = cluster_tcp_listen(host, "0", &listener);
    if (rc == OK && !is_prompt)
        h.port = cluster_tcp_port(listener);
    if (rc == OK)
        rc = cluster_wire_write(control, &h, sizeof(h));
    if (rc == OK)
        rc = read_welcome(u, control, machine);
    if (rc == OK)
        rc = is_prompt ? connect_links(u, *machine, control)
                       : accept_links(u, *machine, listener);
    if (listener >= 0)
        close(listener);
    if (rc == OK && !is_prompt)
        *machine += n_prompt(u);
    if (rc == OK)
        u->control[*machine][1] = control;
    return rc;
}

/* ---- the process of a machine that joins: by --role, or as a rank of MPI ---- */

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
