/* Plans beyond the paper's trees. A TopoTree is symmetric: equally many ranks and CPUs on every
 * memory node, and what remove() leaves out is right-most. Here, after the trees:
 *   1. Each memory node is measured alone. Nodes that differ beyond the noise are two classes,
 *      faster and slower ones.
 *   2. The cores of one node are ordered by measurement: each next one is the core that makes
 *      the fastest rank with those before it. Clusters of any shape show in this order, since
 *      a core whose neighbours are busy comes late. All nodes take the same positions.
 *   3. Of each node the first cores of that order, or of the machine's own, are used by any
 *      number of ranks of any number of threads. Slower nodes may have fewer ranks, or none.
 *      Mixes are measured in the order of a prediction from plans that were measured already.
 *   4. The best ones are varied by one rank or thread while that helps.
 * Deviation from the paper: it has no such step (5.2, assumptions A.1 and A.2). The option
 * `uneven` ends the search without it. */
#include "plan/uneven.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define PROBES      6 /* measurements of each node alone, and of each that is compared */
#define DIFFERENT   0.02 /* nodes whose speeds are closer than this are one class */
#define RACE_ROUNDS 4
#define WORSE       0.25 /* a rank so much slower than the best one ends the ordering */
#define MIXES       48   /* mixes that are measured */
#define CLIMBS      4    /* plans that are varied */
#define CLIMB_STEPS 8

struct uneven {
    struct plan_trials *s;
    const struct topo_machine *m;
    int n_nodes, most; /* memory nodes with CPUs; the most cores of one */
    int *n_cores;      /* [n_nodes] */
    int *pus;          /* [n_nodes][m->n_pus] one PU of each core, ascending */
    bool *slow;        /* [n_nodes] the class */
    int n_slow, reference;
    int *position; /* [most] cores of a node in the measured order */
    bool ordered;  /* that order is not the machine's own */
    int *ranks;    /* [n_nodes] of the plan that is made */
    int *scratch;  /* [m->n_pus] its PUs */
};

/* ---- plans as trials ---- */

static int measure_again(struct plan_trials *s, int trial)
{
    struct plan_trial *t = &s->trials[trial];
    struct topo_tree *tree = NULL;
    struct topo_config c;
    double seconds = NAN;
    int rc = plan_trial_config(&c, &tree, s, t);

    if (rc == OK)
        rc = plan_trial_measure(s, trial, &c, &seconds);
    if (rc == OK && isfinite(seconds) && t->n > 1)
        t->seconds += (seconds - t->seconds) / t->n;
    mem_free(tree);
    return rc;
}

/* Keep which plan a new trial is. */
static int describe(struct uneven *u, int trial, int n_threads, bool joint, bool ordered)
{
    struct plan_trial *t = &u->s->trials[trial];
    size_t n = (size_t)u->n_nodes + (size_t)t->n_threads;
    struct plan_uneven *v = mem_new(MEM_OTHER, 1, sizeof(*v) + n * sizeof(int));

    if (!v)
        return ERR_NOMEM;
    v->ranks = (int *)(v + 1);
    v->pus = v->ranks + u->n_nodes;
    v->n_nodes = u->n_nodes;
    v->n_threads = n_threads;
    v->joint = joint;
    v->ordered = ordered;
    for (int i = 1; i < u->n_nodes; i++)
        v->mixed |= u->ranks[i] != u->ranks[0];
    memcpy(v->ranks, u->ranks, (size_t)u->n_nodes * sizeof(int));
    memcpy(v->pus, u->scratch, (size_t)t->n_threads * sizeof(int));
    t->uneven = v;
    return OK;
}

/* Find or make the trial of n_ranks equal runs of the first n PUs of `scratch`, and measure it
 * if it is new. *trial is -1 where it cannot run or the budget is used up. */
static int try_plan(struct uneven *u, int n_ranks, int n, bool joint, bool ordered,
                    int n_threads, int *trial)
{
    struct plan_trials *s = u->s;
    static const struct plan_tree_id none;
    struct topo_tree *t = NULL;
    struct topo_config c;
    int i = -1, known = s->n_trials;
    double seconds;
    int rc = topo_tree_of_ranks(&t, u->m, u->scratch, n_ranks, n / n_ranks);

    *trial = -1;
    if (rc == OK)
        rc = topo_config_cut(&c, t, 1, s->limits);
    if (rc == OK)
        rc = plan_trial_find(s, &c, &none, &i);
    if (rc == OK && i == known)
        rc = describe(u, i, n_threads, joint, ordered);
    if (rc == OK && s->trials[i].n == 0)
        rc = plan_trial_measure(s, i, &c, &seconds);
    mem_free(t);
    if (rc == OK && s->trials[i].n > 0)
        *trial = i;
    if (rc == ERR_UNSUPPORTED) {
        s->counts->n_refused++;
        rc = OK;
    }
    return rc;
}

