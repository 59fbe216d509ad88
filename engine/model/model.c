/* The facts about an opened model. */
#include <string.h>

#include "model/state.h"

const struct model_config *model_config_of(const struct model *m)
{
    return &m->c;
}

const struct kern_table *model_kern(const struct model *m)
{
    return &m->kern;
}

enum kern_type model_weight_type(const struct model *m)
{
    return m->layers[0].mats[MODEL_MAT_QKV].type;
}

struct model_cost_types model_cost_types_of(const struct model *m)
{
    return (struct model_cost_types){.weight = model_weight_type(m), .kv = m->kv_type};
}

const char *model_kern_note(const struct model *m)
{
    return m->variants.note;
}

const struct model_load_stat *model_load_stat_of(const struct model *m)
{
    return &m->load;
}

void model_weights_region(const struct model *m, const void **p, size_t *bytes)
{
    *p = m->weights;
    *bytes = m->weights_bytes;
}

void model_act_region(const struct model *m, const void **p, size_t *bytes)
{
    *p = m->act;
    *bytes = m->act_bytes;
}

void model_kv_shape_of(const struct model_config *c, enum kern_kv_type t,
                       struct kv_shape *out)
{
    out->n_layers = c->n_layers;
    out->n_kv_heads = c->n_kv_heads;
    out->vec_bytes = kern_kv_bytes(t, c->head_dim);
}

void model_kv_shape(const struct model *m, struct kv_shape *out)
{
    model_kv_shape_of(&m->c, m->kv_type, out);
}

void model_times_take(struct model *m, uint64_t ns[MODEL_T_N])
{
    memcpy(ns, m->times_ns, sizeof(m->times_ns));
    memset(m->times_ns, 0, sizeof(m->times_ns));
}

void model_variant_set(struct model *m, const struct kern_variant *v)
{
    m->kern.v[v->op] = v;
}

void model_mats_each(struct model *m, void (*fn)(void *ctx, const struct kern_mat *w),
                     void *ctx)
{
    for (int i = 0; i < m->c.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];

        for (int k = 0; k < model_n_layer_mats(&m->c); k++)
            if (l->mats[k].n_panels > 0)
                fn(ctx, &l->mats[k]);
    }
    fn(ctx, &m->head);
}
