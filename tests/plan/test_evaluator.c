/* Both evaluators through the same interface. Times are never compared with anything but
 * themselves. */
#include "tests/support/faults.h"
#include "tests/support/tiny_model.h"

#include <math.h>

#include "cpu/cpu.h"
#include "plan/evaluator.h"
#include "simulate/contention.h"

#define MACHINES "engine/simulate/machines"

static const struct plan_evaluator *find(const char *name)
{
    const struct plan_evaluator *e = NULL;

    assert_ok(plan_evaluator_find(name, &e));
    assert_string_equal(e->name, name);
    assert_true(*e->help != '\0');
    return e;
}

TEST(test_find)
{
    const struct plan_evaluator *e;

    assert_string_equal(find("contention")->evidence, "simulated");
    assert_string_equal(find("measured")->evidence, "measured");
    assert_err(plan_evaluator_find("mesured", &e), ERR_NOTFOUND, "\"measured\"?");
    assert_null(e);
}

/* ---- contention ---- */

static const struct simulate_workload workload = {
    .phase = TOPO_DECODE,
    .n = 1,
    .v = {{.weight = 1,
           .flop = 1e9,
           .weight_bytes = 1e9,
           .kv_bytes = 1e7,
           .attention_frac = 0.3,
           .n_barriers = 100,
           .n_allreduces = 24,
           .allreduce_bytes = 4096}},
};

TEST(test_contention)
{
    const struct plan_evaluator *x = find("contention");
    const struct topo_limits any = {0};
    struct plan_evaluator_opts o = {
        .workload = &workload, .phase = TOPO_DECODE, .seed = 7};
    struct topo_machine *m = NULL;
    struct topo_tree *t = NULL;
    struct plan_evaluation e;
    struct topo_config one, c;
    struct simulate_machine *sim = NULL;
    char params[512];
    double s[2], again, exact;

    assert_ok(simulate_named_machine_open(&m, "kunpeng920x4", MACHINES, params,
                                          sizeof(params)));
    o.machine = m;
    o.machine_params_path = params;
    assert_ok(topo_tree_open(&t, m, NULL, NULL, 0));
    assert_ok(topo_config_cut(&one, t, 0, &any));
    assert_ok(topo_config_cut(&c, t, 1, &any));
    assert_ok(x->open(&e, &o));
    assert_true(e.noise_frac > 0.001 && e.noise_frac < 0.1);
    for (int i = 0; i < 2; i++)
        assert_ok(e.measure(e.ctx, &c, i, &s[i]));
    assert_true(s[0] > 0 && s[0] != s[1]); /* noise */
    assert_ok(e.measure(e.ctx, &c, 0, &again));
    assert_true(again == s[0]); /* that follows from the repeat */
    assert_ok(simulate_machine_open(&sim, m, params));
    assert_ok(simulate_seconds(sim, &c, NULL, &workload, &exact));
    assert_true(fabs(s[0] / exact - 1) < 0.5);
    x->close(&e);
    assert_null(e.ctx);
    o.placement = &one; /* weights where one rank put them: another time */
    assert_ok(x->open(&e, &o));
    assert_ok(e.measure(e.ctx, &c, 0, &again));
    assert_true(again != s[0]);
    x->close(&e);
    o.machine_params_path = "/nonexistent/params.json";
    assert_err(x->open(&e, &o), ERR_NOTFOUND, "/nonexistent/params.json");
    simulate_machine_close(&sim);
    mem_free(t);
    topo_machine_close(&m);
}

/* Steps of a pair: each phase by its own configuration, over weights where decode put
 * them; more rows take longer; noise follows from the repeat. */
