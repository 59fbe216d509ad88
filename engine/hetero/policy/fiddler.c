/* As Fiddler: attention and as many experts as fit stay on the accelerator. An expert that is not
 * there is computed on the CPU or sent, whichever its constants say: 7 for each token on the CPU,
 * 70 for the transfer. All experts of a layer come one after the other: its search minimises
 * the sum of both sides, although a comment there speaks of the larger one. */
#include <math.h>

#include "hetero/policy.h"

#define CPU_COST_PER_TOK 7
#define TRANSFER_COST    70

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts);
    int64_t left = c->budget_bytes - hetero_attention_bytes(c);
    const struct hetero_layer *expert = &parts[0].layer;
    bool sends = CPU_COST_PER_TOK * expert->gemm.n_tok > TRANSFER_COST;
    double here, away_s;

    if (m->n_experts == 1)
        return err_set(ERR_UNSUPPORTED, "fiddler: %s has no experts", m->name);
    if (n_parts > 1) /* all tokens need it */
        left -= m->n_layers * parts[1].bytes;
    if (left < 0)
        return err_set(ERR_NOMEM, "fiddler: %lld bytes do not hold what all tokens need",
                       (long long)c->budget_bytes);
    here = fmin(1, floor((double)left / (double)parts[0].bytes) /
                       (m->n_layers * m->n_experts));
    away_s = hetero_layer_s(expert, sends ? c->n_units : 0, 0, 0);
    *out = (struct hetero_result){
        .cg = sends ? 1 - here : 0, .gg = here, .accel_tok_frac = NAN};
    out->step_s = here * hetero_layer_s(expert, 0, c->n_units, 0) + (1 - here) * away_s;
    out->step_s *= m->n_layers * parts[0].n_used;
    if (n_parts > 1)
        out->step_s += m->n_layers * hetero_layer_s(&parts[1].layer, 0, c->n_units, 0);
    out->step_s += hetero_attention_s(c);
    return OK;
}

const struct hetero_policy hetero_policy_fiddler = {
    .name = "fiddler", .help = "whole experts, by fixed costs", .step = step};
