/* The shapes of a model's matrices, whole and by rank. */
#include "model/shard.h"

void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS])
{
    int64_t dim = c->dim, group = c->n_heads / c->n_kv_heads, hd = model_o_dim(c);
    int64_t block = model_k_block(c), heads = c->n_heads;

    out[MODEL_MAT_QKV] = (struct model_shape){
        "qkv",
        c->latent_dim > 0 ? heads * model_q_dim(c) : model_qkv_unit(c) * c->n_kv_heads,
        c->q_rank > 0 ? c->q_rank : dim, 0};
    out[MODEL_MAT_Q_A] = (struct model_shape){"q_a", c->q_rank, dim, 0};
    out[MODEL_MAT_LATENT_K] =
        (struct model_shape){"latent_k", heads * c->latent_dim, c->nope_dim, 0};
    out[MODEL_MAT_LATENT_V] =
        (struct model_shape){"latent_v", heads * c->value_dim, c->latent_dim, 0};
    out[MODEL_MAT_V] = (struct model_shape){"v", model_v_unit(c) * c->n_kv_heads, dim, 0};
    out[MODEL_MAT_O] = (struct model_shape){"o", dim, c->n_heads * hd,
                                            (group * hd + block - 1) / block * block};
    out[MODEL_MAT_ROUTER] = (struct model_shape){"router", model_router_rows(c), dim, 0};
    out[MODEL_MAT_GATE_UP] = (struct model_shape){
        "gate_up", model_mlp_inputs(c) * model_pad16(c->hidden), dim, 0};
    out[MODEL_MAT_DOWN] = (struct model_shape){"down", c->hidden > 0 ? dim : 0, c->hidden,
                                               model_ffn_unit(c)};
    out[MODEL_MAT_DENSE_GATE_UP] =
        (struct model_shape){"dense_gate_up", 2 * model_pad16(c->dense_hidden), dim, 0};
    out[MODEL_MAT_DENSE_DOWN] = (struct model_shape){
        "dense_down", c->dense_hidden > 0 ? dim : 0, c->dense_hidden, model_ffn_unit(c)};
    out[MODEL_MAT_EXPERT_GATE_UP] = (struct model_shape){
        "expert_gate_up", 2 * model_pad16(c->n_experts > 0 ? c->expert_hidden : 0), dim,
        0};
    out[MODEL_MAT_EXPERT_DOWN] = (struct model_shape){
        "expert_down", c->n_experts > 0 ? dim : 0, c->expert_hidden, model_ffn_unit(c)};
    out[MODEL_MAT_HEAD] = (struct model_shape){"head", c->vocab, dim, 0};
}

void model_shapes_join(struct model_shape shapes[MODEL_N_MATS])
{
    for (int i = 0; i < MODEL_N_MATS; i++)
        shapes[i].k_unit = 0;
}

/* Panels [lo, hi) of a matrix that is split along N, as model_view_of() takes them. */
static void shape_of_columns(struct model_shape *s, int64_t lo, int64_t hi)
{
    int64_t all = model_pad16(s->n);

    lo = lo < all ? lo : all;
    hi = hi < all ? hi : all;
    s->n = hi > lo ? (hi < s->n ? hi : s->n) - lo : 0;
}

/* Rows [lo, hi): whole units, or a part of one. */
static void shape_of_rows(struct model_shape *s, int64_t lo, int64_t hi)
{
    s->k = hi - lo;
    if (s->k <= s->k_unit)
        s->k_unit = 0;
}

void model_rank_shapes(const struct model_config *c, int rank, int n_ranks,
                       struct model_shape out[MODEL_N_MATS])
{
    const struct model m = model_of_config(c);
    struct model_tp_shard p;

    model_shapes(c, out);
    model_tp_shard_of(&m, rank, n_ranks, &p);
    shape_of_columns(&out[MODEL_MAT_QKV], p.mat_lo, p.mat_hi);
    shape_of_columns(&out[MODEL_MAT_LATENT_K], (int64_t)p.q_lo * c->latent_dim,
                     (int64_t)p.q_hi * c->latent_dim);
    shape_of_columns(&out[MODEL_MAT_LATENT_V], (int64_t)p.q_lo * c->value_dim,
                     (int64_t)p.q_hi * c->value_dim);
    shape_of_columns(&out[MODEL_MAT_V], p.v_lo, p.v_hi);
    shape_of_rows(&out[MODEL_MAT_O], p.attn_lo, p.attn_hi);
    for (int i = 0; i < MODEL_N_MLPS; i++) {
        shape_of_columns(&out[MODEL_MAT_GATE_UP + 2 * i], p.mlp[i].inputs * p.mlp[i].lo,
                         p.mlp[i].inputs * model_pad16(p.mlp[i].hi));
        shape_of_rows(&out[MODEL_MAT_DOWN + 2 * i], p.mlp[i].lo, p.mlp[i].hi);
    }
}

const struct kern_mat *model_mat(const struct model *m, enum model_mat which)
{
    return which == MODEL_MAT_HEAD
               ? &m->head
               : &m->layers[model_layer_with(&m->c, which)].mats[which];
}
