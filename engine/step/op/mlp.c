/* The MLP of a layer, added to the residual stream: by the CPU, or in part by an accelerator. */
#include "step/step.h"

static void mlp_of(struct model_thread_ctx *w, int layer, const struct model_view *v)
{
    const enum model_mlp mlp = model_layer_mlp(&w->m->c);
    const enum model_mat first = MODEL_MAT_GATE_UP + 2 * mlp, last = first + 1;
    const struct model_rows in = model_ffn_rows(w, layer);
    const struct model_rows hidden = {.x = w->rank->h,
                                      .ld = w->rank->ld_h,
                                      .k = v->mats[last].k,
                                      .n = w->n_rows,
                                      .scale = w->m->c.residual_scale};
    const float *up_bias = w->m->layers[layer].up_bias;
    const int64_t lo = w->rank->shard.mlp[mlp].lo;

    if (!model_view_empty(&v->mats[first])) {
        struct kern_gemm_job gate_up = model_job(w, first, &v->mats[first]);

        gate_up.a_packed = model_pack(w, &gate_up, &in);
        gate_up.c = w->rank->h;
        gate_up.ldc = w->rank->ld_h;
        gate_up.epilogue = w->m->c.no_gate ? KERN_ACT : KERN_GATED;
        gate_up.bias = up_bias ? up_bias + lo : NULL;
        model_linear(w, &gate_up, model_mlp_inputs(&w->m->c));
        model_sync(w, MODEL_T_LINEAR);
    }
    if (w->m->deterministic)
        model_linear_batch_invariant(w, last, &v->mats[last], &hidden,
                                     &w->m->mlp_boundaries[mlp], lo);
    else
        model_linear_residual(w, last, &v->mats[last], &hidden);
}

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    int layer = op->layer;

    if (w->phase->offload)
        model_offload_ffn(w, layer, mlp_of);
    else
        mlp_of(w, layer, &w->rank->layers[layer]);
    if (w->m->layers[layer].down_bias)
        model_add_bias(w, w->m->layers[layer].down_bias);
}

static int fits(const struct model_phase *p)
{
    return model_has_experts(&p->m->c, 0)
               ? err_set(ERR_UNSUPPORTED, "the model's MLP is a mixture of experts")
               : OK;
}

const struct model_op_kind model_op_mlp = {
    .name = "mlp",
    .help = "norm, gate and up (or up), activation, down, added over ranks",
    .in_layer = true,
    .reads = MODEL_V_X,
    .fits = fits,
    .run = run};
