/* The paper's: attention, two buffers for what is sent and, by the greedy assignment, shares of all
 * layers stay on the accelerator; of the rest the best share is sent. Shares follow from decoding,
 * where an expert's time counts as often as it is used. A prompt keeps them and gives tokens of
 * the CPU's to the accelerator. */
#include <math.h>

#include "base/mem.h"
#include "hetero/memory.h"
#include "hetero/policy.h"

/* A part's times and best CG in decoding, by units of GG. */
struct plan {
    double *layer_s; /* [n_units + 1], times how often it is used */
    int *cg_units;   /* [n_units + 1] */
};

static int rounded_cg(const struct hetero_case *c, int gg_units)
{
    return (int)lround(c->fixed_cg * (c->n_units - gg_units));
}

static void plan_part(const struct hetero_case *c, const struct hetero_part *p,
                      struct plan *out)
{
    for (int u = 0; u <= c->n_units; u++) {
        double s;

        if (c->fixed_cg < 0) {
            s = hetero_best_cg(&p->layer, u, &out->cg_units[u]);
        } else {
            out->cg_units[u] = rounded_cg(c, u);
            s = hetero_layer_s(&p->layer, out->cg_units[u], u, 0);
        }
        out->layer_s[u] = s * p->n_used / p->n;
    }
}

/* What a part with these units adds to the step. */
static void add_part(struct hetero_result *sum, double *weights,
                     const struct hetero_case *c, const struct hetero_part *p,
                     int cg_units, int gg_units)
{
    int64_t n_accel = 0;
    double s = c->no_takeover || c->n_tok == 1
                   ? hetero_layer_s(&p->layer, cg_units, gg_units, 0)
                   : hetero_best_tokens(&p->layer, cg_units, gg_units, &n_accel);
    double bytes = (double)p->bytes;

    sum->step_s += s * p->n_used / p->n;
    sum->cg += bytes * cg_units / c->n_units;
    sum->gg += bytes * gg_units / c->n_units;
    sum->accel_tok_frac += bytes * (double)n_accel / (double)p->layer.gemm.n_tok;
    *weights += bytes;
}

static int64_t staging_bytes(const struct hetero_part *parts, int n_parts)
{
    int64_t most = 0;

    for (int i = 0; i < n_parts; i++)
        most = parts[i].bytes > most ? parts[i].bytes : most;
    return 2 * most / 3; /* two products' */
}

struct assignment {
    const struct hetero_case *c;
    struct hetero_part decode[HETERO_PARTS_MAX], now[HETERO_PARTS_MAX];
    struct plan plans[HETERO_PARTS_MAX];
    int n_parts, n_shares;
    struct hetero_share *shares; /* [n_shares] layer by layer, the experts first */
    int *units, *kind;           /* [n_shares] */
};

static int open_assignment(struct assignment *w, const struct hetero_case *c)
{
    size_t n = (size_t)c->n_units + 1;
    int per_layer = 0;

    w->c = c;
    w->n_parts = hetero_parts(c, 1, w->decode);
    (void)hetero_parts(c, c->n_tok, w->now);
    for (int i = 0; i < w->n_parts; i++) {
        w->plans[i].layer_s = mem_new(MEM_OTHER, n, sizeof(double));
        w->plans[i].cg_units = mem_new(MEM_OTHER, n, sizeof(int));
        if (!w->plans[i].layer_s || !w->plans[i].cg_units)
            return ERR_NOMEM;
        plan_part(c, &w->decode[i], &w->plans[i]);
        per_layer += w->decode[i].n;
    }
    w->n_shares = c->model->n_layers * per_layer;
    w->shares = mem_new(MEM_OTHER, (size_t)w->n_shares, sizeof(*w->shares));
    w->units = mem_new(MEM_OTHER, (size_t)w->n_shares, sizeof(*w->units));
    w->kind = mem_new(MEM_OTHER, (size_t)w->n_shares, sizeof(*w->kind));
    if (!w->shares || !w->units || !w->kind)
        return ERR_NOMEM;
    for (int j = 0; j < w->n_shares; j++) {
        w->kind[j] = j % per_layer >= w->decode[0].n;
        w->shares[j] =
            (struct hetero_share){.unit_bytes = w->decode[w->kind[j]].bytes / c->n_units,
                                  .layer_s = w->plans[w->kind[j]].layer_s};
    }
    return OK;
}

static void close_assignment(struct assignment *w)
{
    for (int i = 0; i < w->n_parts; i++) {
        mem_free(w->plans[i].layer_s);
        mem_free(w->plans[i].cg_units);
    }
    mem_free(w->shares);
    mem_free(w->units);
    mem_free(w->kind);
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    struct assignment w = {0};
    int rc = open_assignment(&w, c);
    int64_t left =
        c->budget_bytes - hetero_attention_bytes(c) - staging_bytes(w.decode, w.n_parts);
    double weights = 0, decode_s;

    if (rc == OK && left < 0)
        rc = err_set(ERR_NOMEM,
                     "scheinfer: %lld bytes do not hold attention and two buffers",
                     (long long)c->budget_bytes);
    if (rc == OK)
        rc = (c->whole_layers ? hetero_assign_whole
              : c->exact      ? hetero_assign_exact
                         : hetero_assign_greedy)(w.units, &decode_s, w.shares, w.n_shares,
                                                 c->n_units, c->no_gg ? 0 : left);
    if (rc == OK) {
        *out = (struct hetero_result){0};
        for (int j = 0; j < w.n_shares; j++)
            add_part(out, &weights, c, &w.now[w.kind[j]],
                     w.plans[w.kind[j]].cg_units[w.units[j]], w.units[j]);
        out->cg /= weights;
        out->gg /= weights;
        out->accel_tok_frac /= weights;
        out->step_s += hetero_attention_s(c);
    }
    close_assignment(&w);
    return rc;
}

const struct hetero_policy hetero_policy_scheinfer = {
    .name = "scheinfer", .help = "slices on both at once", .step = step};
