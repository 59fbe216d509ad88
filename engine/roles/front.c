/* The front of prompt and token machines, an implementation of serve.h. The stepping thread only
 * reads and another one only writes, so that neither a full socket nor a slow machine makes all
 * wait for each other. What machines still write of an attempt that has failed is ignored. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/thread.h"
#include "cluster/mpi/mpi.h"
#include "cluster/wire.h"
#include "roles/front.h"
#include "roles/join.h"

#define CLOSE_MS                                                                         \
    5000 /* for machines, and the process that starts them, to end by themselves */

#define LOST_NS UINT64_C(2000000000) /* for a machine that closed its connection to end */
/* A connection fails before the machine that ended is named: that is no failure of its own. */
#define BROKEN_NS UINT64_C(300000000)
/* For the rest of a message that has begun to come, and for a machine to read what it is sent. */
#define PARTIAL_S 5
/* For a machine that has nothing else to do yet to open a connection. */
#define CONNECT_S 10

/* ---- writing to machines ---- */

/* A machine that has gone is named by the starter, and one that does not read is lost. */
static void write_out(const struct roles_outgoing *o, int fd)
{
    const struct timeval most = {.tv_sec = PARTIAL_S};
    int rc = ERR_IO;

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) == 0)
        rc = cluster_wire_write(fd, o->message, o->bytes);
    if (rc == OK && o->file >= 0)
        (void)!cluster_wire_write_fd(fd, o->file);
    else if (rc != OK && fd >= 0)
        shutdown(fd, SHUT_RDWR);
    if (o->file >= 0)
        close(o->file);
}

