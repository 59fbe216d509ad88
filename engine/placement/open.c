/* Opening and closing a model. */
#include "placement/open.h"

#include <math.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "model/act.h"
#include "model/shard.h"
#include "placement/placement.h"
#include "placement/weights.h"

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
