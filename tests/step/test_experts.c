/* Mixtures of experts against float64: of every shape of router, plain and quantised, by any
 * threads, ranks and steps; and their bits in the deterministic mode. */
#include <math.h>

#include "cpu/cpu.h"
#include "model/limits.h"
#include "ranks/phase.h"
#include "step/context.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

#define TEAM 8

static void run(const struct step_trait *t, const struct model_opts *o, const char *isa)
{
    struct step_model x;
    char what[100];

    snprintf(what, sizeof(what), "%s, isa %s", t->name, isa);
    step_model_open(&x, t, o, TEAM);
    for (int n = 1; n <= 3; n++)
        step_model_phase(&x, 1, n);
    for (int n = 2; n <= 4 && !o->one_rank; n += 2) {
        if (model_ranks_check(&x.model->c, n) == OK) /* heads are whole blocks */
            step_model_phase(&x, n, 4 / n);
        err_clear();
    }
    if (o->deterministic)
        step_model_keep_bits(&x);
    for (int i = 0; i < 4; i++)
        step_model_run(&x, 1 + 2 * i, o->max_step_tok, 1e-4, test_seed() + (uint64_t)i,
                       what);
    step_model_close(&x);
}

static void exact_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    for (int i = 0; i < step_n_expert_traits; i++) {
        o.one_rank = i % 2;
        run(&step_expert_traits[i], &o, isa);
    }
}

TEST(test_float64)
{
    step_model_each_isa(exact_on);
}

static void bits_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    o.deterministic = true;
    for (int i = 0; i < step_n_expert_traits; i++)
        run(&step_expert_traits[i], &o, isa);
}

TEST(test_bits)
{
    step_model_each_isa(bits_on);
}

/* Steps of few rows, in memory for few. */
TEST(test_small_steps)
{
    struct model_opts o = step_model_opts();

    for (o.max_step_tok = 1; o.max_step_tok <= 7; o.max_step_tok += 3)
        for (int i = 0; i < step_n_expert_traits; i++)
            run(&step_expert_traits[i], &o, "auto");
}

/* Schedules of experts divide columns only, also where others are given. */
static int along_m(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                   int64_t m_max, int n_threads, struct kern_schedule *out)
{
    (void)ctx;
    for (int64_t m = 1; m <= m_max; m++) {
        kern_schedule_default(&out[m - 1], v, w, m, n_threads);
        if (kern_a_blocks(m, out[m - 1].mr) < n_threads)
            continue;
        out[m - 1].pm = n_threads;
        out[m - 1].pn = out[m - 1].pk = 1;
    }
    return OK;
}

TEST(test_other_schedules)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;

    for (int i = 0; i < step_n_expert_traits; i++) {
        step_model_open(&x, &step_expert_traits[i], &o, TEAM);
        step_model_phase(&x, 1, 3);
        if (model_ranks_check(&x.model->c, 2) == OK)
            step_model_phase(&x, 2, 2);
        err_clear();
        for (int p = 0; p < x.n_phases; p++)
            assert_ok(model_phase_schedules(x.phases[p], along_m, NULL));
        step_model_run(&x, STEP_MODEL_SEQS, o.max_step_tok, 1e-4, test_seed(),
                       step_expert_traits[i].name);
        step_model_close(&x);
    }
}

/* What decides which weights are read is refused where it is not a number. */
TEST(test_router_not_finite)
{
    const struct step_trait *t = &step_expert_traits[0];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int cpus[2];
    const struct model_opts o = step_model_opts();
    struct par_team *team;
    struct ref_model ref;
    struct model_config c;
    struct model *m;

    step_trait_config(t, &c);
    assert_ok(par_team_open(&team, cpus, 2, 0));
    for (int i = 0; i < 3; i++) {
        ref_model_init(&ref, &c, t->interleaved, t->mixed, false, test_seed());
        memcpy((char *)format_layer_tensor(&ref.f, 1, FORMAT_ROUTER)->data + 4 * 48 * 5,
               &bad[i], sizeof(bad[i]));
        assert_err(model_open(&m, &ref.f, team, &o), ERR_FORMAT,
                   "blk.1.ffn_gate_inp.weight: row 5: expected finite weights");
        assert_null(m);
        ref_model_fini(&ref);
    }
    par_team_close(&team);
}
