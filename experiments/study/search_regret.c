/* Regret at equal budgets: every search for a plan may make as many noisy measurements of a decode
 * step as any other, on machines whose parameters are known. After each measurement the
 * configuration with the lowest mean so far is what the search would choose if it ended there; how
 * much slower that one is than the best plan known, without noise, is its regret.
 * Paper: Sandwich 5.2, 5.3. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/hidden_machine.h"

/* Those up to `exhaustive` look at trees; the others at any sets of PUs. */
#define SEARCHES                                                                         \
    "search|trees|paper|paper_patience_10|random_trees|exhaustive|random|random_again|"  \
    "annealing|"                                                                         \
    "annealing_cool|tpe"
enum {
    SEARCH,
    TREES,
    PAPER,
    PAPER_PATIENCE_10,
    RANDOM_TREES,
    EXHAUSTIVE,
    RANDOM,
    RANDOM_AGAIN,
    ANNEALING,
    ANNEALING_COOL,
    TPE
};

#define OPTIONS(X)                                                                       \
    OPTIONS_HIDDEN_MACHINE(X)                                                            \
    X(ENUM, search, "search",                                                            \
      "search: the engine's. trees: of trees alone. paper, paper_patience_10: as the "   \
      "paper prints it, never stopped early, or with a patience of 10. random_trees. "   \
      "exhaustive: all configurations of trees, one after the other. Of any PUs, "       \
      "equally many of each memory node that is used, and any number of ranks: random, " \
      "and with another seed random_again; "                                             \
      "annealing, from losses of 20 %, _cool: of 3 %; tpe, a tree-structured Parzen "    \
      "estimator.",                                                                      \
      .values = SEARCHES)                                                                \
    X(INT, budget, "1000", "Measurements that a search may make.", .min = 50,            \
      .max = 100000)

#define RESULTS(X)                                                                       \
    X(regret_10, "", LOWER, "regret after 10 measurements")                              \
    X(regret_30, "", LOWER, "... after 30")                                              \
    X(regret_100, "", LOWER, "... after 100")                                            \
    X(regret_300, "", LOWER, "... after 300")                                            \
    X(regret_1000, "", LOWER,                                                            \
      "... after 1000, or when the search ended, as for all numbers above")              \
    X(regret_chosen, "", LOWER, "regret of what the search itself chooses in the end")   \
    X(within_2pct, "", HIGHER, "1: regret_chosen is at most 0.02")                       \
    X(best_s, "s", 0, "time of a step with the best plan known, of any cores")           \
    X(n_measurements, "", LOWER, "measurements that were made")                          \
    X(n_configs, "", 0, "different configurations among them")                           \
    X(measured_s, "s", LOWER, "time of the measured steps on the machine itself")        \
    X(search_s, "s", LOWER | MEASURED, "wall time of the search on this host")

FRAME_TYPES;

static const int marks[] = {10, 30, 100, 300, 1000};
#define N_MARKS ((int)(sizeof(marks) / sizeof(marks[0])))

/* A configuration that was measured. */
struct configuration {
    double sum, true_s;
    int n;
};

struct search_regret {
    FRAME_CELL;
    const struct hidden_machine *k;
    struct study_topo_asked asked;
    struct plan_evaluation noisy; /* the machine, with noise */
    struct configuration *seen;   /* [n_seen] of the budget and more */
    struct map index;             /* topo_config_key() to seen[] */
    int n_seen, best;             /* best: of the lowest mean; -1: none yet */
    int64_t n;                    /* measurements */
    double at[N_MARKS];           /* true_s of what would be chosen at each mark */
    struct plan_tree_result found;
    struct rng rng;
    struct simulate_best all; /* of the exhaustive search */
};

/* ---- what is watched ---- */

static double mean_of(const struct configuration *s)
{
    return s->sum / s->n;
}

static void choose(struct search_regret *c, int changed)
{
    if (c->best == changed) { /* its mean may have risen above another's */
        for (int i = 0; i < c->n_seen; i++)
            if (mean_of(&c->seen[i]) < mean_of(&c->seen[c->best]))
                c->best = i;
    } else if (c->best < 0 || mean_of(&c->seen[changed]) < mean_of(&c->seen[c->best])) {
        c->best = changed;
    }
    for (int i = 0; i < N_MARKS; i++)
        if (c->n <= marks[i])
            c->at[i] = c->seen[c->best].true_s;
}

