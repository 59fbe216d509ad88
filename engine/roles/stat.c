/* Sums over the machines, and those that have ended. */
#include "roles/impl.h"

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

void roles_front_kv_stat(void *ctx, struct serve_kv_stat *out)
{
    struct roles_front *f = ctx;

    *out = (struct serve_kv_stat){0};
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n; i++) {
        add_kv(out, &f->machines[i].stat.kv);
        add_kv(out, &f->machines[i].past.kv);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Of the stepping thread, which alone writes statistics. */
const struct serve_totals *roles_front_totals(void *ctx, enum serve_phase phase)
{
    struct roles_front *f = ctx;
    struct serve_totals *t = &f->totals[phase];

    *t = (struct serve_totals){0};
    for (int i = 0; i < f->n; i++) {
        add_totals(t, &f->machines[i].stat.totals[phase]);
        add_totals(t, &f->machines[i].past.totals[phase]);
    }
    return t;
}

void roles_front_keep_stat(struct roles_machine_state *m)
{
    m->stat.kv.budget_tok = m->stat.kv.reserved_tok = m->stat.kv.pool_bytes = 0;
    m->stat.kv.reserved_bytes = m->stat.kv.used_bytes = 0;
    add_kv(&m->past.kv, &m->stat.kv);
    for (int i = 0; i < SERVE_N_PHASES; i++)
        add_totals(&m->past.totals[i], &m->stat.totals[i]);
    m->stat = (struct roles_stat){0};
}
