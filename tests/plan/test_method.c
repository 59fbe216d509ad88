/* The methods of planning, on the shipped machines by simulation and on made-up ones. */
#include "tests/support/test.h"

#include <math.h>

#include "make/make.h"
#include "model/limits.h"
#include "plan/method.h"
#include "simulate/contention.h"

#define MACHINES "engine/simulate/machines"

static const int64_t prompt[] = {8, 33, 819}, output[] = {38, 285, 671};

struct bed {
    struct topo_machine *machine;
    struct model_config model;
    char params[512];
    struct plan_search_opts o;
};

static void bed_open(struct bed *b, const char *machine, const char *model)
{
    if (strchr(machine, ':')) {
        assert_ok(topo_machine_open(&b->machine, machine));
        snprintf(b->params, sizeof(b->params), "%s/params/xeon6230x2.json", MACHINES);
    } else {
        assert_ok(simulate_named_machine_open(&b->machine, machine, MACHINES, b->params,
                                              sizeof(b->params)));
    }
    assert_ok(make_config(model, &b->model));
    b->o = (struct plan_search_opts){
        .e = {.machine = b->machine, .machine_params_path = b->params},
        .model = &b->model,
        .types = {KERN_BF16, KERN_KV_F32},
        .batch = 1};
    assert_ok(plan_evaluator_find("contention", &b->o.evaluator));
    assert_ok(plan_trace_of(&b->o.trace, &(struct plan_lengths){prompt, output, 3},
                            b->model.max_tok));
    assert_ok(opt_init(plan_tree_search_opt_table, &b->o.search));
    b->o.search.max_measurements = 3000;
    b->o.search.final_repeats = 12;
}

static void bed_close(struct bed *b)
{
    topo_machine_close(&b->machine);
}

static void run(const struct bed *b, const char *method, struct plan_search_result *f)
{
    const struct plan_method *m;

    assert_ok(plan_method_find(method, &m));
    assert_ok(m->run(f, &b->o));
    assert_string_equal(f->plan.method, method);
    assert_string_equal(f->plan.evidence, "simulated");
    assert_true(strlen(f->explain) > 20 && strlen(f->plan.decode.why) > 20);
    assert_in_range(f->n_ranked, 1, PLAN_RANKED_MAX);
    assert_int_equal(f->ranked[0].decode.n_ranks, f->plan.decode.n_ranks);
    assert_memory_equal(f->ranked[0].cpus, f->plan.cpus, sizeof(f->plan.cpus));
    for (int i = 0; i < f->n_ranked; i++) {
        bool one_rank = i == 1 && strstr(method, "search");

        assert_true(one_rank || (f->ranked[i].prefill.expected_s > 0 &&
                                 f->ranked[i].decode.expected_s > 0));
        assert_int_equal(f->ranked[i].decode.costs.n, 0);
    }
}

static double request_s(const struct bed *b, const struct plan *p)
{
    return plan_trace_s(&b->o.trace, b->o.batch, p->prefill.expected_s,
                        p->decode.expected_s);
}

/* Every CPU of a plan is another core, and ranks of one node have it to themselves. */
static void check_cores(const struct bed *b, const struct plan *p)
{
    const struct topo_machine *m = b->machine;
    bool seen[CPU_MAX] = {false};

    for (int i = 0; i < p->n_cpus; i++) {
        int pu = 0;

        while (m->pus[pu].os_index != p->cpus[i])
            pu++;
        assert_in_range(m->pus[pu].core, 0, CPU_MAX - 1);
        assert_false(seen[m->pus[pu].core]);
        seen[m->pus[pu].core] = true;
    }
}

TEST(test_find)
{
    const struct plan_method *m;
    int n = 0;

    while (plan_methods[n])
        assert_true(strlen(plan_methods[n++]->help) > 10);
    assert_true(n >= 4);
    assert_err(plan_method_find("evensplit", &m), ERR_NOTFOUND, "\"even_split\"");
    assert_non_null(strstr(err_msg(), "vllmpp"));
}

