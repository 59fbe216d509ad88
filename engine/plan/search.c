#include "plan/method.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* ---- from a choice to a plan ---- */

static const struct plan_candidate *chosen(const struct plan_tree_result *f)
{
    return &f->top[f->best];
}

static int count_ties(const struct plan_tree_result *f)
{
    int n = 0;

    for (int i = 0; i < f->n_top; i++)
        n += i != f->best && f->top[i].ties;
    return n;
}

static void report_ties(const struct plan_tree_result *f, char *out, size_t n)
{
    int ties = count_ties(f);

    if (ties == 0)
        snprintf(out, n, "no other is");
    else if (ties == 1)
        snprintf(out, n, "another is");
    else
        snprintf(out, n, "%d others are", ties);
}

static int phase_of(struct plan_phase *out, const struct plan_tree_result *f,
                    double noise_frac)
{
    const struct plan_candidate *best = chosen(f);
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

/* ---- the searches ---- */

/* decode: what decode was given, NULL while that is searched. */
static int search_phase(struct plan_tree_result *out, struct plan *p,
                        const struct plan_search_opts *o, const struct topo_tree *tree,
                        const struct topo_config *decode)
{
    struct plan_tree_search_opts so = o->search;
    struct plan_evaluation e = {0}, over;
    struct over_decode both = {.decode = decode};
    struct plan_watch w, steps;
    struct topo_limits limits;
    struct simulate_workload workload;
    int rc;

    so.all_cores = so.all_cores && decode; /* the paper's prefill */
    plan_search_limits(&limits, o, o->strict_tp);
    rc = plan_evaluation_open(&e, &workload, o, decode ? TOPO_PREFILL : TOPO_DECODE,
                              decode);
    if (rc != OK)
        return rc;
    plan_watch_begin(&w, o, &e, decode ? "prefill" : "decode", so.max_s);
    both.inner = &w.e;
    over =
        (struct plan_evaluation){over_decode_measure, &both, e.noise_frac, e.simulated};
    rc = plan_tree_search(out, tree, &limits, decode && o->one_team ? &over : &w.e, &so);
    if (rc == OK && o->stop &&
        *o->stop) /* the search ends with what it has, as by a budget */
        rc = err_set(ERR_CANCELED, "the search was interrupted");
    if (rc == OK)
        rc = phase_of(decode ? &p->prefill : &p->decode, out, e.noise_frac);
    if (rc == OK && decode && o->costs_s >= 0)
        plan_watch_begin(&steps, o, NULL, "steps of both phases", plan_costs_s(o));
    if (rc == OK && decode && o->costs_s >= 0)
        rc = plan_search_costs(p, o, &e, &chosen(out)->config, decode);
    o->evaluator->close(&e);
    return rc;
}

/* ---- further plans ---- */

struct pair {
    int decode, prefill; /* indices of the choices */
    double seconds;      /* of a request */
};

static int by_seconds(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static int plan_of_pair(struct plan *out, const struct plan_search_result *f,
                        const struct pair *x)
{
    const struct plan_candidate *d = &f->decode.top[x->decode];
    const struct plan_candidate *p = &f->prefill.top[x->prefill];

    TRY(plan_phase_set(&out->decode, &d->config));
    TRY(plan_phase_set(&out->prefill, &p->config));
    out->decode.expected_s = d->seconds;
    out->prefill.expected_s = p->seconds;
    snprintf(out->decode.why, sizeof(out->decode.why),
             "place %d of the search for decode", x->decode + 1);
    snprintf(out->prefill.why, sizeof(out->prefill.why),
             "place %d of the search for prefill", x->prefill + 1);
    return plan_number_cpus(out);
}

/* One rank of every core for both phases, which engines without a plan use: the plan that a
 * searched one should be compared with, whatever the search thought of it. */
static int one_rank(struct plan *out, const struct plan_search_opts *o)
{
    struct topo_tree *tree = NULL;
    struct topo_config config;
    struct plan_cores c;
    int rc = plan_cores_of(&c, o);

    if (rc == OK)
        rc = topo_tree_of_ranks(&tree, o->e.machine, c.pus, 1, c.n);
    if (rc == OK)
        rc = topo_config_cut(&config, tree, 1, NULL);
    if (rc == OK)
        rc = plan_phase_set(&out->prefill, &config);
    mem_free(tree);
    plan_cores_free(&c);
    if (rc != OK)
        return rc;
    snprintf(out->prefill.why, sizeof(out->prefill.why),
             "one rank of every core, to compare with");
    out->decode = out->prefill;
    return plan_number_cpus(out);
}

/* Both one rank of the same CPUs in both phases, in whatever order? */
static bool same_one_rank(const struct plan *a, const struct plan *b)
{
    bool has[CPU_MAX] = {false}, same = plan_is_one(a) && plan_is_one(b);

    same &= a->decode.n_ranks == 1 && b->decode.n_ranks == 1 && a->n_cpus == b->n_cpus;
    for (int i = 0; i < a->n_cpus; i++)
        has[a->cpus[i]] = true;
    for (int i = 0; i < b->n_cpus; i++)
        same &= has[b->cpus[i]];
    return same;
}

static int add_pair(struct plan_search_result *f, const struct plan_search_opts *o,
                    const struct pair *pair)
{
    struct plan *p = &f->ranked[f->n_ranked];
    int rc;

    if (pair->decode == f->decode.best && pair->prefill == f->prefill.best)
        return OK;
    plan_begin(p, o, f->plan.method);
    rc = plan_of_pair(p, f, pair);
    if (rc != OK || (o->one_team && !plan_one_team(p)))
        return rc;
    if (f->n_ranked > 1 && same_one_rank(p, &f->ranked[1]))
        f->ranked[1] = *p; /* with its times */
    else
        f->n_ranked++;
    return OK;
}

/* The chosen plan, one rank of every core, then the pairs of the best of each phase that one
 * team can run. */
static int rank_pairs(struct plan_search_result *f, const struct plan_search_opts *o)
{
    int n = f->decode.n_top * f->prefill.n_top, rc = OK;
    struct pair *pairs = mem_new(MEM_OTHER, (size_t)n, sizeof(*pairs));

    f->ranked = mem_new(MEM_OTHER, PLAN_RANKED_MAX, sizeof(*f->ranked));
    if (!pairs || !f->ranked)
        rc = ERR_NOMEM;
    for (int i = 0; rc == OK && i < n; i++) {
        const int d = i / f->prefill.n_top, p = i % f->prefill.n_top;

        pairs[i] =
            (struct pair){d, p,
                          plan_trace_s(&o->trace, o->batch, f->prefill.top[p].seconds,
                                       f->decode.top[d].seconds)};
    }
    if (rc == OK) {
        qsort(pairs, (size_t)n, sizeof(*pairs), by_seconds);
        f->ranked[0] = f->plan;
        f->ranked[0].prefill.costs.n = f->ranked[0].decode.costs.n = 0;
        f->n_ranked = 1;
        plan_begin(&f->ranked[1], o, f->plan.method);
        rc = one_rank(&f->ranked[1], o);
    }
    if (rc == OK && !same_one_rank(&f->ranked[0], &f->ranked[1]))
        f->n_ranked = 2;
    for (int i = 0; rc == OK && i < n && f->n_ranked < PLAN_RANKED_MAX; i++)
        rc = add_pair(f, o, &pairs[i]);
    mem_free(pairs);
    return rc;
}

/* Expected seconds of a request; NAN: unknown. */
static double request_s(const struct plan_search_opts *o, const struct plan *p)
{
    return plan_trace_s(&o->trace, o->batch, p->prefill.expected_s, p->decode.expected_s);
}

/* One rank of every core of one kind, with its times. *out is empty where it cannot run. */
static int time_one_rank(struct plan_search_result *out, const struct plan_search_opts *o)
{
    const struct topo_machine *m = o->e.machine;
    struct plan_search_opts one = *o;
    const struct plan_method *method;
    int *cpus = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*cpus));
    int rc = cpus ? topo_tree_cpus(cpus, &one.tree.n_cpus, m, &o->tree) : ERR_NOMEM;

    *out = (struct plan_search_result){0};
    one.tree.cpus = cpus;
    one.progress = NULL;
    if (rc == OK)
        rc = plan_method_find("one_plan", &method);
    if (rc == OK)
        rc = method->run(out, &one);
    mem_free(cpus);
    return rc == ERR_UNSUPPORTED ? OK : rc;
}

