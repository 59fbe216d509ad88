/* Opening and closing a model, and the facts about it. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "model/placement.h"

static void derive_shapes(struct model *m)
{
    const struct model_config *c = &m->c;

    m->group = c->n_heads / c->n_kv_heads;
    m->attn_scale = 1.0f / sqrtf((float)c->head_dim);
    m->qkv_unit = model_qkv_unit(c);
    m->v_unit = model_v_unit(c);
    m->ld_x = model_pad16(c->dim);
    m->k_max = model_pad16(c->hidden);
    m->k_max = m->ld_x > m->k_max ? m->ld_x : m->k_max;
    if ((int64_t)c->n_heads * c->head_dim > m->k_max)
        m->k_max = (int64_t)c->n_heads * c->head_dim;
}

static int check_opts(const struct model *m, const struct model_opts *o)
{
    if (o->max_step_tok < 1 || o->max_step_tok > 65536)
        return err_set(ERR_ARG, "max_step_tok: expected 1 to 65536, found %lld",
                       (long long)o->max_step_tok);
    if (o->max_tok < 0 || o->max_tok > m->c.max_tok)
        return err_set(
            ERR_LIMIT,
            "--max-tok (max_tok): expected at most the %d tokens that the model "
            "is made for, found %lld",
            m->c.max_tok, (long long)o->max_tok);
    if (o->deterministic && o->precision != KERN_EXACT)
        return err_set(ERR_ARG, "deterministic: expected precision exact");
    if (m->group > KERN_ATTN_ROWS_MAX)
        return err_set(ERR_LIMIT, "%d query heads per KV head, at most %d", m->group,
                       KERN_ATTN_ROWS_MAX);
    return OK;
}

int model_open(struct model **out, const struct format_file *f, struct par_team *team,
               const struct model_opts *o)
{
    struct model *m;
    int rc;

    *out = NULL;
    m = mem_new(MEM_WEIGHTS, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    m->c = f->config;
    m->team = team;
    m->n_threads = par_team_size(team);
    m->kv_type = o->kv_type;
    m->shared = o->shared;
    m->max_step_tok = o->max_step_tok;
    m->max_tok = o->max_tok > 0 ? o->max_tok : f->config.max_tok;
    derive_shapes(m);
    rc = check_opts(m, o);
    if (rc != OK)
        goto out;
    m->layers = mem_new(MEM_WEIGHTS, (size_t)m->c.n_layers, sizeof(m->layers[0]));
    if (!m->layers) {
        rc = ERR_NOMEM;
        goto out;
    }
    kern_table_choose(&m->kern, cpu_isa_usable(), o->precision);
    m->deterministic = o->deterministic;
    m->one_rank = o->one_rank && !o->deterministic;
    if (o->deterministic) {
        kern_table_batch_invariant(&m->kern, cpu_isa_usable());
        model_boundaries_set(m);
    }
    rc = model_weights_pack(m, f, o);
    if (rc == OK)
        rc = model_choose_gemm(m, o->precision);
    if (rc == OK)
        rc = model_act_open(m);
    if (rc == OK)
        *out = m, m = NULL; /* the caller's now */
out:
    model_close(&m);
    return rc;
}

void model_close(struct model **mp)
{
    struct model *m = *mp;

    if (!m)
        return;
    if (m->weights)
        mem_unmap(MEM_WEIGHTS, m->weights, m->weights_bytes);
    if (m->act)
        mem_unmap(MEM_ACTIVATIONS, m->act, m->act_bytes);
    model_placement_close(&m->placement);
    mem_free(m->scratch);
    mem_free(m->layers);
    mem_free(m);
    *mp = NULL;
}

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
    return m->layers[0].qkv.type;
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

        fn(ctx, &l->qkv);
        if (m->c.v_split)
            fn(ctx, &l->v);
        fn(ctx, &l->o);
        fn(ctx, &l->gate_up);
        fn(ctx, &l->down);
    }
    fn(ctx, &m->head);
}
