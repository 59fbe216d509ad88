/* The search over simulated machines: random ones with a hidden params, and the shipped
 * ones, whose params it cannot read. */
#include "tests/support/test.h"

#include <math.h>

#include "simulate/random_machine.h"
#include "plan/evaluator.h"
#include "plan/tree_search.h"
#include "simulate/any_cores.h"
#include "simulate/exhaustive.h"

#define MACHINES "engine/simulate/machines"

struct sim {
    struct topo_machine *m;
    struct topo_tree *t;
    struct simulate_machine *s;
    struct simulate_workload workload;
    uint64_t seed;
    bool uneven;                    /* search beyond trees */
    struct topo_config interleaved; /* places the weights, if it has a tree */
};

static const struct topo_limits limits = {
    .n_heads = 32, .n_kv_heads = 8, .n_ffn_units = 172};

static const struct topo_config *placed(const struct sim *s)
{
    return s->interleaved.tree ? &s->interleaved : NULL;
}

static int measured(void *ctx, const struct topo_config *c, int repeat, double *seconds)
{
    struct sim *s = ctx;

    return simulate_measure(s->s, c, placed(s), &s->workload, s->seed, repeat, seconds);
}

static int exact(void *ctx, const struct topo_config *c, int repeat, double *seconds)
{
    struct sim *s = ctx;

    (void)repeat;
    return simulate_seconds(s->s, c, placed(s), &s->workload, seconds);
}

static void open_random(struct sim *s, double strength, uint64_t seed)
{
    struct simulate_random_opts o = {.strength = strength, .max_cores = 24, .seed = seed};
    struct simulate_machine_params params;

    *s = (struct sim){.seed = seed};
    assert_ok(simulate_random_machine(&s->m, &params, &o));
    assert_ok(simulate_machine_new(&s->s, s->m, &params));
    assert_ok(topo_tree_open(&s->t, s->m, NULL, NULL, 0));
    simulate_random_workload(&s->workload, seed);
}

static void open_named(struct sim *s, const char *name, enum topo_phase phase)
{
    struct simulate_step *w = &s->workload.v[0];
    char params[512];

    *s = (struct sim){.seed = 1, .workload = {.phase = phase, .n = 1}};
    assert_ok(simulate_named_machine_open(&s->m, name, MACHINES, params, sizeof(params)));
    assert_ok(simulate_machine_open(&s->s, s->m, params));
    assert_ok(topo_tree_open(&s->t, s->m, NULL, NULL, 0));
    /* Sheared-LLaMA-1.3B in f32: a token, or a prompt of 512. */
    *w = (struct simulate_step){.weight = 1,
                                .flop = 2.6e9,
                                .weight_bytes = 5.1e9,
                                .kv_bytes = 1e8,
                                .attention_frac = 0.3,
                                .n_barriers = 168,
                                .n_allreduces = 48,
                                .allreduce_bytes = 8192};
    if (phase == TOPO_PREFILL) {
        w->flop *= 512;
        w->allreduce_bytes *= 512;
    }
}

static void close_sim(struct sim *s)
{
    mem_free(s->t);
    simulate_machine_close(&s->s);
    topo_machine_close(&s->m);
}

static void search(struct plan_tree_result *f, struct sim *s)
{
    struct plan_evaluation e = {measured, s, 0, true};
    struct plan_tree_search_opts o;

    /* the search is not told how large the noise is */
    assert_ok(plan_evaluation_noise(&e.noise_frac, &e, s->m, 32));
    assert_true(e.noise_frac > 0.5 * simulate_params(s->s)->noise_frac &&
                e.noise_frac < 2 * simulate_params(s->s)->noise_frac);
    assert_ok(opt_init(plan_tree_search_opt_table, &o));
    o.seed = (int64_t)s->seed;
    o.max_s = 0; /* the answer must not depend on how busy this host is */
    o.uneven = s->uneven;
    assert_ok(plan_tree_search(f, s->t, &limits, &e, &o));
    assert_true(f->counts.complete);
}

