/* The process that starts machines, again where one has ended. It has one thread: fork() in the
 * front's process, where others hold locks, would not do. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cluster/wire.h"
#include "par/rank.h"
#include "roles/control.h"

#define TICK_MS  20
#define CLOSE_MS 2000 /* for machines to end by themselves */

struct starter {
    const struct roles_setup *u;
    int fd;
    int machine, machine_fd; /* that is being started */
    struct par_ranks *machines[ROLES_MACHINES_ALL];
    const char *names[ROLES_MACHINES_ALL];
    const int *cpus[ROLES_MACHINES_ALL];
    char why
        [ROLES_TEXT_BYTES]; /* of a machine that failed when the front did not listen */
};

static int machine_main(void *arg, int rank)
{
    const struct starter *s = arg;
    char name[16];
    int i = s->machine;

    (void)rank;
    while (i > 0 && s->u->home[i - 1] == s->u->home[s->machine])
        i--;
    snprintf(name, sizeof(name), "%s %d", cluster_pool_names[s->u->home[s->machine]],
             1 + s->machine - i);
    (void)prctl(PR_SET_NAME, name);
    return roles_machine(s->u, s->machine, s->machine_fd);
}

static int start(struct starter *s, int machine)
{
    const struct par_ranks_opts o = {.n_ranks = 1,
                                     .fn = machine_main,
                                     .arg = s,
                                     .names = &s->names[machine],
                                     .cpus = &s->cpus[machine],
                                     .n_cpus = &s->u->n_cpus[machine],
                                     .no_watcher = true};
    int rc;

    TRY(cluster_wire_read_fd(s->fd, &s->machine_fd));
    s->machine = machine;
    s->names[machine] = s->u->names[machine];
    s->cpus[machine] = s->u->cpus[machine];
    rc = par_ranks_open(&s->machines[machine], &o);
    close(s->machine_fd);
    return rc;
}

/* The machine has ended, or has stopped and is killed. */
static int end(struct starter *s, int machine, const char *why)
{
    struct roles_starter_message m = {.type = ROLES_ENDED, .machine = machine};
    int rc;

    snprintf(m.why, sizeof(m.why), "%s", why);
    par_ranks_close(&s->machines[machine]);
    rc = cluster_wire_write(s->fd, &m, sizeof(m));
    if (rc != OK)
        memcpy(s->why, m.why, sizeof(s->why));
    return rc;
}

static int read_one(struct starter *s)
{
    struct roles_starter_message m;
    TRY(cluster_wire_read(s->fd, &m, sizeof(m)));
    if (m.machine < 0 || m.machine >= s->u->n)
        return err_set(ERR_FORMAT, "machine %d of %d", m.machine, s->u->n);
    if (m.type == ROLES_KILL)
        return s->machines[m.machine] ? end(s, m.machine, m.why) : OK;
    if (start(s, m.machine) != OK)
        return end(s, m.machine, err_msg());
    return OK;
}

static int check_all(struct starter *s)
{
    for (int i = 0; i < ROLES_MACHINES_ALL; i++) {
        if (!s->machines[i])
            continue;
        if (par_ranks_check(s->machines[i]) != OK)
            TRY(end(s, i, err_msg()));
        else if (par_ranks_pid(s->machines[i], 0) == 0)
            TRY(end(s, i, "")); /* without an error */
    }
    return OK;
}

/* Machines end as the front does. */
static int end_all(struct starter *s)
{
    for (int i = 0; i < ROLES_MACHINES_ALL; i++) {
        if (s->machines[i] && par_ranks_wait(s->machines[i], CLOSE_MS) == ERR_STATE &&
            !s->why[0])
            snprintf(s->why, sizeof(s->why), "%s", err_msg());
        par_ranks_close(&s->machines[i]);
    }
    return s->why[0] ? err_set(ERR_STATE, "%s", s->why) : OK;
}

int roles_starter(const struct roles_setup *u)
{
    struct starter s = {.u = u, .fd = u->starter[1]};
    int rc = OK;

    /* Nothing else that the front has open belongs to this process. */
    if (s.fd > 3)
        close_range(3, (unsigned)s.fd - 1, 0);
    close_range((unsigned)s.fd + 1, ~0u, 0);
    while (rc == OK) {
        struct pollfd p = {.fd = s.fd, .events = POLLIN};

        if (poll(&p, 1, TICK_MS) > 0)
            rc = read_one(&s);
        if (rc == OK)
            rc = check_all(&s);
    }
    return end_all(&s);
}
