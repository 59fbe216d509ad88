#include "plan/method.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/name.h"

int plan_method_find(const char *name, const struct plan_method **out)
{
    *out = name_find(plan_methods, name, "method of planning");
    return *out ? OK : ERR_NOTFOUND;
}

/* ---- what every method fills in ---- */

/* A file's stem need not be UTF-8, which a plan's file must be. */
static void name_machine(struct plan *p, const struct topo_machine *m)
{
    snprintf(p->machine, sizeof(p->machine), "%s",
             !strcmp(m->source, "host") ? "host" : m->name);
    for (char *c = p->machine; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void plan_begin(struct plan *p, const struct plan_search_opts *o, const char *method)
{
    memset(p, 0, sizeof(*p));
    name_machine(p, o->e.machine);
    snprintf(p->evidence, sizeof(p->evidence), "%s", o->evaluator->evidence);
    snprintf(p->source, sizeof(p->source), "%s", method);
    snprintf(p->method, sizeof(p->method), "%s", method);
    memcpy(p->model_id, o->model_id, sizeof(p->model_id));
}

int plan_phase_set(struct plan_phase *out, const struct topo_config *c)
{
    const struct topo_machine *m = c->tree->machine;
    int n = c->n_ranks * c->n_threads;

    memset(out, 0, sizeof(*out));
    out->expected_s = NAN;
    if (n > CPU_MAX)
        return err_set(ERR_LIMIT, "%s: a plan of %d threads, expected at most %d",
                       m->name, n, CPU_MAX);
    out->n_ranks = c->n_ranks;
    out->n_threads = c->n_threads;
    for (int i = 0; i < n; i++) {
        const struct topo_pu *pu = &m->pus[c->tree->pus[i]];

        if (pu->os_index >= CPU_MAX)
            return err_set(ERR_LIMIT, "%s: expected CPUs below %d, found %d", m->name,
                           CPU_MAX, pu->os_index);
        out->cpus[i] = pu->os_index;
        out->nodes[i] = pu->node < 0 ? -1 : m->nodes[pu->node].os_index;
    }
    return OK;
}

void plan_search_limits(struct topo_limits *out, const struct plan_search_opts *o,
                        bool strict)
{
    plan_limits(out, o->model, strict);
    out->max_ranks = o->max_ranks;
}

int plan_evaluation_open(struct plan_evaluation *out, struct simulate_workload *work,
                         const struct plan_search_opts *o, enum topo_phase phase,
                         const struct topo_config *placement)
{
    struct plan_evaluator_opts eo = o->e;

    eo.kv_type = o->types.kv;
    eo.phase = phase;
    eo.workload = work;
    eo.placement = placement;
    TRY(plan_workload(work, o->model, o->types, phase, &o->trace, o->batch));
    return o->evaluator->open(out, &eo);
}

bool plan_one_team(const struct plan *p)
{
    bool has[CPU_MAX] = {false}, all = true;

    for (int i = 0; i < p->prefill.n_ranks * p->prefill.n_threads; i++)
        has[p->prefill.cpus[i]] = true;
    for (int i = 0; i < p->decode.n_ranks * p->decode.n_threads; i++)
        all &= has[p->decode.cpus[i]];
    return all;
}

void plan_search_result_free(struct plan_search_result *f)
{
    plan_tree_result_free(&f->prefill);
    plan_tree_result_free(&f->decode);
    plan_fini(&f->plan);
    mem_free(f->ranked);
    mem_free(f->explain);
    mem_free(f->fundamental);
    f->ranked = NULL;
    f->n_ranked = 0;
    f->explain = NULL;
    f->fundamental = NULL;
}

/* ---- progress ---- */

static void report(struct plan_watch *w)
{
    w->progress.elapsed_s = (double)(clock_ns() - w->start_ns) * 1e-9;
    if (w->o->progress)
        w->o->progress(w->o->progress_ctx, &w->progress);
}

void plan_watch_count(struct plan_watch *w)
{
    report(w);
    w->progress.n_measurements++;
}

static int watched_measure(void *ctx, const struct topo_config *c, int repeat,
                           double *seconds)
{
    struct plan_watch *w = ctx;

    report(w);
    if (w->o->stop && *w->o->stop)
        return err_set(ERR_CANCELED, "the search was interrupted");
    w->progress.n_measurements++;
    return w->inner->measure(w->inner->ctx, c, repeat, seconds);
}

void plan_watch_begin(struct plan_watch *w, const struct plan_search_opts *o,
                      const struct plan_evaluation *inner, const char *what,
                      double limit_s)
{
    *w = (struct plan_watch){.inner = inner,
                             .o = o,
                             .progress = {what, 0, 0, limit_s},
                             .start_ns = clock_ns()};
    if (inner)
        w->e = (struct plan_evaluation){watched_measure, w, inner->noise_frac,
                                        inner->simulated};
    report(w);
}
