/* As ktransformers: attention, shared experts and as many experts as fit stay on the accelerator,
 * the same number in each layer (its placement `uniform`). The CPU computes the others. They are
 * submitted to it before the accelerator begins with its own, and waited for afterwards, so that
 * a layer takes as long as the slower side. Nothing is sent. */
#include <math.h>

#include "hetero/policy.h"

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts);
    int64_t left = c->budget_bytes - hetero_attention_bytes(c);
    const struct hetero_part *expert = &parts[0];
    double here, n_here, accel_s, cpu_s;

    if (m->n_experts == 1)
        return err_set(ERR_UNSUPPORTED, "ktransformers: %s has no experts", m->name);
    if (n_parts > 1) /* all tokens need it */
        left -= m->n_layers * parts[1].bytes;
    if (left < 0)
        return err_set(ERR_NOMEM,
                       "ktransformers: %lld bytes do not hold what all tokens need",
                       (long long)c->budget_bytes);
    n_here =
        fmin(m->n_experts, floor((double)left / (double)expert->bytes / m->n_layers));
    here = n_here / m->n_experts;
    accel_s = here * expert->n_used * hetero_layer_s(&expert->layer, 0, c->n_units, 0);
    if (n_parts > 1)
        accel_s += hetero_layer_s(&parts[1].layer, 0, c->n_units, 0);
    cpu_s = (1 - here) * expert->n_used * hetero_layer_s(&expert->layer, 0, 0, 0);
    *out = (struct hetero_result){.cg = 0, .gg = here, .accel_tok_frac = NAN};
    out->step_s = m->n_layers * fmax(accel_s, cpu_s) + hetero_attention_s(c);
    return OK;
}

const struct hetero_policy hetero_policy_ktransformers = {
    .name = "ktransformers", .help = "whole experts on both at once", .step = step};
