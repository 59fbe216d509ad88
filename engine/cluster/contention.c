#include "cluster/contention.h"

#include <math.h>

static bool is_neighbour(const struct cluster_running *m, const struct cluster_running *k)
{
    return k != m && k->busy && k->controller == m->controller;
}

static double rate_of(const struct cluster_steps *s, const struct cluster_running *m)
{
    double slow = 1;

    if (!s->contention || m->controller == 0)
        return 1;
    for (int i = 0; i < s->n; i++)
        if (is_neighbour(m, &s->of[i]))
            slow *= s->contention->slowdown[m->kind][s->of[i].kind];
    return 1 / slow;
}

/* The step was to end at `before` and ends at end_ns: count the difference, expect the event. */
static int put_off(struct cluster_steps *s, struct cluster_running *m, int64_t before)
{
    s->busy_ns[m->kind] += (double)(m->end_ns - before);
    m->busy_ns += (double)(m->end_ns - before);
    return cluster_events_push(s->events,
                               (struct cluster_event){.t_ns = m->end_ns,
                                                      .kind = CLUSTER_STEP_END,
                                                      .machine = (int)(m - s->of)});
}

static int expect_end(struct cluster_steps *s, struct cluster_running *m)
{
    int64_t before = m->end_ns;

    m->rate = rate_of(s, m);
    m->end_ns = s->events->now_ns + (int64_t)ceil(m->left_ns / m->rate);
    if (m->end_ns == before)
        return OK;
    return put_off(s, m, before);
}

static int update_neighbours(struct cluster_steps *s, const struct cluster_running *m)
{
    int64_t now = s->events->now_ns;

    if (!s->contention || m->controller == 0)
        return OK;
    for (int i = 0; i < s->n; i++) {
        struct cluster_running *k = &s->of[i];

        if (!is_neighbour(m, k))
            continue;
        k->left_ns = fmax(k->left_ns - (double)(now - k->since_ns) * k->rate, 0);
        k->since_ns = now;
        TRY(expect_end(s, k));
    }
    return OK;
}

int cluster_step_begin(struct cluster_steps *s, int i, enum cluster_pool kind,
                       int64_t step_ns)
{
    struct cluster_running *m = &s->of[i];

    m->busy = true;
    m->kind = kind;
    m->left_ns = (double)step_ns;
    m->since_ns = m->end_ns = s->events->now_ns;
    TRY(expect_end(s, m));
    return update_neighbours(s, m);
}

int cluster_step_end(struct cluster_steps *s, int i)
{
    s->of[i].busy = false;
    return update_neighbours(s, &s->of[i]);
}

int cluster_step_shorten(struct cluster_steps *s, int i, int64_t end_ns)
{
    struct cluster_running *m = &s->of[i];
    int64_t before = m->end_ns;

    m->end_ns = end_ns;
    return before == end_ns ? OK : put_off(s, m, before);
}

int cluster_step_abort(struct cluster_steps *s, int i)
{
    struct cluster_running *m = &s->of[i];
    double left = (double)(m->end_ns - s->events->now_ns);

    if (!m->busy)
        return OK;
    s->busy_ns[m->kind] -= left;
    m->busy_ns -= left;
    m->end_ns = s->events->now_ns;
    return cluster_step_end(s, i);
}