TEST(test_contention_pair)
{
    const struct plan_evaluator *x = find("contention");
    const struct topo_limits any = {0};
    struct plan_evaluator_opts o = {
        .workload = &workload, .phase = TOPO_PREFILL, .seed = 7};
    struct simulate_workload few = workload, many = workload;
    struct plan_step step = {.phase = TOPO_PREFILL, .n_rows = 1, .workload = &few};
    struct topo_machine *m = NULL;
    struct topo_tree *t = NULL;
    struct topo_config prefill, decode;
    struct simulate_machine *sim = NULL;
    struct plan_evaluation e;
    char params[512];
    int64_t n_rows_max = 0;
    double s, again, want;

    assert_ok(simulate_named_machine_open(&m, "kunpeng920x4", MACHINES, params,
                                          sizeof(params)));
    assert_ok(simulate_machine_open(&sim, m, params));
    assert_ok(topo_tree_open(&t, m, NULL, NULL, 0));
    assert_ok(topo_config_cut(&prefill, t, 0, &any));
    assert_ok(topo_config_cut(&decode, t, 1, &any));
    o.machine = m;
    o.machine_params_path = params;
    o.placement = &decode;
    assert_ok(x->open(&e, &o));
    assert_ok(x->pair(&e, &prefill, &decode, &n_rows_max));
    assert_int_equal(n_rows_max, PLAN_STEP_ROWS_MAX);
    many.v[0].flop *= 1000;
    for (int phase = 0; phase < 2; phase++) {
        const struct topo_config *c = phase == TOPO_PREFILL ? &prefill : &decode;

        step.phase = (enum topo_phase)phase;
        step.workload = &few;
        assert_ok(x->step(&e, &step, 3, &s));
        assert_ok(simulate_measure(sim, c, &decode, &few, 7, 3, &want));
        assert_true(s == want);
        assert_ok(x->step(&e, &step, 4, &again));
        assert_true(again != s);
        step.workload = &many;
        assert_ok(x->step(&e, &step, 3, &again));
        assert_true(again > 2 * s); /* far more than noise */
    }
    x->close(&e);
    simulate_machine_close(&sim);
    mem_free(t);
    topo_machine_close(&m);
}

/* Each allocation of open() fails in turn. */
static void open_short(const struct plan_evaluator *x,
                       const struct plan_evaluator_opts *o, long least)
{
    struct plan_evaluation e;

    assert_true(test_allocations(x->open(&e, o), !e.ctx) > least);
    x->close(&e);
}

TEST(test_contention_memory_short)
{
    struct plan_evaluator_opts o = {.workload = &workload};
    struct topo_machine *m = NULL;
    char params[512];

    assert_ok(simulate_named_machine_open(&m, "kunpeng920x4", MACHINES, params,
                                          sizeof(params)));
    o.machine = m;
    o.machine_params_path = params;
    open_short(find("contention"), &o, 3);
    topo_machine_close(&m);
}

/* ---- measured ---- */

/* A trace of one prompt and one context. */
static struct plan_trace trace_of(double prompt_tok, double ctx_tok)
{
    return (struct plan_trace){.prompts = {1, {{prompt_tok, 1}}},
                               .contexts = {1, {{ctx_tok, 1}}},
                               .mean_output = 1};
}

struct host {
    const char *model;
    struct cpu_budget budget;
    struct topo_machine *machine;
    struct topo_tree *tree;
};

static void host_open(struct host *h)
{
    struct topo_tree_opts to = {0};

    h->model = tiny_model(KERN_F32);
    assert_ok(cpu_budget_get(&h->budget));
    assert_ok(topo_machine_open(&h->machine, NULL));
    to.cpus = h->budget.cpus;
    to.n_cpus = h->budget.n;
    assert_ok(topo_tree_open(&h->tree, h->machine, &to, NULL, 0));
}

static void host_close(struct host *h)
{
    mem_free(h->tree);
    topo_machine_close(&h->machine);
}

static void measure_phase(const struct host *h, enum topo_phase phase,
                          enum kern_kv_type kv_type)
{
    const struct plan_evaluator *x = find("measured");
    const struct topo_limits any = {0};
    const struct plan_trace trace = {.prompts = {2, {{20, 3}, {100, 1}}},
                                     .contexts = {3, {{41, 1}, {60, 2}, {79, 1}}},
                                     .mean_output = 20};
    const struct plan_evaluator_opts o = {.machine = h->machine,
                                          .model_path = h->model,
                                          .precision = "exact",
                                          .kv_type = kv_type,
                                          .trace = &trace,
                                          .batch = 3,
                                          .phase = phase,
                                          .seed = 1};
    struct topo_tree *less = NULL;
    struct plan_evaluation e;
    struct topo_config c;
    double s;

