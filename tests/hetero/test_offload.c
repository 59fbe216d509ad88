/* Steps of models whose MLPs or experts are sliced between the CPU and an accelerator compute what
 * float64 loops do, for every shape of model and type of weights, any slices and any accelerator;
 * a plan says what is where, and its file what is wrong. */
#include <math.h>

#include "hetero/plan.h"
#include "tests/hetero/sliced.h"

TEST(steps_of_every_model)
{
    int64_t n_taken_over = 0;
    struct rng r;

    rng_init(&r, test_seed(), "offload");
    for (int t = 0; t < step_n_traits; t++)
        sliced_run(&step_traits[t], "sim", 1 + t % 2, &r, &n_taken_over);
    for (int t = 0; t < step_n_quant_traits; t++)
        sliced_run(&step_quant_traits[t], "sim", 1 + t % 2, &r, &n_taken_over);
    assert_true(n_taken_over > 0);
}

/* Whichever experts a token has, and all of them. */
TEST(steps_of_experts)
{
    int64_t n_taken_over = 0;
    struct rng r;

    rng_init(&r, test_seed(), "experts");
    for (int round = 0; round < 3; round++)
        for (int t = 0; t < step_n_expert_traits; t++)
            sliced_run(&step_expert_traits[t], "sim", 1 + (t + round) % 2, &r,
                       &n_taken_over);
    assert_true(n_taken_over > 0);
}

TEST(steps_in_real_time)
{
    int64_t n_taken_over = 0;
    struct rng r;

    rng_init(&r, test_seed(), "paced");
    sliced_run(&step_traits[0], "paced", 1, &r, &n_taken_over);
    sliced_run(&step_quant_traits[0], "paced", 2, &r, &n_taken_over);
    sliced_run(&step_expert_traits[0], "paced", 1, &r, &n_taken_over);
    sliced_run(&step_expert_traits[7], "paced", 2, &r, &n_taken_over);
}

TEST(what_cannot_be_sliced)
{
    struct model_opts o = step_model_opts();
    struct hetero_units units[MODEL_MAX_LAYERS] = {{0, 0}};
    struct model_config c = {0};
    struct hetero_offload *off;
    struct step_model x;
    int t;

    step_model_open(&x, &step_traits[0], &o, 2);
    step_model_phase(&x, 2, 1);
    assert_err(sliced_open(&off, &x, "sim", units, step_traits[0].n_layers),
               ERR_UNSUPPORTED, "one rank");
    step_model_close_phases(&x);
    step_model_phase(&x, 1, 2);
    assert_err(sliced_open(&off, &x, "sim", units, 1), ERR_ARG, "slices of 1 MLPs");
    units[0].cg = 1000;
    assert_err(sliced_open(&off, &x, "sim", units, step_traits[0].n_layers), ERR_ARG,
               "1000");
    step_model_close(&x);
    o.deterministic = true;
    units[0].cg = 0;
    step_model_open(&x, &step_traits[0], &o, 1);
    step_model_phase(&x, 1, 1);
    assert_err(sliced_open(&off, &x, "sim", units, step_traits[0].n_layers),
               ERR_UNSUPPORTED, "deterministic");
    step_model_close(&x);
    o.deterministic = false;
    for (t = 0; t < step_n_expert_traits && c.n_dense == 0; t++)
        step_trait_config(&step_expert_traits[t], &c);
    step_model_open(&x, &step_expert_traits[t - 1], &o, 1);
    step_model_phase(&x, 1, 1);
    assert_err(sliced_open(&off, &x, "sim", units, c.n_layers * hetero_n_mlps(&c)),
               ERR_UNSUPPORTED, "found 1 layers without");
    step_model_close(&x);
}

