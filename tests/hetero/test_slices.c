/* The times of slices, the best of them and the assignment of memory, held to the recurrence of the
 * paper, to all choices there are, and to each other. */
#include <math.h>

#include "hetero/memory.h"
#include "hetero/policy.h"
#include "tests/support/test.h"

static double uniform(struct rng *r, double lo, double hi)
{
    return lo + rng_f64(r) * (hi - lo);
}

/* From nearly nothing to far more than the other times. */
static double any_time(struct rng *r, double typical)
{
    return rng_below(r, 8) == 0 ? 0 : typical * exp(uniform(r, -4, 4));
}

static struct hetero_layer random_layer(struct rng *r)
{
    struct hetero_layer l = {.machine = {.launch_s = any_time(r, 4e-5),
                                         .link_start_s = any_time(r, 3e-6),
                                         .link_s_per_byte = any_time(r, 2.6e-11),
                                         .accel_start_s = any_time(r, 4e-6),
                                         .accel_s_per_mac = any_time(r, 8e-13),
                                         .cpu_start_s = any_time(r, 1e-5),
                                         .cpu_s_per_mac = any_time(r, 5e-12)},
                             .gemm = {1, 256 + (int64_t)rng_below(r, 8192),
                                      256 + (int64_t)rng_below(r, 28672), 0.5},
                             .n_gemms = 1 + (int)rng_below(r, 4),
                             .n_units = 1 + (int)rng_below(r, 60),
                             .as_printed = rng_below(r, 4) == 0};

    if (rng_below(r, 2))
        l.gemm.n_tok = 1 + (int64_t)rng_below(r, 60);
    if (rng_below(r, 2)) {
        l.machine.accel_macs_per_s = 1e13 * exp(uniform(r, -3, 3));
        l.machine.cpu_macs_per_s = 1e11 * exp(uniform(r, -3, 3));
    }
    if (rng_below(r, 4) == 0) {
        l.machine.cpu_contention = rng_f64(r);
        l.machine.link_contention = rng_f64(r);
    }
    return l;
}

/* Eq. 5, product by product. */
static double recurrence_s(const struct hetero_times *t, int n_gemms)
{
    double launch = 0, link = 0, accel = 0, cpu = 0;

    for (int i = 0; i < n_gemms; i++) {
        launch += t->launch_s;
        link = fmax(launch, link) + t->link_s;
        accel = fmax(link, accel) + t->accel_s;
        cpu += t->cpu_s;
    }
    return fmax(accel, cpu);
}

TEST(closed_form_is_the_recurrence)
{
    struct rng r;

    rng_init(&r, test_seed(), "times");
    for (int i = 0; i < 100000; i++) {
        const struct hetero_times t = {.launch_s = rng_f64(&r),
                                       .link_s = rng_f64(&r),
                                       .accel_s = rng_f64(&r),
                                       .cpu_s = rng_f64(&r)};
        int n = 1 + (int)rng_below(&r, 6);

        assert_true(fabs(hetero_finish_s(&t, n) - recurrence_s(&t, n)) < 1e-12 * n);
    }
}

/* The layer in small steps of time: what is left of each side's work shrinks as fast as both
 * slow each other then. One product, so that the link copies all the time of the accelerator. */
static struct hetero_finish in_steps(const struct hetero_times *t)
{
    double link = t->link_s, cpu = t->cpu_s, now = 0, step = (link + cpu) / 200000;
    struct hetero_finish f = {0, 0};

    for (; link > 0 || cpu > 0; now += step) {
        bool both = link > 0 && cpu > 0;

        link -= link > 0 ? step / (both ? 1 + t->link_contention : 1) : 0;
        cpu -= cpu > 0 ? step / (both ? 1 + t->cpu_contention : 1) : 0;
        f.accel_s = link > 0 ? now + step : f.accel_s;
        f.cpu_s = cpu > 0 ? now + step : f.cpu_s;
    }
    return f;
}