static int *pus_of(const struct uneven *u, int node)
{
    return u->pus + (size_t)node * (size_t)u->m->n_pus;
}

/* Append the first n cores of a node in their order on the machine, so that the threads of a
 * rank are neighbours. */
static int append(struct uneven *u, int at, int node, int n, bool ordered)
{
    const int *pus = pus_of(u, node);
    int end = at;

    for (int k = 0; k < u->most && end - at < n; k++) {
        int position = ordered ? u->position[k] : k, i = end;

        if (position >= u->n_cores[node])
            continue;
        for (; i > at && u->scratch[i - 1] > pus[position]; i--)
            u->scratch[i] = u->scratch[i - 1];
        u->scratch[i] = pus[position];
        end++;
    }
    return end;
}

/* The plan of u->ranks ranks on each node, of n_threads threads; `joint`: all of them are one
 * rank. *trial is -1 where the nodes lack cores. */
static int try_ranks(struct uneven *u, int n_threads, bool joint, bool ordered,
                     int *trial)
{
    int n = 0, n_ranks = 0;

    *trial = -1;
    for (int i = 0; i < u->n_nodes; i++) {
        if (u->ranks[i] < 0 || u->ranks[i] * n_threads > u->n_cores[i])
            return OK;
        n = append(u, n, i, u->ranks[i] * n_threads, ordered);
        n_ranks += u->ranks[i];
    }
    if (!n_ranks || n_threads < 1)
        return OK;
    return try_plan(u, joint ? 1 : n_ranks, n, joint, ordered, n_threads, trial);
}

/* ---- successive halving ---- */

static int by_time(const void *a, const void *b, void *arg)
{
    const struct plan_trials *s = arg;
    const int x = *(const int *)a, y = *(const int *)b;

    if (s->trials[x].seconds != s->trials[y].seconds)
        return s->trials[x].seconds < s->trials[y].seconds ? -1 : 1;
    return x - y;
}

/* Measure the trials again, in each round only the better third, and leave them sorted by their
 * means, the finalists first. */
static int race(struct plan_trials *s, int *v, int n)
{
    int rc = OK;

    for (int round = 1; n > 1; round++) {
        qsort_r(v, (size_t)n, sizeof(*v), by_time, s);
        if (round == RACE_ROUNDS || plan_trials_spent(s))
            break;
        n = n > 6 ? (n + 2) / 3 : n > 2 ? n - 1 : n;
        for (int i = 0; rc == OK && i < n; i++)
            rc = measure_again(s, v[i]);
        if (rc != OK)
            return rc;
    }
    return rc;
}

/* ---- memory nodes and their cores ---- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* One PU of each core that the fundamental tree uses, node by node. */
static int list_cores(struct uneven *u, const struct topo_tree *t)
{
    int *pus = mem_new(MEM_OTHER, (size_t)t->n_pus, sizeof(*pus)), n = 0;
    int *of = mem_new(MEM_OTHER, (size_t)u->m->n_nodes, sizeof(*of));

    if (pus && of) {
        memcpy(pus, t->pus, (size_t)t->n_pus * sizeof(*pus));
        qsort(pus, (size_t)t->n_pus, sizeof(*pus), by_number);
        for (int i = 0; i < u->m->n_nodes; i++)
            of[i] = -1;
        for (int i = 0; i < t->n_pus; i++) {
            const struct topo_pu *pu = &u->m->pus[pus[i]];
            bool known = false;
            int node;

            if (of[pu->node] < 0)
                of[pu->node] = u->n_nodes++;
            node = of[pu->node];
            for (n = 0; n < u->n_cores[node]; n++)
                known |= pu->core >= 0 && u->m->pus[pus_of(u, node)[n]].core == pu->core;
            if (!known)
                pus_of(u, node)[u->n_cores[node]++] = pus[i];
            if (u->n_cores[node] > u->most)
                u->most = u->n_cores[node];
        }
    }
    n = pus && of ? OK : ERR_NOMEM;
    mem_free(pus);
    mem_free(of);
    return n;
}

