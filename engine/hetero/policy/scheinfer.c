/* The paper's: attention, two buffers for what is sent and, by the greedy assignment, shares of all
 * layers stay on the accelerator; of the rest the best share is sent. Shares follow from decoding,
 * where an expert's time counts as often as it is used. A prompt keeps them and gives tokens of
 * the CPU's to the accelerator. */
#include <math.h>

#include "hetero/policy.h"

static double scheinfer_cg(const struct hetero_case *c, const struct hetero_part *p,
                           int gg, int *cg)
{
    if (c->fixed_cg < 0)
        return hetero_best_cg(&p->layer, gg, cg);
    *cg = (int)lround(c->fixed_cg * (c->n_units - gg));
    return hetero_layer_s(&p->layer, *cg, gg, 0);
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    struct hetero_slicing w = {0};
    int rc = hetero_slicing_open(&w, "scheinfer", c, 1, scheinfer_cg);
    double decode_s;

    if (rc == OK)
        rc = (c->whole_layers ? hetero_assign_whole
              : c->exact      ? hetero_assign_exact
                         : hetero_assign_greedy)(w.units, &decode_s, w.shares, w.n_shares,
                                                 c->n_units, c->no_gg ? 0 : w.left_bytes);
    if (rc == OK) {
        *out = (struct hetero_result){0};
        hetero_slicing_sum(out, &w, c);
        out->step_s += hetero_attention_s(c);
    }
    hetero_slicing_close(&w);
    return rc;
}

const struct hetero_policy hetero_policy_scheinfer = {
    .name = "scheinfer", .help = "slices on both at once", .step = step};
