/* The tensors of a model: their names in each naming, and their shapes. */
#include <stdio.h>
#include <string.h>

#include "format/fill.h"

/* In the names of experts' tensors, %d is the expert; in GGUF files one tensor has those of
 * all experts. */
static const struct {
    const char *gguf, *hf;
    const char *mixtral, *glm, *gemma, *starcoder,
        *deepseek; /* where they differ from hf */
} names[FORMAT_ALL_ROLES] = {
    [FORMAT_EMBED] = {"token_embd.weight", "model.embed_tokens.weight"},
    [FORMAT_HEAD] = {"output.weight", "lm_head.weight"},
    [FORMAT_OUT_NORM] = {"output_norm.weight", "model.norm.weight"},
    [FORMAT_ATTN_NORM] = {"attn_norm.weight", "input_layernorm.weight"},
    [FORMAT_Q] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [FORMAT_K] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [FORMAT_V] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [FORMAT_O] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [FORMAT_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [FORMAT_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [FORMAT_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias"},
    [FORMAT_O_BIAS] = {"attn_output.bias", "self_attn.o_proj.bias"},
    [FORMAT_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight", NULL, NULL,
                         "pre_feedforward_layernorm.weight"},
    [FORMAT_OUT_NORM_BIAS] = {"output_norm.bias", "model.norm.bias"},
    [FORMAT_ATTN_NORM_BIAS] = {"attn_norm.bias", "input_layernorm.bias"},
    [FORMAT_FFN_NORM_BIAS] = {"ffn_norm.bias", "post_attention_layernorm.bias"},
    [FORMAT_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [FORMAT_UP] = {"ffn_up.weight", "mlp.up_proj.weight", NULL, NULL, NULL,
                   "mlp.c_fc.weight"},
    [FORMAT_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight", NULL, NULL, NULL,
                     "mlp.c_proj.weight"},
    [FORMAT_UP_BIAS] = {"ffn_up.bias", "mlp.up_proj.bias", NULL, NULL, NULL,
                        "mlp.c_fc.bias"},
    [FORMAT_DOWN_BIAS] = {"ffn_down.bias", "mlp.down_proj.bias", NULL, NULL, NULL,
                          "mlp.c_proj.bias"},
    [FORMAT_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    [FORMAT_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    [FORMAT_ATTN_AFTER] = {"post_attention_norm.weight",
                           "post_attention_layernorm.weight", NULL,
                           "post_self_attn_layernorm.weight"},
    [FORMAT_FFN_AFTER] = {"post_ffw_norm.weight", "post_feedforward_layernorm.weight",
                          NULL, "post_mlp_layernorm.weight"},
    [FORMAT_ROUTER] = {"ffn_gate_inp.weight", "mlp.gate.weight",
                       "block_sparse_moe.gate.weight"},
    [FORMAT_SHARED_SCALE] = {"ffn_gate_inp_shexp.weight",
                             "mlp.shared_expert_gate.weight"},
    [FORMAT_SHARED_GATE] = {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight",
                            .deepseek = "mlp.shared_experts.gate_proj.weight"},
    [FORMAT_SHARED_UP] = {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight",
                          .deepseek = "mlp.shared_experts.up_proj.weight"},
    [FORMAT_SHARED_DOWN] = {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight",
                            .deepseek = "mlp.shared_experts.down_proj.weight"},
    [FORMAT_ROUTER_CHOICE] = {"exp_probs_b.bias",
                              "mlp.moe_statics.e_score_correction_bias",
                              .deepseek = "mlp.gate.e_score_correction_bias"},
    [FORMAT_KV_A] = {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    [FORMAT_KV_A_NORM] = {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    [FORMAT_Q_A] = {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    [FORMAT_Q_A_NORM] = {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    [FORMAT_Q_B] = {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    [FORMAT_K_B] = {"attn_k_b.weight", "self_attn.k_b_proj.weight"}, /* in no folder */
    [FORMAT_V_B] = {"attn_v_b.weight", "self_attn.v_b_proj.weight"},
    [FORMAT_KV_B] = {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    [FORMAT_SINKS] = {"attn_sinks.weight", "self_attn.sinks"},
    [FORMAT_ROUTER_BIAS] = {"ffn_gate_inp.bias", "mlp.router.bias"},
    [FORMAT_EXPERT_GATE_BIAS] = {"ffn_gate_exps.bias", "mlp.experts.%d.gate_proj.bias"},
    [FORMAT_EXPERT_UP_BIAS] = {"ffn_up_exps.bias", "mlp.experts.%d.up_proj.bias"},
    [FORMAT_EXPERT_DOWN_BIAS] = {"ffn_down_exps.bias", "mlp.experts.%d.down_proj.bias"},
    [FORMAT_EXPERT_GATE] = {"ffn_gate_exps.weight", "mlp.experts.%d.gate_proj.weight",
                            "block_sparse_moe.experts.%d.w1.weight"},
    [FORMAT_EXPERT_UP] = {"ffn_up_exps.weight", "mlp.experts.%d.up_proj.weight",
                          "block_sparse_moe.experts.%d.w3.weight"},
    [FORMAT_EXPERT_DOWN] = {"ffn_down_exps.weight", "mlp.experts.%d.down_proj.weight",
                            "block_sparse_moe.experts.%d.w2.weight"},
};

/* The tensors that have the rows of several roles. */
static const struct fused {
    enum model_naming flag;
    const char *gguf, *hf;
    int n;
    enum format_role parts[3];
} fused[] = {
    {MODEL_NAMES_FUSED_QKV,
     "attn_qkv.weight",
     "self_attn.qkv_proj.weight",
     3,
     {FORMAT_Q, FORMAT_K, FORMAT_V}},
    {MODEL_NAMES_FUSED_QKV,
     "attn_qkv.bias",
     "self_attn.qkv_proj.bias",
     3,
     {FORMAT_Q_BIAS, FORMAT_K_BIAS, FORMAT_V_BIAS}},
    {MODEL_NAMES_FUSED_GATE_UP,
     "ffn_up.weight",
     "mlp.gate_up_proj.weight",
     2,
     {FORMAT_GATE, FORMAT_UP}},
};

static const struct fused *fused_of(enum model_naming naming, enum format_role role)
{
    for (size_t i = 0; i < sizeof(fused) / sizeof(fused[0]); i++)
        for (int k = 0; k < fused[i].n; k++)
            if (naming & fused[i].flag && fused[i].parts[k] == role)
                return &fused[i];
    return NULL;
}

bool format_role_slice(const struct model_config *c, enum model_naming naming,
                       enum format_role role, int64_t *first, int64_t *all)
{
    const struct fused *f = fused_of(naming, role);
    double centre;

    *first = *all = 0;
    for (int k = 0; f && k < f->n; k++) {
        int64_t rows, cols;

        if (f->parts[k] == role)
            *first = *all;
        format_role_shape(c, f->parts[k], &rows, &cols);
        *all += format_role_vector(f->parts[k], &centre) ? cols : rows;
    }
    return f != NULL;
}

static const char *stem_of(enum model_naming naming, enum format_role role)
{
    const struct fused *f = fused_of(naming, role);

    const bool post_norm = naming & MODEL_NAMES_POST_NORM;

    naming &= MODEL_NAMES_MASK;
    if (post_norm && naming == MODEL_NAMES_GGUF && role == FORMAT_FFN_NORM)
        return "post_attention_norm.weight";
    if (f)
        return naming == MODEL_NAMES_GGUF ? f->gguf : f->hf;
    if (naming == MODEL_NAMES_HF_GLM && names[role].glm)
        return names[role].glm;
    if (naming == MODEL_NAMES_HF_GEMMA && names[role].gemma)
        return names[role].gemma;
    if (naming == MODEL_NAMES_HF_STARCODER && names[role].starcoder)
        return names[role].starcoder;
    if (naming == MODEL_NAMES_HF_ERNIE && role == FORMAT_ROUTER_CHOICE)
        return names[role].hf;
    if ((naming == MODEL_NAMES_HF_DEEPSEEK || naming == MODEL_NAMES_HF_ERNIE) &&
        names[role].deepseek)
        return names[role].deepseek;
    if (naming == MODEL_NAMES_GGUF_EXPERTS)
        return role == FORMAT_EXPERT_GATE ? "ffn_gate.%d.weight"
               : role == FORMAT_EXPERT_UP ? "ffn_up.%d.weight"
                                          : "ffn_down.%d.weight";
    if (naming == MODEL_NAMES_GGUF)
        return names[role].gguf;
    return naming == MODEL_NAMES_HF_MIXTRAL && names[role].mixtral ? names[role].mixtral
                                                                   : names[role].hf;
}

void format_role_name(enum model_naming naming, enum format_role role, int layer,
                      int expert, char out[MODEL_NAME_BYTES])
{
    bool gguf = (naming & MODEL_NAMES_MASK) >= MODEL_NAMES_GGUF;
    char stem[MODEL_NAME_BYTES];

    snprintf(stem, sizeof(stem), stem_of(naming, role), expert);
    if (role < FORMAT_ATTN_NORM)
        snprintf(out, MODEL_NAME_BYTES, "%s", stem);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s.%d.%.64s", gguf ? "blk" : "model.layers",
                 layer, stem);
}

/* format_role_shape() of the roles that latent attention alone has. */
static void latent_shape(const struct model_config *c, enum format_role role,
                         int64_t *rows, int64_t *cols)
{
    const int64_t of_head = role == FORMAT_K_B   ? c->latent_dim
                            : role == FORMAT_V_B ? c->value_dim
                                                 : c->nope_dim + c->value_dim;

    *cols = role == FORMAT_K_B ? c->nope_dim : c->latent_dim;
    if (role == FORMAT_Q_A)
        *rows = c->q_rank, *cols = c->dim;
    else if (role == FORMAT_Q_A_NORM)
        *cols = c->q_rank;
    else if (role == FORMAT_Q_B)
        *rows = c->n_heads * (int64_t)model_q_dim(c), *cols = c->q_rank;
    else if (role == FORMAT_KV_A)
        *rows = c->head_dim, *cols = c->dim;
    else if (role != FORMAT_KV_A_NORM)
        *rows = c->n_heads * of_head;
}

void format_role_shape(const struct model_config *c, enum format_role role, int64_t *rows,
                       int64_t *cols)
{
    int64_t heads = c->n_heads, q = heads * model_q_dim(c),
            kv = (int64_t)c->n_kv_heads * c->head_dim;

    *rows = 1;
    *cols = c->dim;
    switch (role) {
    case FORMAT_EMBED:
    case FORMAT_HEAD:
        *rows = c->vocab;
        break;
    case FORMAT_Q:
        *rows = q;
        break;
    case FORMAT_K:
    case FORMAT_V:
        *rows = kv;
        break;
    case FORMAT_O:
        *rows = c->dim;
        *cols = heads * model_o_dim(c);
        break;
    case FORMAT_Q_A:
    case FORMAT_Q_A_NORM:
    case FORMAT_Q_B:
    case FORMAT_KV_A:
    case FORMAT_KV_A_NORM:
    case FORMAT_K_B:
    case FORMAT_V_B:
    case FORMAT_KV_B:
        latent_shape(c, role, rows, cols);
        break;
    case FORMAT_Q_BIAS:
        *cols = q;
        break;
    case FORMAT_UP_BIAS:
        *cols = model_mlp_hidden(c);
        break;
    case FORMAT_SINKS:
        *cols = c->n_heads;
        break;
    case FORMAT_ROUTER_BIAS:
    case FORMAT_ROUTER_CHOICE:
        *cols = c->n_experts;
        break;
    case FORMAT_EXPERT_GATE_BIAS:
    case FORMAT_EXPERT_UP_BIAS:
        *cols = c->expert_hidden;
        break;
    case FORMAT_K_BIAS:
    case FORMAT_V_BIAS:
        *cols = kv;
        break;
    case FORMAT_GATE:
    case FORMAT_UP:
        *rows = model_mlp_hidden(c);
        break;
    case FORMAT_DOWN:
        *rows = c->dim;
        *cols = model_mlp_hidden(c);
        break;
    case FORMAT_SHARED_GATE:
    case FORMAT_SHARED_UP:
        *rows = c->hidden;
        break;
    case FORMAT_SHARED_DOWN:
        *rows = c->dim;
        *cols = c->hidden;
        break;
    case FORMAT_ROUTER:
        *rows = c->n_experts;
        break;
    case FORMAT_EXPERT_GATE:
    case FORMAT_EXPERT_UP:
        *rows = c->expert_hidden;
        break;
    case FORMAT_EXPERT_DOWN:
        *rows = c->dim;
        *cols = c->expert_hidden;
        break;
    case FORMAT_Q_NORM:
        *cols = c->qk_norm_row ? q : c->head_dim;
        break;
    case FORMAT_K_NORM:
        *cols = c->qk_norm_row ? kv : c->head_dim;
        break;
    default: /* norms: one row of dim */
        break;
    }
}

bool format_role_vector(enum format_role role, double *centre)
{
    *centre = 0;
    switch (role) {
    case FORMAT_Q_BIAS:
    case FORMAT_K_BIAS:
    case FORMAT_V_BIAS:
    case FORMAT_O_BIAS:
    case FORMAT_ATTN_NORM_BIAS:
    case FORMAT_FFN_NORM_BIAS:
    case FORMAT_UP_BIAS:
    case FORMAT_DOWN_BIAS:
    case FORMAT_SINKS:
    case FORMAT_ROUTER_BIAS:
    case FORMAT_ROUTER_CHOICE:
    case FORMAT_EXPERT_GATE_BIAS:
    case FORMAT_EXPERT_UP_BIAS:
    case FORMAT_EXPERT_DOWN_BIAS:
        return true;
    case FORMAT_ATTN_NORM:
    case FORMAT_FFN_NORM:
    case FORMAT_Q_NORM:
    case FORMAT_K_NORM:
    case FORMAT_KV_A_NORM:
    case FORMAT_Q_A_NORM:
    case FORMAT_ATTN_AFTER:
    case FORMAT_FFN_AFTER:
        *centre = 1;
        return true;
    default:
        return false;
    }
}

bool format_role_needed(const struct model_config *c, enum format_role role, int layer)
{
    const bool experts = model_has_experts(c, layer);

    if (role == FORMAT_HEAD)
        return !c->tied;
    if (role == FORMAT_Q_BIAS || role == FORMAT_K_BIAS || role == FORMAT_V_BIAS)
        return c->qkv_bias;
    if (role == FORMAT_O_BIAS)
        return c->o_bias;
    if (role == FORMAT_OUT_NORM_BIAS)
        return c->norm_bias;
    if (role == FORMAT_ATTN_NORM_BIAS || role == FORMAT_FFN_NORM_BIAS)
        return c->norm_bias &&
               format_role_needed(
                   c, role == FORMAT_ATTN_NORM_BIAS ? FORMAT_ATTN_NORM : FORMAT_FFN_NORM,
                   layer);
    if (role == FORMAT_ATTN_NORM || role == FORMAT_FFN_NORM)
        return c->norms != MODEL_NORM_AFTER && !(c->parallel && role == FORMAT_FFN_NORM);
    if (role == FORMAT_ATTN_AFTER || role == FORMAT_FFN_AFTER)
        return c->norms != MODEL_NORM_BEFORE;
    if (role == FORMAT_Q_NORM || role == FORMAT_K_NORM)
        return c->qk_norm;
    if (role == FORMAT_SINKS)
        return c->sinks;
    if (role == FORMAT_Q)
        return c->q_rank == 0;
    if (role >= FORMAT_Q_A && role <= FORMAT_Q_B)
        return c->q_rank > 0;
    if (role >= FORMAT_KV_A && role <= FORMAT_V_B)
        return c->latent_dim > 0;
    if (role == FORMAT_KV_B)
        return false;
    if (role == FORMAT_K || role == FORMAT_V)
        return c->latent_dim == 0;
    if (role == FORMAT_ROUTER_BIAS || role >= FORMAT_EXPERT_GATE_BIAS)
        return c->expert_bias && experts;
    if (role == FORMAT_ROUTER_CHOICE)
        return c->router_choice && experts;
    if (role == FORMAT_UP_BIAS || role == FORMAT_DOWN_BIAS)
        return c->mlp_bias;
    if (role == FORMAT_GATE || role == FORMAT_UP || role == FORMAT_DOWN)
        return !experts && !(c->no_gate && role == FORMAT_GATE);
    if (role >= FORMAT_SHARED_SCALE && role <= FORMAT_SHARED_DOWN)
        return experts && c->hidden > 0 &&
               !(c->shared_plain && role == FORMAT_SHARED_SCALE);
    if (role == FORMAT_ROUTER || role >= FORMAT_EXPERT_GATE)
        return experts;
    return true;
}
