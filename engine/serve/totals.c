/* What the engine has done, by phase: integers, a few additions a step. */
#include "ranks/procs.h"
#include "serve/impl.h"

void serve_totals_add(struct serve *s, enum serve_phase phase,
                      const struct model_chunk *chunks, int n_chunks)
{
    struct model_cost cost = model_cost_step(
        model_config_of(s->model), model_cost_types_of(s->model), chunks, n_chunks);
    struct serve_totals *t = &s->totals[phase];

    for (int i = 0; i < n_chunks; i++)
        t->n_tok += chunks[i].n_tok;
    t->n_steps++;
    t->weight_bytes += (int64_t)cost.weight_bytes;
    t->kv_bytes += (int64_t)cost.kv_read_bytes;
    t->flop += (int64_t)cost.flop;
}

const struct serve_totals *serve_totals_of(const struct serve *s, enum serve_phase phase)
{
    return s->front.totals ? s->front.totals(s->front.ctx, phase) : &s->totals[phase];
}

struct serve_totals serve_totals_since(const struct serve_totals *now,
                                       const struct serve_totals *before)
{
    return (struct serve_totals){.n_steps = now->n_steps - before->n_steps,
                                 .n_tok = now->n_tok - before->n_tok,
                                 .weight_bytes = now->weight_bytes - before->weight_bytes,
                                 .kv_bytes = now->kv_bytes - before->kv_bytes,
                                 .flop = now->flop - before->flop,
                                 .forward_ns = now->forward_ns - before->forward_ns,
                                 .wait_ns = now->wait_ns - before->wait_ns,
                                 .sample_ns = now->sample_ns - before->sample_ns,
                                 .sched_ns = now->sched_ns - before->sched_ns};
}

struct each {
    void (*fn)(void *ctx, int id, int n);
    void *ctx;
};

static void call_each(void *arg, struct par_self *self)
{
    const struct each *e = arg;

    e->fn(e->ctx, self->id, self->n);
}

void serve_each_thread(struct serve *s, void (*fn)(void *ctx, int id, int n), void *ctx)
{
    struct each e = {fn, ctx};

    struct par_team *team = model_team(s->model);

    par_team_run(team, par_team_size(team), call_each, &e);
}
