/* Machines of the front and the connections between them: started and opened, again where they have
 * failed; what they have counted. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/wire.h"
#include "roles/front.h"

#define WINDOW_NS UINT64_C(600000000000) /* in which failures are counted */

static int open_pair(int fd[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0)
        return OK;
    return err_set(ERR_IO, "roles: cannot make a socket: %m");
}

/* Whether another failure is one of at most `max` in the window. */
static bool count_failure(int *n, uint64_t *first_ns, int max)
{
    uint64_t now = clock_ns();

    if (*n == 0 || now - *first_ns > WINDOW_NS) {
        *n = 0;
        *first_ns = now;
    }
    if (*n >= max)
        return false;
    ++*n;
    return true;
}

/* ---- what machines have counted ---- */

static void add_kv(struct serve_kv_stat *out, const struct serve_kv_stat *s)
{
    out->budget_tok += s->budget_tok;
    out->reserved_tok += s->reserved_tok;
    out->pool_bytes += s->pool_bytes;
    out->reserved_bytes += s->reserved_bytes;
    out->used_bytes += s->used_bytes;
    out->n_preempted += s->n_preempted;
    out->n_recomputed_tok += s->n_recomputed_tok;
    out->n_overflow += s->n_overflow;
    out->n_reused += s->n_reused;
    out->n_reused_tok += s->n_reused_tok;
    out->migrated_bytes += s->migrated_bytes;
    out->migrate_s += s->migrate_s;
    out->n_alloc += s->n_alloc;
    out->alloc_s += s->alloc_s;
    out->n_predicted += s->n_predicted;
    out->predict_s += s->predict_s;
}

static void add_totals(struct serve_totals *out, const struct serve_totals *s)
{
    out->n_steps += s->n_steps;
    out->n_tok += s->n_tok;
    out->weight_bytes += s->weight_bytes;
    out->kv_bytes += s->kv_bytes;
    out->flop += s->flop;
    out->forward_ns += s->forward_ns;
    out->wait_ns += s->wait_ns;
    out->sample_ns += s->sample_ns;
    out->sched_ns += s->sched_ns;
}

/* Its process has ended: what it counted stays. With the lock held. */
static void keep_stat(struct roles_machine_state *m)
{
    m->stat.kv.budget_tok = m->stat.kv.reserved_tok = m->stat.kv.pool_bytes = 0;
    m->stat.kv.reserved_bytes = m->stat.kv.used_bytes = 0;
    add_kv(&m->past.kv, &m->stat.kv);
    for (int i = 0; i < SERVE_N_PHASES; i++)
        add_totals(&m->past.totals[i], &m->stat.totals[i]);
    m->stat = (struct roles_stat){0};
}

