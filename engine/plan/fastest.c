/* Methods that choose among given configurations: their CPUs, and the choice. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "measure/compare.h"
#include "plan/method.h"

#define ROUNDS_MIN 3
#define ROUNDS_MAX 15
/* A single candidate needs no comparison, only an estimate: measure it for so long. */
#define ALONE_S 1.0

/* ---- CPUs ---- */

static bool may_use(const struct topo_tree_opts *t, int cpu)
{
    for (int i = 0; i < t->n_cpus; i++)
        if (t->cpus[i] == cpu)
            return true;
    return !t->cpus;
}

/* PUs ascend by number, so that the first of a core is met first. */
static bool first_of_core(const struct topo_machine *m, const int *pus, int n, int pu)
{
    for (int i = 0; i < n && m->pus[pu].core >= 0; i++)
        if (m->pus[pus[i]].core == m->pus[pu].core)
            return false;
    return true;
}

/* Sort by node and keep the order within a node. */
static void sort_by_node(const struct topo_machine *m, int *pus, int n)
{
    for (int i = 1; i < n; i++) {
        int pu = pus[i], k = i;

        for (; k > 0 && m->pus[pus[k - 1]].node > m->pus[pu].node; k--)
            pus[k] = pus[k - 1];
        pus[k] = pu;
    }
}

static void count_nodes(struct plan_cores *c, const struct topo_machine *m)
{
    for (int i = 0, first = 0; i < c->n; i++) {
        if (i + 1 < c->n && m->pus[c->pus[i + 1]].node == m->pus[c->pus[i]].node)
            continue;
        if (c->n_nodes++ == 0 || i + 1 - first < c->smallest)
            c->smallest = i + 1 - first;
        first = i + 1;
    }
}

int plan_cores_of(struct plan_cores *out, const struct plan_search_opts *o)
{
    const struct topo_machine *m = o->e.machine;

    *out = (struct plan_cores){0};
    out->pus = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*out->pus));
    if (!out->pus)
        return ERR_NOMEM;
    for (int i = 0; i < m->n_pus; i++)
        if (may_use(&o->tree, m->pus[i].os_index) &&
            first_of_core(m, out->pus, out->n, i))
            out->pus[out->n++] = i;
    sort_by_node(m, out->pus, out->n);
    count_nodes(out, m);
    if (out->n > 0)
        return OK;
    plan_cores_free(out);
    return err_set(ERR_ARG, "%s: none of the CPUs to use is one of its CPUs", m->name);
}

void plan_cores_free(struct plan_cores *c)
{
    mem_free(c->pus);
    *c = (struct plan_cores){0};
}

/* ---- timing ---- */

struct timed {
    const struct plan_option *option; /* NULL: it cannot run */
    struct topo_tree *tree;
    struct topo_config config;
    double seconds[2]; /* of a step, by enum topo_phase */
};

struct comparison {
    const struct plan_search_opts *o;
    struct timed *v;
    int n;
    double noise_frac; /* the larger one of both phases */
    int64_t n_measurements;
    struct plan_watch watch;
    int repeat; /* of each option */
};

static int one_trial(void *arg, int i, struct measure_trial *t)
{
    struct comparison *c = arg;
    struct timed *x = &c->v[i];
    int rc;

    t->seconds = NAN; /* it cannot run: the others go on */
    if (!x->option)
        return OK;
    rc = c->watch.e.measure(c->watch.e.ctx, &x->config, c->repeat++, &t->seconds);
    if (rc == ERR_UNSUPPORTED) {
        x->option = NULL;
        t->seconds = NAN;
        rc = OK;
    }
    c->n_measurements += x->option != NULL;
    return rc;
}

static int time_all(struct comparison *c, const struct plan_evaluation *e,
                    enum topo_phase phase)
{
    double max_s = c->o->search.max_s;
    double most_s = c->n > 1 || (max_s > 0 && max_s < ALONE_S) ? max_s : ALONE_S;
    const struct measure_opts mo = {.min_rounds = ROUNDS_MIN,
                                    .max_rounds = ROUNDS_MAX,
                                    .n_warm_up = -1, /* the evaluator's own */
                                    .budget_s = most_s > 0 ? most_s : 1e9,
                                    .seed = (uint64_t)c->o->search.seed,
                                    .clock = e->simulated ? &measure_no_clock : NULL};
    struct measure *m = NULL;
    int rc = measure_open(&m, c->n, ROUNDS_MAX);

    plan_watch_begin(&c->watch, c->o, e, phase == TOPO_DECODE ? "decode" : "prefill",
                     most_s);
    if (rc == OK)
        rc = measure_compare(m, c->n, &mo, one_trial, c);
    for (int i = 0; rc == OK && i < c->n; i++) {
        struct measure_report r;

        measure_report(m, i, &r);
        c->v[i].seconds[phase] = r.estimate;
        if (!(r.estimate > 0))
            c->v[i].option = NULL;
    }
    c->noise_frac = fmax(c->noise_frac, e->noise_frac);
    measure_close(&m);
    return rc;
}

static int time_phase(struct comparison *c, enum topo_phase phase)
{
    struct simulate_workload workload;
    struct plan_evaluation e = {0};
    /* No placement: both phases have the same configuration. */
    int rc = plan_evaluation_open(&e, &workload, c->o, phase, NULL);

    if (rc != OK)
        return rc;
    rc = time_all(c, &e, phase);
    c->o->evaluator->close(&e);
    return rc;
}

/* ---- the choice ---- */

