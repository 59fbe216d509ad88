/* As llama.cpp's --fit, which fits memory and reads no clock: it leaves 1 GiB of the
 * accelerator's memory free. What all tokens need of each layer comes first, then experts, front
 * to back; a model without experts has whole layers, as with -ngl. The CPU and the accelerator
 * take turns. For a prompt of 32 tokens and more weights on the CPU are sent, each matrix before
 * its product. llama.cpp #16653, common_fit_params. */
#include <math.h>

#include "hetero/policy.h"

#define MARGIN_BYTES ((int64_t)1 << 30)

static double part_s(const struct hetero_case *c, const struct hetero_part *p, bool here)
{
    if (here)
        return p->n_used * hetero_layer_s(&p->layer, 0, c->n_units, 0);
    return p->n_used * p->layer.n_gemms * hetero_elsewhere_s(c, &p->layer.gemm);
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    const struct hetero_policy *whole;
    struct hetero_case within = *c;
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts), n_here;
    int64_t left = c->budget_bytes - MARGIN_BYTES - hetero_attention_bytes(c);

    if (m->n_experts == 1) {
        within.budget_bytes -= MARGIN_BYTES;
        TRY(hetero_policy_find("whole_layers", &whole));
        return whole->step(out, &within);
    }
    if (n_parts > 1)
        left -= m->n_layers * parts[1].bytes;
    if (left < 0)
        return err_set(ERR_NOMEM, "fit: %lld bytes do not hold what all tokens need",
                       (long long)c->budget_bytes);
    n_here = (int)fmin(m->n_layers,
                       floor((double)left / (double)(parts[0].bytes * m->n_experts)));
    *out = (struct hetero_result){.cg = 0,
                                  .gg = (double)n_here / m->n_layers,
                                  .accel_tok_frac = c->n_tok >= HETERO_OFFLOAD_TOK};
    out->step_s = hetero_attention_s(c) + n_here * part_s(c, &parts[0], true) +
                  (m->n_layers - n_here) * part_s(c, &parts[0], false);
    if (n_parts > 1)
        out->step_s += m->n_layers * part_s(c, &parts[1], true);
    return OK;
}

const struct hetero_policy hetero_policy_fit = {
    .name = "fit", .help = "llama.cpp --fit: what fits into memory", .step = step};