static void on_machine(const char *machine)
{
    struct plan_search_result one, even, best, found;
    double noise = 0.05; /* of expected times, well above that of any machine */
    struct bed b;

    bed_open(&b, machine, "sheared-llama-1.3b");
    run(&b, "one_plan", &one);
    assert_int_equal(one.plan.prefill.n_ranks, 1);
    assert_int_equal(one.plan.n_cpus, b.machine->n_cores);
    assert_true(plan_is_one(&one.plan));
    assert_int_equal(one.plan.decode.allreduce.n, 0);
    check_cores(&b, &one.plan);

    run(&b, "even_split", &even);
    assert_int_equal(even.plan.decode.n_ranks, b.machine->n_nodes);
    assert_true(plan_is_one(&even.plan));
    assert_int_equal(even.plan.decode.allreduce.n, 1);
    assert_string_equal(par_colls[even.plan.decode.allreduce.row[0].coll]->name,
                        "master_copy");
    for (int r = 0; r < even.plan.decode.n_ranks; r++)
        for (int i = 0; i < even.plan.decode.n_threads; i++) {
            const int *nodes = even.plan.decode.nodes + r * even.plan.decode.n_threads;

            assert_int_equal(nodes[i], nodes[0]);
        }
    check_cores(&b, &even.plan);

    run(&b, "vllmpp", &best);
    assert_int_equal(b.model.n_heads % best.plan.decode.n_ranks, 0);
    assert_int_equal(best.plan.n_cpus, b.machine->n_cores);
    assert_true(plan_is_one(&best.plan));
    assert_true(best.n_ranked > 1);
    for (int i = 1; i < best.n_ranked; i++)
        assert_true(request_s(&b, &best.ranked[i]) * (1 + noise) >
                    request_s(&b, &best.plan));
    assert_true(request_s(&b, &best.plan) < request_s(&b, &one.plan) * (1 + noise));

    run(&b, "sandwich_paper_search", &found);
    assert_true(request_s(&b, &found.plan) < request_s(&b, &one.plan) * (1 + noise));
    assert_string_equal(found.ranked[0].method, found.plan.method);
    plan_search_result_free(&found);
    run(&b, "search", &found);
    assert_true(found.n_ranked > 1); /* the one rank of all, unless that was found */
    if (!plan_is_one(&found.plan) || found.plan.decode.n_ranks > 1) {
        assert_int_equal(found.ranked[1].decode.n_ranks, 1);
        assert_int_equal(found.ranked[1].n_cpus, one.plan.n_cpus);
        assert_true(plan_is_one(&found.ranked[1]));
    }
    assert_true(request_s(&b, &found.plan) < request_s(&b, &best.plan) * (1 + noise));
    plan_search_result_free(&one);
    plan_search_result_free(&even);
    plan_search_result_free(&best);
    plan_search_result_free(&found);
    bed_close(&b);
}

/* Nodes of three cores and of two, a core that is alone, a prime number of cores: a symmetric
 * tree leaves some out, and the plan was slower by its own estimate than every core was. */