/* The main function of the thread that writes. */
static void *write_all(void *arg)
{
    struct roles_front *f = arg;

    pthread_mutex_lock(&f->lock);
    while (!f->closing) {
        struct roles_outgoing *o = f->out;
        int fd;

        if (!o) {
            pthread_cond_wait(&f->queued, &f->lock);
            continue;
        }
        f->out = o->next;
        if (!f->out)
            f->out_tail = &f->out;
        f->writing_to = o->machine;
        fd = f->machines[o->machine].fd;
        pthread_mutex_unlock(&f->lock);
        write_out(o, fd);
        mem_free(o);
        pthread_mutex_lock(&f->lock);
        f->writing_to = -1;
        pthread_cond_broadcast(&f->written);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- what machines and their starter write; on the stepping thread ---- */

static int on_ended(struct roles_front *f, int machine, const char *why)
{
    const struct roles_machine_state *m = &f->machines[machine];
    bool any = true;
    int n;

    while (any && f->machines[machine].fd >= 0 &&
           roles_front_read(f, machine, &any) == OK)
        ; /* all that it wrote before */
    err_clear();
    roles_front_close_machine(f, machine);
    if (!f->started)
        return err_set(ERR_STATE, "%s", why);
    TRY(roles_front_start_again(f, machine, why));
    n = roles_front_again(f, machine, -1, why);
    log_warning("machine_ended", m->n_starts, f->restarts,
                "%.150s; it had %d of the requests and is %s", why, n,
                m->state == ROLES_STARTING ? "started again" : "not started again");
    return OK;
}

/* End machines that are lost and do not end, and open connections again that have failed. */
static int repair(struct roles_front *f)
{
    uint64_t now = clock_ns();

    for (int i = 0; i < f->n; i++) {
        struct roles_machine_state *m = &f->machines[i];

        if (m->fd >= 0 && m->state != ROLES_LOST && m->inbox.n > 0 &&
            now - m->inbox.since_ns > PARTIAL_S * UINT64_C(1000000000))
            roles_front_lost(
                f, i, err_set(ERR_FORMAT, "it stopped in the middle of a message"));
        if (m->state != ROLES_LOST || (f->starter && now - m->lost_ns < LOST_NS))
            continue;
        m->lost_ns = now;
        if (!f->starter) {
            TRY(on_ended(f, i, m->why));
            continue;
        }
        if (roles_front_tell_starter(f, ROLES_KILL, i, m->why) != OK)
            err_clear();
    }
    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n; b++) {
            const struct roles_connection *c = &f->connections[a][b];

            if (c->broken_ns && now - c->broken_ns >= BROKEN_NS &&
                f->machines[a].state == ROLES_RUNNING &&
                f->machines[b].state == ROLES_RUNNING)
                roles_front_repair_connection(f, a, b);
        }
    return OK;
}

static int read_starter(struct roles_front *f)
{
    struct roles_starter_message m;
    char why[ROLES_TEXT_BYTES];

    if (cluster_wire_read(f->u.starter[0], &m, sizeof(m)) != OK) {
        TRY(par_ranks_wait(f->starter, 2000));
        return err_set(ERR_STATE, "the process that starts machines has ended");
    }
    m.why[sizeof(m.why) - 1] = 0;
    if (m.type != ROLES_ENDED || m.machine < 0 || m.machine >= f->n)
        return err_set(ERR_STATE, "the process that starts machines said %d of %d",
                       m.type, m.machine);
    snprintf(why, sizeof(why), "%s", m.why);
    if (!why[0])
        snprintf(why, sizeof(why), "%s has ended", f->u.names[m.machine]);
    return on_ended(f, m.machine, why);
}

static int poll_all(struct roles_front *f, struct pollfd *fds, int timeout_ms)
{
    for (int i = 0; i < f->n; i++)
        fds[i] = (struct pollfd){
            .fd = f->machines[i].state == ROLES_LOST ? -1 : f->machines[i].fd,
            .events = POLLIN};
    fds[f->n] = (struct pollfd){.fd = f->wake_fd, .events = POLLIN};
    fds[f->n + 1] = (struct pollfd){.fd = f->u.starter[0], .events = POLLIN};
    return poll(fds, (nfds_t)f->n + 2, timeout_ms);
}

static int read_all(struct roles_front *f, const struct pollfd *fds, bool *busy)
{
    *busy = false;
    for (int i = 0; i < f->n; i++) {
        bool any;
        int rc;

        /* Another one's message may have been a reason to read this one's. */
        if (fds[i].revents == 0 || f->machines[i].fd != fds[i].fd ||
            f->machines[i].state == ROLES_LOST)
            continue;
        rc = roles_front_read(f, i, &any);
        *busy = *busy || any || rc != OK;
        if (rc == ERR_STATE)
            return rc;
        if (rc != OK)
            roles_front_lost(f, i, rc);
    }
    if (fds[f->n + 1].revents) {
        *busy = true;
        return read_starter(f);
    }
    return OK;
}

/* No machine computes them any more. */
static int fail_all(struct roles_front *f, int rc)
{
    char why[ROLES_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", err_msg());
    pthread_mutex_lock(&f->lock);
    snprintf(f->why, sizeof(f->why), "%s", why);
    while (f->requests)
        roles_front_give_error(f, f->requests, why);
    pthread_mutex_unlock(&f->lock);
    return err_set(rc, "%s", why);
}

static int step(struct serve *s, bool *busy)
{
    struct roles_front *f = roles_front_of(s);
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    int rc = f->starter ? par_ranks_check(f->starter) : OK;
    bool any;

    *busy = false;
    if (rc == OK && poll_all(f, fds, 0) > 0)
        rc = read_all(f, fds, busy);
    if (rc == OK)
        rc = repair(f);
    if (rc == OK) {
        pthread_mutex_lock(&f->lock);
        any = roles_front_has_machines(f);
        pthread_mutex_unlock(&f->lock);
        rc = any ? OK : err_set(ERR_STATE, "%s", f->why);
    }
    if (rc != OK)
        return fail_all(f, rc);
    roles_front_dispatch_waiting(f);
    return OK;
}

static void wait_for_some(struct serve *s, uint64_t timeout_ns)
{
    struct roles_front *f = roles_front_of(s);
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    uint64_t ms = timeout_ns / 1000000, n;

    if (poll_all(f, fds, ms > 200 ? 200 : (int)ms) > 0 && fds[f->n].revents)
        (void)!read(f->wake_fd, &n, sizeof(n));
}

static void wake(struct serve *s)
{
    struct roles_front *f = roles_front_of(s);
    uint64_t one = 1;

    (void)!write(f->wake_fd, &one, sizeof(one));
}

/* ---- open and close ---- */

/* Requests that have not ended end with SERVE_CANCELED. The machines have gone. */
static void end_all(struct roles_front *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->requests)
        roles_front_give_token(f, f->requests, -1, SERVE_CANCELED);
    pthread_mutex_unlock(&f->lock);
}

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

static void close_front(struct serve *s)
{
    struct roles_front *f = roles_front_of(s);

    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_signal(&f->queued);
    pthread_mutex_unlock(&f->lock);
    close_machines(f);
    if (f->u.starter[0] >= 0)
        close(f->u.starter[0]);
    end_all(f);
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
    serve_fini(&f->api);
    mem_free(f);
}

static void no_draft(const struct serve *s, struct serve_draft_stat *out)
{
    (void)s;
    *out = (struct serve_draft_stat){0};
}

static int describe(struct serve *s, json_t **out)
{
    (void)s;
    *out = NULL;
    return err_set(ERR_UNSUPPORTED, "engines in other processes are not described");
}

static const struct serve_ops front_ops = {.submit = roles_front_submit,
                                           .cancel = roles_front_cancel,
                                           .step = step,
                                           .wait = wait_for_some,
                                           .wake = wake,
                                           .totals = roles_front_totals,
                                           .kv_stat = roles_front_kv_stat,
                                           .draft_stat = no_draft,
                                           .describe = describe,
                                           .close = close_front};

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

/* Called by the thread that watches the starter: a read from it ends even where it is stopped. */
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

/* The machine that has not opened its end of a connection for too long; -1: none. */
static int late_machine(const struct roles_front *f)
{
    uint64_t now = clock_ns();

    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n; b++) {
            const struct roles_connection *c = &f->connections[a][b];

            if (c->number > 0 && !(c->is_open[0] && c->is_open[1]) &&
                now - c->asked_ns > CONNECT_S * UINT64_C(1000000000))
                return c->is_open[0] ? a : b;
        }
    return -1;
}

