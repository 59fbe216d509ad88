#include "format/keys.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum rule {
    FOLLOWED, /* a reader reads it, and refuses the values that the engine lacks */
    INERT,    /* changes nothing in the models that are read */
    ONLY,     /* refused unless it has the value of the row */
};

static const struct row {
    enum format_keys of;
    const char *key;
    enum rule rule;
    double value;
} rows[] = {
    /* sizes */
    {FORMAT_KEYS_GGUF, "context_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "embedding_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "block_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "feed_forward_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "vocab_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "architectures", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "model_type", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "hidden_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "intermediate_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "num_hidden_layers", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "num_attention_heads", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "num_key_value_heads", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "head_dim", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "vocab_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "max_position_embeddings", FOLLOWED, 0},
    /* attention */
    {FORMAT_KEYS_GGUF, "attention.head_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.head_count_kv", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.key_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.value_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.kv_lora_rank", ONLY, 0},
    {FORMAT_KEYS_GGUF, "attention.q_lora_rank", ONLY, 0},
    {FORMAT_KEYS_GGUF, "attention.key_length_mla", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.value_length_mla", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "kv_lora_rank", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "q_lora_rank", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "qk_nope_head_dim", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "qk_rope_head_dim", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "v_head_dim", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rope_interleave", ONLY, 1},
    {FORMAT_KEYS_GGUF, "attention.layer_norm_rms_epsilon", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.layer_norm_epsilon", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.sliding_window", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.causal", ONLY, 1},
    {FORMAT_KEYS_GGUF, "attention.scale", ONLY, 0}, /* 0: 1 / sqrt(size of a head) */
    {FORMAT_KEYS_GGUF, "attention.clamp_kqv", ONLY, 0},
    {FORMAT_KEYS_GGUF, "attention.max_alibi_bias", ONLY, 0},
    {FORMAT_KEYS_GGUF, "attn_logit_softcapping", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "attention_bias", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "attention_dropout", INERT, 0}, /* of training */
    {FORMAT_KEYS_CONFIG, "attention_out_bias", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "clip_qkv", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "attn_implementation", INERT, 0},
    {FORMAT_KEYS_CONFIG, "sliding_window", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "use_sliding_window", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "layer_types", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "max_window_layers", FOLLOWED, 0},
    /* rotary embeddings */
    {FORMAT_KEYS_GGUF, "rope.dimension_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.dimension_sections", ONLY, 0},
    {FORMAT_KEYS_GGUF, "rope.freq_base", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.type", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.factor", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scale_linear", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.attn_factor", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.original_context_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.finetuned", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.yarn_beta_fast", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.yarn_beta_slow", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.yarn_log_multiplier", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.scaling.yarn_ext_factor", ONLY, 1},
    {FORMAT_KEYS_GGUF, "rope.scaling.yarn_attn_factor", INERT, 0}, /* in llama.cpp, too */
    {FORMAT_KEYS_CONFIG, "rope_theta", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rope_scaling", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rope_parameters", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rope_interleaved", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "partial_rotary_factor", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rotary_pct", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "use_mrope", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "original_max_position_embeddings", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "type", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "rope_type", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "rope_theta", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "low_freq_factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "high_freq_factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "original_max_position_embeddings", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "attention_factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "partial_rotary_factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "beta_fast", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "beta_slow", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "mscale", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "mscale_all_dim", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "truncate", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "short_factor", FOLLOWED, 0},
    {FORMAT_KEYS_ROPE, "long_factor", FOLLOWED, 0},
    /* the rest of a layer, and the head */
    {FORMAT_KEYS_GGUF, "expert_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_used_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_feed_forward_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_shared_feed_forward_length", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_weights_norm", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_weights_scale", ONLY, 1},
    {FORMAT_KEYS_GGUF, "expert_gating_func", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_group_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_group_used_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "expert_shared_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "leading_dense_block_count", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "nextn_predict_layers", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "moe_every_n_layers", ONLY, 0},
    {FORMAT_KEYS_GGUF, "interleave_moe_layer_step", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "num_local_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "num_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "num_experts_per_tok", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_intermediate_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "shared_expert_intermediate_size", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "norm_topk_prob", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "decoder_sparse_step", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "mlp_only_layers", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "n_routed_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "n_shared_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "first_k_dense_replace", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_layer_freq", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "scoring_func", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "n_group", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "topk_group", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "routed_scaling_factor", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "num_nextn_predict_layers", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_num_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_k", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_num_shared_experts", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_layer_start_index", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_layer_end_index", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "moe_layer_interval", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "moe_use_aux_free", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "qkv_bias", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "router_jitter_noise", INERT, 0}, /* of training */
    {FORMAT_KEYS_CONFIG, "router_aux_loss_coef", INERT, 0},
    {FORMAT_KEYS_CONFIG, "output_router_logits", INERT, 0},
    {FORMAT_KEYS_GGUF, "use_parallel_residual", ONLY, 0},
    {FORMAT_KEYS_GGUF, "embedding_scale", ONLY, 1},
    {FORMAT_KEYS_GGUF, "residual_scale", ONLY, 1},
    {FORMAT_KEYS_GGUF, "logit_scale", ONLY, 1},
    {FORMAT_KEYS_GGUF, "final_logit_softcapping", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "embedding_multiplier", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "residual_multiplier", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "attention_multiplier", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "logits_scaling", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "logit_scale", ONLY, 1},
    {FORMAT_KEYS_CONFIG, "no_rope_layers", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "no_rope_layer_interval", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "attention.sliding_window_pattern", FOLLOWED, 0},
    {FORMAT_KEYS_GGUF, "rope.freq_base_swa", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "attn_logit_softcapping", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "final_logit_softcapping", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "query_pre_attn_scalar", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rope_local_base_freq", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "sliding_window_pattern", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "use_bidirectional_attention", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "hidden_activation", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "hidden_act", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "rms_norm_eps", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "layer_norm_eps", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "norm_epsilon", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "use_bias", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "use_qkv_bias", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "use_parallel_residual", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "qk_layernorm", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "use_qk_norm", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "mlp_bias", ONLY, 0},
    {FORMAT_KEYS_CONFIG, "tie_word_embeddings", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "quantization_config", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "pretraining_tp", INERT, 0}, /* cuts products, not sums */
    {FORMAT_KEYS_CONFIG, "bos_token_id", FOLLOWED, 0},
    {FORMAT_KEYS_CONFIG, "eos_token_id", FOLLOWED, 0},
};

static int refuse_unknown(enum format_keys of, const char *name, const char *key,
                          const char *where)
{
    static const char *const words[] = {"rope", "rotary", "attention", "attn", NULL};

    for (int i = 0; words[i]; i++)
        if (of == FORMAT_KEYS_ROPE || strncmp(name, words[i], strlen(words[i])) == 0)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %.80s: expected only known keys of rotary embeddings and "
                           "attention, found this one, without which the results would "
                           "be wrong",
                           where, key);
    return OK;
}

int format_key_check(enum format_keys of, const struct format_family *f, const char *key,
                     double value, const char *where)
{
    const char *dot = of == FORMAT_KEYS_GGUF ? strchr(key, '.') : NULL;
    const char *name = dot ? dot + 1 : key;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];

        if (r->of != of || strcmp(r->key, name) != 0)
            continue;
        if (r->rule != ONLY || value == r->value ||
            format_family_reads(f, of == FORMAT_KEYS_GGUF, name))
            return OK;
        if (isnan(value))
            return err_set(ERR_UNSUPPORTED, "%s: %s: expected %g, found something else",
                           where, key, r->value);
        return err_set(ERR_UNSUPPORTED, "%s: %s: expected %g, found %g", where, key,
                       r->value, value);
    }
    return refuse_unknown(of, name, key, where);
}