/* While both work each is slower by its factor; the one that ends later is alone for the rest. */
TEST(contention_is_of_the_time_together)
{
    struct rng r;

    rng_init(&r, test_seed(), "contention");
    for (int i = 0; i < 50; i++) {
        const struct hetero_times t = {.link_s = 0.1 + rng_f64(&r),
                                       .cpu_s = 0.1 + rng_f64(&r),
                                       .cpu_contention = 0.5 * rng_f64(&r),
                                       .link_contention = 0.5 * rng_f64(&r)};
        struct hetero_finish f = hetero_finish_of(&t, 1), want = in_steps(&t);

        assert_true(fabs(f.cpu_s - want.cpu_s) < 1e-4 * want.cpu_s);
        assert_true(fabs(f.accel_s - want.accel_s) < 1e-4 * want.accel_s);
        assert_true(f.cpu_s >= t.cpu_s * (1 - 1e-9) &&
                    f.accel_s >= t.link_s * (1 - 1e-9));
        assert_true(hetero_finish_s(&t, 1) == fmax(f.cpu_s, f.accel_s));
    }
}

/* Times that follow from two factors give them back, whichever side ends first. */
TEST(contention_is_found_from_pairs)
{
    struct rng r;

    rng_init(&r, test_seed(), "pairs");
    for (int i = 0; i < 200; i++) {
        const double cpu = 0.6 * rng_f64(&r), link = 0.6 * rng_f64(&r);
        struct hetero_pair pairs[4];
        double got_cpu, got_link;

        for (int k = 0; k < 4; k++) {
            double c = 0.2 + rng_f64(&r), l = 0.2 + rng_f64(&r);
            double together = fmin(c * (1 + cpu), l * (1 + link));

            pairs[k] = (struct hetero_pair){c, l, together + c - together / (1 + cpu),
                                            together + l - together / (1 + link)};
        }
        hetero_contention_fit(pairs, 4, &got_cpu, &got_link);
        assert_true(fabs(got_cpu - cpu) < 1e-9 && fabs(got_link - link) < 1e-9);
    }
}

/* Every number of units, every number of tokens. */
TEST(the_best_of_all_slices_is_found)
{
    struct rng r;
    int n_inside = 0, n_tokens_inside = 0;

    rng_init(&r, test_seed(), "slices");
    for (int i = 0; i < 100000; i++) {
        struct hetero_layer l = random_layer(&r);
        int gg = (int)rng_below(&r, (uint64_t)l.n_units + 1), cg;
        double found = hetero_best_cg(&l, gg, &cg), least = INFINITY;
        int64_t n_accel;

        for (int u = 0; u <= l.n_units - gg; u++)
            least = fmin(least, hetero_layer_s(&l, u, gg, 0));
        assert_true(found <= least * (1 + 1e-12) &&
                    found == hetero_layer_s(&l, cg, gg, 0));
        n_inside += cg > 0 && cg < l.n_units - gg;

        cg = (int)rng_below(&r, (uint64_t)(l.n_units - gg) + 1);
        found = hetero_best_tokens(&l, cg, gg, &n_accel);
        least = INFINITY;
        for (int64_t n = 0; n <= l.gemm.n_tok; n++)
            least = fmin(least, hetero_layer_s(&l, cg, gg, n));
        assert_true(found <= least * (1 + 1e-12));
        assert_true(found == hetero_layer_s(&l, cg, gg, n_accel));
        n_tokens_inside += n_accel > 0 && n_accel < l.gemm.n_tok;
    }
    assert_true(n_inside > 1000 && n_tokens_inside > 1000); /* not only ends */
}

/* Invariant 8: a slower CPU leaves more to the accelerator. Invariant 7: no fixed share is
 * better. */
TEST(a_slower_cpu_sends_more)
{
    static const char *const models[] = {"llama-2-70b", "mixtral-8x7b"};

    for (int k = 0; k < 2; k++) {
        const struct hetero_model *m;
        struct hetero_layer l = {.n_gemms = 3, .n_units = 1000};
        int before = -1;

        assert_ok(hetero_model_find(models[k], &m));
        assert_ok(hetero_machine_printed(&l.machine, 'A', HETERO_INT4, false));
        l.gemm = (struct hetero_gemm){1, m->dim, m->hidden, 0.5};
        for (int factor = 1; factor <= 16; factor *= 2) {
            int cg;
            double s = hetero_best_cg(&l, 0, &cg);

            assert_true(cg >= before);
            before = cg;
            for (int u = 0; u <= 1000; u += 250)
                assert_true(s <= hetero_layer_s(&l, u, 0, 0));
            l.machine.cpu_s_per_mac *= 2;
        }
        assert_true(before > 500);
    }
}

/* By hand, Table I's testbed A, INT4, a layer of LLaMA-2-70B: the CPU alone, the accelerator
 * alone, and a quarter sent. */
