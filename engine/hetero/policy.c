#include "hetero/policy.h"

#include <math.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/name.h"

#define MODEL(...)                                                                       \
    &(const struct hetero_model)                                                         \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
/* These numbers are from the models' configurations. */
const struct hetero_model *const hetero_models[] = {
    MODEL("llama-2-70b", 80, 1, 1, 8192, 28672, 0, 2 * 8192 * (8192 + 1024), 32000 * 8192,
          HETERO_INT4),
    MODEL("llama-2-13b", 40, 1, 1, 5120, 13824, 0, 4 * 5120 * 5120, 32000 * 5120,
          HETERO_FP16),
    MODEL("qwen2-14b", 48, 1, 1, 5120, 13824, 0, 2 * 5120 * (5120 + 1024), 152064 * 5120,
          HETERO_FP16),
    MODEL("mixtral-8x7b", 32, 8, 2, 4096, 14336, 0, 2 * 4096 * (4096 + 1024),
          32000 * 4096, HETERO_INT4),
    MODEL("mixtral-8x22b", 56, 8, 2, 6144, 16384, 0, 2 * 6144 * (6144 + 1024),
          32768 * 6144, HETERO_INT4),
    MODEL("qwen2-57b-a14b", 28, 64, 8, 3584, 2560, 20480, 2 * 3584 * (3584 + 512),
          151936 * 3584, HETERO_INT4),
    MODEL("phi-moe", 32, 16, 2, 4096, 6400, 0, 2 * 4096 * (4096 + 1024), 32064 * 4096,
          HETERO_FP16),
    NULL,
};

int hetero_model_find(const char *name, const struct hetero_model **out)
{
    *out = name_find(hetero_models, name, "model");
    return *out ? OK : ERR_NOTFOUND;
}

int hetero_policy_find(const char *name, const struct hetero_policy **out)
{
    *out = name_find(hetero_policies, name, "slicing policy");
    return *out ? OK : ERR_NOTFOUND;
}

static struct hetero_part part_of(const struct hetero_case *c, int64_t hidden,
                                  int64_t n_tok)
{
    const struct hetero_model *m = c->model;

    return (struct hetero_part){
        .layer = {.machine = *c->machine,
                  .gemm = {n_tok, m->dim, hidden, c->bytes_per_weight},
                  .n_gemms = 3,
                  .n_units = c->n_units,
                  .as_printed = c->as_printed},
        .n = 1,
        .n_used = 1,
        .bytes = (int64_t)(3 * (double)m->dim * (double)hidden * c->bytes_per_weight)};
}

int hetero_parts(const struct hetero_case *c, int64_t n_tok,
                 struct hetero_part parts[HETERO_PARTS_MAX])
{
    const struct hetero_model *m = c->model;
    double share = (double)m->n_active / m->n_experts;
    double used = m->n_experts * (1 - pow(1 - share, (double)n_tok));
    double each = (double)n_tok * m->n_active / used;

    parts[0] = part_of(c, m->hidden, (int64_t)ceil(each - 1e-9));
    parts[0].n = m->n_experts;
    parts[0].n_used = used;
    if (m->shared_hidden == 0)
        return 1;
    parts[1] = part_of(c, m->shared_hidden, n_tok);
    return 2;
}

double hetero_attention_s(const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    const struct hetero_gemm layer = {c->n_tok, m->attention_weights, 1,
                                      c->bytes_per_weight};
    const struct hetero_gemm head = {1, m->head_weights, 1, c->bytes_per_weight};
    const struct hetero_slices all = {.gg = 1};
    struct hetero_times t = hetero_times_of(c->machine, &layer, &all, false);
    struct hetero_times h = hetero_times_of(c->machine, &head, &all, false);

    return m->n_layers * hetero_accel_finish_s(&t, 1) + hetero_accel_finish_s(&h, 1);
}

int64_t hetero_attention_bytes(const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;

    return (int64_t)(c->bytes_per_weight *
                     (double)(m->n_layers * m->attention_weights + m->head_weights));
}

double hetero_elsewhere_s(const struct hetero_case *c, const struct hetero_gemm *g)
{
    const struct hetero_slices sent = {.cg = 1}, none = {0};
    struct hetero_times t = hetero_times_of(
        c->machine, g, c->n_tok >= HETERO_OFFLOAD_TOK ? &sent : &none, false);

    return t.launch_s + t.link_s + t.accel_s + t.cpu_s;
}

