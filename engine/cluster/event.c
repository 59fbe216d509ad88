#include "cluster/event.h"

#include <inttypes.h>

#include "base/mem.h"

static bool before(const struct cluster_event *a, const struct cluster_event *b)
{
    return a->t_ns != b->t_ns ? a->t_ns < b->t_ns : a->order < b->order;
}

int cluster_events_push(struct cluster_events *q, struct cluster_event e)
{
    size_t i = q->n;

    if (e.t_ns < q->now_ns)
        return err_set(ERR_STATE,
                       "event at %" PRId64 " ns, but the clock is at %" PRId64 " ns",
                       e.t_ns, q->now_ns);
    if (q->n == q->max) {
        q->max = 2 * q->max + 64;
        q->heap = mem_resize(MEM_OTHER, q->heap, q->max, sizeof(*q->heap));
    }
    e.order = q->n_pushed++;
    q->n_of[e.kind]++;
    q->n++;
    for (; i > 0 && before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
    return OK;
}

bool cluster_events_pop(struct cluster_events *q, struct cluster_event *out)
{
    struct cluster_event last;
    size_t i = 0, child;

    if (q->n == 0)
        return false;
    *out = q->heap[0];
    q->n_of[out->kind]--;
    last = q->heap[--q->n];
    while ((child = 2 * i + 1) < q->n) {
        if (child + 1 < q->n && before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!before(&q->heap[child], &last))
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    q->heap[i] = last;
    q->now_ns = out->t_ns;
    return true;
}

void cluster_events_fini(struct cluster_events *q)
{
    mem_free(q->heap);
    *q = (struct cluster_events){0};
}