TEST(printed_numbers)
{
    struct hetero_layer l = {.gemm = {1, 8192, 28672, 0.5}, .n_gemms = 3, .n_units = 4};
    double w = 8192.0 * 28672, launch = 4.4e-5;
    double link = 3e-6 + w / 4 * 0.5 * 2.6e-11, accel = 4.7e-6 + w / 4 * 8.1e-13;
    const struct hetero_slices quarter = {.cg = 0.25};
    struct hetero_times t;
    struct hetero_machine bus;

    assert_ok(hetero_machine_printed(&l.machine, 'A', HETERO_INT4, false));
    assert_true(fabs(hetero_layer_s(&l, 0, 0, 0) - 3 * (1.1e-5 + w * 5.4e-12)) < 1e-12);
    assert_true(fabs(hetero_layer_s(&l, 0, 4, 0) -
                     (launch + 3 * (4.7e-6 + w * 8.1e-13))) < 1e-12);
    assert_true(fabs(hetero_layer_s(&l, 1, 0, 0) -
                     fmax(3 * (1.1e-5 + 0.75 * w * 5.4e-12),
                          2 * launch + link + accel +
                              2 * fmax(2 * launch, fmax(link, accel)))) < 1e-12);
    t = hetero_times_of(&l.machine, &l.gemm, &quarter, false);
    assert_true(t.launch_s == 2 * launch && t.link_s == link && t.accel_s == accel);
    assert_ok(hetero_machine_printed(&bus, 'C', HETERO_FP16, true));
    assert_true(bus.link_s_per_byte == 1 / 15.75e9 && bus.cpu_s_per_mac == 2.5e-11);
    assert_err(hetero_machine_printed(&bus, 'D', HETERO_FP16, true), ERR_NOTFOUND,
               "A, B or C");
}

/* As printed, the link starts where nothing is sent, and all of the matrix is sent where CC is. */
TEST(slips_as_printed)
{
    struct hetero_layer l = {.gemm = {8, 1024, 4096, 0.5}, .n_gemms = 1, .n_units = 4};
    struct hetero_layer printed;
    double more = 0.5 * 1024 * 4096 * 0.5;

    l.machine = (struct hetero_machine){.link_start_s = 1e-3, .link_s_per_byte = 1e-9};
    printed = l;
    printed.as_printed = true;
    assert_true(hetero_layer_s(&l, 0, 2, 0) == 0);
    assert_true(fabs(hetero_layer_s(&printed, 0, 2, 0) - 1e-3) < 1e-12);
    assert_true(fabs(hetero_layer_s(&printed, 0, 2, 3) - hetero_layer_s(&l, 0, 2, 3) -
                     more * 1e-9) < 1e-12);
}

/* ---- memory ---- */

#define N_LAYERS 4
#define N_UNITS  5

struct shares {
    double s[N_LAYERS][N_UNITS + 1];
    struct hetero_share layers[N_LAYERS];
};

/* Times as the solver gives them, or any that fall and rise. */
static void random_shares(struct shares *x, struct rng *r)
{
    bool solved = rng_below(r, 2);

    for (int j = 0; j < N_LAYERS; j++) {
        struct hetero_layer l = random_layer(r);

        l.n_units = N_UNITS;
        for (int u = 0; u <= N_UNITS; u++) {
            int cg;

            x->s[j][u] = solved ? hetero_best_cg(&l, u, &cg) : rng_f64(r);
        }
        x->layers[j] = (struct hetero_share){1 + (int64_t)rng_below(r, 3), x->s[j]};
    }
    x->layers[0].unit_bytes = 1; /* the others are multiples */
}

static double brute_force(const struct shares *x, int64_t budget, int j)
{
    double least = INFINITY;

    if (j == N_LAYERS)
        return 0;
    for (int u = 0; u <= N_UNITS && u * x->layers[j].unit_bytes <= budget; u++)
        least =
            fmin(least, x->s[j][u] +
                            brute_force(x, budget - u * x->layers[j].unit_bytes, j + 1));
    return least;
}

static double check_units(const struct shares *x, const int *units, int64_t budget)
{
    double s = 0;

    for (int j = 0; j < N_LAYERS; j++) {
        assert_in_range(units[j], 0, N_UNITS);
        budget -= units[j] * x->layers[j].unit_bytes;
        s += x->s[j][units[j]];
    }
    assert_true(budget >= 0);
    return s;
}