/* ---- slices of all MLPs and experts ---- */

static int64_t staging_bytes(const struct hetero_part *parts, int n_parts)
{
    int64_t most = 0;

    for (int i = 0; i < n_parts; i++)
        most = parts[i].bytes > most ? parts[i].bytes : most;
    return 2 * most / 3; /* two products' */
}

int hetero_slicing_open(struct hetero_slicing *w, const char *policy,
                        const struct hetero_case *c, int64_t n_tok, hetero_cg_fn cg)
{
    size_t n = (size_t)c->n_units + 1, n_shares;
    int per_layer = 0;

    w->n_parts = hetero_parts(c, n_tok, w->parts);
    w->left_bytes =
        c->budget_bytes - hetero_attention_bytes(c) - staging_bytes(w->parts, w->n_parts);
    if (w->left_bytes < 0)
        return err_set(ERR_NOMEM, "%s: %lld bytes do not hold attention and two buffers",
                       policy, (long long)c->budget_bytes);
    for (int i = 0; i < w->n_parts; i++) {
        const struct hetero_part *p = &w->parts[i];

        w->layer_s[i] = mem_new(MEM_OTHER, n, sizeof(double));
        w->cg_units[i] = mem_new(MEM_OTHER, n, sizeof(int));
        if (!w->layer_s[i] || !w->cg_units[i])
            return ERR_NOMEM;
        for (int u = 0; u <= c->n_units; u++)
            w->layer_s[i][u] = cg(c, p, u, &w->cg_units[i][u]) * p->n_used / p->n;
        per_layer += p->n;
    }
    w->n_shares = c->model->n_layers * per_layer;
    n_shares = (size_t)w->n_shares;
    w->shares = mem_new(MEM_OTHER, n_shares, sizeof(*w->shares));
    w->units = mem_new(MEM_OTHER, n_shares, sizeof(*w->units));
    w->kind = mem_new(MEM_OTHER, n_shares, sizeof(*w->kind));
    if (!w->shares || !w->units || !w->kind)
        return ERR_NOMEM;
    for (int j = 0; j < w->n_shares; j++) {
        int k = w->kind[j] = j % per_layer >= w->parts[0].n;

        w->shares[j] =
            (struct hetero_share){w->parts[k].bytes / c->n_units, w->layer_s[k]};
    }
    return OK;
}

void hetero_slicing_close(struct hetero_slicing *w)
{
    for (int i = 0; i < HETERO_PARTS_MAX; i++) {
        mem_free(w->layer_s[i]);
        mem_free(w->cg_units[i]);
    }
    mem_free(w->shares);
    mem_free(w->units);
    mem_free(w->kind);
}

double hetero_part_s(const struct hetero_case *c, const struct hetero_part *p,
                     int cg_units, int gg_units, int64_t *n_accel_tok)
{
    *n_accel_tok = 0;
    return c->no_takeover || c->n_tok == 1
               ? hetero_layer_s(&p->layer, cg_units, gg_units, 0)
               : hetero_best_tokens(&p->layer, cg_units, gg_units, n_accel_tok);
}

void hetero_slicing_sum(struct hetero_result *out, const struct hetero_slicing *w,
                        const struct hetero_case *c)
{
    struct hetero_part parts[HETERO_PARTS_MAX];
    double weights = 0;

    (void)hetero_parts(c, c->n_tok, parts);
    for (int j = 0; j < w->n_shares; j++) {
        const struct hetero_part *p = &parts[w->kind[j]];
        int gg = w->units[j], cg = w->cg_units[w->kind[j]][gg];
        double bytes = (double)p->bytes;
        int64_t n_accel;

        out->step_s += hetero_part_s(c, p, cg, gg, &n_accel) * p->n_used / p->n;
        out->cg += bytes * cg / c->n_units;
        out->gg += bytes * gg / c->n_units;
        out->accel_tok_frac += bytes * (double)n_accel / (double)p->layer.gemm.n_tok;
        weights += bytes;
    }
    out->cg /= weights;
    out->gg /= weights;
    out->accel_tok_frac /= weights;
}
