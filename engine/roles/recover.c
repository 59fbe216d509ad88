/* Machines and connections between them: started and opened, again where they have failed. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/wire.h"
#include "roles/impl.h"

#define WINDOW_NS UINT64_C(600000000000) /* in which failures are counted */
#define LOST_NS   UINT64_C(2000000000) /* for a machine that closed its connection to end */
/* A connection fails before the machine that ended is named: that is no failure of its own. */
#define BROKEN_NS UINT64_C(300000000)

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

/* ---- connections ---- */

bool roles_front_is_open(const struct roles_front *f, int from, int to)
{
    const struct roles_connection *c = &f->connections[from][to];

    return f->machines[from].state == ROLES_RUNNING &&
           f->machines[to].state == ROLES_RUNNING && c->n_open == 2 && !c->broken_ns;
}

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
    c->n_open = 0;
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

/* That a machine means; NULL: there is another one by now. */
static struct roles_connection *connection_of(struct roles_front *f, int machine,
                                              const struct roles_message *m)
{
    struct roles_connection *c;

    if (m->peer < 0 || m->peer >= f->n)
        return NULL;
    c = m->sends ? &f->connections[machine][m->peer] : &f->connections[m->peer][machine];
    return c->number == m->id ? c : NULL;
}

int roles_front_on_connected(struct roles_front *f, int machine,
                             const struct roles_message *head)
{
    struct roles_connection *c;

    pthread_mutex_lock(&f->lock);
    c = connection_of(f, machine, head);
    if (c)
        c->n_open++;
    pthread_mutex_unlock(&f->lock);
    return OK;
}

int roles_front_on_broken(struct roles_front *f, int machine,
                          const struct roles_message *head, const char *why)
{
    struct roles_connection *c;

    pthread_mutex_lock(&f->lock);
    c = connection_of(f, machine, head);
    if (c && !c->broken_ns) {
        c->broken_ns = clock_ns();
        snprintf(c->why, sizeof(c->why), "%s: %.400s", f->u.names[machine], why);
    }
    pthread_mutex_unlock(&f->lock);
    return c && !f->started ? err_set(ERR_STATE, "%s", c->why) : OK;
}

/* Open it again, and compute again what went over it. */
static void repair_connection(struct roles_front *f, int from, int to)
{
    struct roles_connection *c = &f->connections[from][to];
    bool retry = f->starter && count_failure(&c->n_failures, &c->first_ns, f->restarts);
    int n;

    pthread_mutex_lock(&f->lock);
    if (retry && open_connection(f, from, to) != OK)
        retry = false;
    if (!retry) {
        c->number = -1;
        c->n_open = 0;
        c->broken_ns = 0;
    }
    pthread_mutex_unlock(&f->lock);
    n = roles_front_again(f, from, to, c->why);
    log_warning("connection_failed", c->n_failures, f->restarts,
                "%.150s; the connection had %d of the requests and is %s", c->why, n,
                retry ? "opened again" : "given up");
}

/* ---- machines ---- */

bool roles_front_has_machines(const struct roles_front *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->machines[i].state != ROLES_OVER)
            return true;
    return false;
}

static int tell_starter(struct roles_front *f, int type, int machine, const char *why)
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
    pthread_mutex_unlock(&f->lock);
    rc = tell_starter(f, ROLES_START, machine, "");
    if (rc == OK)
        rc = cluster_wire_write_fd(f->u.starter[0], fd[1]);
    close(fd[1]);
    return rc;
}

int roles_front_on_ready(struct roles_front *f, int machine,
                         const struct roles_message *head)
{
    int rc = OK;

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
    char why[ROLES_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s: %.400s", f->u.names[machine], err_msg());
    pthread_mutex_lock(&f->lock);
    f->machines[machine].state = ROLES_LOST;
    f->machines[machine].lost_ns = clock_ns();
    pthread_mutex_unlock(&f->lock);
    f->is_lost = true;
    if (rc != ERR_IO && f->starter && tell_starter(f, ROLES_KILL, machine, why) != OK)
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
    roles_front_keep_stat(m);
}

static void reset(struct roles_connection *c)
{
    if (c->number > 0)
        c->number = 0;
    c->n_open = 0;
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

static int start_again(struct roles_front *f, int machine, const char *why)
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

static int on_ended(struct roles_front *f, int machine, const char *why)
{
    struct roles_machine_state *m = &f->machines[machine];
    int n;

    roles_front_drain(f, machine);
    pthread_mutex_lock(&f->lock);
    close_control(f, machine);
    close_connections(f, machine);
    m->state = ROLES_LOST;
    m->lost_ns = clock_ns();
    pthread_mutex_unlock(&f->lock);
    f->is_lost = true;
    if (!f->started)
        return err_set(ERR_STATE, "%s", why);
    TRY(start_again(f, machine, why));
    n = roles_front_again(f, machine, -1, why);
    log_warning("machine_ended", m->n_starts, f->restarts,
                "%.150s; it had %d of the requests and is %s", why, n,
                m->state == ROLES_STARTING ? "started again" : "not started again");
    return OK;
}

int roles_front_repair(struct roles_front *f)
{
    uint64_t now = clock_ns();

    for (int i = 0; i < f->n; i++) {
        struct roles_machine_state *m = &f->machines[i];
        char why[ROLES_TEXT_BYTES];

        if (m->state != ROLES_LOST || (f->starter && now - m->lost_ns < LOST_NS))
            continue;
        m->lost_ns = now;
        snprintf(why, sizeof(why), "%s closed its connection", f->u.names[i]);
        if (!f->starter) {
            TRY(on_ended(f, i, why));
            continue;
        }
        if (tell_starter(f, ROLES_KILL, i, why) != OK)
            err_clear();
    }
    for (int a = 0; a < f->n; a++)
        for (int b = 0; b < f->n; b++) {
            const struct roles_connection *c = &f->connections[a][b];

            if (c->broken_ns && now - c->broken_ns >= BROKEN_NS &&
                f->machines[a].state == ROLES_RUNNING &&
                f->machines[b].state == ROLES_RUNNING)
                repair_connection(f, a, b);
        }
    return OK;
}

int roles_front_read_starter(struct roles_front *f)
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