/* Phases are searched one after the other, on symmetric trees: what an engine does that knows
 * no plans may be faster, by the same times. Then it is the plan, and the searched one the first
 * to compare it with. */
static int prefer_one_rank(struct plan_search_result *f, const struct plan_search_opts *o)
{
    struct plan_search_result one;
    struct plan *p = &f->plan;
    double searched_s = request_s(o, p), one_s;
    int rc;

    if (f->n_ranked < 2) /* it is one rank of every core */
        return OK;
    rc = time_one_rank(&one, o);
    one_s = one.n_ranked > 0 ? request_s(o, &one.plan) : NAN;
    if (rc != OK || !(one_s < searched_s))
        goto out;
    p->prefill = one.plan.prefill;
    p->decode = one.plan.decode;
    snprintf(
        p->prefill.why, sizeof(p->prefill.why),
        "one rank of every core, %.4g s a request, where the search found %.4g s: %s",
        one_s, searched_s, f->note[0] ? f->note : "each phase by itself");
    snprintf(p->decode.why, sizeof(p->decode.why), "%s", p->prefill.why);
    rc = plan_number_cpus(p);
    f->ranked[1] = f->ranked[0];
    f->ranked[0] = *p;
out:
    plan_search_result_free(&one);
    return rc;
}

static int explain(struct plan_search_result *f)
{
    struct text t = {0};

    text_printf(&t, "\nDecode, whose CPUs place the weights:\n");
    text_puts(&t, f->decode.explain);
    text_printf(&t, "\nPrefill, over weights placed by decode:\n");
    text_puts(&t, f->prefill.explain);
    return text_take(&t, &f->explain);
}

int plan_search(struct plan_search_result *out, const struct plan_search_opts *o)
{
    struct plan *p = &out->plan;
    int rc;

    memset(out, 0, sizeof(*out));
    plan_begin(p, o, "search");
    rc = topo_tree_open(&out->fundamental, o->e.machine, &o->tree, out->note,
                        sizeof(out->note));
    if (rc == OK)
        rc = search_phase(&out->decode, p, o, out->fundamental, NULL);
    if (rc == OK)
        rc = search_phase(&out->prefill, p, o, out->fundamental,
                          &chosen(&out->decode)->config);
    if (rc == OK)
        rc = plan_number_cpus(p);
    if (rc == OK)
        rc = rank_pairs(out, o);
    if (rc == OK)
        rc = prefer_one_rank(out, o);
    if (rc == OK)
        rc = explain(out);
    if (rc != OK)
        plan_search_result_free(out);
    return rc;
}