/* Whatever allocation fails, nothing is left, and steps are the CPU's. */
TEST(short_of_memory)
{
    const struct step_trait *t = &step_expert_traits[1];
    struct model_opts o = step_model_opts();
    static struct hetero_units units[SLICED_MLPS_MAX];
    struct hetero_offload *off = NULL;
    struct step_model x;
    struct rng r;
    int rc = ERR_NOMEM, n_units;
    size_t used;

    rng_init(&r, test_seed(), "memory");
    step_model_open(&x, t, &o, 1);
    step_model_phase(&x, 1, 1);
    n_units = sliced_draw(&x, units, &r);
    used = (size_t)mem_used_bytes(MEM_OTHER);
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = sliced_open(&off, &x, "sim", units, n_units);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
        assert_true(n < 2000 && (rc == OK) == (off != NULL));
        assert_true(rc == OK || (size_t)mem_used_bytes(MEM_OTHER) == used);
    }
    hetero_offload_close(&off);
    assert_true((size_t)mem_used_bytes(MEM_OTHER) == used);
    step_model_run(&x, 1, o.max_step_tok, 1e-4, test_seed(), "without it");
    step_model_close(&x);
}

/* ---- plans ---- */

static struct hetero_profile made_profile(void)
{
    struct hetero_profile p = {.accel_name = "sim",
                               .launch_s = 1e-6,
                               .link = {1e-6, 1e-10, 1},
                               .n_cpu = 1,
                               .n_accel = 1};

    p.cpu[0].type = p.accel[0].type = KERN_BF16;
    p.cpu[0].n_threads = 1;
    p.cpu[0].fit.regimes = (struct hetero_regimes){1e-6, 10e9, 50e9};
    p.cpu[0].fit.regimes_errors.p95_log = 0.1;
    p.accel[0].fit.regimes = (struct hetero_regimes){1e-6, 500e9, 5e12};
    for (int i = 0; i < HETERO_N_TOK; i++)
        p.cpu[0].cpu_contention[i] = p.cpu[0].link_contention[i] = NAN;
    return p;
}

static const struct model_config config = {.name = "made",
                                           .dim = 1024,
                                           .n_layers = 8,
                                           .n_heads = 8,
                                           .n_kv_heads = 8,
                                           .head_dim = 128,
                                           .hidden = 4096,
                                           .vocab = 8192,
                                           .max_tok = 4096,
                                           .weight_type = KERN_BF16};

static struct hetero_plan_opts plan_opts(const struct hetero_profile *p, double gb)
{
    return (struct hetero_plan_opts){.profile = p,
                                     .config = &config,
                                     .n_threads = 1,
                                     .budget_bytes = (int64_t)(gb * 1e9),
                                     .n_prompt = 64,
                                     .n_new = 32,
                                     .max_step_tok = 64,
                                     .fixed_cg = -1,
                                     .fixed_gg = -1};
}

/* More memory never makes the prediction slower, up to all layers; it says that slices beat the CPU
 * alone; and no fixed share beats the best. */
TEST(plans)
{
    static struct hetero_plan plan;
    struct hetero_profile p = made_profile();
    struct hetero_plan_opts o = plan_opts(&p, 0.06);
    double before = 0;

    for (double gb = 0.06; gb < 0.4; gb += 0.02) {
        o = plan_opts(&p, gb);
        assert_ok(hetero_plan_make(&plan, &o));
        assert_true(plan.tokens_per_s >= before * (1 - 1e-9));
        assert_true(plan.used_bytes + plan.reserved_bytes <= gb * 1e9 + 1);
        assert_true(plan.tokens_per_s > plan.cpu_only_tokens_per_s);
        assert_true(plan.lo < plan.tokens_per_s && plan.tokens_per_s < plan.hi);
        assert_true(fabs(log(plan.hi / plan.lo) - 0.2) < 1e-9);
        assert_true(plan.rounding_loss_frac > -1e-9 && plan.rounding_loss_frac < 0.5);
        assert_true(plan.prompt.n_accel_tok > 0);
        before = plan.tokens_per_s;
        for (o.fixed_cg = 0; o.fixed_cg <= 1; o.fixed_cg += 0.25) {
            static struct hetero_plan fixed;

            assert_ok(hetero_plan_make(&fixed, &o));
            assert_true(fixed.decode.mlp_s >= plan.decode.mlp_s * (1 - 1e-9));
        }
    }
    for (int i = 0; i < plan.n_layers; i++)
        assert_true(plan.units[i].gg > plan.n_units * 8 / 10); /* the CPU has the rest */
}

