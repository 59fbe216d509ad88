/* Starting the machines, and closing. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/mpi/mpi.h"
#include "cluster/wire.h"
#include "roles/impl.h"
#include "roles/join.h"

#define CLOSE_MS 2000 /* for machines to end by themselves */

static void close_front(void *ctx)
{
    struct roles_front *f = ctx;
    bool sound = f->u.is_joined || (f->children && par_ranks_check(f->children) == OK);

    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_signal(&f->queued);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n; i++)
        if (f->u.control[i][0] >= 0)
            shutdown(f->u.control[i][0], SHUT_RDWR); /* machines end by that */
    if (f->writing)
        pthread_join(f->writer, NULL);
    if (sound && f->children && par_ranks_wait(f->children, CLOSE_MS) == ERR_STATE)
        log_warning("machine_failed_at_close", 0, 1, "at its end: %s", err_msg());
    par_ranks_close(&f->children);
    roles_front_end_all(f);
    while (f->out) {
        struct roles_outgoing *o = f->out;

        f->out = o->next;
        mem_free(o);
    }
    for (int i = 0; i < f->n; i++)
        if (f->u.control[i][0] >= 0)
            close(f->u.control[i][0]);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
    if (f->writing && !f->is_lost)
        cluster_mpi_close(); /* machines do, too, as their sockets are closed */
    pthread_cond_destroy(&f->queued);
    pthread_mutex_destroy(&f->lock);
    cluster_pools_close(&f->pools);
    roles_spec_free(&f->u.spec);
    mem_free(f);
}

static int open_pair(int fd[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0)
        return OK;
    fd[0] = fd[1] = -1;
    return err_set(ERR_IO, "roles: cannot make a socket: %m");
}

static int open_sockets(struct roles_front *f)
{
    int rc = OK;

    for (int i = 0; i < f->n && rc == OK; i++)
        rc = open_pair(f->u.control[i]);
    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n && rc == OK; b++)
            if (roles_is_linked(&f->u, a, b))
                rc = open_pair(f->u.link[a][b]);
    return rc;
}

/* The machines have theirs. */
static void close_their_sockets(struct roles_front *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->u.control[i][1] >= 0)
            close(f->u.control[i][1]);
    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n; b++)
            for (int k = 0; k < 2; k++)
                if (f->u.link[a][b][k] >= 0)
                    close(f->u.link[a][b][k]);
}

static int divide_cpus(struct roles_front *f, const int **cpus)
{
    int64_t threads[ROLES_MACHINES_ALL];
    int lo[ROLES_MACHINES_ALL + 1];
    struct cpu_budget b;
    bool shared;

    TRY(cpu_budget_get(&b));
    for (int i = 0; i < f->n; i++)
        threads[i] = f->u.spec.engine[f->u.home[i]].threads;
    shared = !roles_divide_cpus(lo, threads, f->n, b.n);
    for (int i = 0; i < f->n; i++) {
        int from = shared ? 0 : lo[i], to = shared ? b.n : lo[i + 1];

        memcpy(f->cpus[i], b.cpus + from, (size_t)(to - from) * sizeof(int));
        f->n_cpus[i] = to - from;
        cpus[i] = f->cpus[i];
    }
    if (shared) {
        for (int k = 0; k < CLUSTER_N_POOLS; k++)
            f->u.spec.engine[k].pin = false;
        log_warn("%d machines share %d CPUs: each is slower than it would be alone", f->n,
                 b.n);
    }
    return OK;
}

static int machine_main(void *arg, int machine)
{
    const struct roles_front *f = arg;

    return roles_machine(&f->u, machine);
}

/* So that a read from a machine that is stopped ends. By the thread that watches. */
static void abort_reads(void *mem)
{
    struct roles_front *f = mem;

    for (int i = 0; i < f->n; i++)
        shutdown(f->u.control[i][0], SHUT_RDWR);
}

/* Those that were started by others. */
static int wait_for_machines(struct roles_front *f)
{
    TRY(roles_check_joining(&f->u));
    TRY(roles_open_mpi(&f->u));
    return roles_join_wait(&f->u);
}