void roles_front_kv_stat(const struct serve *s, struct serve_kv_stat *out)
{
    struct roles_front *f = (struct roles_front *)s;

    *out = (struct serve_kv_stat){0};
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n; i++) {
        add_kv(out, &f->machines[i].stat.kv);
        add_kv(out, &f->machines[i].past.kv);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Called by the stepping thread, which alone writes statistics. */
const struct serve_totals *roles_front_totals(const struct serve *s,
                                              enum serve_phase phase)
{
    struct roles_front *f = (struct roles_front *)s;
    struct serve_totals *t = &f->totals[phase];

    *t = (struct serve_totals){0};
    for (int i = 0; i < f->n; i++) {
        add_totals(t, &f->machines[i].stat.totals[phase]);
        add_totals(t, &f->machines[i].past.totals[phase]);
    }
    return t;
}

/* ---- connections ---- */

/* Both ends get their sockets in the same order as all others do, so that no machines wait for
 * each other in a circle. With the lock held. */
static int open_connection(struct roles_front *f, int from, int to)
{
    struct roles_connection *c = &f->connections[from][to];
    struct roles_message m = {
        .type = ROLES_CONNECT, .id = ++f->n_connections, .peer = to, .sends = 1};
    int fd[2], rc;

    if (f->u.is_joined) /* they have sockets of their own, once */
        fd[0] = fd[1] = -1;
    else
        TRY(open_pair(fd));
    c->number = m.id;
    c->asked_ns = clock_ns();
    memset(c->is_open, 0, sizeof(c->is_open));
    c->broken_ns = 0;
    rc = roles_front_send(f, from, &m, NULL, 0, NULL, fd[0]);
    m.peer = from;
    m.sends = 0;
    if (rc == OK)
        return roles_front_send(f, to, &m, NULL, 0, NULL, fd[1]);
    if (fd[1] >= 0)
        close(fd[1]);
    return rc;
}

/* The connection that a machine's message means; *out NULL: there is another one by now. With the
 * lock held. */
static int connection_of(struct roles_front *f, int machine,
                         const struct roles_message *m, struct roles_connection **out)
{
    int from = m->sends ? machine : m->peer, to = m->sends ? m->peer : machine;

    if (m->peer < 0 || m->peer >= f->n || !roles_is_linked(&f->u, from, to) ||
        m->sends < 0 || m->sends > 1 || m->id < 1 || m->id > f->n_connections)
        return err_set(ERR_FORMAT, "connection %lld with machine %d, which there is not",
                       (long long)m->id, m->peer);
    *out = &f->connections[from][to];
    if ((*out)->number == m->id)
        return OK;
    if (f->u.is_joined && (*out)->number > 0) /* there was never another one */
        return err_set(ERR_FORMAT, "connection %lld is %lld", (long long)m->id,
                       (long long)(*out)->number);
    *out = NULL;
    return OK;
}

int roles_front_on_connected(struct roles_front *f, int machine,
                             const struct roles_message *head)
{
    struct roles_connection *c;
    int rc;

    pthread_mutex_lock(&f->lock);
    rc = connection_of(f, machine, head, &c);
    if (rc == OK && c && c->is_open[head->sends])
        rc = err_set(ERR_FORMAT, "connection %lld is open twice", (long long)head->id);
    else if (rc == OK && c)
        c->is_open[head->sends] = true;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void roles_front_break(struct roles_connection *c, const char *why)
{
    c->broken_ns = clock_ns();
    snprintf(c->why, sizeof(c->why), "%s", why);
}

int roles_front_on_broken(struct roles_front *f, int machine,
                          const struct roles_message *head, const char *why)
{
    char text[ROLES_TEXT_BYTES];
    struct roles_connection *c;
    int rc;

    pthread_mutex_lock(&f->lock);
    rc = connection_of(f, machine, head, &c);
    snprintf(text, sizeof(text), "%s: %.400s", f->u.names[machine], why);
    if (rc == OK && c && !c->broken_ns)
        roles_front_break(c, text);
    pthread_mutex_unlock(&f->lock);
    return rc == OK && c && !f->started ? err_set(ERR_STATE, "%s", text) : rc;
}

void roles_front_repair_connection(struct roles_front *f, int from, int to)
{
    struct roles_connection *c = &f->connections[from][to];
    bool retry = f->starter && count_failure(&c->n_failures, &c->first_ns, f->restarts);
    int n;

    pthread_mutex_lock(&f->lock);
    if (retry && open_connection(f, from, to) != OK)
        retry = false;
    if (!retry) {
        c->number = -1;
        memset(c->is_open, 0, sizeof(c->is_open));
        c->broken_ns = 0;
    }
    pthread_mutex_unlock(&f->lock);
    n = roles_front_again(f, from, to, c->why);
    log_warning("connection_failed", c->n_failures, f->restarts,
                "%.150s; the connection had %d of the requests and is %s", c->why, n,
                retry ? "opened again" : "given up");
}

/* ---- machines ---- */

int roles_front_tell_starter(struct roles_front *f, int type, int machine,
                             const char *why)
{
    struct roles_starter_message m = {.type = type, .machine = machine};

    snprintf(m.why, sizeof(m.why), "%s", why);
    return cluster_wire_write(f->u.starter[0], &m, sizeof(m));
}

int roles_front_start(struct roles_front *f, int machine)
{
    struct roles_machine_state *m = &f->machines[machine];
    int fd[2], rc;

    TRY(open_pair(fd));
    pthread_mutex_lock(&f->lock);
    m->fd = fd[0];
    m->state = ROLES_STARTING;
    m->untrusted = false;
    m->inbox.n = 0;
    pthread_mutex_unlock(&f->lock);
    rc = roles_front_tell_starter(f, ROLES_START, machine, "");
    if (rc == OK)
        rc = cluster_wire_write_fd(f->u.starter[0], fd[1]);
    close(fd[1]);
    return rc;
}

int roles_front_on_ready(struct roles_front *f, int machine,
                         const struct roles_message *head)
{
    int rc = OK;

    if (f->machines[machine].state != ROLES_STARTING || head->id < 1)
        return err_set(ERR_FORMAT, "it is ready twice, or for %lld tokens",
                       (long long)head->id);
    pthread_mutex_lock(&f->lock);
    f->machines[machine].state = ROLES_RUNNING;
    f->machines[machine].max_tok = head->id;
    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n && rc == OK; b++)
            if ((a == machine || b == machine) && roles_is_linked(&f->u, a, b) &&
                f->machines[a].state == ROLES_RUNNING &&
                f->machines[b].state == ROLES_RUNNING && f->connections[a][b].number == 0)
                rc = open_connection(f, a, b);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void roles_front_lost(struct roles_front *f, int machine, int rc)
{
    struct roles_machine_state *m = &f->machines[machine];
    char why[ROLES_TEXT_BYTES];

    if (rc == ERR_IO)
        snprintf(why, sizeof(why), "%s closed its connection", f->u.names[machine]);
    else
        snprintf(why, sizeof(why), "%s broke the protocol: %.400s", f->u.names[machine],
                 err_msg());
    pthread_mutex_lock(&f->lock);
    memcpy(m->why, why, sizeof(why));
    m->state = ROLES_LOST;
    m->lost_ns = clock_ns();
    m->untrusted = rc != ERR_IO;
    pthread_mutex_unlock(&f->lock);
    f->is_lost = true;
    if (rc != ERR_IO && f->starter &&
        roles_front_tell_starter(f, ROLES_KILL, machine, m->why) != OK)
        err_clear(); /* the starter is watched */
}

/* Nobody writes to it any more, or waits to. With the lock held. */
static void close_control(struct roles_front *f, int machine)
{
    struct roles_machine_state *m = &f->machines[machine];
    struct roles_outgoing **at = &f->out;

    while (*at) {
        struct roles_outgoing *o = *at;

        if (o->machine != machine) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        if (o->file >= 0)
            close(o->file);
        mem_free(o);
    }
    f->out_tail = at;
    if (m->fd >= 0)
        shutdown(m->fd, SHUT_RDWR);
    while (f->writing_to == machine)
        pthread_cond_wait(&f->written, &f->lock);
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
    keep_stat(m);
}

static void reset(struct roles_connection *c)
{
    if (c->number > 0)
        c->number = 0;
    memset(c->is_open, 0, sizeof(c->is_open));
    c->broken_ns = 0;
}

/* Others give the memory back that it might have written to. With the lock held. */
static void close_connections(struct roles_front *f, int machine)
{
    const struct roles_message m = {.type = ROLES_DISCONNECT, .peer = machine};

    for (int i = 0; i < f->n; i++) {
        reset(&f->connections[machine][i]);
        reset(&f->connections[i][machine]);
        if (i != machine && f->machines[i].state == ROLES_RUNNING &&
            roles_front_send(f, i, &m, NULL, 0, NULL, -1) != OK)
            err_clear();
    }
}

void roles_front_close_machine(struct roles_front *f, int machine)
{
    struct roles_machine_state *m = &f->machines[machine];

    pthread_mutex_lock(&f->lock);
    close_control(f, machine);
    close_connections(f, machine);
    m->state = ROLES_LOST;
    m->lost_ns = clock_ns();
    pthread_mutex_unlock(&f->lock);
    f->is_lost = true;
}

int roles_front_start_again(struct roles_front *f, int machine, const char *why)
{
    struct roles_machine_state *m = &f->machines[machine];

    if (f->starter && count_failure(&m->n_starts, &m->first_ns, f->restarts))
        return roles_front_start(f, machine);
    pthread_mutex_lock(&f->lock);
    m->state = ROLES_OVER;
    snprintf(f->why, sizeof(f->why), "no machine is left: %.400s", why);
    pthread_mutex_unlock(&f->lock);
    return OK;
}