/* Start all machines, and wait until they and their connections are there. */
static int start_machines(struct roles_front *f)
{
    struct pollfd fds[ROLES_MACHINES_ALL + 2];
    bool busy, all = false;
    int late;

    TRY(thread_start(&f->writer, 0, write_all, f, "roles"));
    f->writing = true;
    for (int i = 0; i < f->n && f->starter; i++)
        TRY(roles_front_start(f, i));
    while (!all) {
        (void)poll_all(f, fds, 200);
        TRY(read_all(f, fds, &busy));
        TRY(repair(f));
        late = late_machine(f);
        if (late >= 0)
            return err_set(ERR_STATE, "%s has not opened a connection for %d s",
                           f->u.names[late], CONNECT_S);
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
    TRY(serve_init(&f->api, &front_ops, engine));
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

/* ---- the length of prompts from which on layer-wise transfers are faster than serial ones ---- */

#define FIRST_TOK   16
#define LENGTHS_MAX 16
#define ROUNDS      5
#define LONGEST_NS  UINT64_C(500000000)

struct probe {
    int n;
    uint64_t second_ns;
    enum serve_finish finish;
};

static void on_probe_token(void *ctx, int64_t request, int32_t id, const float *logits,
                           enum serve_finish finish)
{
    struct probe *p = ctx;

    (void)request, (void)logits;
    p->n += id >= 0;
    if (p->n == 2)
        p->second_ns = clock_ns();
    p->finish = finish;
}

/* Measure the time until the second token. */
static int probe(struct serve *s, int64_t n_tok, uint64_t *ns)
{
    int32_t *ids = mem_new(MEM_OTHER, (size_t)n_tok, sizeof(*ids));
    struct probe p = {.n = 0};
    const struct serve_request r = {.prompt = ids,
                                    .n_prompt = n_tok,
                                    .max_new = 2,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_probe_token,
                                    .ctx = &p};
    uint64_t begin;
    int64_t id;
    bool busy;
    int rc;

    if (!ids)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n_tok; i++)
        ids[i] = (int32_t)((7 * i + 3) % serve_vocab(s));
    begin = clock_ns();
    rc = serve_submit(s, &r, &id);
    mem_free(ids);
    while (rc == OK && p.finish == SERVE_RUNNING) {
        rc = serve_step(s, &busy);
        if (rc == OK && !busy)
            serve_wait(s, LONGEST_NS);
    }
    if (rc == OK && p.n != 2)
        rc = err_set(ERR_STATE, "a prompt of %lld tokens could not be measured: %s",
                     (long long)n_tok, err_msg());
    *ns = p.second_ns - begin;
    return rc;
}

/* *sooner: layer by layer is; *most_ns: the longest that any took. */
static int compare_links(struct serve *s, struct roles_link l, int64_t n_tok,
                         bool *sooner, uint64_t *most_ns)
{
    double ms[2][ROUNDS];
    uint64_t ns;

    *most_ns = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < 2; k++) {
            int layer_wise = k ^ (r % 2);

            l.serial_below_tok = layer_wise ? 0 : INT64_MAX;
            TRY(roles_link_set(s, &l));
            TRY(probe(s, n_tok, &ns));
            ms[layer_wise][r] = 1e-6 * (double)ns;
            *most_ns = ns > *most_ns ? ns : *most_ns;
        }
    *sooner = stats_median(ms[1], ROUNDS) < stats_median(ms[0], ROUNDS);
    return OK;
}