static int start_machines(struct roles_front *f)
{
    const int *cpus[ROLES_MACHINES_ALL];
    const struct par_ranks_opts o = {.n_ranks = f->n,
                                     .fn = machine_main,
                                     .arg = f,
                                     .names = (const char *const *)f->names,
                                     .cpus = cpus,
                                     .n_cpus = f->n_cpus,
                                     .abort = abort_reads,
                                     .mem = f};
    int rc;

    for (int i = 0; i < f->n; i++) {
        f->names[i] = f->u.names[i];
        f->machines[i].pool = f->u.home[i];
    }
    f->u.is_joined = f->u.o.machines || cluster_mpi_rank() >= 0;
    if (f->u.is_joined)
        return wait_for_machines(f);
    if (f->u.transport->mpi)
        return roles_check_joining(&f->u);
    rc = divide_cpus(f, cpus);
    if (rc == OK)
        rc = open_sockets(f);
    if (rc == OK)
        rc = par_ranks_open(&f->children, &o);
    close_their_sockets(f);
    return rc;
}

/* Wait until all are; *max_tok: that of the one with the least. */
static int wait_until_ready(struct roles_front *f, int64_t *max_tok)
{
    *max_tok = INT64_MAX;
    for (int i = 0; i < f->n; i++) {
        struct roles_message m;

        if (cluster_wire_read(f->u.control[i][0], &m, sizeof(m)) != OK)
            return roles_front_name_lost(f, i);
        if (m.type != ROLES_READY)
            return err_set(ERR_FORMAT, "%s: a message of type %u", f->u.names[i], m.type);
        *max_tok = m.id < *max_tok ? m.id : *max_tok;
    }
    TRY(thread_start(&f->writer, 0, roles_front_write, f, "roles"));
    f->writing = true;
    return OK;
}

/* A machine that nothing would be given is a mistake. */
static int check_pools(const struct roles_setup *u)
{
    const int *n = u->spec.n;

    if (n[CLUSTER_MIXED] == 0 || n[CLUSTER_TOKEN] == 0 || u->o.prompt_threshold_tok > 0 ||
        u->o.token_threshold_seqs > 0)
        return OK;
    return err_set(ERR_ARG,
                   "roles: without prompt_threshold_tok and token_threshold_seqs the %s "
                   "machines would get nothing",
                   n[CLUSTER_PROMPT] > 0 ? "mixed" : "token");
}

static int new_front(struct roles_front **out, const struct serve_opts *engine,
                     const struct roles_opts *o)
{
    struct roles_front *f = mem_new(MEM_OTHER, 1, sizeof(*f));
    const struct cluster_router *router;

    *out = f;
    if (!f)
        return ERR_NOMEM;
    f->u.o = *o;
    f->u.mpi_index = -1;
    memset(f->u.control, -1, sizeof(f->u.control));
    memset(f->u.link, -1, sizeof(f->u.link));
    f->out_tail = &f->out;
    f->wake_fd = -1;
    TRY(thread_mutex_init(&f->lock));
    TRY(thread_cond_init(&f->queued));
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->wake_fd < 0)
        return err_set(ERR_IO, "roles: cannot make an event: %m");
    TRY(roles_setup_parse(&f->u, o->roles, engine));
    f->n = f->u.n;
    TRY(check_pools(&f->u));
    TRY(cluster_transport_find(o->transport, &f->u.transport));
    TRY(cluster_router_find(o->router, &router));
    return cluster_pools_open(&f->pools, f->n, router, 1);
}

static int set_crossing(struct serve *s, const struct roles_opts *o)
{
    int64_t tok;

    TRY(roles_crossing_measure(s, o, &tok));
    if (tok == INT64_MAX)
        log_info(
            "transfer auto: prompts are sent serially: layer by layer was not faster");
    else
        log_info(
            "transfer auto: prompts of %lld tokens and more are sent layer by layer, as "
            "measured (--serial-below-tok %lld)",
            (long long)tok, (long long)tok);
    return OK;
}

int roles_open(struct serve **out, const struct serve_opts *engine,
               const struct roles_opts *o)
{
    struct serve_front api;
    struct roles_front *f;
    int rc = new_front(&f, engine, o);

    *out = NULL;
    if (rc == OK)
        rc = start_machines(f);
    roles_front_api(&api, f);
    api.close = close_front;
    if (rc == OK)
        rc = wait_until_ready(f, &api.max_tok);
    if (rc != OK) {
        if (f)
            close_front(f);
        return rc;
    }
    TRY(serve_open_front(out, engine, &api));
    if (o->transfer == CLUSTER_AUTO && o->serial_below_tok == ROLES_MEASURED)
        rc = set_crossing(*out, o);
    if (rc != OK)
        serve_close(out);
    return rc;
}
