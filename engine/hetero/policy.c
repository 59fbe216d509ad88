#include "hetero/policy.h"

#include <math.h>
#include <stddef.h>

#include "base/name.h"

#define MODEL(...)                                                                       \
    &(const struct hetero_model)                                                         \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
/* From the models' configurations. */
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