/* By hand: everything on the CPU. */
TEST(a_step_of_the_cpu_alone)
{
    static struct hetero_plan plan;
    struct hetero_profile p = made_profile();
    struct hetero_plan_opts o = plan_opts(&p, 0.1);
    double weights = 8 * (4.0 * 1024 * 1024 + 3.0 * 1024 * 4096) + 1024 * 8192.0;
    double kv = 8.0 * (64 + 16 + 1) * 2 * 1024 * 4;

    o.fixed_cg = o.fixed_gg = 0;
    assert_ok(hetero_plan_make(&plan, &o));
    assert_true(
        fabs(plan.decode.step_s / (weights * 2 / 10e9 + kv / 10e9 + (8 * 5 + 1) * 1e-6) -
             1) < 1e-3);
    assert_true(plan.decode.step_s == 1 / plan.cpu_only_tokens_per_s);
}

/* The same of experts, all sliced alike, and a shared one, whose bytes come first. */
TEST(plans_of_experts)
{
    static struct hetero_plan plan;
    struct hetero_units units[8 * 9];
    struct hetero_profile p = made_profile();
    struct hetero_plan_opts o = plan_opts(&p, 0.06);
    struct model_config c = config;
    double mlps = 2 * 3.0 * 1024 * 1024 + 3.0 * 1024 * 512, before = 0;
    double weights = 8 * (4.0 * 1024 * 1024 + mlps) + 1024 * 8192.0;
    double kv = 8.0 * (64 + 16 + 1) * 2 * 1024 * 4, router = 8 * 9 * 1024.0 * 4;

    c.n_experts = 8, c.n_active = 2, c.expert_hidden = 1024, c.hidden = 512;
    o.config = &c;
    o.fixed_cg = o.fixed_gg = 0;
    assert_ok(hetero_plan_make(&plan, &o));
    assert_true(fabs(plan.decode.step_s / ((weights * 2 + kv + router) / 10e9 +
                                           (8 * (2 + 1 + 3 * 3) + 1) * 1e-6) -
                     1) < 1e-3);
    for (double gb = 0.02; gb < 0.6; gb += 0.02) {
        o = plan_opts(&p, gb);
        o.config = &c;
        assert_ok(hetero_plan_make(&plan, &o));
        assert_true(plan.tokens_per_s >= before * (1 - 1e-9));
        assert_true(plan.used_bytes + plan.reserved_bytes <= gb * 1e9 + 1);
        assert_true(plan.tokens_per_s > plan.cpu_only_tokens_per_s);
        before = plan.tokens_per_s;
        if (plan.units[0].gg > 0) /* then every shared expert has what is best */
            assert_true(plan.shared[7].gg > plan.n_shared_units / 2);
    }
    c.n_dense = 1;
    assert_err(hetero_plan_make(&plan, &o), ERR_UNSUPPORTED, "found 1 layers without");
    c.n_dense = 0;
    assert_ok(hetero_plan_make(&plan, &o));
    assert_true(plan.units[7].gg > plan.n_units / 2);
    hetero_plan_units(units, &plan, &c);
    for (int i = 0; i < 8 * 9; i++) {
        const struct hetero_units *of = i % 9 < 8 ? plan.units : plan.shared;

        assert_memory_equal(&units[i], &of[i / 9], sizeof(units[i]));
    }
}

TEST(plans_that_cannot_be)
{
    static struct hetero_plan plan;
    struct hetero_profile p = made_profile();
    struct hetero_plan_opts o = plan_opts(&p, 0.001);
    char *text;
    json_t *j;

    assert_err(hetero_plan_make(&plan, &o), ERR_NOMEM, "do not hold buffers");
    o = plan_opts(&p, 0.1);
    o.fixed_gg = 1;
    assert_err(hetero_plan_make(&plan, &o), ERR_NOMEM, "has");
    o.n_threads = 2;
    assert_err(hetero_plan_make(&plan, &o), ERR_NOTFOUND, "bf16 with 2 threads");
    o = plan_opts(&p, 0.1);
    assert_ok(hetero_plan_make(&plan, &o));
    assert_ok(hetero_plan_text(&plan, &o, &text));
    assert_non_null(strstr(text, "predicted: "));
    mem_free(text);
    assert_ok(hetero_plan_json(&plan, &o, &j));
    assert_int_equal(json_array_size(json_object_get(j, "layers")), 8);
    json_decref(j);
}