static double exact_of(struct sim *s, const struct plan_tree_result *f)
{
    double seconds;

    assert_ok(exact(s, &f->top[f->best].config, 0, &seconds));
    return seconds;
}

static double best_of(struct sim *s, bool group)
{
    struct plan_evaluation e = {exact, s, 0, true};
    struct simulate_best best;

    assert_ok(simulate_exhaustive(&best, s->t, &limits, e.measure, e.ctx, group));
    mem_free(best.tree);
    return best.seconds;
}

/* Machines 1 to 40: on at least 38 the plan is within 2 % of the best there is, which
 * removes alone do not give on several. */
TEST(hidden_truths)
{
    int n_within = 0, n_hard = 0, n_latent = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct plan_tree_result f;
        struct sim s;
        double best, found;

        open_random(&s, 0.01 * (double)(seed % 41), seed);
        search(&f, &s);
        best = best_of(&s, true);
        found = exact_of(&s, &f);
        assert_true(found >= best * (1 - 1e-12));
        n_within += found <= 1.02 * best;
        n_hard += best_of(&s, false) > 1.03 * best;
        n_latent += f.latent;
        if (best_of(&s, false) > 1.03 * best && !f.latent)
            print_message("# seed %d: hidden structure not claimed\n", (int)seed);
        plan_tree_result_free(&f);
        close_sim(&s);
    }
    assert_true(n_within >= 38);
    assert_true(n_hard >= 5);
    assert_true(n_latent >= n_hard * 9 / 10);
}

TEST(nothing_hidden)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct plan_tree_result f;
        struct sim s;

        open_random(&s, 0, seed);
        s.uneven = seed % 2; /* both, each on half of the machines */
        search(&f, &s);
        if (f.latent)
            fail_msg("seed %d: %s", (int)seed, f.explain);
        assert_true(exact_of(&s, &f) <= 1.02 * best_of(&s, true));
        plan_tree_result_free(&f);
        close_sim(&s);
    }
}

static double best_of_any(struct sim *s)
{
    struct plan_evaluation e = {exact, s, 0, true};
    struct simulate_best trees, any;
    double seconds;

    assert_ok(simulate_exhaustive(&trees, s->t, &limits, e.measure, e.ctx, true));
    assert_ok(simulate_any_cores(&any, &trees.config, &limits, e.measure, e.ctx));
    seconds = any.seconds;
    mem_free(trees.tree);
    mem_free(any.tree);
    return seconds;
}

/* Machines that trees cannot express: the plan is at least as good as all PUs as one rank within
 * the noise, the same for the same seed, and on 85 % of them within 2 % of the best that is
 * known, of any cores. On slow nodes trees alone never are. */
TEST(beyond_the_assumptions)
{
    int n = 0, n_within = 0;
    for (int kind = 0; kind < SIMULATE_N_HIDDEN; kind++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct simulate_random_opts o = {.kind = (enum simulate_hidden)kind,
                                             .strength = 0.4,
                                             .max_cores = 12,
                                             .seed = seed};
            struct simulate_machine_params params;
            struct plan_tree_result f, again;
            struct topo_config all;
            struct sim s = {.seed = seed, .uneven = true};
            double all_s, best;

            assert_ok(simulate_random_machine(&s.m, &params, &o));
            assert_ok(simulate_machine_new(&s.s, s.m, &params));
            assert_ok(topo_tree_open(&s.t, s.m, NULL, NULL, 0));
            simulate_random_workload(&s.workload, seed);
            assert_ok(topo_config_cut(&all, s.t, 0, NULL));
            if (kind == SIMULATE_LINKS)
                s.interleaved = all;
            search(&f, &s);
            search(&again, &s);
            assert_ok(exact(&s, &all, 0, &all_s));
            best = best_of_any(&s);
            n += kind != SIMULATE_TILED;
            n_within += kind != SIMULATE_TILED && exact_of(&s, &f) <= 1.02 * best;
            if (kind == SIMULATE_SLOW_NODE) {
                struct plan_tree_result trees;

                assert_true(exact_of(&s, &f) <= 1.02 * best);
                s.uneven = false;
                search(&trees, &s);
                assert_true(exact_of(&s, &trees) > 1.02 * best);
                plan_tree_result_free(&trees);
            }
            assert_true(exact_of(&s, &f) <= all_s * (1 + params.noise_frac));
            assert_true(exact_of(&s, &again) == exact_of(&s, &f));
            assert_int_equal(again.counts.n_measurements, f.counts.n_measurements);
            plan_tree_result_free(&f);
            plan_tree_result_free(&again);
            close_sim(&s);
        }
    assert_true(n_within >= 0.85 * n);
}