    assert_ok(x->open(&e, &o));
    assert_true(e.noise_frac > 0 && isfinite(e.noise_frac));
    assert_ok(topo_config_cut(&c, h->tree, 0, &any));
    for (int i = 0; i < 3; i++) {
        s = 0;
        assert_ok(e.measure(e.ctx, &c, i, &s));
        assert_true(s > 0 && isfinite(s));
    }
    if (c.n_threads > 1) {
        assert_ok(topo_config_cut(&c, h->tree, h->tree->n_levels - 1, &any));
        assert_true(c.n_ranks > 1); /* the model has more query heads than KV heads */
        s = 0;
        assert_ok(e.measure(e.ctx, &c, 0, &s));
        assert_true(s > 0 && isfinite(s));
    }
    for (int d = 1; d < h->tree->n_levels; d++) {
        if (h->tree->levels[d - 1].arity < 2)
            continue;
        assert_ok(topo_tree_remove(&less, h->tree, 1, d)); /* fewer CPUs, the same team */
        assert_ok(topo_config_cut(&c, less, 0, &any));
        assert_ok(e.measure(e.ctx, &c, 0, &s));
        assert_true(s > 0);
        mem_free(less);
    }
    x->close(&e);
    assert_null(e.ctx);
}

TEST(test_measured)
{
    struct host h;

    host_open(&h);
    measure_phase(&h, TOPO_DECODE, KERN_KV_F32);
    measure_phase(&h, TOPO_PREFILL, KERN_KV_Q8);
    host_close(&h);
}

static void step_all(const struct plan_evaluator *x, struct plan_evaluation *e,
                     int64_t n_rows_max)
{
    for (int64_t rows = 1; rows <= n_rows_max; rows = 2 * rows + 1)
        for (int phase = 0; phase < 2; phase++) {
            const struct plan_step step = {(enum topo_phase)phase, rows, NULL};
            double s = 0;

            assert_ok(x->step(e, &step, 0, &s));
            assert_true(s > 0 && isfinite(s));
        }
}

/* Both phases of a plan by turns, one over all CPUs, one over the last of each; a decode
 * on CPUs that prefill lacks is refused. */
TEST(test_measured_pair)
{
    const struct plan_evaluator *x = find("measured");
    const struct topo_limits any = {0};
    struct plan_evaluator_opts o = {.batch = 1, .phase = TOPO_PREFILL, .seed = 1};
    struct plan_trace trace;
    struct topo_tree *last = NULL;
    struct topo_config all, one;
    struct plan_evaluation e;
    int64_t n_rows_max = 0;
    struct host h;
    int cpu;

    host_open(&h);
    cpu = h.budget.cpus[h.budget.n - 1];
    o.machine = h.machine;
    o.model_path = h.model;
    assert_ok(
        topo_tree_open(&last, h.machine, &(struct topo_tree_opts){&cpu, 1, 0}, NULL, 0));
    assert_ok(topo_config_cut(&all, h.tree, 0, &any));
    assert_ok(topo_config_cut(&one, last, 0, &any));
    for (int k = 0; k < 2; k++) {
        trace = trace_of(40, k ? 1000000 : 60); /* past the model's: as far as it goes */
        o.trace = &trace;
        assert_ok(x->open(&e, &o));
        assert_ok(x->pair(&e, &all, &one, &n_rows_max));
        assert_int_equal(n_rows_max, 256);
        step_all(x, &e, n_rows_max);
        x->close(&e);
    }
    if (h.budget.n > 1) {
        assert_ok(x->open(&e, &o));
        assert_err(x->pair(&e, &one, &all, &n_rows_max), ERR_UNSUPPORTED,
                   "not among prefill's");
        x->close(&e);
    }
    mem_free(last);
    host_close(&h);
}

/* Weights in the layout of one rank and in that of several: both where a configuration needs
 * the second, one where the other phase has several ranks or memory holds no second. */
