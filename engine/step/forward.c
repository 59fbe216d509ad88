/* Computes one step over a batch, from token ids to logits, by the operators of the phase's list.
 *
 * All threads of the phase run step_run() at the same time. Each rank has its own copy of
 * the residual stream and its own units of every layer. The copies are equal, because
 * every rank adds the same sum over all ranks to its copy. Within a rank, each thread
 * computes its own panels of every matrix and its own heads of attention. model_sync() is
 * the barrier between a write by one thread and a read by another. A batch of one block
 * of rows (decode) is packed by every thread for itself, so a layer on one rank needs
 * four barriers: after attention, after its output projection, after gate+up and after
 * down. */
#include "step/step.h"

static void step_run(void *arg, struct par_self *self)
{
    struct model_step *s = arg;
    struct model_phase *p = s->phase;
    struct model_thread_slot at = p->thread_slots[self->id];
    struct model_thread_ctx w = {.step = s,
                                 .m = p->m,
                                 .phase = p,
                                 .self = self,
                                 .id = at.id,
                                 .n = p->n_threads,
                                 .n_rows = s->n_tok,
                                 .t_ns = self->id == 0 ? clock_ns() : 0};

    if (at.rank < 0)
        return;
    w.rank = &p->ranks[at.rank];
    w.x = w.rank->x;
    w.own = &p->m->scratch[p->multiprocess ? at.rank * p->n_threads + at.id : self->id];
    for (int i = 0; i < p->ops.n && !w.done; i++)
        p->ops.op[i].kind->run(&w, &p->ops.op[i]);
    if (p->n_ranks > 1)
        model_rank_waited(&w.rank->endpoints[at.id], self->team, self->id);
}

int model_step_run(struct model *m, struct model_step *s)
{
    struct model_phase *p = s->phase;
    int rc = OK;

    for (int r = 0; r < p->n_ranks; r++)
        atomic_store_explicit(&p->ranks[r].rc, OK, memory_order_relaxed);
    atomic_store(&p->n_stored, 0);
    par_team_run(m->team, p->n_team, step_run, s);
    for (int r = 0; r < p->n_ranks && rc == OK; r++)
        rc = atomic_load_explicit(&p->ranks[r].rc, memory_order_relaxed);
    if (rc == OK && s->n_logits == 0 && p->stored && !p->multiprocess)
        p->stored(p->stored_ctx, m->c.n_layers - 1); /* it ended without a barrier */
    return rc == OK ? OK : err_set(rc, "a rank aborted: the step has no result");
}
