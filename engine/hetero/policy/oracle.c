/* What slices can reach at most, by search over all of them: each number of units of CG and of
 * tokens taken over, for each of GG, in this very step and not as decoding wants them, and memory
 * by the exact assignment. It shows what fixed shares and a greedy assignment cost. */
#include <math.h>

#include "base/mem.h"
#include "hetero/memory.h"
#include "hetero/policy.h"

#define CELLS_MAX ((int64_t)1 << 27) /* of the exact assignment */

struct choice {
    int cg_units;
    int64_t n_accel_tok;
};

struct search {
    const struct hetero_case *c;
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts, n_shares, per_layer;
    double *layer_s[HETERO_PARTS_MAX];     /* [n_units + 1] */
    struct choice *best[HETERO_PARTS_MAX]; /* [n_units + 1] */
    struct hetero_share *shares;
    int *units;
};

static void search_part(const struct search *s, int i)
{
    const struct hetero_part *p = &s->parts[i];
    int n = s->c->n_units;

    for (int gg = 0; gg <= n; gg++) {
        s->layer_s[i][gg] = INFINITY;
        for (int cg = 0; cg <= n - gg; cg++) {
            int64_t n_accel = 0;
            double t = s->c->n_tok > 1 ? hetero_best_tokens(&p->layer, cg, gg, &n_accel)
                                       : hetero_layer_s(&p->layer, cg, gg, 0);

            t *= p->n_used / p->n;
            if (t < s->layer_s[i][gg]) {
                s->layer_s[i][gg] = t;
                s->best[i][gg] = (struct choice){cg, n_accel};
            }
        }
    }
}

static int open_search(struct search *s, const struct hetero_case *c)
{
    size_t n = (size_t)c->n_units + 1;

    s->c = c;
    s->n_parts = hetero_parts(c, c->n_tok, s->parts);
    for (int i = 0; i < s->n_parts; i++) {
        s->layer_s[i] = mem_new(MEM_OTHER, n, sizeof(double));
        s->best[i] = mem_new(MEM_OTHER, n, sizeof(struct choice));
        if (!s->layer_s[i] || !s->best[i])
            return ERR_NOMEM;
        search_part(s, i);
        s->per_layer += s->parts[i].n;
    }
    s->n_shares = c->model->n_layers * s->per_layer;
    s->shares = mem_new(MEM_OTHER, (size_t)s->n_shares, sizeof(*s->shares));
    s->units = mem_new(MEM_OTHER, (size_t)s->n_shares, sizeof(*s->units));
    return s->shares && s->units ? OK : ERR_NOMEM;
}

static int part_of(const struct search *s, int share)
{
    return share % s->per_layer >= s->parts[0].n;
}

static int assign(struct search *s, int64_t left)
{
    int64_t cells = s->n_shares * (int64_t)s->n_shares * s->c->n_units;
    double sum;

    for (int j = 0; j < s->n_shares; j++)
        s->shares[j] = (struct hetero_share){.unit_bytes = s->parts[part_of(s, j)].bytes /
                                                           s->c->n_units,
                                             .layer_s = s->layer_s[part_of(s, j)]};
    if (cells > CELLS_MAX)
        return err_set(ERR_UNSUPPORTED,
                       "oracle: %d experts and more are too many for an exact search",
                       s->n_shares);
    return hetero_assign_exact(s->units, &sum, s->shares, s->n_shares, s->c->n_units,
                               left);
}

static void add_up(struct hetero_result *out, const struct search *s)
{
    double weights = 0;

    *out = (struct hetero_result){.step_s = hetero_attention_s(s->c)};
    for (int j = 0; j < s->n_shares; j++) {
        int i = part_of(s, j), gg = s->units[j];
        double bytes = (double)s->parts[i].bytes;
        const struct choice *b = &s->best[i][gg];

        out->step_s += s->layer_s[i][gg];
        out->gg += bytes * gg / s->c->n_units;
        out->cg += bytes * b->cg_units / s->c->n_units;
        out->accel_tok_frac +=
            bytes * (double)b->n_accel_tok / (double)s->parts[i].layer.gemm.n_tok;
        weights += bytes;
    }
    out->gg /= weights;
    out->cg /= weights;
    out->accel_tok_frac /= weights;
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    struct search s = {0};
    int rc = open_search(&s, c);
    int64_t most = 0, left = c->budget_bytes - hetero_attention_bytes(c);

    for (int i = 0; i < s.n_parts; i++)
        most = s.parts[i].bytes > most ? s.parts[i].bytes : most;
    left -= 2 * most / 3; /* the buffers of two products, as policy scheinfer has them */
    if (rc == OK && left < 0)
        rc =
            err_set(ERR_NOMEM, "oracle: %lld bytes do not hold attention and two buffers",
                    (long long)c->budget_bytes);
    if (rc == OK)
        rc = assign(&s, left);
    if (rc == OK)
        add_up(out, &s);
    for (int i = 0; i < HETERO_PARTS_MAX; i++) {
        mem_free(s.layer_s[i]);
        mem_free(s.best[i]);
    }
    mem_free(s.shares);
    mem_free(s.units);
    return rc;
}

const struct hetero_policy hetero_policy_oracle = {
    .name = "oracle", .help = "all slices, searched for this step", .step = step};