static void one_node(struct uneven *u, int node)
{
    for (int i = 0; i < u->n_nodes; i++)
        u->ranks[i] = i == node;
}

/* Two classes by the widest step between the sorted speeds, if it is beyond the noise. */
static int classify(struct uneven *u)
{
    struct plan_trials *s = u->s;
    int *v = mem_new(MEM_OTHER, (size_t)u->n_nodes, sizeof(*v)), n = 0, cut = 0;
    int *node = mem_new(MEM_OTHER, (size_t)u->n_nodes, sizeof(*node));
    double step = 0, wanted = fmax(DIFFERENT, 3 * s->e->noise_frac * sqrt(2.0 / PROBES));
    int rc = v && node ? OK : ERR_NOMEM;

    for (int i = 0; rc == OK && i < u->n_nodes; i++) {
        one_node(u, i);
        rc = try_ranks(u, u->n_cores[i], false, false, &v[n]);
        node[n] = i;
        n += v[n] >= 0;
        for (int k = 1; rc == OK && n && node[n - 1] == i && k < PROBES; k++)
            rc = measure_again(s, v[n - 1]);
    }
    for (int i = 1; rc == OK && i < n; i++) /* a short list */
        for (int k = i; k > 0 && s->trials[v[k]].seconds < s->trials[v[k - 1]].seconds;
             k--) {
            int trial = v[k], own = node[k];

            v[k] = v[k - 1], node[k] = node[k - 1];
            v[k - 1] = trial, node[k - 1] = own;
        }
    for (int i = 1; rc == OK && i < n; i++) {
        double more = s->trials[v[i]].seconds / s->trials[v[i - 1]].seconds - 1;

        if (more > wanted && more > step)
            step = more, cut = i;
    }
    for (int i = cut; rc == OK && cut && i < n; i++)
        u->slow[node[i]] = true, u->n_slow++;
    if (rc == OK)
        u->reference = n ? node[0] : 0;
    mem_free(v);
    mem_free(node);
    return rc;
}

/* Position k of the order becomes the one that was at `from`. */
static void move_up(int *p, int k, int from)
{
    int position = p[from];

    memmove(p + k + 1, p + k, (size_t)(from - k) * sizeof(*p));
    p[k] = position;
}

/* Find the core that makes the fastest rank with the first k of the order. *seconds is that
 * rank's time, NAN where the budget ended first. */
static int next_core(struct uneven *u, int k, int *v, int *of, double *seconds)
{
    int n = u->n_cores[u->reference], *p = u->position, rc = OK, n_tried = 0;

    *seconds = NAN;
    for (int i = k; rc == OK && i < n; i++) {
        int own = p[k];

        p[k] = p[i], p[i] = own;
        rc = try_ranks(u, k + 1, false, true, &of[i]);
        own = p[k], p[k] = p[i], p[i] = own;
        if (rc == OK && of[i] < 0)
            return OK;
        v[n_tried++] = of[i];
    }
    if (rc == OK)
        rc = race(u->s, v, n_tried);
    for (int i = k; rc == OK && i < n; i++)
        if (of[i] == v[0]) {
            *seconds = u->s->trials[v[0]].seconds;
            move_up(p, k, i);
            break;
        }
    return rc;
}

/* Order the cores of the reference node by what they add, until more of them only harm. */
static int order_cores(struct uneven *u)
{
    int n = u->n_cores[u->reference], rc = OK;
    int *v = mem_new(MEM_OTHER, 2 * (size_t)n, sizeof(*v));
    double best = INFINITY, seconds = 0;

    if (!v)
        return ERR_NOMEM;
    one_node(u, u->reference);
    for (int k = 1; rc == OK && k < n - 1 && seconds <= best * (1 + WORSE); k++) {
        rc = next_core(u, k, v, v + n, &seconds);
        if (!isfinite(seconds))
            break;
        best = fmin(best, seconds);
    }
    for (int i = 0; i < u->most; i++)
        u->ordered |= u->position[i] != i;
    mem_free(v);
    return rc;
}

/* ---- ranks ---- */

/* The times of plans with r ranks of t threads on each node of a set: of all, of the fast. */
struct even_times {
    double *all, *fast; /* [(most + 1) * (most + 1)] */
};

static int set_ranks(struct uneven *u, int fast, int slow)
{
    for (int i = 0; i < u->n_nodes; i++)
        u->ranks[i] = u->slow[i] ? slow : fast;
    return (u->n_nodes - u->n_slow) * fast + u->n_slow * slow;
}

