/* Machines on one memory controller: a step's end is put off, or brought forward, whenever a
 * neighbour's step begins or ends. Without contention each step ends when it was to. */
#include <math.h>

#include "cluster/impl.h"

static bool is_neighbour(const struct cluster_machine *m, const struct cluster_machine *k)
{
    return k != m && k->busy && k->o->controller == m->o->controller;
}

static double rate_of(const struct cluster_machine *m)
{
    const struct cluster *c = m->cluster;
    double slow = 1;

    if (!c->o.contention || m->o->controller == 0)
        return 1;
    for (int i = 0; i < c->o.n_machines; i++)
        if (is_neighbour(m, &c->machines[i]))
            slow *= c->o.contention->slowdown[m->step_kind][c->machines[i].step_kind];
    return 1 / slow;
}

static void expect_end(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    int64_t before = m->step_end_ns;

    m->step_rate = rate_of(m);
    m->step_end_ns = c->events.now_ns + (int64_t)ceil(m->step_left_ns / m->step_rate);
    if (m->step_end_ns == before)
        return;
    c->stat.busy_ns += (double)(m->step_end_ns - before);
    cluster_push(c, CLUSTER_STEP_END, m->step_end_ns, m->index, NULL);
}

static void update_neighbours(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    int64_t now = c->events.now_ns;

    if (!c->o.contention || m->o->controller == 0)
        return;
    for (int i = 0; i < c->o.n_machines; i++) {
        struct cluster_machine *k = &c->machines[i];

        if (!is_neighbour(m, k))
            continue;
        k->step_left_ns =
            fmax(k->step_left_ns - (double)(now - k->step_since_ns) * k->step_rate, 0);
        k->step_since_ns = now;
        expect_end(k);
    }
}

void cluster_step_begins(struct cluster_machine *m, enum cluster_pool kind,
                         int64_t step_ns)
{
    m->busy = true;
    m->step_kind = kind;
    m->step_left_ns = (double)step_ns;
    m->step_since_ns = m->step_end_ns = m->cluster->events.now_ns;
    expect_end(m);
    update_neighbours(m);
}

void cluster_step_ended(struct cluster_machine *m)
{
    m->busy = false;
    update_neighbours(m);
}