/* The shortest prompt from which on layer-wise transfers bring the second token sooner than serial
 * ones: prompts of 16, 32, ... tokens of both kinds in turn, over the link of the options.
 * INT64_MAX: there is none among those that take half a second at most. Sets it. */
static int shortest_layer_wise(struct serve *s, const struct roles_opts *o,
                               int64_t *serial_below_tok)
{
    struct roles_link l = {.gbps = o->link_gbps, .latency_ms = o->link_latency_ms};
    int64_t from = INT64_MAX, n_tok = FIRST_TOK;
    uint64_t ns = 0;
    bool sooner;

    TRY(compare_links(s, l, 1, &sooner, &ns)); /* warms up */
    for (int i = 0; i < LENGTHS_MAX && n_tok + 2 <= s->max_tok; i++, n_tok *= 2) {
        TRY(compare_links(s, l, n_tok, &sooner, &ns));
        if (!sooner)
            from = INT64_MAX;
        else if (from == INT64_MAX)
            from = n_tok;
        if (2 * ns > LONGEST_NS)
            break;
    }
    l.serial_below_tok = *serial_below_tok = from;
    return roles_link_set(s, &l);
}

static int measure_link(struct serve *s, const struct roles_opts *o)
{
    int64_t tok;

    TRY(shortest_layer_wise(s, o, &tok));
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

/* Wait for the machines that were started by others. */
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

static int open_front(struct roles_front *f, const struct roles_opts *o)
{
    TRY(serve_open_head(&f->api));
    f->u.model_id = f->api.identity;
    TRY(find_machines(f));
    TRY(start_machines(f));
    f->api.max_tok = INT64_MAX;
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].max_tok < f->api.max_tok)
            f->api.max_tok = f->machines[i].max_tok;
    if (o->transfer == CLUSTER_AUTO && o->serial_below_tok == ROLES_MEASURED)
        return measure_link(&f->api, o);
    return OK;
}

int roles_open(struct serve **out, const struct serve_opts *engine,
               const struct roles_opts *o)
{
    return roles_open_paced(out, engine, o, NULL);
}

int roles_open_paced(struct serve **out, const struct serve_opts *engine,
                     const struct roles_opts *o, const struct serve_pace *pace)
{
    char why[ROLES_TEXT_BYTES];
    struct roles_front *f;
    int rc = new_front(&f, engine, o);

    *out = NULL;
    if (rc == OK) {
        f->u.pace = pace;
        rc = open_front(f, o);
    }
    if (rc == OK) {
        *out = &f->api;
        return OK;
    }
    snprintf(why, sizeof(why), "%s", err_msg());
    if (f)
        close_front(&f->api);
    return err_set(rc, "%s", why);
}

int roles_link_set(struct serve *s, const struct roles_link *l)
{
    const struct roles_message head = {.type = ROLES_LINK, .n_more = sizeof(*l)};
    struct roles_front *f = roles_front_of(s);
    int rc = OK;

    if (s->ops != &front_ops)
        return err_set(ERR_STATE, "a link is set, but there are no machines");
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n && rc == OK;
         i++) /* also those that are sometimes prompt machines */
        if (roles_sends(&f->u, i))
            rc = roles_front_send(f, i, &head, l, sizeof(*l), NULL, -1);
    pthread_mutex_unlock(&f->lock);
    return rc;
}
