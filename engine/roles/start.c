/* Opening and closing the front. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cluster/mpi/mpi.h"
#include "roles/impl.h"
#include "roles/join.h"

#define CLOSE_MS                                                                         \
    5000 /* for machines, and the process that starts them, to end by themselves */

static void close_machines(struct roles_front *f)
{
    bool sound = f->starter && f->started && par_ranks_check(f->starter) == OK;

    if (f->u.starter[0] >= 0)
        shutdown(f->u.starter[0], SHUT_RDWR); /* first: it then expects them to end */
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].fd >= 0)
            shutdown(f->machines[i].fd, SHUT_RDWR);
    if (f->writing)
        pthread_join(f->writer, NULL);
    if (sound && par_ranks_wait(f->starter, CLOSE_MS) == ERR_STATE)
        log_warning("machine_failed_at_close", 0, 1, "at its end: %s", err_msg());
    par_ranks_close(&f->starter);
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].fd >= 0)
            close(f->machines[i].fd);
}

static void close_front(void *ctx)
{
    struct roles_front *f = ctx;

    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_signal(&f->queued);
    pthread_mutex_unlock(&f->lock);
    close_machines(f);
    if (f->u.starter[0] >= 0)
        close(f->u.starter[0]);
    roles_front_end_all(f);
    while (f->out) {
        struct roles_outgoing *o = f->out;

        f->out = o->next;
        if (o->file >= 0)
            close(o->file);
        mem_free(o);
    }
    if (f->wake_fd >= 0)
        close(f->wake_fd);
    if (f->writing && !f->is_lost)
        cluster_mpi_close(); /* machines do, too, as their sockets are closed */
    pthread_cond_destroy(&f->queued);
    pthread_cond_destroy(&f->written);
    pthread_mutex_destroy(&f->lock);
    cluster_pools_close(&f->pools);
    roles_spec_free(&f->u.spec);
    mem_free(f);
}

static int divide_cpus(struct roles_front *f)
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

        memcpy(f->u.cpus[i], b.cpus + from, (size_t)(to - from) * sizeof(int));
        f->u.n_cpus[i] = to - from;
    }
    if (shared) {
        for (int k = 0; k < CLUSTER_N_POOLS; k++)
            f->u.spec.engine[k].pin = false;
        log_warn("%d machines share %d CPUs: each is slower than it would be alone", f->n,
                 b.n);
    }
    return OK;
}

static int starter_main(void *arg, int rank)
{
    const struct roles_front *f = arg;

    (void)rank;
    return roles_starter(&f->u);
}

/* So that a read from it ends, should it be stopped. By the thread that watches it. */
static void abort_reads(void *mem)
{
    const struct roles_front *f = mem;

    shutdown(f->u.starter[0], SHUT_RDWR);
}

static int open_starter(struct roles_front *f)
{
    static const char *const name = "the process that starts machines";
    const struct par_ranks_opts o = {.n_ranks = 1,
                                     .fn = starter_main,
                                     .arg = f,
                                     .names = &name,
                                     .abort = abort_reads,
                                     .mem = f};
    int rc;

    TRY(divide_cpus(f));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->u.starter) != 0) {
        f->u.starter[0] = f->u.starter[1] = -1;
        return err_set(ERR_IO, "roles: cannot make a socket: %m");
    }
    rc = par_ranks_open(&f->starter, &o);
    close(f->u.starter[1]);
    return rc;
}

/* Start all machines, and wait until they and their connections are there. */
static int start_machines(struct roles_front *f)
{
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    bool busy, all = false;

    TRY(thread_start(&f->writer, 0, roles_front_write, f, "roles"));
    f->writing = true;
    for (int i = 0; i < f->n && f->starter; i++)
        TRY(roles_front_start(f, i));
    while (!all) {
        (void)roles_front_poll(f, fds, 200);
        TRY(roles_front_read(f, fds, &busy));
        all = true;
        for (int a = 0; a < f->n; a++)
            for (int b = 0; b < f->n; b++)
                all = all &&
                      (!roles_is_linked(&f->u, a, b) || roles_front_is_open(f, a, b));
        for (int i = 0; i < f->n; i++)
            all = all && f->machines[i].state == ROLES_RUNNING;
    }
    f->started = true;
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
    f->restarts = (int)o->restarts;
    f->attempts = (int)o->attempts;
    f->u.starter[0] = f->u.starter[1] = f->writing_to = -1;
    for (int i = 0; i < ROLES_MACHINES_ALL; i++)
        f->machines[i].fd = -1;
    f->u.mpi_index = f->wake_fd = -1;
    memset(f->u.control, -1, sizeof(f->u.control));
    memset(f->u.link, -1, sizeof(f->u.link));
    f->out_tail = &f->out;
    TRY(thread_mutex_init(&f->lock));
    TRY(thread_cond_init(&f->queued));
    TRY(thread_cond_init(&f->written));
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->wake_fd < 0)
        return err_set(ERR_IO, "roles: cannot make an event: %m");
    TRY(roles_setup_parse(&f->u, o->roles, engine));
    f->n = f->u.n;
    for (int i = 0; i < f->n; i++)
        f->machines[i].pool = f->u.home[i];
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

/* Those that were started by others. */
static int wait_for_machines(struct roles_front *f)
{
    TRY(roles_check_joining(&f->u));
    TRY(roles_open_mpi(&f->u));
    TRY(roles_join_wait(&f->u));
    for (int i = 0; i < f->n; i++)
        f->machines[i].fd = f->u.control[i][0];
    return OK;
}

static int find_machines(struct roles_front *f)
{
    f->u.is_joined = f->u.o.machines || cluster_mpi_rank() >= 0;
    if (f->u.is_joined)
        return wait_for_machines(f);
    if (f->u.transport->mpi)
        return roles_check_joining(&f->u);
    return open_starter(f);
}

int roles_open(struct serve **out, const struct serve_opts *engine,
               const struct roles_opts *o)
{
    char why[ROLES_TEXT_BYTES];
    struct serve_front api;
    struct roles_front *f;
    int rc = new_front(&f, engine, o);

    *out = NULL;
    if (rc == OK)
        rc = find_machines(f);
    if (rc == OK)
        rc = start_machines(f);
    if (rc != OK) {
        snprintf(why, sizeof(why), "%s", err_msg());
        if (f)
            close_front(f);
        return err_set(rc, "%s", why);
    }
    roles_front_api(&api, f);
    api.close = close_front;
    api.max_tok = INT64_MAX;
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].max_tok < api.max_tok)
            api.max_tok = f->machines[i].max_tok;
    TRY(serve_open_front(out, engine, &api));
    if (o->transfer == CLUSTER_AUTO && o->serial_below_tok == ROLES_MEASURED)
        rc = set_crossing(*out, o);
    if (rc != OK)
        serve_close(out);
    return rc;
}