static int find_seen(struct search_regret *c, const struct topo_config *config, int *i)
{
    const uint64_t key = topo_config_key(config);
    int64_t found;

    if (map_find(&c->index, key, &found)) {
        *i = (int)found;
        return OK;
    }
    *i = c->n_seen;
    TRY(study_hidden_step_s(c->k, config, &c->seen[*i].true_s));
    TRY(map_put(&c->index, key, *i));
    c->n_seen++;
    return OK;
}

/* `repeat` is counted here, so that a search that comes back to a configuration gets new noise. */
static int watch(void *ctx, const struct topo_config *config, int repeat, double *seconds)
{
    struct search_regret *c = ctx;
    int i;

    (void)repeat;
    if (c->n > 2 * c->o->budget)
        return err_set(ERR_LIMIT, "a search made more than twice its measurements");
    TRY(find_seen(c, config, &i));
    TRY(c->noisy.measure(c->noisy.ctx, config, c->seen[i].n, seconds));
    c->seen[i].sum += *seconds;
    c->seen[i].n++;
    c->n++;
    choose(c, i);
    return OK;
}

static bool is_spent(const struct search_regret *c)
{
    return c->n >= c->o->budget;
}

/* ---- any PUs ---- */

#define RANKS_MAX 32 /* of a memory node */
#define NODES_MAX 16
/* PUs that are used, in the order of the fundamental tree, and the ranks that share those of each
 * memory node: all nodes that have any have equally many. */
struct proposal {
    int n_ranks; /* of a node */
    bool *uses;  /* [n_pus] */
};

static int node_of(const struct search_regret *c, int i)
{
    return c->k->t.machine->pus[c->k->t.tree->pus[i]].node;
}

static void count_used(const struct search_regret *c, const struct proposal *p,
                       int n[NODES_MAX])
{
    memset(n, 0, NODES_MAX * sizeof(n[0]));
    for (int i = 0; i < c->k->t.tree->n_pus; i++)
        n[node_of(c, i)] += p->uses[i];
}

/* Leave out PUs at random until nodes have equally many and their ranks share them equally; of
 * fewer PUs than ranks each is a rank. */
static void make_even(struct search_regret *c, struct proposal *p)
{
    const int n_pus = c->k->t.tree->n_pus;
    int n[NODES_MAX], least = 0;

    count_used(c, p, n);
    for (int i = 0; i < NODES_MAX; i++)
        if (n[i] && (!least || n[i] < least))
            least = n[i];
    if (!least) {
        p->uses[rng_below(&c->rng, (uint64_t)n_pus)] = true;
        p->n_ranks = 1;
        return;
    }
    p->n_ranks = p->n_ranks < least ? p->n_ranks : least;
    least -= least % p->n_ranks;
    for (bool even = false; !even;) {
        int i = (int)rng_below(&c->rng, (uint64_t)n_pus);

        if (p->uses[i] && n[node_of(c, i)] > least) {
            p->uses[i] = false;
            n[node_of(c, i)]--;
        }
        even = true;
        for (int k = 0; k < NODES_MAX; k++)
            even = even && n[k] <= least;
    }
}

/* Once, and again while it seems to be the best of all and that may be luck: *seconds is the mean,
 * INFINITY where the model cannot be divided like this, which costs no measurement. */
#define SURE_AFTER 5
static int measure_until_sure(struct search_regret *c, const struct topo_config *config,
                              double *seconds)
{
    int i;

    do {
        TRY(watch(c, config, 0, seconds));
        TRY(find_seen(c, config, &i));
    } while (c->best == i && c->seen[i].n < SURE_AFTER && !is_spent(c));
    *seconds = mean_of(&c->seen[i]);
    return OK;
}