TEST(memory_is_never_exceeded)
{
    struct rng r;
    int n_missed = 0;

    rng_init(&r, test_seed(), "memory");
    for (int i = 0; i < 3000; i++) {
        struct shares x;
        int64_t budget = (int64_t)rng_below(&r, 3 * N_LAYERS * N_UNITS);
        int units[N_LAYERS];
        double exact, greedy, whole, least;

        random_shares(&x, &r);
        least = brute_force(&x, budget, 0);
        assert_ok(
            hetero_assign_exact(units, &exact, x.layers, N_LAYERS, N_UNITS, budget));
        assert_true(fabs(check_units(&x, units, budget) - exact) < 1e-12 + 1e-9 * exact);
        assert_true(fabs(exact - least) < 1e-12 + 1e-9 * exact);
        assert_ok(
            hetero_assign_greedy(units, &greedy, x.layers, N_LAYERS, N_UNITS, budget));
        assert_true(fabs(check_units(&x, units, budget) - greedy) <
                    1e-12 + 1e-9 * greedy);
        assert_true(greedy >= exact * (1 - 1e-9));
        n_missed += greedy > exact * 1.001;
        assert_ok(
            hetero_assign_whole(units, &whole, x.layers, N_LAYERS, N_UNITS, budget));
        assert_true(fabs(check_units(&x, units, budget) - whole) < 1e-12 + 1e-9 * whole);
        assert_true(whole >= exact * (1 - 1e-9));
    }
    assert_true(n_missed > 10); /* that greedy is not exact is seen */
}

/* Invariant 5: more memory never makes the best assignment worse. */
TEST(more_memory_never_hurts)
{
    struct rng r;

    rng_init(&r, test_seed(), "more");
    for (int i = 0; i < 500; i++) {
        struct shares x;
        double before = INFINITY;

        random_shares(&x, &r);
        for (int64_t budget = 0; budget < 3 * N_LAYERS * N_UNITS; budget++) {
            int units[N_LAYERS];
            double s;

            assert_ok(
                hetero_assign_exact(units, &s, x.layers, N_LAYERS, N_UNITS, budget));
            assert_true(s <= before * (1 + 1e-12));
            before = s;
        }
    }
}

TEST(units_that_are_no_multiple)
{
    const double s[] = {1, 0};
    const struct hetero_share layers[] = {{2, s}, {3, s}};
    int units[2];
    double sum;

    assert_err(hetero_assign_exact(units, &sum, layers, 2, 1, 10), ERR_ARG,
               "multiple of 2");
}

/* ---- policies ---- */

static struct hetero_case a_case(const char *model, const struct hetero_machine *m,
                                 double gb, int64_t n_tok)
{
    struct hetero_case c = {.machine = m,
                            .bytes_per_weight = 0.5,
                            .budget_bytes = (int64_t)(gb * 1e9),
                            .n_tok = n_tok,
                            .n_units = 32,
                            .fixed_cg = -1};

    assert_ok(hetero_model_find(model, &c.model));
    return c;
}

static double step_s(const char *policy, const struct hetero_case *c)
{
    const struct hetero_policy *p;
    struct hetero_result r;

    assert_ok(hetero_policy_find(policy, &p));
    assert_ok(p->step(&r, c));
    assert_true(r.gg >= 0 && r.gg <= 1 && r.cg >= 0 && r.cg + r.gg <= 1 + 1e-9);
    return r.step_s;
}

/* Slices on both at once are never slower than what they generalise, in decode and with a prompt,
 * and each part of the method helps or does nothing. */
TEST(slices_beat_whole_layers_and_experts)
{
    struct hetero_machine m;

    for (char bed = 'A'; bed <= 'C'; bed++)
        for (int i = 0; hetero_models[i]; i++)
            for (int64_t n_tok = 1; n_tok <= 1024; n_tok *= 32) {
                struct hetero_case c;
                double s;

                assert_ok(hetero_machine_printed(&m, bed, HETERO_INT4, false));
                c = a_case(hetero_models[i]->name, &m, 24, n_tok);
                s = step_s("scheinfer", &c);
                c.no_takeover = true;
                assert_true(s <= step_s("scheinfer", &c) * (1 + 1e-9));
                c.no_takeover = false;
                if (n_tok > 1)
                    continue;
                if (c.model->n_experts > 1)
                    assert_true(s <= step_s("fiddler", &c) * (1 + 1e-9));
                for (c.fixed_cg = 0; c.fixed_cg < 1; c.fixed_cg += 0.25)
                    assert_true(s <= step_s("scheinfer", &c) * (1 + 1e-9));
            }
}

