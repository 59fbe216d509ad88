/* tests/support/tuned_plan.h - schedules as a tuner would put them into a plan, for a model with
 * weights in f32. */
#ifndef TESTS_SUPPORT_TUNED_PLAN_H
#define TESTS_SUPPORT_TUNED_PLAN_H

#include "cpu/cpu.h"
#include "format/format.h"
#include "model/model.h"
#include "plan/plan.h"
#include "tests/support/test.h"

/* Add a schedule in this order of slices for one row of everything that a rank of the phase
 * computes alone; returns how many. */
static inline int64_t tuned_plan_add(struct plan *p, const struct plan_phase *f,
                                     const char *model, enum kern_order order)
{
    struct format_file *file = NULL;
    struct kern_table table;
    struct tune_cache *c;
    int n_before;

    assert_ok(format_open(&file, model));
    kern_table_choose(&table, cpu_isa_usable(), KERN_EXACT);
    if (!p->schedules)
        assert_ok(tune_cache_of_json(&p->schedules, NULL, "none"));
    n_before = tune_cache_n(p->schedules);
    assert_ok(plan_schedules(p, f, &c));
    assert_ok(tune_cache_use(c, f->cpus, f->n_threads));
    for (int r = 0; r < f->n_ranks; r++) {
        struct model_shape mats[MODEL_N_MATS];

        model_rank_shapes(&file->config, r, f->n_ranks, mats);
        for (int i = 0; i < MODEL_MAT_HEAD; i++) {
            const struct tune_shape x = {.v = table.v[KERN_GEMM_F32],
                                         .m = 1,
                                         .n = mats[i].n,
                                         .k = mats[i].k,
                                         .k_unit = mats[i].k_unit};
            struct kern_schedule s;
            struct kern_mat w;

            if (x.n == 0 || x.k == 0)
                continue;
            kern_mat_layout(&w, KERN_F32, x.n, x.k, x.k_unit);
            kern_schedule_default(&s, x.v, &w, 1, f->n_threads);
            s.order = order;
            assert_ok(tune_cache_put(c, &x, &s, NULL));
        }
    }
    format_close(&file);
    return tune_cache_n(c) - n_before;
}

#endif