static int measure_proposal(struct search_regret *c, const struct proposal *p,
                            double *seconds)
{
    const struct topo_tree *of = c->k->t.tree;
    struct topo_tree *tree = NULL;
    struct topo_config config;
    int *pus = mem_new(MEM_OTHER, (size_t)of->n_pus, sizeof(*pus)), n = 0, n_nodes = 0;
    int used[NODES_MAX], rc;

    *seconds = INFINITY;
    if (!pus)
        return ERR_NOMEM;
    for (int i = 0; i < of->n_pus; i++)
        if (p->uses[i])
            pus[n++] = of->pus[i];
    count_used(c, p, used);
    for (int i = 0; i < NODES_MAX; i++)
        n_nodes += used[i] > 0;
    rc = topo_tree_of_ranks(&tree, of->machine, pus, n_nodes * p->n_ranks,
                            n / (n_nodes * p->n_ranks));
    if (rc == OK)
        rc = topo_config_cut(&config, tree, 1, &c->k->t.limits);
    if (rc == OK)
        rc = measure_until_sure(c, &config, seconds);
    mem_free(tree);
    mem_free(pus);
    if (rc != ERR_UNSUPPORTED)
        return rc;
    err_clear();
    return OK;
}

static int ranks_max(const struct search_regret *c)
{
    const int of_node = c->k->t.tree->n_pus / c->k->t.machine->n_nodes;

    return of_node < RANKS_MAX ? of_node : RANKS_MAX;
}

static void draw(struct search_regret *c, struct proposal *p)
{
    const double share = rng_f64(&c->rng);

    p->n_ranks = 1 + (int)rng_below(&c->rng, (uint64_t)ranks_max(c));
    for (int i = 0; i < c->k->t.tree->n_pus; i++)
        p->uses[i] = rng_f64(&c->rng) < share;
    make_even(c, p);
}

static struct proposal new_proposal(struct search_regret *c)
{
    return (struct proposal){1,
                             frame_new(c->f, (size_t)c->k->t.tree->n_pus, sizeof(bool))};
}

static void copy_proposal(const struct search_regret *c, struct proposal *to,
                          const struct proposal *from)
{
    to->n_ranks = from->n_ranks;
    memcpy(to->uses, from->uses, (size_t)c->k->t.tree->n_pus * sizeof(bool));
}

static int random_sets(struct search_regret *c)
{
    struct proposal p = new_proposal(c);
    double seconds;

    while (!is_spent(c)) {
        draw(c, &p);
        TRY(measure_proposal(c, &p, &seconds));
    }
    return OK;
}

/* The largest number of ranks, at most as many as there are, that share a node's PUs equally. */
static void fewer_ranks(const struct search_regret *c, struct proposal *p)
{
    int n[NODES_MAX], most = 0;

    count_used(c, p, n);
    for (int i = 0; i < NODES_MAX; i++)
        most = most > n[i] ? most : n[i];
    while (most && most % p->n_ranks)
        p->n_ranks--;
}

/* Change the ranks, or a run of PUs at the same place of all nodes that are used, or whether the
 * node of a PU is used. */
static void step_from(struct search_regret *c, struct proposal *p)
{
    const int n_pus = c->k->t.tree->n_pus, per_node = n_pus / c->k->t.machine->n_nodes;
    const int at = (int)rng_below(&c->rng, (uint64_t)n_pus);
    const bool uses = p->uses[at];
    int n[NODES_MAX], run = 1;

    switch (rng_below(&c->rng, 4)) {
    case 0:
        p->n_ranks = 1 + (int)rng_below(&c->rng, (uint64_t)ranks_max(c));
        return;
    case 1:
        for (int i = 0; i < n_pus; i++)
            if (node_of(c, i) == node_of(c, at))
                p->uses[i] = !uses;
        return;
    case 2:
        run = 1 + (int)rng_below(&c->rng, (uint64_t)(per_node + 3) / 4);
        break;
    }
    count_used(c, p, n);
    for (int i = 0; i < n_pus; i++)
        if ((i - at % per_node + n_pus) % per_node < run && n[node_of(c, i)])
            p->uses[i] = !uses;
    if (rng_below(&c->rng, 2))
        fewer_ranks(c, p);
}

/* From all PUs and one rank for each memory node. A slower step is taken with a chance that falls
 * with what it loses and with time. `hot` and `cold`: losses that are taken once in e times, at the
 * beginning and at the end. */