/* Nothing is better than all slices searched; and where none is fixed by decoding and memory is no
 * question, the policy is as good as that. */
TEST(the_oracle_is_never_beaten)
{
    struct hetero_machine m;

    for (int i = 0; hetero_models[i]; i++)
        for (int64_t n_tok = 1; n_tok <= 64; n_tok *= 8) {
            struct hetero_case c;
            double best;

            if (hetero_models[i]->n_experts > 16)
                continue; /* too many for an exact search */
            assert_ok(hetero_machine_printed(&m, 'A', HETERO_INT4, false));
            c = a_case(hetero_models[i]->name, &m, 24, n_tok);
            c.n_units = 16;
            best = step_s("oracle", &c);
            assert_true(best <= step_s("scheinfer", &c) * (1 + 1e-9));
            c.exact = true;
            if (n_tok == 1)
                assert_true(fabs(best / step_s("scheinfer", &c) - 1) < 1e-9);
        }
}

/* By hand: a model of whose layers none is on the accelerator, with times that make the answer
 * plain. */
TEST(rules_of_other_policies)
{
    const struct hetero_model moe = {.name = "moe",
                                     .n_layers = 4,
                                     .n_experts = 4,
                                     .n_active = 1,
                                     .dim = 1024,
                                     .hidden = 1024};
    struct hetero_model dense = moe;
    /* a product of an expert on the CPU 1 ms, on the accelerator 0.25 ms, its copy 2 ms */
    struct hetero_machine m = {.cpu_s_per_mac = 1e-3 / (1 << 20),
                               .accel_s_per_mac = 0.25e-3 / (1 << 20),
                               .link_s_per_byte = 2e-3 / (1 << 19)};
    int64_t expert = 3 * (1 << 20) / 2;
    struct hetero_case c = {.machine = &m,
                            .model = &moe,
                            .bytes_per_weight = 0.5,
                            .budget_bytes = 2 * 4 * expert,
                            .n_tok = 1,
                            .n_units = 8,
                            .fixed_cg = -1};

    /* Half of the experts of each layer here: 0.5 of an expert each side, the CPU decides. */
    assert_true(fabs(step_s("ktransformers", &c) - 4 * 0.5 * 3e-3) < 1e-9);
    /* 1 GiB is left free, and two layers. */
    c.budget_bytes += (int64_t)1 << 30;
    assert_true(fabs(step_s("fit", &c) - (2 * 3e-3 + 2 * 0.75e-3)) < 1e-9);
    /* Layers of one MLP: two as buffers, one here, three away. To send one takes 6 ms, which the
     * CPU needs for the other two: 6 + 2 * 0.75. */
    dense.n_experts = 1;
    c.model = &dense;
    c.budget_bytes = 3 * expert;
    assert_true(fabs(step_s("pshard", &c) - (2 * 3e-3 + 2 * 0.75e-3)) < 1e-9);
    /* With a link that takes no time all are sent. */
    m.link_s_per_byte = 0;
    assert_true(fabs(step_s("pshard", &c) - 4 * 0.75e-3) < 1e-9);
}

TEST(short_of_memory)
{
    const struct hetero_policy *p;
    struct hetero_machine m;
    struct hetero_result r;
    struct hetero_case c;
    int rc = ERR_NOMEM;

    assert_ok(hetero_machine_printed(&m, 'A', HETERO_INT4, false));
    assert_ok(hetero_policy_find("scheinfer", &p));
    c = a_case("qwen2-57b-a14b", &m, 24, 1);
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = p->step(&r, &c);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
        assert_true(n < 100 && mem_used_bytes(MEM_OTHER) == 0);
    }
}

TEST(a_budget_that_is_too_small)
{
    const struct hetero_policy *p;
    struct hetero_machine m;
    struct hetero_result r;
    struct hetero_case c;

    assert_ok(hetero_machine_printed(&m, 'A', HETERO_INT4, false));
    c = a_case("llama-2-70b", &m, 1e-3, 1);
    for (int i = 0; hetero_policies[i]; i++) {
        int rc = hetero_policies[i]->step(&r, &c);

        assert_true(rc == ERR_NOMEM || rc == ERR_UNSUPPORTED);
    }
    assert_err(hetero_policy_find("schedinfer", &p), ERR_NOTFOUND, "scheinfer");
    assert_err(hetero_model_find("llama-2-7b", &c.model), ERR_NOTFOUND, "llama-2-70b");
}