static int try_even(struct uneven *u, struct even_times *times, bool ordered)
{
    struct plan_trials *s = u->s;
    int trial, rc = OK;

    for (int r = 1; rc == OK && r <= u->most; r++)
        for (int t = 1; rc == OK && r * t <= u->most && !plan_trials_spent(s); t++) {
            size_t at = (size_t)r * (size_t)(u->most + 1) + (size_t)t;

            set_ranks(u, r, r);
            rc = try_ranks(u, t, false, ordered, &trial);
            if (rc == OK && trial >= 0)
                times->all[at] = fmin(times->all[at], s->trials[trial].seconds);
            if (rc == OK && r == 1 && u->n_nodes > 1)
                rc = try_ranks(u, t, true, ordered, &trial);
            if (rc != OK || !u->n_slow)
                continue;
            set_ranks(u, r, 0);
            rc = try_ranks(u, t, false, ordered, &trial);
            if (rc == OK && trial >= 0)
                times->fast[at] = fmin(times->fast[at], s->trials[trial].seconds);
        }
    return rc;
}

struct mix {
    int fast, slow, n_threads;
    double seconds; /* predicted */
};

static int by_prediction(const void *a, const void *b)
{
    const struct mix *x = a, *y = b;

    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->n_threads != y->n_threads ? x->n_threads - y->n_threads : x->fast - y->fast;
}

/* A rank of a mix has a smaller share of the work than in the plan of its own nodes alone. */
static double predict(struct uneven *u, const struct even_times *times,
                      const struct mix *x)
{
    double total = set_ranks(u, x->fast, x->slow);
    size_t row = (size_t)(u->most + 1);
    double fast = times->fast[(size_t)x->fast * row + (size_t)x->n_threads];
    double slow = times->all[(size_t)x->slow * row + (size_t)x->n_threads];

    return fmax(fast * (u->n_nodes - u->n_slow) * x->fast, slow * u->n_nodes * x->slow) /
           total;
}

static int try_mixes(struct uneven *u, const struct even_times *times, bool ordered)
{
    size_t most = (size_t)u->most, n = 0;
    struct mix *v = mem_new(MEM_OTHER, most * most + 1, sizeof(*v)); /* 0.82 most^2 */
    int trial, rc = v ? OK : ERR_NOMEM;

    for (int t = 1; rc == OK && t <= u->most; t++)
        for (int fast = 2; fast * t <= u->most; fast++)
            for (int slow = 1; slow < fast; slow++) {
                struct mix x = {fast, slow, t, 0};

                x.seconds = predict(u, times, &x);
                if (isfinite(x.seconds))
                    v[n++] = x;
            }
    if (rc == OK)
        qsort(v, n, sizeof(*v), by_prediction);
    for (size_t i = 0; rc == OK && i < n && i < MIXES; i++) {
        set_ranks(u, v[i].fast, v[i].slow);
        rc = try_ranks(u, v[i].n_threads, false, ordered, &trial);
    }
    mem_free(v);
    return rc;
}

static int try_all(struct uneven *u)
{
    size_t n = (size_t)(u->most + 1) * (size_t)(u->most + 1);
    struct even_times times = {.all = mem_new(MEM_OTHER, 2 * n, sizeof(double))};
    int rc = times.all ? OK : ERR_NOMEM;

    times.fast = times.all + n;
    for (int ordered = 0; rc == OK && ordered <= u->ordered; ordered++) {
        for (size_t i = 0; i < 2 * n; i++)
            times.all[i] = INFINITY;
        rc = try_even(u, &times, ordered);
        if (rc == OK && u->n_slow)
            rc = try_mixes(u, &times, ordered);
    }
    mem_free(times.all);
    return rc;
}

/* ---- the best ones, varied ---- */

/* A change of the number of threads, of the ranks of a node or of all in a class, or both. */
static int try_change(struct uneven *u, const struct plan_uneven *at, int which,
                      int *trial)
{
    static const int steps[][3] = {{1, 0, 0},   {-1, 0, 0}, {0, 1, 0},  {0, -1, 0},
                                   {0, 0, 1},   {0, 0, -1}, {0, 1, 1},  {0, -1, -1},
                                   {1, -1, -1}, {-1, 1, 1}, {2, 0, 0},  {-2, 0, 0},
                                   {-1, 0, 1},  {1, 0, -1}, {-1, 1, 0}, {1, -1, 0}};
    const int n_steps = (int)(sizeof(steps) / sizeof(*steps));
    int n_threads = at->n_threads;

    memcpy(u->ranks, at->ranks, (size_t)u->n_nodes * sizeof(int));
    if (which < n_steps) {
        n_threads += steps[which][0];
        for (int i = 0; i < u->n_nodes; i++)
            u->ranks[i] += steps[which][u->slow[i] ? 2 : 1];
    } else {
        which -= n_steps;
        u->ranks[which / 2] += which % 2 ? 1 : -1;
    }
    return try_ranks(u, n_threads, at->joint, at->ordered, trial);
}