static int annealing(struct search_regret *c, double hot, double cold)
{
    const int n_pus = c->k->t.tree->n_pus;
    struct proposal now = new_proposal(c), next = new_proposal(c);
    double now_s, next_s;

    for (int i = 0; i < n_pus; i++)
        now.uses[i] = true;
    make_even(c, &now);
    TRY(measure_proposal(c, &now, &now_s));
    while (!is_spent(c)) {
        const double done = (double)c->n / (double)c->o->budget;
        const double heat = hot * pow(cold / hot, done);

        copy_proposal(c, &next, &now);
        step_from(c, &next);
        make_even(c, &next);
        TRY(measure_proposal(c, &next, &next_s));
        if (next_s <= now_s || rng_f64(&c->rng) < exp((1 - next_s / now_s) / heat)) {
            copy_proposal(c, &now, &next);
            now_s = next_s;
        }
    }
    return OK;
}

/* ---- the tree-structured Parzen estimator ----
 *
 * The best quarter of what was measured and the rest each give a distribution of every choice: the
 * number of ranks, and for each PU whether it is used. Of some draws from the first, that one is
 * measured which is likeliest under the first compared with the second. */

#define TPE_FIRST 20
#define TPE_DRAWS 24

struct tried {
    struct proposal p;
    double seconds;
};