TEST(test_measured_layouts)
{
    const struct plan_evaluator *x = find("measured");
    const struct topo_limits any = {0};
    struct plan_trace trace = trace_of(8, 8);
    struct plan_evaluator_opts o = {.trace = &trace, .batch = 1, .phase = TOPO_PREFILL};
    struct topo_config one, several;
    struct plan_evaluation e;
    struct host h;

    host_open(&h);
    if (h.budget.n < 2) {
        host_close(&h);
        test_skip("one CPU: no second rank");
    }
    o.machine = h.machine;
    o.model_path = h.model;
    assert_ok(topo_config_cut(&one, h.tree, 0, &any));
    assert_ok(topo_config_cut(&several, h.tree, h.tree->n_levels - 1, &any));
    for (int k = 0; k < 3; k++) {
        size_t before = mem_used_bytes(MEM_WEIGHTS), first;
        double s = 0;

        o.placement = k == 2 ? &several : k == 1 ? &one : NULL;
        assert_ok(x->open(&e, &o));
        first = mem_used_bytes(MEM_WEIGHTS) - before;
        assert_ok(e.measure(e.ctx, &one, 0, &s));
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS) - before, first);
        mem_fail_after(k == 1 ? 0 : -1, 1);
        assert_ok(e.measure(e.ctx, &several, 0, &s));
        mem_fail_after(-1, 0);
        assert_true(s > 0);
        if (k == 0)
            assert_true(mem_used_bytes(MEM_WEIGHTS) - before > 1.5 * first);
        else
            assert_true(mem_used_bytes(MEM_WEIGHTS) - before < 1.5 * first);
        assert_ok(e.measure(e.ctx, &one, 1, &s));
        x->close(&e);
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS), before);
    }
    host_close(&h);
}

/* CPUs that this process may not use are refused, and the search may go on. */
TEST(test_measured_other_cpus)
{
    const struct plan_evaluator *x = find("measured");
    const struct topo_limits any = {0};
    struct plan_trace trace = trace_of(8, 8);
    struct plan_evaluator_opts o = {.trace = &trace, .batch = 1};
    struct topo_machine *big = NULL;
    struct topo_tree *t = NULL, *few = NULL;
    struct plan_evaluation e;
    struct topo_config c;
    struct host h;
    double s;

    host_open(&h);
    o.machine = h.machine;
    o.model_path = h.model;
    assert_ok(x->open(&e, &o));
    assert_ok(topo_machine_open(&big, "synthetic:core:1000 pu:1"));
    assert_ok(topo_tree_open(&t, big, NULL, NULL, 0));
    assert_ok(topo_config_cut(&c, t, 0, &any));
    assert_err(e.measure(e.ctx, &c, 0, &s), ERR_UNSUPPORTED, "1000 threads");
    assert_ok(
        topo_tree_open(&few, big, &(struct topo_tree_opts){(int[]){999}, 1, 0}, NULL, 0));
    assert_ok(topo_config_cut(&c, few, 0, &any));
    assert_err(e.measure(e.ctx, &c, 0, &s), ERR_UNSUPPORTED, "CPU 999");
    x->close(&e);
    mem_free(few);
    mem_free(t);
    topo_machine_close(&big);
    host_close(&h);
}

TEST(test_measured_memory_short)
{
    struct plan_trace trace = trace_of(8, 8);
    struct plan_evaluator_opts o = {.trace = &trace, .batch = 1};
    struct host h;

    host_open(&h);
    o.machine = h.machine;
    o.model_path = h.model;
    o.phase = TOPO_DECODE;
    open_short(find("measured"), &o, 10);
    host_close(&h);
}

TEST(test_measured_refusals)
{
    const struct plan_evaluator *x = find("measured");
    struct plan_trace trace = trace_of(8, 8);
    struct plan_evaluator_opts o = {.trace = &trace, .batch = 1};
    struct topo_machine *other = NULL;
    struct plan_evaluation e;
    struct host h;

    host_open(&h);
    o.machine = h.machine;
    assert_err(x->open(&e, &o), ERR_ARG, "model's file");
    o.model_path = h.model;
    o.batch = 0;
    assert_err(x->open(&e, &o), ERR_ARG, "found 0");
    o.trace = NULL;
    assert_err(x->open(&e, &o), ERR_ARG, "a trace is needed");
    o.trace = &trace;
    o.batch = 1;
    o.phase = TOPO_DECODE;
    trace = trace_of(8, 100000);
    assert_err(x->open(&e, &o), ERR_LIMIT, "100001");
    assert_null(e.ctx);
    o.model_path = "/nonexistent/m.gguf";
    assert_err(x->open(&e, &o), ERR_IO, "/nonexistent/m.gguf");
    assert_ok(topo_machine_open(&other, "synthetic:core:2 pu:1"));
    o.machine = other;
    assert_err(x->open(&e, &o), ERR_ARG, "is not this host");
    topo_machine_close(&other);
    host_close(&h);
}