static int climb(struct uneven *u, int trial)
{
    struct plan_trials *s = u->s;
    int n_changes = 16 + (u->n_nodes > 2 ? 2 * u->n_nodes : 0);
    int *v = mem_new(MEM_OTHER, (size_t)n_changes + 1, sizeof(*v));
    int rc = v ? OK : ERR_NOMEM;

    for (int step = 0; rc == OK && step < CLIMB_STEPS && !plan_trials_spent(s); step++) {
        int n = 0;

        v[n++] = trial;
        for (int i = 0; rc == OK && i < n_changes; i++) {
            rc = try_change(u, s->trials[trial].uneven, i, &v[n]);
            for (int k = 0; k < n && v[n] >= 0; k++)
                if (v[k] == v[n])
                    v[n] = -1;
            n += v[n] >= 0 && s->trials[v[n]].uneven != NULL;
        }
        if (rc == OK)
            rc = race(s, v, n);
        if (v[0] == trial)
            break;
        trial = v[0];
    }
    mem_free(v);
    return rc;
}

static int vary_best(struct uneven *u)
{
    struct plan_trials *s = u->s;
    int *v = mem_new(MEM_OTHER, (size_t)s->n_trials + 1, sizeof(*v)), n = 0;
    int rc = v ? OK : ERR_NOMEM;

    for (int i = 0; rc == OK && i < s->n_trials; i++)
        if (s->trials[i].uneven && s->trials[i].n)
            v[n++] = i;
    if (rc == OK) {
        qsort_r(v, (size_t)n, sizeof(*v), by_time, s);
        n = n > 9 * CLIMBS ? 9 * CLIMBS : n;
        rc = race(s, v, n);
    }
    for (int i = 0; rc == OK && i < CLIMBS && i < n; i++)
        rc = climb(u, v[i]);
    mem_free(v);
    return rc;
}

/* ---- all together ---- */

static void next_stage(struct plan_trials *s, double share)
{
    s->counts->complete = s->counts->complete && !s->spent;
    plan_trials_stage(s, share);
}

int plan_uneven_search(struct plan_trials *s)
{
    const struct topo_tree *whole = s->grouped[0];
    size_t n_nodes = (size_t)whole->machine->n_nodes;
    size_t n_pus = (size_t)whole->machine->n_pus;
    struct uneven u = {.s = s, .m = whole->machine};
    int rc = ERR_NOMEM;

    u.n_cores = mem_new(MEM_OTHER, n_nodes, sizeof(*u.n_cores));
    u.slow = mem_new(MEM_OTHER, n_nodes, sizeof(*u.slow));
    u.ranks = mem_new(MEM_OTHER, n_nodes, sizeof(*u.ranks));
    u.pus = mem_new(MEM_OTHER, n_nodes * n_pus, sizeof(*u.pus));
    u.scratch = mem_new(MEM_OTHER, n_pus, sizeof(*u.scratch));
    u.position = mem_new(MEM_OTHER, n_pus, sizeof(*u.position));
    if (u.n_cores && u.slow && u.ranks && u.pus && u.scratch && u.position)
        rc = list_cores(&u, whole);
    for (int i = 0; rc == OK && i < u.most; i++)
        u.position[i] = i;
    next_stage(s,
               0.25); /* a node of very many cores must leave something for the ranks */
    if (rc == OK)
        rc = classify(&u);
    if (rc == OK)
        rc = order_cores(&u);
    next_stage(s, 0.4);
    if (rc == OK)
        rc = try_all(&u);
    if (rc == OK)
        rc = vary_best(&u);
    s->counts->complete = s->counts->complete && !s->spent;
    mem_free(u.n_cores);
    mem_free(u.slow);
    mem_free(u.ranks);
    mem_free(u.pus);
    mem_free(u.scratch);
    mem_free(u.position);
    return rc;
}