static double request_s(const struct comparison *c, int i)
{
    const struct timed *x = &c->v[i];

    return x->option ? plan_trace_s(&c->o->trace, c->o->batch, x->seconds[TOPO_PREFILL],
                                    x->seconds[TOPO_DECODE])
                     : INFINITY;
}

/* The one of fewest ranks among those as fast as the fastest within the noise; -1: none can
 * run. The times are of two phases that were compared separately, so that a request has an
 * estimate but no rounds. */
static int choose(const struct comparison *c)
{
    double seconds[PAR_RANKS_MAX];
    int64_t n_ranks[PAR_RANKS_MAX];

    for (int i = 0; i < c->n; i++) {
        seconds[i] = request_s(c, i);
        n_ranks[i] = c->v[i].config.n_ranks;
    }
    return measure_choose_estimate(seconds, c->n, n_ranks,
                                   c->o->search.margin * c->noise_frac);
}

static int plan_of(struct plan *p, const struct comparison *c, int i, const char *method)
{
    const struct timed *x = &c->v[i];

    plan_begin(p, c->o, method);
    TRY(plan_phase_set(&p->prefill, &x->config));
    if (x->option->allreduce)
        TRY(par_choice_one(&p->prefill.allreduce, x->option->allreduce));
    snprintf(p->prefill.why, sizeof(p->prefill.why), "%s", x->option->why);
    p->decode = p->prefill;
    p->prefill.expected_s = x->seconds[TOPO_PREFILL];
    p->decode.expected_s = x->seconds[TOPO_DECODE];
    return plan_number_cpus(p);
}

/* The chosen plan and then the others by their time. */
static int rank(struct plan_search_result *out, const struct comparison *c, int chosen,
                const char *method)
{
    int rc;

    out->ranked = mem_new(MEM_OTHER, PLAN_RANKED_MAX, sizeof(*out->ranked));
    if (!out->ranked)
        return ERR_NOMEM;
    rc = plan_of(&out->ranked[0], c, chosen, method);
    out->n_ranked = rc == OK;
    for (double last = 0; rc == OK && out->n_ranked < PLAN_RANKED_MAX;) {
        int next = -1;

        for (int i = 0; i < c->n; i++)
            if (i != chosen && request_s(c, i) > last && isfinite(request_s(c, i)) &&
                (next < 0 || request_s(c, i) < request_s(c, next)))
                next = i;
        if (next < 0)
            break;
        last = request_s(c, next);
        rc = plan_of(&out->ranked[out->n_ranked++], c, next, method);
    }
    return rc == OK ? plan_copy(&out->plan, &out->ranked[0]) : rc;
}

static int explain(struct plan_search_result *out, const struct comparison *c, int chosen)
{
    struct text t = {0};

    text_printf(&t,
                "\nConfigurations of both phases, %lld measurements, each varies by "
                "%.1f %%:\n      ms of a prompt  ms of a token  s of a request   "
                "ranks x threads\n",
                (long long)c->n_measurements, 100 * c->noise_frac);
    for (int i = 0; i < c->n; i++) {
        const struct timed *x = &c->v[i];

        if (!x->option)
            continue;
        text_printf(&t, "  %s %14.4f %14.4f %15.4f   %d x %d\n",
                    i == chosen ? "->" : "  ", 1e3 * x->seconds[TOPO_PREFILL],
                    1e3 * x->seconds[TOPO_DECODE], request_s(c, i), x->config.n_ranks,
                    x->config.n_threads);
    }
    return text_take(&t, &out->explain);
}

/* Cut the options; those that the operators refuse cannot run, with the last reason kept. */
static int open_options(struct comparison *c, const struct plan_option *v, bool strict)
{
    struct topo_limits limits;
    int rc = OK, n_cut = 0;

    plan_search_limits(&limits, c->o, strict);
    for (int i = 0; i < c->n && rc == OK; i++) {
        struct timed *x = &c->v[i];

        rc = topo_tree_of_ranks(&x->tree, c->o->e.machine, v[i].pus, v[i].n_ranks,
                                v[i].n_threads);
        if (rc == OK)
            rc = topo_config_cut(&x->config, x->tree, 1, &limits);
        if (rc == OK)
            x->option = &v[i], n_cut++;
        else if (rc == ERR_UNSUPPORTED && (i + 1 < c->n || n_cut > 0))
            rc = OK;
    }
    return rc;
}

int plan_fastest(struct plan_search_result *out, const struct plan_search_opts *o,
                 const char *method, const struct plan_option *v, int n, bool strict)
{
    struct comparison c = {.o = o, .n = n};
    int rc, chosen;

    memset(out, 0, sizeof(*out));
    assert(n <= PAR_RANKS_MAX);
    c.v = mem_new(MEM_OTHER, (size_t)n, sizeof(*c.v));
    rc = c.v ? open_options(&c, v, strict) : ERR_NOMEM;
    if (rc == OK)
        rc = time_phase(&c, TOPO_DECODE);
    if (rc == OK)
        rc = time_phase(&c, TOPO_PREFILL);
    chosen = rc == OK ? choose(&c) : -1;
    if (rc == OK && chosen < 0)
        rc = err_set(ERR_UNSUPPORTED, "%s: none of its %d configurations can run on %s",
                     method, n, o->e.machine->name);
    if (rc == OK)
        rc = rank(out, &c, chosen, method);
    if (rc == OK)
        rc = explain(out, &c, chosen);
    for (int i = 0; c.v && i < n; i++)
        mem_free(c.v[i].tree);
    mem_free(c.v);
    if (rc != OK)
        plan_search_result_free(out);
    return rc;
}