static int by_seconds(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;

    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

struct parzen {
    double ranks[RANKS_MAX + 1];
    double *uses; /* [n_pus] */
};

static void fit(const struct search_regret *c, struct parzen *out, const struct tried *t,
                int n)
{
    const int n_pus = c->k->t.tree->n_pus, most = ranks_max(c);

    for (int r = 1; r <= most; r++)
        out->ranks[r] = 1.0 / (n + most);
    for (int i = 0; i < n; i++)
        out->ranks[t[i].p.n_ranks] += 1.0 / (n + most);
    for (int u = 0; u < n_pus; u++) {
        double used = 1;

        for (int i = 0; i < n; i++)
            used += t[i].p.uses[u];
        out->uses[u] = used / (n + 2);
    }
}

static double log_ratio(const struct search_regret *c, const struct parzen *good,
                        const struct parzen *rest, const struct proposal *p)
{
    double sum = log(good->ranks[p->n_ranks] / rest->ranks[p->n_ranks]);

    for (int u = 0; u < c->k->t.tree->n_pus; u++)
        sum += p->uses[u] ? log(good->uses[u] / rest->uses[u])
                          : log((1 - good->uses[u]) / (1 - rest->uses[u]));
    return sum;
}

static void draw_from(struct search_regret *c, const struct parzen *good,
                      struct proposal *p)
{
    double u = rng_f64(&c->rng), sum = 0;

    p->n_ranks = 1;
    for (int r = 1; r <= ranks_max(c) && sum <= u; r++) {
        sum += good->ranks[r];
        p->n_ranks = r;
    }
    for (int i = 0; i < c->k->t.tree->n_pus; i++)
        p->uses[i] = rng_f64(&c->rng) < good->uses[i];
    make_even(c, p);
}

static int tpe(struct search_regret *c)
{
    const int64_t budget = c->o->budget;
    const size_t n_pus = (size_t)c->k->t.tree->n_pus;
    struct tried *t = frame_new(c->f, (size_t)budget, sizeof(*t));
    struct parzen good = {.uses = frame_new(c->f, n_pus, sizeof(double))},
                  rest = {.uses = frame_new(c->f, n_pus, sizeof(double))};
    bool *uses = frame_new(c->f, (size_t)budget * n_pus, sizeof(*uses));
    struct proposal drawn = new_proposal(c);
    int n = 0;

    while (!is_spent(c) && n < budget) {
        int n_good = (n + 3) / 4;
        double most = -INFINITY;

        t[n].p = (struct proposal){1, uses + (size_t)n * n_pus};
        if (n < TPE_FIRST) {
            draw(c, &t[n].p);
        } else {
            qsort(t, (size_t)n, sizeof(*t), by_seconds);
            fit(c, &good, t, n_good);
            fit(c, &rest, t + n_good, n - n_good);
            for (int i = 0; i < TPE_DRAWS; i++) {
                double ratio;

                draw_from(c, &good, &drawn);
                ratio = log_ratio(c, &good, &rest, &drawn);
                if (ratio > most)
                    copy_proposal(c, &t[n].p, &drawn);
                most = fmax(most, ratio);
            }
        }
        TRY(measure_proposal(c, &t[n].p, &t[n].seconds));
        n++;
    }
    return OK;
}

/* ---- trees ---- */

static int tree_search(struct search_regret *c)
{
    struct plan_evaluation e = {watch, c, c->noisy.noise_frac, true};
    struct plan_tree_search_opts s;
    const int search = c->o->search;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.seed = c->o->seed;
    s.max_s = 0; /* what is found must not depend on how busy this host is */
    s.max_measurements = c->o->budget;
    s.uneven = search == SEARCH;
    s.random = search == RANDOM_TREES;
    if (search == PAPER || search == PAPER_PATIENCE_10) {
        plan_tree_search_as_paper(&s);
        s.patience = search == PAPER ? 0 : 10;
    }
    return plan_tree_search(&c->found, c->k->t.tree, &c->k->t.limits, &e, &s);
}

static int exhaustive(struct search_regret *c)
{
    const struct study_topo *t = &c->k->t;

    if (c->k->all.n_configs > c->o->budget)
        return err_set(ERR_NOTFOUND,
                       "%lld configurations of trees, more than %lld measurements",
                       (long long)c->k->all.n_configs, (long long)c->o->budget);
    return simulate_exhaustive(&c->all, t->tree, &t->limits, watch, c, true);
}

/* ---- the cell ---- */

static int run_search(struct search_regret *c)
{
    switch (c->o->search) {
    case EXHAUSTIVE:
        return exhaustive(c);
    case RANDOM:
    case RANDOM_AGAIN:
        return random_sets(c);
    case ANNEALING:
        return annealing(c, 0.2, 0.002);
    case ANNEALING_COOL:
        return annealing(c, 0.03, 0.002);
    case TPE:
        return tpe(c);
    default:
        return tree_search(c);
    }
}

static void regret_close(struct search_regret *c)
{
    plan_tree_result_free(&c->found);
    mem_free(c->all.tree);
    map_fini(&c->index);
}

static int search_regret_run(struct search_regret *c)
{
    struct hidden_machine *k = study_kept(c->out);
    const int64_t seed = c->o->seed + 1000 * (c->o->search == RANDOM_AGAIN);
    struct results *r = c->r;
    double chosen_s;
    uint64_t start_ns;

    FRAME_CLOSE(c->f, regret_close, c);
    TRY(study_hidden_machine_open(k, &STUDY_TOPO_OPTS, (int)c->o->max_cores));
    if (k->t.machine->n_nodes > NODES_MAX)
        return err_set(ERR_NOTFOUND, "%d memory nodes: at most %d are searched",
                       k->t.machine->n_nodes, NODES_MAX);
    c->k = k;
    c->asked = study_hidden_asked(k, seed, true);
    TRY(study_topo_evaluator(&c->noisy, &c->asked));
    c->asked.sum_s = 0; /* without what the noise was estimated from */
    c->seen = frame_new(c->f, (size_t)(2 * c->o->budget + 2), sizeof(*c->seen));
    c->best = -1;
    rng_init(&c->rng, (uint64_t)seed, "search");
    start_ns = clock_ns();
    TRY(run_search(c));
    r->search_s = 1e-9 * (double)(clock_ns() - start_ns);
    chosen_s = c->seen[c->best].true_s;
    if (c->found.top)
        TRY(study_hidden_step_s(k, &c->found.top[c->found.best].config, &chosen_s));
    for (int i = 0; i < N_MARKS; i++)
        *frame_named(c->f, "regret_%d", marks[i]) = c->at[i] / k->any.seconds - 1;
    r->regret_chosen = chosen_s / k->any.seconds - 1;
    r->within_2pct = r->regret_chosen <= 0.02;
    r->best_s = k->any.seconds;
    r->n_measurements = (double)c->n;
    r->n_configs = c->n_seen;
    r->measured_s = c->asked.sum_s;
    return OK;
}

STUDY(search_regret,
      "how near each search for a plan is to the best after equally many measurements",
      .kept_bytes = sizeof(struct hidden_machine), .close = study_hidden_machine_close);
