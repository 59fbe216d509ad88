/* The projections of queries, keys and values, of normalised rows. */
#include "step/step.h"

/* Queries of low rank: multiply *in with the layer's first matrix, and make what that gives, and
 * its norm, the input of the second. */
static void first_of_two(struct model_thread_ctx *w, int layer, struct model_rows *in)
{
    const struct model_view *view = &w->rank->layers[layer];
    struct kern_gemm_job j = model_job(w, MODEL_MAT_Q_A, &view->mats[MODEL_MAT_Q_A]);
    const int rank = w->m->c.q_rank;

    j.a_packed = model_pack(w, &j, in);
    j.c = w->rank->q_a;
    j.ldc = model_pad16(rank);
    model_linear(w, &j, 1);
    model_sync(w, MODEL_T_LINEAR);
    *in = (struct model_rows){.x = w->rank->q_a,
                              .ld = j.ldc,
                              .k = rank,
                              .n = in->n,
                              .norm_w = w->m->layers[layer].q_a_norm};
}

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    int layer = op->layer;
    const struct model_layer *l = &w->m->layers[layer];
    const struct model_tp_shard *part = &w->rank->shard;
    const struct model_rows in = {.x = w->x,
                                  .ld = w->m->ld_x,
                                  .k = w->m->c.dim,
                                  .n = w->n_rows,
                                  .norm_w = l->attn_norm,
                                  .norm_b = l->attn_norm_bias};
    struct model_rows queries_in = in;
    const struct model_view *view = &w->rank->layers[layer];
    struct kern_gemm_job qkv = model_job(w, MODEL_MAT_QKV, &view->mats[MODEL_MAT_QKV]);
    bool whole = model_groups_whole(w->m, part, w->n) && w->m->c.latent_dim == 0;

    if (atomic_load_explicit(&w->rank->rc, memory_order_relaxed) != OK) {
        w->done = true;
        return;
    }
    if (w->m->c.q_rank > 0)
        first_of_two(w, layer, &queries_in);
    qkv.a_packed = model_pack(w, &qkv, &queries_in);
    qkv.c = w->rank->proj;
    qkv.ldc = w->rank->ld_proj;
    qkv.bias = l->qkv_bias ? l->qkv_bias + part->col_lo : NULL;
    model_linear(w, &qkv, whole ? w->m->qkv_unit / KERN_PANEL : 1);
    w->own_heads = whole && qkv.s.pn == w->n;
    if (!model_view_empty(&view->mats[MODEL_MAT_V])) {
        struct kern_gemm_job v = model_job(w, MODEL_MAT_V, &view->mats[MODEL_MAT_V]);

        if (w->m->c.q_rank == 0 && v.v == qkv.v && v.s.mr == qkv.s.mr) {
            v.a_packed = qkv.a_packed;
        } else {
            if (kern_a_blocks(w->n_rows, qkv.s.mr) > 1) /* shared: all have read them */
                model_sync(w, MODEL_T_LINEAR);
            v.a_packed = model_pack(w, &v, &in);
        }
        v.c = w->rank->proj + part->mat_hi - part->mat_lo;
        v.ldc = w->rank->ld_proj;
        v.bias = l->v_bias ? l->v_bias + part->v_lo : NULL;
        model_linear(w, &v, whole ? w->m->v_unit / KERN_PANEL : 1);
        w->own_heads &= v.s.pn == w->n;
    }
}

const struct model_op_kind model_op_attn_qkv = {
    .name = "attn_qkv",
    .help = "RMSNorm, then queries, keys and values",
    .in_layer = true,
    .reads = MODEL_V_X | MODEL_V_ALL,
    .gives = MODEL_V_QKV,
    .run = run};
