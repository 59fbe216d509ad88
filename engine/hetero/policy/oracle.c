/* The best slices there are, by search over all of them: each number of units of CG and of
 * tokens taken over, for each of GG, in this very step and not as decoding wants them, and memory
 * by the exact assignment. It shows what fixed shares and a greedy assignment cost. */
#include <math.h>

#include "hetero/policy.h"

#define CELLS_MAX ((int64_t)1 << 27) /* of the exact assignment */

static double oracle_cg(const struct hetero_case *c, const struct hetero_part *p, int gg,
                        int *cg)
{
    double best_s = INFINITY;
    int64_t n_accel;

    for (int i = 0; i <= c->n_units - gg; i++) {
        double s = hetero_part_s(c, p, i, gg, &n_accel);

        if (s < best_s) {
            best_s = s;
            *cg = i;
        }
    }
    return best_s;
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    struct hetero_slicing w = {0};
    int rc = hetero_slicing_open(&w, "oracle", c, c->n_tok, oracle_cg);
    double sum_s;

    if (rc == OK && w.n_shares * (int64_t)w.n_shares * c->n_units > CELLS_MAX)
        rc = err_set(ERR_UNSUPPORTED,
                     "oracle: %d experts and more are too many for an exact search",
                     w.n_shares);
    if (rc == OK)
        rc = hetero_assign_exact(w.units, &sum_s, w.shares, w.n_shares, c->n_units,
                                 w.left_bytes);
    if (rc == OK) {
        *out = (struct hetero_result){.step_s = hetero_attention_s(c)};
        hetero_slicing_sum(out, &w, c);
    }
    hetero_slicing_close(&w);
    return rc;
}

const struct hetero_policy hetero_policy_oracle = {
    .name = "oracle", .help = "all slices, searched for this step", .step = step};
