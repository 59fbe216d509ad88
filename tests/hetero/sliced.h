/* tests/hetero/sliced.h - steps of a small model in random slices on an accelerator, compared with
 * its float64 reference. */
#ifndef TESTS_HETERO_SLICED_H
#define TESTS_HETERO_SLICED_H

#include "hetero/offload.h"
#include "model/state.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

#define SLICED_MLPS_MAX 300

/* Neither side is so much faster that all tokens of a prompt go there. */
static const struct hetero_machine sliced_machines[2] = {{.launch_s = 1e-7,
                                                          .link_s_per_byte = 1e-10,
                                                          .accel_s_per_mac = 1e-10,
                                                          .cpu_s_per_mac = 1e-10},
                                                         {.launch_s = 1e-7,
                                                          .link_s_per_byte = 1e-10,
                                                          .accel_s_per_mac = 1e-10,
                                                          .cpu_s_per_mac = 4e-10}};

static inline int sliced_open(struct hetero_offload **out, struct step_model *x,
                              const char *kind, const struct hetero_units *units, int n)
{
    struct hetero_offload_opts o = {.accel = {&sliced_machines[0], -1},
                                    .units = units,
                                    .n_units = n,
                                    .machines = sliced_machines};

    assert_ok(accel_find(kind, &o.kind));
    return hetero_offload_open(out, x->model, x->phases, x->n_phases, &o);
}

/* Of each MLP; some have all units on one side. */
static inline int sliced_draw(const struct step_model *x, struct hetero_units *units,
                              struct rng *r)
{
    const struct model_config *c = &x->model->c;
    int n_mlps = hetero_n_mlps(c), n = n_mlps * c->n_layers;

    for (int i = 0; i < n; i++) {
        int e = i % n_mlps;
        int mat = e < c->n_experts ? model_expert_mat(e) : MODEL_MAT_GATE_UP;
        uint64_t all = (uint64_t)x->model->layers[i / n_mlps].mats[mat + 1].n_units;

        units[i].gg = (int)(rng_below(r, 3) ? rng_below(r, all + 1) : 0);
        units[i].cg = (int)rng_below(r, all - (uint64_t)units[i].gg + 1);
        if (rng_below(r, 6) == 0)
            units[i] = (struct hetero_units){0, 0};
    }
    return n;
}

/* n_taken_over: grows by the tokens that the accelerator took over. */
static inline void sliced_run(const struct step_trait *t, const char *kind, int n_threads,
                              struct rng *r, int64_t *n_taken_over)
{
    struct model_opts o = step_model_opts();
    static struct hetero_units units[SLICED_MLPS_MAX];
    struct hetero_offload *off;
    struct model_config c;
    struct step_model x;
    char what[160];

    step_trait_config(t, &c);
    if (c.n_dense > 0) /* refused: what_cannot_be_sliced */
        return;
    assert_true(t->n_layers * (t->n_experts + 1) <= SLICED_MLPS_MAX);
    step_model_open(&x, t, &o, n_threads);
    step_model_phase(&x, 1, n_threads);
    assert_ok(sliced_open(&off, &x, kind, units, sliced_draw(&x, units, r)));
    snprintf(what, sizeof(what), "%s on %s", t->name, kind);
    step_model_run(&x, 1, o.max_step_tok, 1e-4, test_seed(), what);
    step_model_run(&x, 5, o.max_step_tok, 1e-4, test_seed() + 1, what);
    for (int64_t n = 2; n <= o.max_step_tok; n++)
        *n_taken_over += hetero_offload_tokens(off, n);
    hetero_offload_close(&off);
    step_model_run(&x, 1, o.max_step_tok, 1e-4, test_seed() + 2, what); /* without it */
    step_model_close(&x);
}

#endif