/* Counts the misses of every process group by itself, and sees that none is measured on. */
struct patient {
    struct sim *s;
    int patience, n_groups;
    double fastest;
    struct {
        int ranks, nodes_of_rank, nodes, misses;
    } group[64];
};

static int count_nodes(const struct topo_config *c, int n_pus)
{
    bool seen[64] = {false};
    int n = 0;

    for (int i = 0; i < n_pus; i++) {
        int node = c->tree->machine->pus[c->tree->pus[i]].node;

        n += !seen[node];
        seen[node] = true;
    }
    return n;
}

static int patient_measure(void *ctx, const struct topo_config *c, int repeat,
                           double *seconds)
{
    struct patient *p = ctx;
    int nodes = count_nodes(c, c->tree->n_pus), of_rank = count_nodes(c, c->n_threads);
    int g = 0, rc = measured(p->s, c, repeat, seconds);

    if (repeat)
        return rc;
    while (g < p->n_groups &&
           (p->group[g].ranks != c->n_ranks || p->group[g].nodes != nodes ||
            p->group[g].nodes_of_rank != of_rank))
        g++;
    if (g == p->n_groups) {
        assert_true(p->n_groups++ < 64);
        p->group[g].ranks = c->n_ranks;
        p->group[g].nodes = nodes;
        p->group[g].nodes_of_rank = of_rank;
    }
    assert_true(p->group[g].misses < p->patience);
    p->group[g].misses = *seconds < p->fastest ? 0 : p->group[g].misses + 1;
    p->fastest = fmin(p->fastest, *seconds);
    return rc;
}

TEST(early_stopping_discards_process_groups)
{
    int64_t before = 0;
    struct sim s;
    open_random(&s, 0.3, 3);
    for (int patience = 1; patience <= 1 << 20; patience *= 4) {
        struct patient p = {&s, patience, 0, INFINITY, {{0}}};
        struct plan_evaluation e = {patient_measure, &p, 0.015, true};
        struct plan_tree_search_opts o;
        struct plan_tree_result f, all;

        assert_ok(opt_init(plan_tree_search_opt_table, &o));
        o.max_s = 0;
        o.uneven = false; /* which knows no process groups */
        o.patience = patience;
        assert_ok(plan_tree_search(&f, s.t, &limits, &e, &o));
        assert_true(f.counts.n_configs >= before);
        before = f.counts.n_configs;
        o.patience = 0;
        e = (struct plan_evaluation){measured, &s, 0.015, true};
        assert_ok(plan_tree_search(&all, s.t, &limits, &e, &o));
        assert_true(patience > 1 || f.counts.n_configs < all.counts.n_configs);
        if (patience == 1 << 20) { /* more than there are configurations */
            assert_int_equal(f.counts.n_configs, all.counts.n_configs);
            assert_true(exact_of(&s, &f) == exact_of(&s, &all));
        }
        plan_tree_result_free(&f);
        plan_tree_result_free(&all);
    }
    close_sim(&s);
}

