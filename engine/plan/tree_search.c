#include "plan/tree_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plan/tree_search_parts.h"

/* Defaults chosen on 400 machines of random_truth.h (seeds 401 to 800, structures of 0 to
 * 40 %; "lost": the plan found is over 2 % slower than the best of all):
 *   repeats 1, 2, 4: none lost, in 1,850, 2,810 and 4,780 measurements. One does, since
 *     what looks good is measured again; where noise is 4 %, 1 and 2 both lose 18.
 *   final_repeats 8, 16, 32: 3, 2, 0 lost, and 81, 44, 18 where noise is 4 %.
 *   margin 1, 1.5, 2: none lost, but 10, 2, 0 of 400 machines without any structure are
 *     said to have one. 3 gives up structures that gain 1 %.
 *   patience 0, 1, 3: the same plans in 1,870, 1,800 and 1,850 measurements: it ends long
 *     runs of removes early, and few are long.
 *   k: the paper's; 5 and 20 find the same.
 *   max_measurements and max_s end searches of flat machines of a thousand CPUs. */
#define AT(m) offsetof(struct plan_tree_search_opts, m)
const struct opt_row plan_tree_search_opt_table[] = {
    {"group", OPT_BOOL, AT(group), NULL, 0, 0, "true", NULL,
     "put levels in that the machine may not report", 0},
    {"remove", OPT_BOOL, AT(remove), NULL, 0, 0, "true", NULL,
     "leave CPUs out, as many of each node", 0},
    {"prune", OPT_BOOL, AT(prune), NULL, 0, 0, "true", NULL,
     "do not follow a tree that is no better than its best parent", 0},
    {"hash", OPT_BOOL, AT(hash), NULL, 0, 0, "true", NULL,
     "recognise trees and configurations that were seen before", 0},
    {"random", OPT_BOOL, AT(random), NULL, 0, 0, "false", NULL,
     "draw trees and cross-sections at random instead", 0},
    {"all_cores", OPT_BOOL, AT(all_cores), NULL, 0, 0, "false", NULL,
     "keep all CPUs: no remove", 0},
    {"k", OPT_INT, AT(k), "configs", 1, 1000, "10", NULL, "keep the best so many", 0},
    {"patience", OPT_INT, AT(patience), "configs", 0, 1e6, "3", NULL,
     "clearly worse ones in a row before their kind is dropped; 0: never", 0},
    {"repeats", OPT_INT, AT(repeats), NULL, 1, 1e4, "1", NULL,
     "measurements of a configuration at first", 0},
    {"final_repeats", OPT_INT, AT(final_repeats), NULL, 1, 1e5, "32", NULL,
     "measurements of each of the best, in turn, at the end", 0},
    {"margin", OPT_F64, AT(margin), "x noise", 0, 100, "2", NULL,
     "a difference below this is none", 0},
    {"max_measurements", OPT_INT, AT(max_measurements), NULL, 0, 1e12, "200000", NULL,
     "end the search after so many; 0: no limit", 0},
    {"max_s", OPT_F64, AT(max_s), "s", 0, 1e9, "25", NULL,
     "end the search after so much wall time; 0: no limit", 0},
    {"seed", OPT_INT, AT(seed), NULL, 0, 9e15, "1", NULL, "of every random draw", 0},
    {0}};
#undef AT

static int check(const struct topo_tree *t, const struct plan_evaluation *e,
                 const struct plan_tree_search_opts *o)
{
    if (!t || t->n_pus < 1 || !e || !e->measure)
        return err_set(ERR_ARG, "a search needs a tree and an evaluator");
    if (o->k < 1 || o->repeats < 1 || o->final_repeats < 1 || o->patience < 0 ||
        o->margin < 0 || o->max_measurements < 0 || o->max_s < 0)
        return err_set(ERR_ARG,
                       "search: expected k, repeats and final_repeats of at least 1 and "
                       "no negative limit");
    if (!(e->noise_frac >= 0))
        return err_set(ERR_ARG, "search: a noise of %g", e->noise_frac);
    return OK;
}

/* What the last stage needs of the budget: a quarter where that is plenty, else what the
 * finalists and a duel take, but never more than half. */
static void set_stage(struct plan_trials *b)
{
    const struct plan_tree_search_opts *o = b->o;
    int64_t finals = (o->k + o->k / 2 + 18) * o->final_repeats;
    int64_t keep =
        finals + 4096 < o->max_measurements / 4 ? finals + 4096 : o->max_measurements / 4;

    if (keep < finals)
        keep = finals < o->max_measurements / 2 ? finals : o->max_measurements / 2;
    b->stop_at = o->max_measurements ? o->max_measurements - keep : 0;
    if (o->max_measurements && !b->stop_at)
        b->stop_at = 1;
    b->stop_s = 0.8 * o->max_s;
}

/* The k fastest; the chosen one takes the last place where it is not among them. */
static int take(struct plan_tree_found *out, struct plan_final *f,
                const struct plan_trials *b)
{
    int n = f->n < b->o->k ? f->n : (int)b->o->k;

    out->top = mem_new(MEM_OTHER, (size_t)n, sizeof(*out->top));
    if (!out->top)
        return ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        int from = i == n - 1 && f->chosen >= n ? f->chosen : i;
        struct plan_candidate *v = &f->v[from];

        out->top[i] = (struct plan_choice){.tree = v->tree,
                                           .config = v->config,
                                           .seconds = v->mean,
                                           .sd = v->sd,
                                           .n_measurements = v->n,
                                           .ties = v->ties};
        v->tree = NULL;
        out->n_top = i + 1;
        if (from == f->chosen)
            out->best = i;
    }
    out->latent = f->latent;
    return OK;
}

int plan_tree_search(struct plan_tree_found *out, const struct topo_tree *fundamental,
                     const struct topo_limits *limits, const struct plan_evaluation *e,
                     const struct plan_tree_search_opts *o)
{
    static const struct topo_limits none;
    struct plan_trials b = {.e = e, .limits = limits ? limits : &none, .o = o};
    struct plan_final final = {0};
    int rc;

    *out = (struct plan_tree_found){.counts.complete = true};
    b.counts = &out->counts;
    b.start_ns = clock_ns();
    rc = check(fundamental, e, o);
    if (rc != OK)
        goto out;
    set_stage(&b);
    rc = plan_trials_open(&b, fundamental, o->group);
    if (rc == OK)
        rc = o->random ? plan_tree_search_sample(&b) : plan_tree_search_walk(&b);
    if (rc != OK)
        goto out;
    b.stop_at = o->max_measurements;
    b.stop_s = o->max_s;
    b.spent = false;
    rc = plan_tree_search_final(&final, &b);
    if (rc != OK)
        goto out;
    out->counts.complete = out->counts.complete && !b.spent;
    out->counts.wall_s = (double)(clock_ns() - b.start_ns) * 1e-9;
    rc = plan_tree_search_explain(&out->explain, &b, &final);
    if (rc == OK)
        rc = take(out, &final, &b);
out:
    plan_final_free(&final);
    plan_trials_close(&b);
    if (rc != OK)
        plan_tree_found_free(out);
    return rc;
}

void plan_tree_found_free(struct plan_tree_found *f)
{
    for (int i = 0; i < f->n_top; i++)
        mem_free(f->top[i].tree);
    mem_free(f->top);
    mem_free(f->explain);
    f->top = NULL;
    f->explain = NULL;
    f->n_top = 0;
}