TEST(test_search_is_not_slower_than_one_plan)
{
    static const int some[] = {0, 1, 2, 4, 5}, alone[] = {0, 1, 2, 3, 4};
    static const struct {
        const char *machine;
        const int *cpus;
        int n_cpus;
    } cases[] = {{"synthetic:numa:2 core:4 pu:1", some, 5},
                 {"synthetic:numa:2 core:4 pu:1", alone, 5},
                 {"synthetic:numa:1 core:7 pu:1", NULL, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_search_result one, found;
        struct bed b;

        bed_open(&b, cases[i].machine, "llama-160m");
        b.o.tree.cpus = cases[i].cpus;
        b.o.tree.n_cpus = cases[i].n_cpus;
        run(&b, "one_plan", &one);
        run(&b, "search", &found);
        printf("# %s: search %g s, one_plan %g s\n", cases[i].machine,
               request_s(&b, &found.plan), request_s(&b, &one.plan));
        assert_true(request_s(&b, &found.plan) <= request_s(&b, &one.plan) * (1 + 1e-9));
        assert_int_equal(found.ranked[0].n_cpus, found.plan.n_cpus);
        plan_search_result_free(&one);
        plan_search_result_free(&found);
        bed_close(&b);
    }
}

TEST(test_shipped_machines)
{
    const char *const *names;

    assert_ok(simulate_named_machines(MACHINES, &names));
    for (int i = 0; names[i]; i++) {
        char name[64];

        snprintf(name, sizeof(name), "%s", names[i]);
        on_machine(name);
        assert_ok(simulate_named_machines(MACHINES, &names)); /* lent until a call */
    }
}

/* No plan has ranks that would divide blocks of quantised weights: 256 of them are four of the
 * 12 heads, so that only three ranks are possible, on a machine of eight memory nodes. */
TEST(test_quantised_weights)
{
    static const char *const methods[] = {"vllmpp", "search"};
    const struct plan_method *even;
    struct plan_search_result f;
    struct bed b;

    bed_open(&b, "kunpeng920x4", "llama-160m");
    b.model.weight_type = b.o.types.weight = KERN_Q4_K;
    b.o.search.max_measurements = 300;
    for (int i = 0; i < 2; i++) {
        run(&b, methods[i], &f);
        for (int k = 0; k < f.n_ranked; k++) {
            assert_ok(model_ranks_check(&b.model, f.ranked[k].prefill.n_ranks));
            assert_ok(model_ranks_check(&b.model, f.ranked[k].decode.n_ranks));
        }
        plan_search_result_free(&f);
    }
    assert_ok(plan_method_find("even_split", &even));
    assert_err(even->run(&f, &b.o), ERR_UNSUPPORTED, "whole blocks of 256");
    bed_close(&b);
}

/* Ranks that are asked for; SMT siblings and CPUs that may not be used are not; nodes of
 * different sizes. */
TEST(test_even_split)
{
    static const int some[] = {0, 1, 2, 4, 5};
    const struct plan_method *even;
    struct plan_search_result f;
    struct bed b;

    assert_ok(plan_method_find("even_split", &even));
    bed_open(&b, "synthetic:numa:1 core:6 pu:2", "llama-160m");
    run(&b, "even_split", &f);
    assert_int_equal(f.plan.decode.n_ranks, 1);
    assert_int_equal(f.plan.decode.n_threads, 6);
    assert_non_null(strstr(f.plan.decode.why, "one memory node"));
    plan_search_result_free(&f);
    b.o.n_ranks = 4;
    run(&b, "even_split", &f);
    assert_int_equal(f.plan.decode.n_ranks, 4);
    assert_int_equal(f.plan.decode.n_threads, 1);
    assert_non_null(strstr(f.plan.decode.why, "4 ranks as asked for"));
    assert_non_null(strstr(f.plan.decode.why, "2 cores are left out"));
    plan_search_result_free(&f);
    b.o.n_ranks = 7;
    assert_err(even->run(&f, &b.o), ERR_ARG, "7 ranks asked for");
    assert_int_equal(f.n_ranked, 0);
    bed_close(&b);

    bed_open(&b, "synthetic:numa:2 core:4 pu:1", "llama-160m");
    b.o.tree.cpus = some; /* three of the first node, two of the second */
    b.o.tree.n_cpus = 5;
    run(&b, "even_split", &f);
    assert_int_equal(f.plan.decode.n_ranks, 2);
    assert_int_equal(f.plan.decode.n_threads, 2);
    assert_memory_equal(f.plan.decode.cpus, ((int[]){0, 1, 4, 5}), 4 * sizeof(int));
    plan_search_result_free(&f);
    run(&b, "one_plan", &f);
    assert_int_equal(f.plan.n_cpus, 5);
    plan_search_result_free(&f);
    bed_close(&b);
}

/* Only numbers of ranks that divide the cores and the heads. */
TEST(test_vllmpp)
{
    struct plan_search_result f;
    struct bed b;

    bed_open(&b, "synthetic:numa:2 core:5 pu:1", "llama-160m"); /* 12 heads */
    run(&b, "vllmpp", &f);
    assert_int_equal(f.n_ranked, 2); /* 1 and 2 of 1, 2, 5, 10 */
    plan_search_result_free(&f);
    b.o.max_ranks = 1;
    run(&b, "vllmpp", &f);
    assert_int_equal(f.n_ranked, 1);
    plan_search_result_free(&f);
    bed_close(&b);
}

/* Tables of a plan whose phases differ, without the trees that it came from. */
TEST(test_costs_of_any_plan)
{
    struct plan_search_result f;
    struct plan *p;
    struct bed b;

    bed_open(&b, "synthetic:numa:2 core:4 pu:1", "llama-160m");
    run(&b, "one_plan", &f);
    p = &f.plan;
    assert_ok(plan_measure_costs(p, &b.o));
    assert_int_equal(p->decode.costs.n, 0); /* the phases are one */
    p->decode.n_threads = 3;
    assert_ok(plan_number_cpus(p));
    assert_ok(plan_measure_costs(p, &b.o));
    assert_true(p->decode.costs.n > 5 && p->prefill.costs.n == p->decode.costs.n);
    assert_true(p->decode.costs.seconds[p->decode.costs.n - 1] >
                p->decode.costs.seconds[0]);
    p->decode.cpus[2] = 99;
    assert_err(plan_measure_costs(p, &b.o), ERR_ARG, "CPU 99 is not one of");
    plan_search_result_free(&f);
    bed_close(&b);
}

TEST(test_memory_short)
{
    struct plan_search_result f;
    struct bed b;

    bed_open(&b, "synthetic:numa:2 core:2 pu:1", "llama-160m");
    for (int m = 0; plan_methods[m]; m++) {
        int rc = ERR_NOMEM;
        long n;

        if (strstr(plan_methods[m]->name, "search"))
            continue; /* test_plan_search */
        for (n = 0; rc != OK && n < 3000; n++) {
            mem_fail_after(n, 1);
            rc = plan_methods[m]->run(&f, &b.o);
            mem_fail_after(-1, 0);
            if (rc != OK && rc != ERR_NOMEM)
                fail_msg("%s: allocation %ld: %s", plan_methods[m]->name, n, err_msg());
            plan_search_result_free(&f);
        }
        assert_true(n > 5 && n < 3000);
    }
    bed_close(&b);
}
