#include "experiments/study/support/slicing.h"

#include <math.h>
#include <stddef.h>

enum { AS_PAPER, FP16, INT4 };

const char *study_slicing_model_name(int i)
{
    return hetero_models[i] ? hetero_models[i]->name : NULL;
}

const char *study_slicing_policy_name(int i)
{
    return hetero_policies[i] ? hetero_policies[i]->name : NULL;
}

int study_slicing_open(struct study_slicing *c, const struct study_slicing_opts *o)
{
    enum hetero_type type;

    c->k = (struct hetero_case){.machine = &c->machine,
                                .budget_bytes = (int64_t)(o->budget_gb * 1e9),
                                .n_tok = o->n_tok,
                                .n_units = (int)o->n_units,
                                .as_printed = o->as_printed,
                                .fixed_cg = -1,
                                .no_gg = o->no_gg};
    TRY(hetero_model_find(o->model, &c->k.model));
    type = o->type == AS_PAPER ? c->k.model->type
           : o->type == FP16   ? HETERO_FP16
                               : HETERO_INT4;
    TRY(hetero_machine_printed(&c->machine, (char)('A' + o->testbed), type,
                               o->bus_limit));
    c->machine.cpu_s_per_mac *= o->cpu_factor;
    c->machine.accel_macs_per_s = 1e12 * o->accel_tmacs;
    c->k.bytes_per_weight = type == HETERO_FP16 ? 2 : 0.5;
    return OK;
}

int study_slicing_step(struct hetero_result *r, const char *policy,
                       const struct hetero_case *k)
{
    const struct hetero_policy *p;

    TRY(hetero_policy_find(policy, &p));
    return p->step(r, k);
}

int study_slicing_own_step(struct hetero_result *r, const char *policy,
                           const struct hetero_case *k)
{
    return study_slicing_step(r, policy, k) == OK
               ? OK
               : err_set(ERR_NOTFOUND, "%s", err_msg());
}

int study_slicing_other_s(double *s, const char *policy, const struct hetero_case *k)
{
    struct hetero_result r;
    int rc = study_slicing_step(&r, policy, k);

    *s = rc == OK ? r.step_s : NAN;
    return rc == ERR_NOMEM || rc == ERR_UNSUPPORTED ? OK : rc;
}
