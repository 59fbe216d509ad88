/* As llama.cpp: as many whole layers as fit stay on the accelerator, the CPU computes the others,
 * one layer after the other. For a prompt of 32 tokens and more the accelerator computes those,
 * too, each matrix after its transfer. */
#include <math.h>

#include "hetero/policy.h"

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    const struct hetero_gemm attention = {c->n_tok, m->attention_weights, 1,
                                          c->bytes_per_weight};
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts), n_here;
    double layer_bytes = (double)m->attention_weights * c->bytes_per_weight;
    double left = (double)c->budget_bytes - (double)m->head_weights * c->bytes_per_weight;
    double here_s = 0, away_s = hetero_elsewhere_s(c, &attention);

    for (int i = 0; i < n_parts; i++)
        layer_bytes += parts[i].n * (double)parts[i].bytes;
    if (left < 0)
        return err_set(ERR_NOMEM, "whole_layers: %lld bytes do not hold the head",
                       (long long)c->budget_bytes);
    n_here = (int)fmin(m->n_layers, floor(left / layer_bytes));
    for (int i = 0; i < n_parts; i++) {
        here_s += parts[i].n_used * hetero_layer_s(&parts[i].layer, 0, c->n_units, 0);
        away_s += parts[i].n_used * parts[i].layer.n_gemms *
                  hetero_elsewhere_s(c, &parts[i].layer.gemm);
    }
    *out = (struct hetero_result){.cg = 0,
                                  .gg = (double)n_here / m->n_layers,
                                  .accel_tok_frac = c->n_tok >= HETERO_OFFLOAD_TOK};
    /* Attention of the layers that are here, and the head. */
    out->step_s = hetero_attention_s(c);
    {
        const struct hetero_slices all = {.gg = 1};
        struct hetero_times t = hetero_times_of(c->machine, &attention, &all, false);

        out->step_s -= (m->n_layers - n_here) * hetero_accel_finish_s(&t, 1);
    }
    out->step_s += n_here * here_s + (m->n_layers - n_here) * away_s;
    return OK;
}

const struct hetero_policy hetero_policy_whole_layers = {
    .name = "whole_layers",
    .help = "llama.cpp: whole layers on CPU or accelerator",
    .step = step};
