#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- from a choice to a plan ---- */

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

static const struct plan_choice *chosen(const struct plan_tree_found *f)
{
    return &f->top[f->best];
}

static int count_ties(const struct plan_tree_found *f)
{
    int n = 0;

    for (int i = 0; i < f->n_top; i++)
        n += i != f->best && f->top[i].ties;
    return n;
}

static void report_ties(const struct plan_tree_found *f, char *out, size_t n)
{
    int ties = count_ties(f);

    if (ties == 0)
        snprintf(out, n, "no other is");
    else if (ties == 1)
        snprintf(out, n, "another is");
    else
        snprintf(out, n, "%d others are", ties);
}

static int phase_of(struct plan_phase *out, const struct plan_tree_found *f,
                    double noise_frac)
{
    const struct plan_choice *best = chosen(f);
    const struct plan_tree_search_counts *n = &f->counts;
    char config[128], ties[32];
    int rc = plan_phase_set(out, &best->config);

    if (rc != OK)
        return rc;
    out->expected_s = best->seconds;
    topo_config_print(&best->config, config, sizeof(config));
    report_ties(f, ties, sizeof(ties));
    snprintf(out->why, sizeof(out->why),
             "%s%s%s: the best of %lld configurations on %lld trees in %lld measurements "
             "with %.2g %% of noise each%s; %s within the noise",
             config, *best->tree->steps ? ", by " : "", best->tree->steps,
             (long long)n->n_configs, (long long)n->n_trees, (long long)n->n_measurements,
             100 * noise_frac, n->complete ? "" : " (the budget ended the search)", ties);
    return OK;
}

/* ---- prefill over decode's CPUs ---- */

/* One team runs both phases, decode on a part of prefill's CPUs: what lacks one of them
 * cannot be run with the chosen decode phase. */
struct over_decode {
    const struct plan_evaluation *inner;
    const struct topo_config *decode;
};

static bool uses(const struct topo_config *c, int pu)
{
    for (int i = 0; i < c->n_ranks * c->n_threads; i++)
        if (c->tree->pus[i] == pu)
            return true;
    return false;
}

static int over_decode_measure(void *ctx, const struct topo_config *c, int repeat,
                               double *seconds)
{
    const struct over_decode *x = ctx;
    const struct topo_config *d = x->decode;

    for (int i = 0; i < d->n_ranks * d->n_threads; i++)
        if (!uses(c, d->tree->pus[i]))
            return err_set(ERR_UNSUPPORTED,
                           "without CPU %d, which decode uses, one team cannot run both",
                           d->tree->machine->pus[d->tree->pus[i]].os_index);
    return x->inner->measure(x->inner->ctx, c, repeat, seconds);
}

/* ---- telling how far it is ---- */

struct watched {
    const struct plan_evaluation *inner;
    const struct plan_search_opts *o;
    struct plan_progress progress;
    uint64_t start_ns;
};

static void tell(struct watched *w)
{
    w->progress.elapsed_s = (double)(clock_ns() - w->start_ns) * 1e-9;
    if (w->o->progress)
        w->o->progress(w->o->progress_ctx, &w->progress);
}

static void begin(struct watched *w, const struct plan_search_opts *o, const char *what,
                  double limit_s)
{
    *w = (struct watched){.o = o, .progress = {what, 0, 0, limit_s}};
    w->start_ns = clock_ns();
    tell(w);
}

static int watched_measure(void *ctx, const struct topo_config *c, int repeat,
                           double *seconds)
{
    struct watched *w = ctx;

    tell(w);
    w->progress.n_measurements++;
    return w->inner->measure(w->inner->ctx, c, repeat, seconds);
}

/* ---- the searches ---- */

/* decode: what decode was given, NULL while that is searched. */
static int search_phase(struct plan_tree_found *out, struct plan *p,
                        const struct plan_search_opts *o, const struct topo_tree *tree,
                        const struct topo_config *decode)
{
    struct plan_evaluator_opts eo = o->e;
    struct plan_tree_search_opts so = o->search;
    struct plan_evaluation e = {0}, told, over;
    struct over_decode both = {.inner = &told, .decode = decode};
    struct watched w, steps;
    struct topo_limits limits;
    struct simulate_workload workload;
    int rc;

    eo.phase = decode ? TOPO_PREFILL : TOPO_DECODE;
    eo.workload = &workload;
    eo.placement = decode;
    so.all_cores = so.all_cores && decode; /* the paper's prefill */
    plan_limits(&limits, o->model, o->strict_tp);
    limits.max_ranks = o->max_ranks;
    rc = plan_workload(&workload, o->model, o->type, eo.phase, &o->lengths, o->batch);
    if (rc != OK)
        return rc;
    rc = o->evaluator->open(&e, &eo);
    if (rc != OK)
        return rc;
    begin(&w, o, decode ? "prefill" : "decode", so.max_s);
    w.inner = &e;
    told = (struct plan_evaluation){watched_measure, &w, e.noise_frac, e.simulated};
    over =
        (struct plan_evaluation){over_decode_measure, &both, e.noise_frac, e.simulated};
    rc = plan_tree_search(out, tree, &limits, decode && o->one_team ? &over : &told, &so);
    if (rc == OK)
        rc = phase_of(decode ? &p->prefill : &p->decode, out, e.noise_frac);
    if (rc == OK && decode)
        begin(&steps, o, "steps of both phases", PLAN_COSTS_S);
    if (rc == OK && decode)
        rc = plan_search_costs(p, o, &e, &chosen(out)->config, decode);
    o->evaluator->close(&e);
    return rc;
}

/* A file's stem need not be UTF-8, which a plan's file must be. */
static void name_machine(struct plan *p, const struct topo_machine *m)
{
    snprintf(p->machine, sizeof(p->machine), "%s",
             !strcmp(m->source, "host") ? "host" : m->name);
    for (char *c = p->machine; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

int plan_search(struct plan_found *out, const struct plan_search_opts *o)
{
    const struct topo_machine *m = o->e.machine;
    struct plan *p = &out->plan;
    int rc;

    memset(out, 0, sizeof(*out));
    name_machine(p, m);
    snprintf(p->evidence, sizeof(p->evidence), "%s", o->evaluator->evidence);
    snprintf(p->source, sizeof(p->source), "search");
    rc = topo_tree_open(&out->fundamental, m, &o->tree, out->note, sizeof(out->note));
    if (rc == OK)
        rc = search_phase(&out->decode, p, o, out->fundamental, NULL);
    if (rc == OK)
        rc = search_phase(&out->prefill, p, o, out->fundamental,
                          &chosen(&out->decode)->config);
    if (rc == OK)
        rc = plan_number_cpus(p);
    if (rc != OK)
        plan_found_free(out);
    return rc;
}

void plan_found_free(struct plan_found *f)
{
    plan_tree_found_free(&f->prefill);
    plan_tree_found_free(&f->decode);
    mem_free(f->fundamental);
    f->fundamental = NULL;
}