TEST(random_machines_are_as_told)
{
    struct simulate_machine_params params, other;
    struct topo_machine *m;
    struct simulate_workload w;
    bool sizes[33] = {false}, strides[2] = {false};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct simulate_random_opts o = {.strength = 0.3, .seed = seed};
        int n;

        assert_ok(simulate_random_machine(&m, &params, &o));
        n = m->n_cores / m->n_nodes;
        assert_true(n == 8 || n == 12 || n == 16 || n == 24 || n == 32);
        sizes[n] = true;
        assert_int_equal(params.n_domains, 1);
        assert_int_equal(n % (params.domains[0].of * params.domains[0].stride), 0);
        strides[params.domains[0].stride > 1] = true;
        assert_true(
            fabs(params.domains[0].gbps / (params.domains[0].of * params.core_gbps) -
                 0.7) < 1e-12);
        topo_machine_close(&m);
        o.strength = 0;
        assert_ok(simulate_random_machine(&m, &other, &o));
        assert_int_equal(other.n_domains, 0);
        assert_int_equal(m->n_cores / m->n_nodes, n);
        topo_machine_close(&m);
        o.max_cores = 12;
        assert_ok(simulate_random_machine(&m, &other, &o));
        assert_in_range(m->n_cores / m->n_nodes, 8, 12);
        topo_machine_close(&m);
        simulate_random_workload(&w, seed);
        assert_true(w.n == 1 && w.v[0].weight_bytes > 8e9);
    }
    assert_true(sizes[8] && sizes[12] && sizes[16] && sizes[24] && sizes[32]);
    assert_true(strides[0] && strides[1]);
    assert_err(simulate_random_machine(&m, &params,
                                       &(struct simulate_random_opts){.strength = 1}),
               ERR_ARG, "strength");
    assert_null(m);
    assert_err(simulate_random_machine(&m, &params,
                                       &(struct simulate_random_opts){.max_cores = 4}),
               ERR_ARG, "at most 4 cores");
}

/* Three of the four cores of each cluster that the machine does not report. */
TEST(kunpeng_decode)
{
    const struct topo_tree *t;
    struct plan_tree_result f;
    struct sim s;
    int kept[48] = {0};
    open_named(&s, "kunpeng920x4", TOPO_DECODE);
    search(&f, &s);
    t = f.top[f.best].tree;
    assert_true(f.latent);
    for (int i = 0; i < t->n_pus; i++)
        kept[s.m->pus[t->pus[i]].core / 4]++;
    for (int i = 0; i < 48; i++)
        assert_int_equal(kept[i], 3);
    assert_true(exact_of(&s, &f) <= 1.01 * best_of(&s, true));
    assert_true(exact_of(&s, &f) <= 0.99 * best_of(&s, false));
    assert_non_null(strstr(f.explain, "at stride 1"));
    plan_tree_result_free(&f);
    close_sim(&s);
}

TEST(kunpeng_prefill_keeps_all)
{
    struct plan_tree_result f;
    struct sim s;
    open_named(&s, "kunpeng920x4", TOPO_PREFILL);
    search(&f, &s);
    assert_int_equal(f.top[f.best].tree->n_pus, 192);
    assert_false(f.latent);
    plan_tree_result_free(&f);
    close_sim(&s);
}

TEST(xeons_hide_nothing)
{
    static const char *const names[] = {"xeon6151x2", "xeon6230x2", "xeon8272clx2"};
    for (int i = 0; i < 3; i++) {
        struct plan_tree_result f;
        struct sim s;

        open_named(&s, names[i], TOPO_DECODE);
        search(&f, &s);
        assert_false(f.latent);
        assert_null(strstr(f.top[f.best].tree->steps, "group"));
        assert_true(exact_of(&s, &f) <= 1.02 * best_of(&s, true));
        plan_tree_result_free(&f);
        close_sim(&s);
    }
}
